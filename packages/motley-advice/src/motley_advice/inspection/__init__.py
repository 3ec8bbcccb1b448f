"""What a federation needs: how its clients differ, what a round of theirs takes, and the pitfalls
of an experiment or of runs."""
