"""The rule of each layer for the kernels of infinitely wide networks.

A layer has to say what it makes of a :class:`State` (``rule`` in ``dispatch.py``). It may say more:
what it asks of the layers before it, what kind of signal it leaves, whether that signal is
independent of what came in; otherwise its traits answer, on the safe side.
"""

from largen.kernels.rules import (
    activations,
    affine,
    attention,
    heads,
    infinite_depth,
    normalizing,
    pooling,
    structure,
)
from largen.kernels.rules.biased_depth import BiasedDepth
from largen.kernels.rules.dispatch import (
    DATA,
    Nature,
    OnlyByNetworks,
    advance,
    freshness,
    nature_behind,
    own_constants,
    rule,
    simplified,
    wanted,
)
from largen.kernels.rules.infinite_depth import InfiniteDepth, without_end
from largen.kernels.rules.structure import ends_in_affine_map

__all__ = [
    "DATA",
    "BiasedDepth",
    "InfiniteDepth",
    "Nature",
    "OnlyByNetworks",
    "activations",
    "advance",
    "affine",
    "attention",
    "ends_in_affine_map",
    "freshness",
    "heads",
    "infinite_depth",
    "nature_behind",
    "normalizing",
    "own_constants",
    "pooling",
    "rule",
    "simplified",
    "structure",
    "wanted",
    "without_end",
]
