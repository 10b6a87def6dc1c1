"""What a run says of a single hidden neuron in the mean-field limit."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from largen.architectures import Activation, Dense, Layer, Repeat, Residual, Serial
from largen.errors import NoRule, NoTheory
from largen.expectations import ActivationFunction, activation
from largen.parameterizations import canonical_form
from largen.runs import Run

LINEAR = activation("linear")


@dataclass(frozen=True)
class Problem:
    """One hidden layer at infinite width, in coordinates of its neurons.

    A neuron's preactivations are h_μ = Σ_i F_μi a_i, where a starts as a standard Gaussian
    vector and F Fᵀ = K⁰ = σ_w² x·x′/D + σ_b². Directions of weight space that no sample sees
    are left out: there are at most as many a_i as samples, or inputs and bias.

    Attributes
    ----------
    phi
        The activation φ.
    train, test
        F of training and test samples, shape ``(sample, direction)``.
    rate
        ρ of each direction: a moves by η₀γ₀ρ F_μi per unit of Δ_μ z φ'(h_μ).
    out_std
        σ_out, so that z ~ N(0, σ_out²) at initialisation.
    out_rate
        ρσ_out² of the read-out weights.
    out_bias_rate
        ρσ_b² of the read-out bias; 0 if there is none.
    gamma
        γ₀.
    outputs
        C, the number of outputs.
    """

    phi: ActivationFunction
    train: np.ndarray
    test: np.ndarray
    rate: np.ndarray
    out_std: float
    out_rate: float
    out_bias_rate: float
    gamma: float
    outputs: int

    @property
    def directions(self) -> int:
        """Number of coordinates a_i of a neuron."""
        return self.train.shape[1]

    @property
    def dimensions(self) -> int:
        """Number of Gaussian variables of a neuron, read-out weights included."""
        return self.directions + self.outputs


def covers(run: Run) -> str:
    """Return why the mean-field limit of one hidden layer is the limit of a run.

    Raises
    ------
    NoTheory
        If features do not move (d ≠ ½), if there is not exactly one hidden layer, or if a
        weight's update vanishes or diverges with the width.
    """
    _activation(run.net)
    form = canonical_form(run.param, run.net, run.optimizer, run.data.inputs)
    if form.d != Fraction(1, 2):
        raise NoTheory(
            f"{run.param} divides the output by N^{form.d} beyond the kernel scaling; features "
            "move at order one, and the mean-field limit applies, for N^(1/2) only. "
            "The kernel limit is the theory of d = 0."
        )
    return (
        "γ = γ₀√N, so features move at order one; with one hidden layer its neurons are "
        "independent, coupled through the residuals only"
    )


def problem(run: Run) -> Problem:
    """Return the problem that a run poses, in float64."""
    phi = _activation(run.net)
    form = canonical_form(run.param, run.net, run.optimizer, run.data.inputs)
    inner, outer = (
        {weight.kind: weight for weight in form.weights.values() if weight.site.role == role}
        for role in ("input", "output")
    )
    x = run.data.x.astype(np.float64)
    weight = inner["weight"].std * x / np.sqrt(run.data.inputs)
    columns, rate = [weight], [np.full(weight.shape[1], inner["weight"].rate)]
    if "bias" in inner:
        columns.append(np.full((len(x), 1), inner["bias"].std))
        rate.append(np.array([inner["bias"].rate]))
    if len({r[0] for r in rate}) == 1:
        # Rates are equal: any rotation of weights and bias together leaves the problem as it is.
        columns, rate = [np.concatenate(columns, 1)], [np.concatenate(rate)]
    columns = [_compress(c) for c in columns]
    rates = [np.full(c.shape[1], r[0]) for c, r in zip(columns, rate, strict=True)]
    fields = np.concatenate(columns, 1)
    samples = len(run.data.x_train)
    bias = outer.get("bias")
    return Problem(
        phi=phi,
        train=fields[:samples],
        test=fields[samples:],
        rate=np.concatenate(rates),
        out_std=outer["weight"].std,
        out_rate=outer["weight"].rate * outer["weight"].std ** 2,
        out_bias_rate=0.0 if bias is None else bias.rate * bias.std**2,
        gamma=form.gamma,
        outputs=int(np.prod(run.output_shape, dtype=int)),
    )


def _activation(net: Layer) -> ActivationFunction:
    """Return φ of a network with one hidden layer."""
    layers = net.layers if isinstance(net, Serial) else (net,)
    for layer in layers:
        if isinstance(layer, (Residual, Repeat)):
            raise NoTheory("the mean-field limit of residual networks is not implemented yet")
        if not isinstance(layer, (Dense, Activation)):
            raise NoRule("the mean-field limit", layer, [Dense, Activation])
    match layers:
        case (Dense(), Dense()):
            return LINEAR
        case (Dense(), Activation(phi), Dense()):
            return phi
    if sum(isinstance(layer, Dense) for layer in layers) > 2:
        raise NoTheory(
            "the mean-field limit of networks with more than one hidden layer is not "
            "implemented yet; lg.mlp(1, …) is covered"
        )
    raise NoTheory(
        f"the mean-field limit is implemented for Dense, Activation, Dense; this network is {net!r}"
    )


def _compress(columns: np.ndarray) -> np.ndarray:
    """Return a matrix with the same Gram matrix of its rows, and linearly independent columns."""
    u, s, _ = np.linalg.svd(columns, full_matrices=False)
    keep = s > 1e-12 * max(s[0], np.finfo(float).tiny)
    return (u * s)[:, keep] if keep.any() else columns[:, :1]
