"""Motley: federated learning where clients differ."""

__version__ = "0.1.0"
