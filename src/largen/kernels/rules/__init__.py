"""Rules of the operations for the kernels (NNGP and NTK) of infinitely wide networks.

Every operation needs a ``rule``, which maps the kernels of the values that it reads to those of its
own value. Further functions state which moments it requires of what it reads (``wanted``) and how
its value is distributed (``nature_behind``).
"""

from largen.kernels.rules import activations, affine, attention, combinations, normalizing, pooling
from largen.kernels.rules.biased_depth import BiasedDepth
from largen.kernels.rules.dispatch import rule, simplify, wanted
from largen.kernels.rules.distributions import DATA, Nature, OnlyByNetworks, nature_behind, natures
from largen.kernels.rules.infinite_depth import InfiniteDepth, infinite_stack
from largen.kernels.rules.planning import (
    CrossesCopies,
    pairs_of_functions,
    plan_of,
    requirements,
    wanted_of_data,
)
from largen.kernels.rules.running import advance, run

__all__ = [
    "DATA",
    "BiasedDepth",
    "CrossesCopies",
    "InfiniteDepth",
    "Nature",
    "OnlyByNetworks",
    "activations",
    "advance",
    "affine",
    "attention",
    "combinations",
    "infinite_stack",
    "nature_behind",
    "natures",
    "normalizing",
    "pairs_of_functions",
    "plan_of",
    "pooling",
    "requirements",
    "rule",
    "run",
    "simplify",
    "wanted",
    "wanted_of_data",
]
