"""Populations of representative neurons, whichever library runs the forward pass."""
