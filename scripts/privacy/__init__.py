"""Private runs in worlds that differ in one client's data are compared, over examples and
combinations of parts."""
