"""Averages of functions of the outputs at order 1/width, by two rules that must agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from largen.arrays import precision
from largen.errors import InvalidInput, NumericalFailure
from largen.expectations.singularities import singular_places
from largen.finite_width.averages import in_parts, pairs_of, scores_of
from largen.finite_width.grids import PANELS_REACH, Grid, between_kinks, lattice
from largen.finite_width.pairs import hermite

Function = Callable[[np.ndarray], Any]
MOST_KINKS = 8
_SINGULAR = 1e-9  # of the smallest eigenvalue of a correlation, for derivatives of averages
# Radius of the ball and steps of two lattices, by the number of Gaussians.
_LATTICES = {1: (13, 0.1, 0.08), 2: (9.5, 0.2, 0.16), 3: (9, 0.5, 0.4), 4: (8.5, 0.6, 0.5)}
# Largest differences of two lattices and of two rules of panels, relative to the root mean squares
# of f and of the weights with which averages of f change; and, for the limit, relative to f alone.
_LATTICES_AGREE, _PANELS_AGREE, _ROUNDING = 1e-6, 1e-4, 1e-8
# Largest parts of an average and of its shift from where the rule is about to end.
_LATTICES_END, _PANELS_END, _SHELL = 1e-5, 1e-3, 0.93
_OTHERS = (0.4142, -0.7321, 1.2361)  # where other outputs are kept, in standard deviations
_SEARCHED = 9 / 48  # standard deviations for each unit in which kinks are looked for


class Expectation(NamedTuple):
    """An average at infinite width, and its shift at order 1/width."""

    limit: Any
    shift: Any

    @property
    def value(self) -> Any:
        """The average to order 1/width."""
        return self.limit + self.shift


def singular(kernel: np.ndarray) -> bool:
    """Whether derivatives of averages in a kernel do not exist."""
    scale = np.sqrt(np.diagonal(kernel))
    return bool(np.linalg.eigvalsh(kernel / np.outer(scale, scale))[0] < _SINGULAR)


def average(
    function: Function, K: np.ndarray, shift: np.ndarray, V: np.ndarray, neurons: int
) -> Expectation:
    """Return ⟨f⟩_K and ∂g·m + ½∂²g:V for f of some neurons of covariance K each."""
    scale = float(np.sqrt(np.diagonal(K).max()))
    f = _Checked(function, neurons, len(K), scale)
    order = _Order(K / scale**2, shift / scale**2, V / scale**4, neurons)
    joint = np.kron(np.eye(neurons), order.K)
    reach, *steps = _LATTICES[len(joint)]
    root = np.linalg.cholesky(joint)
    rules = [(z @ root.T, w) for z, w in (lattice(len(joint), step, reach) for step in steps)]
    coarse, fine = (_applied(f, order, Grid(*rule), reach) for rule in rules)
    if not fine.outside <= _LATTICES_END:
        raise NumericalFailure(
            f"function: grows too fast at large outputs: {fine.outside:.1g} of its average, or of "
            f"the shift, comes from beyond {_SHELL * reach:.2g} standard deviations, and they may "
            "not exist."
        )
    if _agree(coarse, fine, _LATTICES_AGREE):
        return fine.found
    kinks = _kinks(f, np.diagonal(joint))
    if kinks is not None:
        reach = PANELS_REACH[len(joint)]
        panels = (between_kinks(kinks, joint, more) for more in (1, 3))
        coarse, fine = (_applied(f, order, grid, reach) for grid in panels)
        if fine.outside <= _PANELS_END and _agree(coarse, fine, _PANELS_AGREE):
            return fine.found
    raise NumericalFailure(
        f"function: two rules for its average differ, {coarse.found.value:.8g} and "
        f"{fine.found.value:.8g}. It may be smooth, or have up to {MOST_KINKS} kinks or jumps, at "
        "fixed values of single outputs."
    )


class _Checked:
    """f at nodes in units of ``scale``, with what it returns checked."""

    def __init__(self, function: Function, neurons: int, inputs: int, scale: float) -> None:
        self._function, self._shape, self._scale = function, (-1, neurons, inputs), scale

    def __call__(self, points: np.ndarray) -> np.ndarray:
        nodes = self._scale * points.reshape(self._shape)
        with precision(nodes):  # of which kinks in jax.numpy are looked for
            f = np.asarray(self._function(nodes), np.float64)
        if f.shape != (len(points),):
            raise InvalidInput(
                f"function: wanted one number for each of {len(points)} nodes, which it gets as an "
                f"array (node, neuron, input) of shape {nodes.shape}; got shape {f.shape}."
            )
        if not np.isfinite(f).all():
            raise NumericalFailure("function: is not finite at all nodes.")
        return f


class _Order(NamedTuple):
    """The cumulants on which the order 1/width of one neuron's outputs depends."""

    K: np.ndarray
    shift: np.ndarray
    V: np.ndarray
    neurons: int

    def radii(self, points: np.ndarray) -> np.ndarray:
        """Return distances from 0 in standard deviations."""
        z = points.reshape(len(points), self.neurons, len(self.K))
        return np.sqrt(np.einsum("nia,nia->n", z @ np.linalg.inv(self.K), z))

    def weights(self, points: np.ndarray) -> np.ndarray:
        """Return weights with which ∂g·m + ½∂²g:V is an average of f over the nodes."""
        inverse, index_pairs = np.linalg.inv(self.K), pairs_of(len(self.K))
        z = points.reshape(len(points), self.neurons, len(self.K))
        total, second = np.zeros((len(z), len(index_pairs))), np.zeros(len(z))
        for neuron in range(self.neurons):
            one = scores_of(Grid(z[:, neuron], second), self.K)
            y = z[:, neuron] @ inverse
            for a, (i, j) in enumerate(index_pairs):
                for b, (k, l) in enumerate(index_pairs[a:], a):
                    # E[∂_a∂_b f] by one neuron's polynomial of fourth degree.
                    halves = (0.5 if i == j else 1.0) * (0.5 if k == l else 1.0)
                    fourth = halves * hermite(y, inverse, (i, j, k, l))
                    twice = self.V[a, b] * (0.5 if a == b else 1.0)
                    second += twice * (fourth - one[:, a] * one[:, b])
            total += one
        return total @ self.shift + second + np.einsum("na,ab,nb->n", total, self.V, total) / 2


class _Found(NamedTuple):
    """An average, its root mean square about the mean, and that of the weights of its shift.

    ``outside`` is the part of the average or of the shift, whichever is larger, from the outermost
    nodes: without it an average that does not exist would be that over a ball.
    """

    found: Expectation
    size: float
    weight: float
    outside: float


def _applied(f: _Checked, order: _Order, grid: Grid, reach: float) -> _Found:
    values = np.concatenate([f(points) for points, _ in in_parts(grid)])
    limit = float(grid.weights @ values)
    centred, shift, square, place = values - limit, 0.0, 0.0, 0
    parts = np.zeros((2, 2))  # (average or shift, all or outside) of absolute values
    for points, weights in in_parts(grid):
        along = order.weights(points)
        here = centred[place : place + len(along)] * weights
        sizes = np.abs(np.stack([here, here * along]))
        outside = order.radii(points) > _SHELL * reach
        parts += np.stack([sizes.sum(axis=1), sizes[:, outside].sum(axis=1)], axis=1)
        shift += float(here @ along)
        square += float(weights @ along**2)
        place += len(along)
    outside = float(max(out / whole if whole else 0.0 for whole, out in parts))
    scale = float(np.abs(centred).max()) or 1.0  # whose square may not be a floating-point number
    size = scale * float(np.sqrt(grid.weights @ (centred / scale) ** 2))
    return _Found(Expectation(limit, shift), size, square**0.5, outside)


def _agree(one: _Found, other: _Found, tolerance: float) -> bool:
    size = other.size * other.weight
    limit = max(tolerance * size, _ROUNDING * (other.size + abs(other.found.limit)))
    return (
        abs(one.found.limit - other.found.limit) <= limit
        and abs(one.found.shift - other.found.shift) <= tolerance * size
    )


def _kinks(f: _Checked, variances: np.ndarray) -> tuple[float, ...] | None:
    """Return the values of single outputs where f is not smooth; None for too many or moving ones.

    f may be smooth where other outputs vanish, as in a product of kinks.
    """
    places: set[float] = set()
    for number in range(len(variances)):
        kinks_so_far: set[float] = set()
        for other in _OTHERS[: len(variances)]:
            fixed = other * np.sqrt(variances) * (1 + 0.1 * np.arange(len(variances)))

            def along(t: np.ndarray, number: int = number, fixed: np.ndarray = fixed):
                points = np.tile(fixed, (t.size, 1))
                points[:, number] = _SEARCHED * t.ravel()
                values = f(points).reshape(t.shape)
                return values, values

            kinks = singular_places(along, MOST_KINKS)
            if kinks is None:
                return None
            here = {round(_SEARCHED * kink, 9) for kink in kinks}
            if not (here <= kinks_so_far or kinks_so_far <= here):
                return None
            kinks_so_far |= here
        places |= kinks_so_far
    return tuple(sorted(places)) if len(places) <= MOST_KINKS else None
