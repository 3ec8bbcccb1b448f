"""The folder of a run of a Flower strategy with a selector: its tables, its checkpoints, and how it
goes on after a crash."""
