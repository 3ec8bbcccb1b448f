"""Tuning: the same search budget for each method, on validation samples, and a test with seeds that
the search never saw."""
