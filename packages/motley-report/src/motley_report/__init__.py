"""The report of runs: its page, sections and figures, and files for a paper. See
:func:`motley.report`."""
