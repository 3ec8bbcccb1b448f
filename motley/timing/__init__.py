"""When things happen: planner, synchrony, clock. Virtual seconds only."""
