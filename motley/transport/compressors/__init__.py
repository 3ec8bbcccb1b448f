"""How an update is made smaller."""
