"""Sub-commands of ``motley`` that need more than a few lines."""
