"""Networks as data: layers as frozen records, and the networks that they make."""

from largen.architectures.attention import SelfAttention
from largen.architectures.axes import Axes
from largen.architectures.branches import Concatenate, Product
from largen.architectures.containers import Container, Parallel, Sequence, parts_of, tree_of
from largen.architectures.graph import Graph
from largen.architectures.heads import MultiHeadAttention
from largen.architectures.identity import fingerprint
from largen.architectures.infinite_depth import endless_stack, of_any_depth, of_depth
from largen.architectures.layers import Activation, Dense, Repeat, Residual, Serial, repeat, serial
from largen.architectures.normalizations import BatchNorm, Dropout, LayerNorm, RMSNorm
from largen.architectures.pooling import (
    AvgPool,
    Flatten,
    GlobalAvgPool,
    GlobalSumPool,
    MaxPool,
    SumPool,
)
from largen.architectures.qkv import QKVAttention
from largen.architectures.scaling import Gain, ScalePositions
from largen.architectures.sequences import token_inputs, with_positions
from largen.architectures.standard import gated_linear, mlp, residual_mlp
from largen.architectures.traits import Affine, Elementwise, Layer, kinds_of_layers
from largen.architectures.upsampling import Upsample
from largen.architectures.walks import depth, layers_of, map_layers
from largen.architectures.weights import check_one_output, output_positions, weight_sites
from largen.architectures.windows import Conv, ConvTranspose, LocallyConnected
from largen.programs.signals import Signal, signal_of

__all__ = [
    "Activation",
    "Affine",
    "AvgPool",
    "Axes",
    "BatchNorm",
    "Concatenate",
    "Container",
    "Conv",
    "ConvTranspose",
    "Dense",
    "Dropout",
    "Elementwise",
    "Flatten",
    "Gain",
    "GlobalAvgPool",
    "GlobalSumPool",
    "Graph",
    "Layer",
    "LayerNorm",
    "LocallyConnected",
    "MaxPool",
    "MultiHeadAttention",
    "Parallel",
    "Product",
    "QKVAttention",
    "RMSNorm",
    "Repeat",
    "Residual",
    "ScalePositions",
    "SelfAttention",
    "Sequence",
    "Serial",
    "Signal",
    "SumPool",
    "Upsample",
    "check_one_output",
    "depth",
    "endless_stack",
    "fingerprint",
    "gated_linear",
    "kinds_of_layers",
    "layers_of",
    "map_layers",
    "mlp",
    "of_any_depth",
    "of_depth",
    "output_positions",
    "parts_of",
    "repeat",
    "residual_mlp",
    "serial",
    "signal_of",
    "token_inputs",
    "tree_of",
    "weight_sites",
    "with_positions",
]
