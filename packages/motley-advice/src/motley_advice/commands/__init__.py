"""The commands ``motley inspect``, ``motley tune``, ``motley twin`` and ``motley what-if``."""
