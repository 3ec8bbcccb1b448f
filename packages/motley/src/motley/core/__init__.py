"""Types that all packages share: keys, reports, tables, layouts, encoding, errors. Standard library
and NumPy only."""
