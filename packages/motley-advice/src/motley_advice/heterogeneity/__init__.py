"""How the clients of a federation differ: sizes, labels, features, concept, label noise,
duplicates; one file per kind."""
