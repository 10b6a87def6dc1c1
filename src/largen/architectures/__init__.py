"""Networks as data: layers as frozen records, and the networks that they make."""

from largen.architectures.attention import SelfAttention
from largen.architectures.axes import Axes
from largen.architectures.branches import Concatenate, Product
from largen.architectures.heads import MultiHeadAttention
from largen.architectures.identity import fingerprint
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
from largen.architectures.normalizations import BatchNorm, Dropout, LayerNorm, RMSNorm
from largen.architectures.parts import mapped, parts_of
from largen.architectures.sequences import token_inputs, with_positions
from largen.architectures.signals import Signal, signal_behind, signal_of
from largen.architectures.standard import mlp, residual_mlp
from largen.architectures.weights import Role, WeightSite, depth, layers_of, weight_sites
from largen.architectures.windows import (
    AvgPool,
    Conv,
    ConvTranspose,
    Flatten,
    GlobalAvgPool,
    GlobalSumPool,
    LocallyConnected,
    MaxPool,
    SumPool,
)

__all__ = [
    "Activation",
    "AvgPool",
    "Axes",
    "BatchNorm",
    "Concatenate",
    "Conv",
    "ConvTranspose",
    "Dense",
    "Dropout",
    "Flatten",
    "GlobalAvgPool",
    "GlobalSumPool",
    "Layer",
    "LayerNorm",
    "LocallyConnected",
    "MaxPool",
    "MultiHeadAttention",
    "Product",
    "RMSNorm",
    "Repeat",
    "Residual",
    "Role",
    "SelfAttention",
    "Serial",
    "Signal",
    "SumPool",
    "WeightSite",
    "depth",
    "fingerprint",
    "layers_of",
    "mapped",
    "mlp",
    "parts_of",
    "repeat",
    "residual_mlp",
    "serial",
    "signal_behind",
    "signal_of",
    "token_inputs",
    "weight_sites",
    "with_positions",
]
