"""Rules of published codes that are no method of a paper, for the recipes that rerun their
tables."""
