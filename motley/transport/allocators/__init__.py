"""Who may send how much of its update."""
