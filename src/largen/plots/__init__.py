"""Pictures. The only room that imports matplotlib."""

from largen.plots.comparison import comparison_figure

__all__ = ["comparison_figure"]
