"""Shifts: how the data of clients differ from the pooled data, and how they change over time."""
