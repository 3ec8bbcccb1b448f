"""Private training: differential privacy of the rounds and of the choice, the account of both, and
audits: worlds that differ in one client, and attacks on what a run publishes."""
