"""What all results have in common: text, tables in notebooks, data sets, files and pictures."""

from largen.results.display import brief, in_notebooks
from largen.results.labels import labelled, with_labels
from largen.results.protocol import DataResult, Result, drawn, fields_over, plot_result, save_result

__all__ = [
    "DataResult",
    "Result",
    "brief",
    "drawn",
    "fields_over",
    "in_notebooks",
    "labelled",
    "plot_result",
    "save_result",
    "with_labels",
]
