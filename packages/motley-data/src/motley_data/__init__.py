"""Data that are read: public data sets by name, tables, folders, and samples of one's own in
Python. See :func:`motley.tasks.from_arrays`, :func:`motley.tasks.from_clients` and
:func:`motley.tasks.from_files`."""
