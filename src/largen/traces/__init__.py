"""A person's forward pass as one list of primitive operations."""
