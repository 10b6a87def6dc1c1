"""Rules of the layers for the kernels (NNGP and NTK) of infinitely wide networks.

Every layer needs a ``rule``, which maps the kernels before the layer to those behind it. Further
functions of ``dispatch.py`` state which moments a layer requires of the layers before it, whether
the signal behind it is Gaussian, and whether that signal is independent of the layer's input. Where
a layer registers none of these, the traits of its record decide, conservatively.
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
    simplify,
    wanted,
)
from largen.kernels.rules.infinite_depth import InfiniteDepth, infinite_stack
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
    "infinite_stack",
    "nature_behind",
    "normalizing",
    "own_constants",
    "pooling",
    "rule",
    "simplify",
    "structure",
    "wanted",
]
