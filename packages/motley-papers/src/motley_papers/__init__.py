"""Papers as recipes: their tables, figures and claims, run by name. See
:func:`motley_papers.reproduce.reproduce`."""
