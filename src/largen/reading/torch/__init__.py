"""PyTorch modules: their forward pass, and the laws of their weights."""
