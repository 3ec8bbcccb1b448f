"""What clients hold of the model, where that is not all of it: slices of less width, heads of their
own classes, prototypes, one of several models."""
