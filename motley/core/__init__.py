"""The words every room speaks: keys, reports, tables, layouts, bytes, papers. Standard library and NumPy only."""
