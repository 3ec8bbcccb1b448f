"""The one room with a door to all four."""
