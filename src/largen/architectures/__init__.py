"""Networks as data: layers as frozen records, and the networks that they make."""

from largen.architectures.layers import (
    Activation,
    Dense,
    Layer,
    Repeat,
    Residual,
    Serial,
    repeat,
    serial,
)
from largen.architectures.standard import mlp, residual_mlp
from largen.architectures.weights import Role, WeightSite, depth, weight_sites

__all__ = [
    "Activation",
    "Dense",
    "Layer",
    "Repeat",
    "Residual",
    "Role",
    "Serial",
    "WeightSite",
    "depth",
    "mlp",
    "repeat",
    "residual_mlp",
    "serial",
    "weight_sites",
]
