"""The command ``motley data``."""
