"""Model, loss, data and metric."""
