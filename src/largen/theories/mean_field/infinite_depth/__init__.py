"""The mean-field limit of residual networks without end: infinite width and infinite depth."""
