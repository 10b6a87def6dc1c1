"""Reproductions of figures of papers: data, picture, and a verdict on each of the paper's claims.

A figure is one module with a record ``FIGURE``, listed in ``registry``. ``produce`` computes its
parts, writes each to disk once it is done, and draws the picture. From the root of a clone:

    python -m papers                        # lists the figures
    python -m papers 001-1 --data folder    # computes one

The folder is not part of the installed library.
"""

from papers.images import Images, find_images
from papers.production import Produced, produce
from papers.record import Figure, Part
from papers.registry import FIGURES, figure

__all__ = [
    "FIGURES",
    "Figure",
    "Images",
    "Part",
    "Produced",
    "figure",
    "find_images",
    "produce",
]
