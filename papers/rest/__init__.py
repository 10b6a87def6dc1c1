"""Papers on networks at rest, posteriors and weight decay, one figure of each."""
