"""Motley inside other systems: the same selectors, on real clients."""
