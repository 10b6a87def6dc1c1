"""Kernels behind a read-in whose preactivations are not Gaussian.

Hidden preactivations are sums over the width, and Gaussian whatever the law of single weights.
Those of a read-in are sums over the inputs: five uniform numbers are not Gaussian at any width.
Moments behind the first function are then integrals over the law of the d weights and the bias of
one neuron, which quasi-random numbers compute; the recursion of kernels goes on from there.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special
from scipy.stats import qmc

from largen.architectures import Graph
from largen.interrupts import check
from largen.kernels import Kernels
from largen.kernels.accuracy import inaccuracy, report, with_suitable_methods
from largen.kernels.lower import features_of, lower
from largen.kernels.nngp_ntk import form_for_kernels, nngp_scale
from largen.kernels.rules import plan_of, run, wanted_of_data
from largen.kernels.state import KernelState, Side, Wanted
from largen.parameterizations import Parameterization
from largen.programs import Affine, Function
from largen.reading.laws import Law

MOST_INPUTS = 64  # largest fan-in that is integrated over
POINTS = 2**18
AT_ONCE = 2**22  # numbers of a chunk of neurons, times samples

_QUANTILES = {  # of laws with mean 0 and variance 1
    "uniform": lambda p: np.sqrt(3.0) * (2 * p - 1),
    "normal": special.ndtri,
    "constant": np.zeros_like,
}


class ReadIn(NamedTuple):
    """The laws of the weights and the bias of a read-in."""

    weight: Law
    bias: Law | None

    @property
    def known(self) -> bool:
        """Whether there are quantiles of both laws."""
        return all(law is None or law.kind in _QUANTILES for law in self)


def kernels_behind(
    net: Graph, law: ReadIn, x1: np.ndarray, x2: np.ndarray | None, param: Parameterization,
    rtol: Any, throw: bool,
) -> Kernels | None:  # fmt: skip
    """Return NNGP and NTK of a network that begins with a read-in and a function of it.

    With the neurons' u = w·x + b, w and b of the given laws, the moments behind the function are
    E[φ(u)φ(u')], and the tangent kernel is E[φ'(u)φ'(u')] (ρ_w σ_w² x·x'/d + ρ_b σ_b²).

    None for a network that begins otherwise, or has more inputs.
    """
    form = form_for_kernels(net, param, x1.shape[1])
    lowered = lower(net, form, x1.shape[1], constant=True, fold=False)
    if len(lowered.program.operations) < 4:
        return None
    (_, first, second), cuts = lowered.program.operations[:3], lowered.program.cuts
    plain = isinstance(first, Affine) and first.dense and isinstance(second, Function)
    if not plain or second.reads != (1,) or 2 not in cuts or x1.shape[1] > MOST_INPUTS:
        return None
    inputs = (x1,) if x2 is None else (x1, x2)
    with jax.enable_x64(True):
        lowered = with_suitable_methods(lowered, inputs, True, rtol)
        second = lowered.program.operations[2]
        assert isinstance(second, Function)
        program = lowered.program.between(2, lowered.program.output)
        features = [
            np.asarray(f) for f in features_of(lowered, x1, x2, np.float64) if f is not None
        ]
        constants = [float(c) for c in lowered.constants[1]]
        state = _state(features, second.phi, law, *constants)
        wanted = wanted_of_data(program)
        if not wanted.means:
            state = state._replace(
                first=state.first._replace(mean=None), second=state.second._replace(mean=None)
            )
        rest = jax.tree.map(jnp.asarray, ((), *lowered.constants[3:]))
        final = _run(program, rest, state)
        found = Kernels(np.asarray(final.covariance) * nngp_scale(form), np.asarray(final.ntk))
    return report(inaccuracy(lowered, inputs, rtol), found, throw)


@partial(jax.jit, static_argnums=0)
def _run(program: Any, constants: Any, state: KernelState) -> KernelState:
    plan_of(program, Wanted())
    return run(program, constants, state, Wanted())


def _state(
    x: list[np.ndarray], phi: Any, law: ReadIn,
    weight_variance: float, bias_variance: float, weight_rate: float, bias_rate: float,
) -> KernelState:  # fmt: skip
    """Return the state behind the function of one or two sets of samples."""
    one, two = x[0], x[-1]
    d, total, symmetric = one.shape[1], 0, len(x) == 1
    size = 2 ** int(np.log2(max(AT_ONCE / (len(one) + len(two)), 2)))
    # The argument has had another name since SciPy 1.15, which takes this one as well.
    draws = qmc.Sobol(d + 1, scramble=True, seed=0)  # pyright: ignore[reportCallIssue]
    gap = slopes = np.zeros((len(one), len(two)))
    moments = [np.zeros((2, len(each))) for each in (one, two)]
    while total < POINTS:
        check()
        points = np.clip(draws.random(min(size, POINTS)), 1e-12, 1 - 1e-12)
        w = _QUANTILES[law.weight.kind](points[:, :d]) * np.sqrt(weight_variance / d)
        b = np.zeros(len(w))
        if law.bias is not None and bias_variance:
            b = _QUANTILES[law.bias.kind](points[:, d]) * np.sqrt(bias_variance)
        u = [each @ w.T + b for each in (one, two)]
        values = [np.asarray(phi(each)) for each in u]
        derivatives = [np.asarray(phi.derivative(each)) for each in u]
        gap = gap + _half_distances(values[0], values[1], symmetric)
        slopes = slopes + derivatives[0] @ derivatives[1].T
        for sums, each in zip(moments, values, strict=True):
            sums += np.stack([np.sum(each**2, axis=1), np.sum(each, axis=1)])
        total += len(points)
    of_weights, of_bias = weight_rate * weight_variance, bias_rate * bias_variance
    tangent = slopes / total * (of_weights * one @ two.T / d + of_bias)
    sides = [Side(jnp.asarray(q / total), jnp.asarray(mean / total)) for q, mean in moments]
    same = np.eye(len(one), dtype=bool) if symmetric else np.zeros(gap.shape, bool)
    return KernelState(
        sides[0], sides[1], jnp.asarray(gap / total), jnp.asarray(tangent), jnp.asarray(same)
    )


def _half_distances(one: np.ndarray, two: np.ndarray, symmetric: bool) -> np.ndarray:
    """Return Σ (a − b)²/2 for all pairs of rows, whose differences keep their digits."""
    if len(one) * len(two) <= 1024:
        return np.stack([np.sum((row - two) ** 2, axis=1) / 2 for row in one])
    squares = [np.sum(each**2, axis=1) for each in (one, two)]
    found = (squares[0][:, None] + squares[1]) / 2 - one @ two.T
    if symmetric:
        np.fill_diagonal(found, 0)
    return np.maximum(found, 0)
