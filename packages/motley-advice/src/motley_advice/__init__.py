"""Advice around a run: how clients differ, equal tuning of methods, and the twin of a recorded
federation. See :func:`motley.inspect` and :func:`motley.tune`."""
