"""The networks that ordinary calls are made with: every activation, kind of layer and some depths.

Fully connected ones are written as steps, which both largen's network and its reference in
``references.py`` are made from: ("dense", σ_w, σ_b), ("phi", name), ("normalise", layer), ("skip",
steps).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from tests.ordinary.references import MEANS, SMOOTH

import largen as lg
from largen.expectations import hermite, leaky_relu, polynomial, rbf

ROWS, IMAGES, SEQUENCES = (4,), (3, 3, 2), (4, 2)


def wave(x: Any) -> Any:
    """An activation of the user's own."""
    return x * jnp.tanh(x)


def square(x: Any) -> Any:
    return x**2


def cubic(x: Any) -> Any:
    return x + 0.1 * x**3


OWN = {"wave": wave, "square": square, "cubic": cubic}


def of_name(name: str) -> Any:
    """Return an activation as largen takes it."""
    return OWN.get(name, name)


HOMOGENEOUS = ("linear", "relu", "leaky_relu", "abs")
JUMPS = ("sign", "step")
ODD = ("linear", "erf", "sin", "tanh", "sign", "cubic")
Steps = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Network:
    """A network and what is known of it.

    Attributes
    ----------
    steps
        How it is written, if it is fully connected and has a reference.
    made
        The network otherwise.
    inputs
        The shape of a sample.
    param
        The parameterization that it needs; that of the call by default.
    kernels, finite, tangent
        Whether it has kernels of infinite width, networks of finite width, a tangent kernel.
    """

    name: str
    steps: Steps | None = None
    made: lg.layers.Layer | None = None
    inputs: tuple[int, ...] = ROWS
    param: Any = None
    kernels: bool = True
    finite: bool = True
    tangent: bool = True

    @cached_property
    def net(self) -> lg.layers.Layer:
        if self.made is not None:
            return self.made
        assert self.steps is not None
        return lg.serial(*map(_layer, self.steps))

    @property
    def curved(self) -> bool:
        """Whether its expectations have no closed form, so that large variances are costly."""
        curved = {*SMOOTH, *MEANS} - {"gelu"}
        if self.steps is None:
            return self.name in ("hard swish", "convolutions, pooled")
        return not self._all(lambda s: s[0] != "phi" or s[1] not in curved)

    @property
    def batched(self) -> bool:
        """Whether the output of a sample depends on the others."""
        return self.name == "BatchNorm"

    @property
    def rows(self) -> bool:
        """Whether samples have no spatial axes, so that kernels do not change with rotations."""
        return self.inputs == ROWS

    def _all(self, allowed: Callable[[tuple[Any, ...]], bool]) -> bool:
        def over(steps: Steps) -> bool:
            return all(over(s[1]) if s[0] == "skip" else allowed(s) for s in steps)

        return self.steps is not None and over(self.steps)

    @cached_property
    def homogeneous(self) -> bool:
        """Whether outputs are proportional to the size of the inputs."""
        return self._all(
            lambda s: s[2] == 0 if s[0] == "dense" else s[0] == "phi" and s[1] in HOMOGENEOUS
        )

    @cached_property
    def odd(self) -> bool:
        """Whether f(−x) = −f(x)."""
        return self._all(
            lambda s: s[2] == 0 if s[0] == "dense" else s[0] == "normalise" or s[1] in ODD
        )

    @cached_property
    def plain(self) -> bool:
        """Whether it consists of affine maps and activations alone."""
        return self._all(lambda s: s[0] in ("dense", "phi"))


def _layer(step: tuple[Any, ...]) -> lg.layers.Layer:
    what, *options = step
    match what:
        case "dense":
            return lg.Dense(weight_std=options[0], bias_std=options[1])
        case "phi":
            return lg.Activation(of_name(options[0]))
        case "normalise":
            return options[0]
        case _:
            return lg.Residual(lg.serial(*map(_layer, options[0])))


def stack(hidden: int, phi: str, weight: float = 1.2, bias: float = 0.0, *between: Any) -> Steps:
    """Steps of a network of several hidden layers."""
    dense = ("dense", weight, bias)
    return (*((dense, *between, ("phi", phi)) * hidden), dense)


def _networks() -> list[Network]:
    def steps(name: str, *given: Any, **options: Any) -> Network:
        return Network(name, stack(*given), **options)

    def rows(name: str, *layers: lg.layers.Layer, **options: Any) -> Network:
        return Network(name, made=lg.serial(*layers), **options)

    he = 2**0.5
    relu, tanh = lg.Activation("relu"), lg.Activation("tanh")
    dense, biased = lg.Dense(), lg.Dense(weight_std=1.2, bias_std=0.3)
    layer_norm, rms = ("normalise", lg.LayerNorm()), ("normalise", lg.RMSNorm())
    conv = lg.Conv((2, 2), weight_std=1.3, bias_std=0.2)
    conv1 = lg.Conv((2,), weight_std=1.3, bias_std=0.2)
    branch = lg.serial(relu, dense)
    fully_connected = [
        steps("linear", 1, "linear"),
        steps("linear, depth 5", 5, "linear", 1.0, 0.1),
        steps("relu", 1, "relu", he),
        steps("relu with biases, depth 3", 3, "relu", he, 0.1),
        steps("relu, depth 10", 10, "relu", he),
        steps("relu, depth 50", 50, "relu", he),
        steps("leaky relu, depth 2", 2, "leaky_relu"),
        steps("abs, depth 2", 2, "abs", 1.0),
        steps("erf", 1, "erf"),
        steps("erf, depth 3", 3, "erf", 1.5, 0.2),
        steps("gelu, depth 2", 2, "gelu", 1.4, 0.1),
        steps("sin, depth 2", 2, "sin", 1.2, 0.1),
        steps("cos", 1, "cos"),
        steps("exp", 1, "exp", 0.5, 0.1),
        steps("tanh", 1, "tanh"),
        steps("tanh, depth 2", 2, "tanh", 1.5),
        steps("tanh with biases, depth 3", 3, "tanh", 1.2, 0.1),
        steps("tanh, depth 20", 20, "tanh", 1.3, 0.1),
        steps("sigmoid, depth 2", 2, "sigmoid", 1.5, 0.1),
        steps("silu, depth 2", 2, "silu", 1.4),
        steps("softplus, depth 2", 2, "softplus", 1.0, 0.1),
        steps("elu, depth 2", 2, "elu", 1.2, 0.1),
        steps("selu", 1, "selu", 1.0),
        steps("gaussian, depth 2", 2, "gaussian", 1.2, 0.1),
        steps("square", 1, "square", 1.0),
        steps("cubic, depth 2", 2, "cubic", 1.0),
        steps("own, depth 2", 2, "wave", 1.2, 0.1),
        steps("sign, depth 2", 2, "sign", 1.2, 0.1, tangent=False),
        steps("step", 1, "step", tangent=False),
        steps("tanh behind LayerNorm, depth 2", 2, "tanh", 1.2, 0.1, layer_norm),
        steps("relu behind RMSNorm, depth 3", 3, "relu", he, 0.0, rms),
        Network(
            "residual relu",
            (
                ("dense", 1.0, 0.0),
                *((("skip", (("phi", "relu"), ("dense", 1.0, 0.0))),) * 3),
                ("phi", "relu"),
                ("dense", 1.0, 0.0),
            ),
        ),
        Network(
            "residual tanh, two layers a block",
            (
                ("dense", 1.0, 0.1),
                *((("skip", (("phi", "tanh"), ("dense", 1.0, 0.1)) * 2),) * 2),
                ("phi", "tanh"),
                ("dense", 1.0, 0.1),
            ),
        ),
    ]
    further = [
        rows("hermite", lg.mlp(1, hermite(3))),
        rows("polynomial", lg.mlp(1, polynomial((0.3, -1.0, 0.5)), bias_std=0.1)),
        rows("rbf", lg.mlp(1, rbf(0.7))),
        rows("steep leaky relu", lg.mlp(2, leaky_relu(-0.5))),
        rows("hard tanh", lg.mlp(2, jax.nn.hard_tanh, weight_std=1.5)),
        rows("hard swish", lg.mlp(1, jax.nn.hard_swish, bias_std=0.1)),
        rows("widths 1:2", lg.mlp(2, "relu", width_ratios=(1, 2))),
        rows("repeated", dense, lg.repeat(branch, 4), relu, dense),
        rows(
            "infinite depth",
            lg.residual_mlp(math.inf, "relu"),
            param=lg.abc(a=(0, "1/2", "1/2"), b=0, c=0, branch="1/2"),
            finite=False,
        ),
        rows("concatenated", biased, lg.layers.Concatenate(branch, biased), dense),
        rows("product", biased, lg.layers.Product(dense, relu), dense),
        rows("LayerNorm behind relu", biased, relu, lg.LayerNorm(), dense),
        rows("trained gains", biased, lg.LayerNorm(gain=True), tanh, lg.layers.Gain(0.5), dense),
        rows("dropout", biased, relu, lg.layers.Dropout(0.2), dense, finite=False),
        rows("BatchNorm", biased, lg.layers.BatchNorm(), relu, dense, kernels=False),
    ]
    images = [
        rows("convolution", conv, relu, lg.Flatten(), dense),
        rows("convolutions, pooled", conv, tanh, conv, relu, lg.GlobalAvgPool(), dense),
        rows("strides", lg.Conv((2, 2), strides=2, bias_std=0.3), relu, lg.Flatten(), dense),
        rows("residual convolution", conv, lg.Residual(lg.serial(relu, conv)), relu,
             lg.layers.GlobalSumPool(), dense),
        rows("pooled", conv, relu, lg.layers.AvgPool((2, 2)), lg.Flatten(), dense),
        rows("locally connected", lg.layers.LocallyConnected((2, 2)), relu, lg.Flatten(), dense),
        rows("transposed", lg.layers.ConvTranspose((2, 2), strides=2), relu, lg.Flatten(), dense),
        rows("normalised images", conv, relu, lg.LayerNorm(over_space=True), lg.Flatten(), dense),
        rows("max pooled", conv, relu, lg.layers.MaxPool((2, 2)), lg.Flatten(), dense,
            kernels=False),
    ]  # fmt: skip
    sequences = [
        rows("one axis", conv1, relu, lg.GlobalAvgPool(), dense),
        rows("attention", biased, lg.layers.SelfAttention(), lg.GlobalAvgPool(), dense),
        rows("heads", biased, lg.layers.MultiHeadAttention(mechanism="identity"),
            lg.GlobalAvgPool(),
             dense),
        rows("queries and keys", biased, lg.QKVAttention(causal=True), lg.GlobalAvgPool(), dense),
    ]  # fmt: skip
    placed = [(images, IMAGES), (sequences, SEQUENCES)]
    spatial = [
        Network(n.name, None, n.made, shape, kernels=n.kernels) for ns, shape in placed for n in ns
    ]
    return [*fully_connected, *further, *spatial]


NETWORKS = {network.name: network for network in _networks()}
