"""Limits of wide networks, each a record of options, and the choice among them.

=================  ===============================================================
``kernel_limit``   features stand still: :class:`KernelLimit`, and to order 1/width
                   :class:`FiniteWidth`
``mean_field``     features move: :class:`MeanField`, :class:`DeepMeanField`,
                   :class:`InfiniteDepth`
``chains``         what limits of affine maps after one another share
``registry``       which theories there are
``select``         :func:`solve`: the choice among them
=================  ===============================================================
"""

from largen.theories.kernel_limit import FiniteWidth, KernelLimit
from largen.theories.mean_field import DeepMeanField, InfiniteDepth, MeanField
from largen.theories.registry import by_name, register, registered, unregister
from largen.theories.select import choose, solve

__all__ = [
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
