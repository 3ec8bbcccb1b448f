"""Random PyTorch models, losses and federations, trained by plain PyTorch and by every engine."""
