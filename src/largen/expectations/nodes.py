"""Quadrature nodes for expectations of functions of φ and φ' under one Gaussian.

Expectations of products such as φ²φ'² have no common closed form. For a smooth φ the trapezoidal
rule is exact up to rounding; a φ with kinks is integrated by Gauss–Legendre quadrature on panels
that end at the kinks, which allows for jumps of φ' as well. Derivatives in the variance need no
derivative of the function: with the probabilists' Hermite polynomials He_k,

    dᵏ/dqᵏ E[f(√q z)] = E[f(√q z) He_{2k}(z)] / (2q)ᵏ.

This module computes in NumPy and float64, outside of any trace.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.errors import InvalidInput, NumericalFailure
from largen.expectations.activations import ActivationFunction
from largen.expectations.families import Kinked
from largen.expectations.panels import panels
from largen.expectations.singularities import singular_places

MOST_KINKS = 16
_REACH = 10.0  # range of the trapezoidal rule, in standard deviations
_STEP = 0.25  # initial spacing of its nodes, times √q: exact for tanh
_LONGEST = 0.25  # largest spacing, in standard deviations
_FINEST = 16  # largest refinement of the initial spacing
_MOST = 2**24  # largest number of its nodes
_WHOLE = (1.0, 2.5, 4.5, 6.5, 9.0)  # ends of panels, in standard deviations
_GROWTH = 3.0  # ratio of the lengths of successive panels away from a kink


@lru_cache(maxsize=256)
def kinks_of(phi: ActivationFunction) -> tuple[float, ...]:
    """Return the points where φ or φ' is not smooth, in ascending order; () for a smooth φ."""
    if isinstance(phi.function, Kinked):
        return phi.function.kinks
    places = singular_places(lambda x: values(phi, x), MOST_KINKS)
    if places is None:
        raise InvalidInput(
            f"activation: {phi} has more than {MOST_KINKS} kinks or sharp features between −48 "
            "and 48. Say where they are: largen.expectations.with_kinks."
        )
    return places


def jumps(phi: ActivationFunction) -> tuple[bool, np.ndarray]:
    """Return whether φ jumps, and the jumps of φ' at its kinks."""
    kinks = np.asarray(kinks_of(phi))
    if not kinks.size:
        return False, kinks
    step = 1e-7 * np.maximum(1, np.abs(kinks))
    (above, right), (below, left) = values(phi, kinks + step), values(phi, kinks - step)
    far = np.abs(above - below) > 100 * step * (1 + np.abs(right) + np.abs(left))
    return phi.jumps or bool(np.any(far)), right - left


def values(phi: ActivationFunction, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return φ(x) and φ'(x) in float64."""
    # The number of points is padded to a power of two, so that few programs are compiled.
    padded = np.zeros(max(64, 1 << int(np.ceil(np.log2(max(x.size, 1))))))
    padded[: x.size] = np.ravel(x)
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        value, slope = (np.asarray(f, np.float64) for f in _compile(phi)(jnp.asarray(padded)))
    return value[: x.size].reshape(x.shape), slope[: x.size].reshape(x.shape)


@lru_cache(maxsize=256)
def _compile(phi: ActivationFunction) -> Callable:
    return jax.jit(lambda x: (phi(x), phi.derivative(x)))


class Nodes(NamedTuple):
    """A rule E[f(√q z)] ≈ Σ weights · f(√q z) for one or several variances."""

    # z, weights: standardised nodes and their weights, (node, *q).
    z: np.ndarray
    weights: np.ndarray


def nodes_for(phi: ActivationFunction, q: np.ndarray) -> Nodes:
    """Return nodes for expectations of functions of φ and φ' at all of the variances q > 0."""
    q = np.asarray(q, np.float64)
    kinks = kinks_of(phi)
    return _panels(kinks, q) if kinks else _trapezoidal(q, _fineness(phi))


@lru_cache(maxsize=256)
def _fineness(phi: ActivationFunction) -> int:
    """Return the required refinement of the trapezoidal rule relative to tanh, a power of 2."""
    q, finer = np.array([40.0]), 1

    def moments(finer: int) -> np.ndarray:
        nodes = _trapezoidal(q, finer)
        with np.errstate(over="ignore", invalid="ignore"):
            f = np.stack(values(phi, np.sqrt(q) * nodes.z)) ** 4
            return np.sum(f * nodes.weights, axis=1)

    before = moments(finer)
    while finer < _FINEST:
        after = moments(2 * finer)
        if np.all(np.abs(after - before) <= 1e-11 * np.abs(after)):
            break
        before, finer = after, 2 * finer
    return finer


def _trapezoidal(q: np.ndarray, finer: int) -> Nodes:
    wanted = _STEP / finer / np.sqrt(max(np.max(q, initial=0.0), 1e-300))
    step = min(_LONGEST, 2.0 ** np.floor(np.log2(wanted)))
    if 2 * _REACH / step > _MOST:
        raise NumericalFailure(
            f"averages of a smooth function at the variance {np.max(q):.3g} are not resolved: "
            "scale the inputs, or weight_std, down."
        )
    z = (np.arange(-round(_REACH / step), round(_REACH / step)) + 0.5) * step
    weights = step * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    ones = (1,) * q.ndim
    shape = (len(z), *q.shape)
    return Nodes(
        np.broadcast_to(z.reshape(-1, *ones), shape),
        np.broadcast_to(weights.reshape(-1, *ones), shape),
    )


def _panels(kinks: tuple[float, ...], q: np.ndarray) -> Nodes:
    """Return panels that end at the kinks and grow away from them, from length 1 in √q z."""
    scale = 1 / np.sqrt(q)
    largest = np.sqrt(np.max(q, initial=1.0))
    steps = _GROWTH ** np.arange(np.ceil(np.log(2 * _WHOLE[-1] * largest) / np.log(_GROWTH)))
    offsets = np.concatenate([-steps[::-1], [0.0], steps])
    whole = np.array([-e for e in _WHOLE[::-1]] + [0.0] + list(_WHOLE))
    around = (np.asarray(kinks)[:, None] + offsets).ravel()
    around = around.reshape(-1, *(1,) * q.ndim) * scale
    fixed = np.broadcast_to(whole.reshape(-1, *(1,) * q.ndim), (len(whole), *q.shape))
    edges = np.sort(np.clip(np.concatenate([fixed, around]), -_WHOLE[-1], _WHOLE[-1]), axis=0)
    node, weight = panels(np.array([0.0, 1.0]), 16)
    column = (1, -1, *(1,) * q.ndim)
    lengths = np.diff(edges, axis=0)[:, None]
    z = edges[:-1, None] + lengths * node.reshape(column)
    weights = lengths * weight.reshape(column) * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return Nodes(z.reshape(-1, *q.shape), weights.reshape(-1, *q.shape))


def derivatives_in_variance(f: np.ndarray, nodes: Nodes, q: np.ndarray, order: int) -> np.ndarray:
    """Return E[f] and its first ``order`` ≤ 3 derivatives in q, (order + 1, *q)."""
    z = nodes.z
    hermite = [np.ones_like(z), z**2 - 1, z**4 - 6 * z**2 + 3, z**6 - 15 * z**4 + 45 * z**2 - 15]
    # The mean drops out of the derivatives; subtracting it removes most of the rounding error.
    mean = np.sum(f * nodes.weights, axis=0)
    centred = (f - mean) * nodes.weights
    slopes = [np.sum(centred * h, axis=0) / (2 * q) ** k for k, h in enumerate(hermite)]
    return np.stack([mean, *slopes[1 : order + 1]])
