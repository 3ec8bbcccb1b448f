"""Random experiments are killed at random moments, resumed until they are done, and compared with
undisturbed runs."""
