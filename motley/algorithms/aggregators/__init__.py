"""How uploads become one total."""
