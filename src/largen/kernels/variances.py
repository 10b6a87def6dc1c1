"""The preactivation variances of each activation of a network, for a few representative inputs.

The registered rules of the layers are applied to one sample at a time, with moments recorded
instead of computed (:mod:`largen.expectations.watching`), so that every layer with a rule is
covered. The inputs are chosen to give the largest variances. Sums over positions are largest if all
positions of a sample are equal; differences of positions are largest if these are uncorrelated, and
sums of signals with means are largest if each has the largest mean. Inputs of all three kinds are
used.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.compilation import Compiled
from largen.errors import NoTheory
from largen.expectations import ActivationFunction
from largen.expectations.accuracy import probes
from largen.expectations.watching import MomentRequest, watch
from largen.kernels.lower import Lowered
from largen.kernels.rules import pairs_of_functions, run, simplify, wanted_of_data
from largen.kernels.state import KernelState, Side, Wanted, equal_positions
from largen.programs import Program
from largen.programs.rewriting import map_operations


class Met(NamedTuple):
    """The preactivation variances of one activation in a network."""

    # Those of all its applications, one after the other, (any,). How many of them coincide differs
    # from layer to layer.
    variances: np.ndarray
    applications: int  # how often it is applied


class Input(NamedTuple):
    """A representative sample: numbers, or arrays of them for several samples."""

    q: Any  # mean square of the sample, the same at each position
    correlation: Any  # correlation of any two different positions
    mean: Any  # mean of the sample over √q


def mean_squares(lowered: Lowered, inputs: tuple[Any, ...]) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return the mean squares of all positions of concrete samples, and the spatial axes."""
    sizes, space = [], ()
    for x in inputs:
        x = np.asarray(x, np.float64)
        with jax.enable_x64(True):
            for phi in lowered.features:
                x = np.asarray(phi(x))
        with np.errstate(over="ignore"):
            sizes.append(np.mean(x**2, axis=-1).ravel())
        space = x.shape[1:-1]
    return np.concatenate(sizes), space


def activation_variances(
    lowered: Lowered, inputs: tuple[Any, ...]
) -> dict[ActivationFunction, Met]:
    """Return the preactivation variances of each activation, for concrete inputs.

    Empty if all expectations are exact and none is of two functions, or a value is traced.
    """
    sizes, space = mean_squares(lowered, inputs)
    few = _inputs(probes(sizes), wanted_of_data(lowered.program))
    known = _known(lowered.program, space)
    if known.get("exact"):
        return {}
    try:
        with jax.enable_x64(True), np.errstate(all="ignore"):
            through = _by_compiled_rules if space else _by_numpy
            requests = through(lowered.program, space, lowered.constants, few)
    except jax.errors.UnexpectedTracerError:
        raise NoTheory(
            "kernels: the variances that reach the activations cannot be followed, since a rule "
            "contains a compiled loop."
        ) from None
    except jax.errors.JAXTypeError:  # an activation holds traced values
        return {}
    known["exact"] = _exact(lowered.program, requests)
    found: dict[ActivationFunction, list[np.ndarray]] = {}
    for each in requests if not known["exact"] else ():
        found.setdefault(each.phi, []).extend(each.variances)
    return {phi: Met(np.concatenate(q), len(q)) for phi, q in found.items()}


@lru_cache(maxsize=256)
def _known(program: Program, space: tuple[int, ...]) -> dict[str, bool]:
    """Return a cache of results for a program, initially empty."""
    return {}


def _exact(program: Program, requests: list[MomentRequest]) -> bool:
    """Whether all expectations are closed forms, and none is of two functions."""
    forms = [each.phi.closed_form for each in requests]
    closed = all(form is not None and form.error is None for form in forms)
    return closed and not pairs_of_functions(program)


def _inputs(q: np.ndarray, required: Wanted) -> Input:
    """Return the representative samples, all that may give the largest variances."""
    found = [
        (size, 1.0, mean) for mean in ((0.0, 1.0, -1.0) if required.means else (0.0,)) for size in q
    ]
    if required.pairs:
        found += [(size, 0.0, 0.0) for size in np.quantile(q, [0, 0.5, 1])]
    return Input(*np.array(found).T)


def _by_numpy(program: Program, space: Any, constants: Any, few: Input) -> list[MomentRequest]:
    """Return the requests of samples without positions, all at once and without compilation."""
    n = len(few.q)
    means: Any = few.mean * np.sqrt(few.q) if wanted_of_data(program).means else None
    gap: Any = np.zeros((n, n))
    same: Any = np.eye(n, dtype=bool)
    side = Side(few.q, means)
    state = KernelState(side, side, gap, None, same)
    for only_which in (True, False):
        with watch(only_which) as found:
            run(program, constants, state, Wanted())
        if _exact(program, found.all):
            break
    return [MomentRequest(each.phi, [each.variances]) for each in found.all]


def _by_compiled_rules(
    program: Program, space: tuple[int, ...], constants: Any, few: Input
) -> list[MomentRequest]:
    """Return the requests of samples with positions, one sample at a time to save memory."""
    if "exact" not in _known(program, space):
        of_one = jax.eval_shape(partial(_requests, program, space), constants, few)
        if _exact(program, of_one):
            return of_one
    requests = _requests.quickly(program, space, constants, few)
    found = []
    for each in requests:
        ends = np.asarray(each.variances)  # (sample, 2), in loops (sample, copy, …, 2)
        found.append(
            MomentRequest(each.phi, list(np.moveaxis(ends, 0, -2).reshape(-1, 2 * len(ends))))
        )
    return found


@partial(Compiled, static_argnums=(0, 1))
def _requests(
    program: Program, space: tuple[int, ...], constants: Any, few: Input
) -> list[MomentRequest]:
    program = map_operations(program, simplify)
    required = wanted_of_data(program)
    constants = jax.tree.map(jnp.asarray, constants)

    def one(sample: Input) -> list[MomentRequest]:
        with watch() as found:
            run(program, constants, _state(sample, space, required), Wanted())
        return found.all

    return lax.map(one, Input(*map(jnp.asarray, few)))


def _state(sample: Input, space: tuple[int, ...], required: Wanted) -> KernelState:
    q = jnp.full((*space, 1), sample.q)
    within, pairs = None, jnp.zeros((*space, 1, 1))
    if required.pairs:
        apart = sample.q * (1 - sample.correlation)
        within = jnp.where(equal_positions(space, 1), 0.0, apart)
        pairs = within[..., None]
    mean = sample.mean * jnp.sqrt(q) if required.means else None
    side = Side(q, mean, within)
    return KernelState(side, side, pairs, None, jnp.ones((1, 1), bool))
