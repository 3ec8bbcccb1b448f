"""Heterogeneity: partitions, shifts, devices, networks, availability, failures. Pure functions of (key, ids, moment)."""
