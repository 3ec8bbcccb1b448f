"""Helpers that several selection rules share."""
