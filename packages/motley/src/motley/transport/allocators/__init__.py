"""Allocators: the upload ratio of each client of a cohort."""
