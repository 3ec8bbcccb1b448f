"""For all tests: property tests never assert a time, and find the same cases everywhere."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("motley", deadline=None, derandomize=True)
settings.load_profile("motley")
