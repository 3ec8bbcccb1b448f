"""How an update is made smaller before it is sent."""
