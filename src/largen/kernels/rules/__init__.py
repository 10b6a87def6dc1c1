"""The rule of each layer for the kernels of infinitely wide networks.

A layer has four things to say (``dispatch.py``): what it makes of a :class:`State`, what it asks
of the layers before it, what kind of signal it leaves, and whether that signal is independent of
what came in. A new layer is these four functions, registered for its type; only the first and
the third are needed where nothing special is asked and nothing is drawn.
"""

from largen.kernels.rules import (
    activations,
    affine,
    attention,
    heads,
    normalizing,
    pooling,
    structure,
)
from largen.kernels.rules.dispatch import (
    DATA,
    Nature,
    OnlyByNetworks,
    advance,
    freshness,
    nature_behind,
    rule,
    wanted,
)
from largen.kernels.rules.structure import ends_in_affine_map

__all__ = [
    "DATA",
    "Nature",
    "OnlyByNetworks",
    "activations",
    "advance",
    "affine",
    "attention",
    "ends_in_affine_map",
    "freshness",
    "heads",
    "nature_behind",
    "normalizing",
    "pooling",
    "rule",
    "structure",
    "wanted",
]
