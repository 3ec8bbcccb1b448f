"""The twin of a federation: an experiment whose clients are as a run recorded them, and what it
predicts of rules that were never tried. Reference: docs/twin.md."""
