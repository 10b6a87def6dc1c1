"""Standard networks, built from layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from largen.architectures.graph import Graph
from largen.architectures.layers import Activation, Dense, Residual, repeat, serial
from largen.architectures.traits import Layer
from largen.bibliography import cites
from largen.errors import InvalidInput
from largen.scalars import integer, sequence
from largen.text import shown

MOST_LAYERS = 10_000  # that are written out; repeat(...) takes more


@cites("pehlevan2023lecture")
def mlp(
    hidden_layers: int,
    activation: str | Callable[[Any], Any] = "relu",
    *,
    weight_std: float = 1.0,
    bias_std: float = 0.0,
    width_ratios: Sequence[Any] | None = None,
) -> Layer:
    """Fully connected network, h¹ = W⁰x, hˡ⁺¹ = Wˡφ(hˡ), f = w·φ(hᴸ).

    The factors of width belong to the parameterization. In :func:`largen.ntk` and
    :func:`largen.mean_field` they are those of the lecture notes of Pehlevan and Bordelon, eq. (1).

    Parameters
    ----------
    hidden_layers
        L, the number of layers between input and output.
    activation
        φ: a name, or a function.
    weight_std, bias_std
        σ_w and σ_b of every affine map, the last one included.
    width_ratios
        The number of neurons of each hidden layer per unit of width, as in :class:`Dense`; 1 by
        default.

    Raises
    ------
    InvalidInput
        If ``hidden_layers`` is not a positive integer, the activation is not known, or there is
        not one positive ratio for each hidden layer.

    Examples
    --------
    >>> import largen as lg
    >>> lg.mlp(2, "tanh")
    serial(Dense(), Activation('tanh'), Dense(), Activation('tanh'), Dense())
    >>> lg.mlp(2, "tanh", width_ratios=(1, 1 / 2))
    serial(Dense(), Activation('tanh'), Dense(width_ratio=1/2), Activation('tanh'), Dense())
    """
    hidden_layers = integer("hidden_layers", hidden_layers, at_least=1, at_most=MOST_LAYERS)
    wanted = f"one for each of {hidden_layers} hidden layers"
    ratios = [1] * hidden_layers
    if width_ratios is not None:
        ratios = sequence("width_ratios", width_ratios, wanted)
    if len(ratios) != hidden_layers:
        raise InvalidInput(f"width_ratios: wanted {wanted}, got {shown(ratios)}.")
    phi = Activation(activation)
    dense = Dense(weight_std=weight_std, bias_std=bias_std)
    hidden = [layer for r in ratios for layer in (replace(dense, width_ratio=r), phi)]
    return serial(*hidden, dense)


@cites("bordelon2022influence")
def gated_linear(
    hidden_layers: int, activation: str | Callable[[Any], Any] = "step", *, weight_std: float = 1.0
) -> Layer:
    """Gated linear network, hˡ⁺¹ = Wˡ(σ(mˡ) ⊙ hˡ), f = w·(σ(mᴸ) ⊙ hᴸ), with gates by the inputs.

    Gates are functions of fixed random maps mˡ = Mˡx of the inputs, with entries of unit variance
    over the number of inputs, and all else is linear (Bordelon and Pehlevan, *The influence of
    learning rule on representation dynamics in wide neural networks*, arXiv 2210.02157, where gates
    are φ'(m): the step for relu). In :func:`largen.ntk` with fixed gates the kernels are

        K = σ_w^(2L+2) (x·x'/D) ⟨σ(m)σ(m')⟩^L,     Θ = (L + 1) K.

    Layers ``"0"``, ``"2"``, … ``"2L − 2"`` are the maps Mˡ. ``with_rates`` of the parameterization
    fixes them; those of gates that are constant but for jumps have no gradients in finite networks,
    and no tangent kernel exists unless they are fixed.

    Parameters
    ----------
    hidden_layers
        L, the number of gated layers.
    activation
        σ of the gates: a name, or a function.
    weight_std
        σ_w of every affine map but those of gates.

    Raises
    ------
    InvalidInput
        If ``hidden_layers`` is not a positive integer, or the function of gates is not known.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> net = lg.layers.gated_linear(2)
    >>> fixed = {"0": 0.0, "2": 0.0}
    >>> nngp, ntk = lg.kernel(net, np.eye(2), param=lg.ntk().with_rates(fixed))
    >>> bool(np.allclose(ntk, 3 * nngp)), float(nngp[0, 0])  # 1/D times the square of 1/2
    (True, 0.125)
    """
    hidden_layers = integer("hidden_layers", hidden_layers, at_least=1, at_most=MOST_LAYERS)
    dense, phi, last = Dense(weight_std=weight_std), Activation(activation), "x"
    nodes: dict[str, Any] = {}
    for layer in range(1, hidden_layers + 1):
        nodes |= {f"m{layer}": (Dense(), "x"), f"gate{layer}": (phi, f"m{layer}")}
    for layer in range(1, hidden_layers + 1):
        nodes[f"h{layer}"] = (dense, last)
        last = f"gated{layer}"
        nodes[last] = ("product", f"gate{layer}", f"h{layer}")
    return Graph(nodes | {"f": (dense, last)})


@cites("bordelon2023depthwise")
def residual_mlp(
    blocks: float,
    activation: str | Callable[[Any], Any] = "relu",
    *,
    layers_per_block: int = 1,
    weight_std: float = 1.0,
    bias_std: float = 0.0,
) -> Layer:
    """Fully connected residual network, hˡ⁺¹ = hˡ + (branch factor) Wˡφ(hˡ).

    Bordelon, Noci, Li, Hanin and Pehlevan, *Depthwise hyperparameter transfer in residual
    networks*, eq. (1): a read-in, ``blocks`` pre-activation branches and a read-out from φ(hᴸ).
    The branch factor L^(−α) is the parameterization's, with L the number of blocks.

    Parameters
    ----------
    blocks
        L, the number of residual branches; ``math.inf`` for the limit of infinite depth, see
        :func:`repeat`.
    activation
        φ: a name, or a function.
    layers_per_block
        The number of times that a branch applies φ and then an affine map.
    weight_std, bias_std
        σ_w and σ_b of every affine map.

    Raises
    ------
    InvalidInput
        If a count is not a positive integer or the activation is not known.

    Examples
    --------
    >>> import largen as lg
    >>> lg.residual_mlp(16, "relu").layers[1]
    repeat(Residual(serial(Activation('relu'), Dense())), 16)
    """
    if not (isinstance(blocks, float) and blocks == math.inf):
        blocks = integer("blocks", blocks, at_least=1)
    layers_per_block = integer("layers_per_block", layers_per_block, 1, at_most=MOST_LAYERS)
    dense, phi = Dense(weight_std=weight_std, bias_std=bias_std), Activation(activation)
    block = Residual(serial(*([phi, dense] * layers_per_block)))
    return serial(dense, repeat(block, blocks), phi, dense)
