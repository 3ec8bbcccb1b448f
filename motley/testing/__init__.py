"""Contract suites for our and others' components."""
