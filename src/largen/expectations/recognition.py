"""Recognition of functions with kinks, for which other methods than the Hermite series are used.

The Hermite series of a function with a kink converges slowly. Functions of degree one, a x + b |x|,
such as a relu written by hand, have closed forms; piecewise linear functions with kinks elsewhere,
such as a hard tanh, have integrals over one angle; and curved functions with kinks elsewhere, such
as hard swish, have integrals over the pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from largen.expectations.closed_form import ClosedForm
from largen.expectations.homogeneous import homogeneous
from largen.expectations.jumps import jump
from largen.expectations.piecewise_linear import Kink, piecewise_linear
from largen.expectations.piecewise_smooth import piecewise_smooth
from largen.expectations.singularities import singular_places

# Irregularly spaced points over twelve decades.
_POINTS = np.exp(np.linspace(-14, 14, 301) + 0.01 * np.sin(np.arange(301.0) ** 2))


# Points of the search for kinks of piecewise linear functions, and the largest number of kinks.
_LINE = np.sort(np.concatenate([np.arange(-64, 64, 1 / 128) + 0.0013, 64 * _POINTS, -64 * _POINTS]))
_MOST_KINKS = 8
_BESIDE = 1e-7  # distance from a kink at which a jump is tested
_EPS = float(np.finfo(np.float64).eps)


@lru_cache(maxsize=256)
def recognise(
    function: Callable[[Array], Array], derivative: Callable[[Array], Array]
) -> ClosedForm | None:
    """Return the Gaussian integrals of a function with kinks away from 0, or None for any other.

    φ(x) = a x + b |x| is recognised by φ(±s) = s φ(±1) and φ'(±s) = ±φ(±1) up to rounding at 300
    points s between 1e-6 and 1e6; a jump at 0 between two constants, with φ(0) = 0, by the values
    at these points and those of the next sentence. Otherwise φ is piecewise linear if it is
    continuous and, with slope φ', linear on each of at most nine pieces of 16000 points that are
    spaced by 1/128 around 0 and reach to 1e8; features between these points are missed. Any other
    function that is smooth but for up to eight points between −48 and 48 is integrated piece by
    piece, with an error estimate, unless it is continuous and its only such point is 0.
    """
    points = np.concatenate([[1.0], _POINTS])
    try:
        x = np.concatenate([points, -points, [0.0], _LINE])
        with jax.enable_x64(True), jax.ensure_compile_time_eval():
            value, slope = (np.asarray(f, np.float64) for f in _samples(function, x))
    except Exception:  # the function holds traced values, or fails at these points
        return None
    if not (np.isfinite(value).all() and np.isfinite(slope).all()):
        return None
    n = len(points)
    cuts = (slice(n), slice(n, 2 * n))
    at_zero = float(value[2 * n]), float(slope[2 * n])
    form = _of_degree_one([value[c] for c in cuts], [slope[c] for c in cuts], *at_zero)
    form = form or _of_one_jump(value[x > 0], value[x < 0], slope, at_zero[0])
    form = form or _with_kinks(value[2 * n + 1 :], slope[2 * n + 1 :], *at_zero)
    return form or _in_pieces(function, derivative, np.max(np.abs(slope)))


def _in_pieces(function, derivative, steepest) -> ClosedForm | None:
    @jax.jit
    def both(x):
        return function(x), derivative(x)

    def sample(x):
        with jax.enable_x64(True), jax.ensure_compile_time_eval():
            value, slope = both(jnp.asarray(x))
            return np.asarray(value), np.asarray(slope)

    kinks = singular_places(sample, _MOST_KINKS)
    if not kinks:
        return None
    near = np.array(kinks)[:, None] + _BESIDE * np.array([-1, 1])
    jumps = bool(np.max(np.abs(np.diff(sample(near)[0]))) > 100 * _BESIDE * steepest)
    if not (jumps or any(kinks)):
        return None
    return piecewise_smooth(function, derivative, kinks, jumps)


def _samples(function, x):
    x = jnp.asarray(x)
    return jax.jit(lambda x: jax.jvp(function, (x,), (jnp.ones_like(x),)))(x)


def _of_degree_one(values, slopes, at_zero, slope_at_zero) -> ClosedForm | None:
    right, left = values[0][0], -values[1][0]
    size = 8 * _EPS * max(abs(right), abs(left))
    for side, value, slope in zip((right, left), (values[0], -values[1]), slopes, strict=True):
        if np.any(np.abs(value[1:] / _POINTS - side) > size) or np.any(np.abs(slope - side) > size):
            return None
    if at_zero != 0 or size == 0:
        return None
    return homogeneous(float(right + left) / 2, float(right - left) / 2, slope_at_zero)


def _of_one_jump(right, left, slope, at_zero) -> ClosedForm | None:
    """Return the integrals of a function that is constant on either side of 0, as sign and step."""
    high, low = right[0], left[0]
    if np.any(slope) or np.any(right != high) or np.any(left != low) or at_zero or high == low:
        return None
    return jump(float(abs(high - low)), float(high + low) / 2)


def _with_kinks(value, slope, at_zero, slope_at_zero) -> ClosedForm | None:
    same = 8 * _EPS * np.max(np.abs(slope))
    ends = np.flatnonzero(np.abs(np.diff(slope)) > same) + 1
    pieces = [slice(a, b) for a, b in zip([0, *ends], [*ends, len(_LINE)], strict=True)]
    if not 1 <= len(ends) <= _MOST_KINKS or min(p.stop - p.start for p in pieces) < 4:
        return None
    lines = []
    for piece in pieces:
        x, y, m = _LINE[piece], value[piece], slope[piece][0]
        nearest = np.argmin(np.abs(x))
        offset = y[nearest] - m * x[nearest]
        if np.any(
            np.abs(y - m * x - offset) > 8 * _EPS * (np.abs(y) + np.abs(m * x) + abs(offset))
        ):
            return None
        lines.append((float(m), float(offset)))
    places = []
    for (m, c), (m2, c2), end in zip(lines, lines[1:], ends, strict=False):
        place = (c - c2) / (m2 - m)
        slack = 64 * _EPS * max(1.0, abs(place))
        if not _LINE[end - 1] - slack <= place <= _LINE[end] + slack:
            return None  # a jump
        places.append(0.0 if abs(place) < slack else place)
    centre = sum(place < 0 for place in places)
    kinks = []
    for i, place in enumerate(places):
        before, after = lines[i], lines[i + 1]
        inner, outer = (after, before) if i < centre else (before, after)
        kinks.append(Kink(place, inner[0], outer[0], inner[0] * place + inner[1]))
    base, offset = lines[centre]
    if abs(at_zero - offset) > 8 * _EPS * max(abs(offset), abs(at_zero), abs(base)):
        return None
    return piecewise_linear(base, offset, tuple(kinks), slope_at_zero)
