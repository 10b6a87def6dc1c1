"""Rules of the operations for networks of finite width.

Every operation needs a ``rule``, which computes its value from the values that it reads. If the
number of its channels does not follow from its signal, or not all sizes fit, ``channels_behind``
says so.
"""

from largen.networks.rules import affine, attention, elementwise, normalising, pooling
from largen.networks.rules.dispatch import Features, channels_behind, has_rule, rule

__all__ = [
    "Features",
    "affine",
    "attention",
    "channels_behind",
    "elementwise",
    "has_rule",
    "normalising",
    "pooling",
    "rule",
]
