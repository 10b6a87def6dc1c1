"""What each core operation of PyTorch is in JAX: one row for each, a function of its arguments."""
