"""The mean-field limit under adaptive optimizers, of networks of any depth."""
