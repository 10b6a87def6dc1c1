"""The number of steps in depth of an infinitely deep network, from a few pairs of samples.

Pairs with variances of the samples, at angles from 0 to π, are propagated through the whole network
with increasing numbers of steps, spread over the depth in several ways, until doubling the number
changes no kernel by more than the accepted error. The steps depend only on the samples' sizes, so
that they are the same for all tiles.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from largen.kernels.lower import Lowered
from largen.kernels.rules import BiasedDepth, InfiniteDepth, run, wanted_of_data
from largen.kernels.rules.depth_steps import MOST_STEPS, steps_of
from largen.kernels.state import KernelState, Side, Wanted
from largen.kernels.variances import mean_squares
from largen.programs import Program

STREAMS = (InfiniteDepth, BiasedDepth)  # operations whose constants have steps
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
# Offsets of the first step: large ones give equal steps, for smooth branches; small ones serve
# samples that are nearly opposite.
STARTS = (10.0, 2.0, 1.0, 0.8, 0.6, 0.35, 0.25, 0.15, 0.06, 0.0)
SAFETY = 2  # factor by which errors, relative to the roots of the diagonals, must be below ``rtol``
COSINES = np.array([1, 1 - 1e-6, 1 - 1e-3, 0.9, 0.5, 0, -0.5, -0.9, -0.99, -0.999, -1 + 1e-5, -1])


def with_suitable_steps(
    lowered: Lowered, inputs: tuple[Any, ...], with_ntk: bool, rtol: float
) -> Lowered:
    """Return the network with the fewest steps in depth that reach ``rtol``, else with the most."""
    place = _place_of_stream(lowered.program)
    if place is None:
        return lowered
    probe = _Probe(lowered, place, inputs, with_ntk)
    for count in COUNTS:
        errors = [probe.error(count, start) for start in STARTS]
        best = int(np.argmin(errors))
        if errors[best] <= rtol / SAFETY:
            return _with_steps(lowered, place, steps_of(count, STARTS[best]))
    return _with_steps(lowered, place, steps_of(COUNTS[-1], STARTS[-1]))


def shortfall_in_depth(
    lowered: Lowered, inputs: tuple[Any, ...], with_ntk: bool, rtol: float
) -> str | None:
    """Return an error message if kernels miss ``rtol`` for these steps in depth, else None."""
    place = _place_of_stream(lowered.program)
    if place is None:
        return None
    probe = _Probe(lowered, place, inputs, with_ntk)
    error = probe.distance(
        probe.kernels_by(lowered.constants[place].steps), probe.kernels(MOST_STEPS, STARTS[-1])
    )
    if error <= rtol:
        return None
    return (
        f"kernels: steps in depth leave an error of {error:.1e}, which is above rtol = {rtol:g}. "
        "Kernels grow exponentially with weight_std² along infinitely many blocks: pass a smaller "
        "one, or accept a larger rtol."
    )


class _Probe:
    """A few pairs of samples, propagated through a network with any steps in depth."""

    def __init__(self, lowered: Lowered, place: int, inputs: tuple[Any, ...], with_ntk: bool):
        q, space = mean_squares(lowered, inputs)
        self._few = np.unique([q.min(), np.median(q), q.max()])
        self._few = np.resize(self._few, 3)  # one shape, hence one program
        self._lowered, self._place, self._space = lowered, place, space
        self._with_ntk = with_ntk

    def kernels(self, count: int, start: float) -> np.ndarray:
        """Return NNGP and NTK for ``count`` steps."""
        return self.kernels_by(steps_of(count, start))

    def kernels_by(self, steps: np.ndarray) -> np.ndarray:
        """Return NNGP and NTK for given steps, (2, few, angles, few)."""
        constants = _with_steps(self._lowered, self._place, steps).constants
        leaves, tree = jax.tree.flatten(constants)
        numbers = tuple((np.shape(leaf), np.asarray(leaf, float).tobytes()) for leaf in leaves)
        found = _Numbers(numbers, tree)
        return _kernels(
            self._lowered.program, self._with_ntk, self._space, found, self._few.tobytes()
        )

    def error(self, count: int, start: float) -> float:
        """Return the largest error, estimated by doubling the number of steps."""
        twice = self.kernels(2 * count, start)
        return self.distance(self.kernels(count, start), twice)

    def distance(self, one: np.ndarray, two: np.ndarray) -> float:
        """Return the largest difference over the roots of diagonals; infinite if not finite.

        The roots are those of the second kernels: divided by its own, a kernel of which steps have
        changed the scale alone would look exact.
        """
        roots = np.sqrt(np.einsum("kii->ki", two[:, :, 0]))
        scale = (roots[:, :, None] * roots[:, None])[:, :, None]
        apart = float(np.max(np.abs(one - two) / np.where(scale > 0, scale, 1)))
        return apart if np.isfinite(apart) else np.inf


class _Numbers(tuple):
    """Constants as a hashable key of a cache: their shapes, bytes and tree structure."""

    def __new__(cls, numbers, tree):
        return super().__new__(cls, (numbers, tree))

    @property
    def constants(self) -> Any:
        numbers, tree = self
        return jax.tree.unflatten(
            tree, [np.frombuffer(data).reshape(shape) for shape, data in numbers]
        )


@lru_cache(maxsize=256)
def _kernels(program, with_ntk, space, numbers: _Numbers, few: bytes) -> np.ndarray:
    with jax.enable_x64(True), np.errstate(all="ignore"):
        q = jnp.asarray(np.frombuffer(few))
        found = _compile(program, with_ntk, space, numbers.constants, q)
        kernels = found if with_ntk else found[:1]
        return np.stack(kernels).reshape(-1, len(q), len(COSINES), len(q))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _compile(
    program: Program,
    with_ntk: bool,
    space: tuple[int, ...],
    constants: Any,
    q: Float[Array, " few"],
) -> tuple[Any, Any]:
    """Return both kernels of samples of these variances, at all angles."""
    required = wanted_of_data(program)
    columns = jnp.tile(q, len(COSINES))  # angles first
    cosines = jnp.repeat(jnp.asarray(COSINES), len(q))
    roots = jnp.sqrt(q)
    gap = (roots[:, None] - jnp.sqrt(columns)) ** 2 / 2
    gap = gap + (1 - cosines) * roots[:, None] * jnp.sqrt(columns)
    gap = jnp.where(jnp.tile(jnp.eye(len(q), dtype=bool), len(COSINES)) & (cosines == 1), 0, gap)

    def side(q: Any) -> Side:
        everywhere = jnp.broadcast_to(q, (*space, len(q)))
        within = jnp.zeros((*space, *space, len(q))) if required.pairs else None
        return Side(everywhere, jnp.zeros_like(everywhere) if required.means else None, within)

    gap = jnp.broadcast_to(gap, (*space, *space * required.pairs, *gap.shape))
    ntk = jnp.zeros_like(gap) if with_ntk else None
    same = jnp.zeros(gap.shape[-2:], bool)
    constants = jax.tree.map(jnp.asarray, constants)
    state = KernelState(side(q), side(columns), gap, ntk, same)
    final = run(program, constants, state, Wanted())
    return final.covariance, final.ntk


def _place_of_stream(program: Program) -> int | None:
    """Return the position of infinitely many blocks whose constants have steps, or None."""
    for place, operation in enumerate(program.operations):
        if isinstance(operation, STREAMS) and getattr(operation, "diffusive", True):
            return place
    return None


def _with_steps(lowered: Lowered, place: int, steps: np.ndarray) -> Lowered:
    """Return the network with other steps in depth."""
    constants = list(lowered.constants)
    constants[place] = constants[place]._replace(steps=steps)
    return lowered._replace(constants=tuple(constants))
