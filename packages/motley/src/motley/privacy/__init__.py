"""Privacy: what leaves a client, differential privacy of the rounds and of the choice, and the
account of both."""
