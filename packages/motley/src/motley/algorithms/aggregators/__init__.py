"""Aggregators: the rules that combine the uploads of a round into one total."""
