"""Figures of papers, computed again: data, picture, and what came of each of the paper's claims.

A figure is one file with a record called ``FIGURE``, listed in ``registry``. ``produce`` computes
its parts, keeps each on disk as it is done, and draws. From the root of a clone:

    python -m papers                        # lists the figures
    python -m papers 001-1 --data folder    # computes one

The folder is no part of the installed library.
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
