"""Theories of wide networks, each a dataclass of options, and the choice among them.

=================  ===============================================================
``kernel_limit``   features stay fixed: :class:`KernelLimit`, and to order 1/width
                   :class:`FiniteWidth`
``mean_field``     features move: :class:`MeanField`, :class:`DeepMeanField`,
                   :class:`InfiniteDepth`, :class:`AttentionMeanField`
``chains``         networks as chains of affine maps, for the mean-field limits
``registry``       the registered theories
``select``         :func:`solve`: the choice among them
=================  ===============================================================
"""

from largen.theories.kernel_limit import FiniteWidth, KernelLimit
from largen.theories.mean_field import (
    AttentionMeanField,
    DeepMeanField,
    InfiniteDepth,
    MeanField,
)
from largen.theories.registry import by_name, register, registered, unregister
from largen.theories.select import choose, solve

__all__ = [
    "AttentionMeanField",
    "DeepMeanField",
    "FiniteWidth",
    "InfiniteDepth",
    "KernelLimit",
    "MeanField",
    "by_name",
    "choose",
    "register",
    "registered",
    "solve",
    "unregister",
]
