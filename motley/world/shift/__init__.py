"""How a client's data differ from the pool's."""
