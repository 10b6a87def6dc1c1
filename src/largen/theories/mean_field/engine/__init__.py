"""What the theories of training at infinite width have in common."""
