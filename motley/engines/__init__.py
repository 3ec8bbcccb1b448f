"""How local work is computed."""
