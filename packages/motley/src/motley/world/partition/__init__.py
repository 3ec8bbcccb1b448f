"""Partitions: which client holds which samples."""
