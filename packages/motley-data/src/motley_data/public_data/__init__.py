"""Public data sets by name: where they are found, how they are checked, read and downloaded."""
