"""Forward passes of PyTorch modules, as core operations with a form in JAX."""
