"""Figures of papers, computed again: data, picture, and what came of each of the paper's claims.

A figure is one file with a record called ``FIGURE``, listed in ``registry``. ``produce`` computes
its parts, keeps each on disk as it is done, and draws.
"""

from largen.experiments.figures.images import Images, find_images
from largen.experiments.figures.production import Produced, produce
from largen.experiments.figures.record import Claim, Figure, Part
from largen.experiments.figures.registry import FIGURES, figure

__all__ = [
    "FIGURES",
    "Claim",
    "Figure",
    "Images",
    "Part",
    "Produced",
    "figure",
    "find_images",
    "produce",
]
