"""What travels and what it weighs."""
