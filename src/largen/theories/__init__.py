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

from largen.runs import Posed, Theory
from largen.theories.kernel_limit import FiniteWidth, KernelLimit
from largen.theories.mean_field import (
    AttentionMeanField,
    DeepMeanField,
    InfiniteDepth,
    MeanField,
    infinite_depth_one_step,
    kernel_after_one_step,
    response_functions,
    solve_deep_linear,
    whitened_linear_flow,
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
    "Posed",
    "Theory",
    "by_name",
    "choose",
    "infinite_depth_one_step",
    "kernel_after_one_step",
    "register",
    "registered",
    "response_functions",
    "solve",
    "solve_deep_linear",
    "unregister",
    "whitened_linear_flow",
]
