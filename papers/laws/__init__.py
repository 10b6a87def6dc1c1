"""Papers on learning curves and scaling laws, one figure of each."""
