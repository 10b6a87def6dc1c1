"""Kernels at chosen times."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from largen.dmft.deep.initial_kernels import tangent
from largen.dmft.deep.problem import Problem
from largen.dmft.deep.state import Constants, Model, State
from largen.dmft.deep.sweep import backward_pass, forward_pass


class Kernels(NamedTuple):
    """What is kept at a time, between all samples (or the training samples) and those for training.

    Attributes
    ----------
    features
        Φˡ = ⟨φ(hˡ)φ(hˡ)⟩.
    gradients
        Gˡ = ⟨gˡgˡ⟩, for all pairs of outputs.
    h, g
        Of some neurons on training samples.
    """

    features: Float[Array | np.ndarray, "layer sample train"]
    gradients: Float[Array | np.ndarray, "layer sample train output output"]
    h: Float[Array | np.ndarray, "layer train site"]
    g: Float[Array | np.ndarray, "layer train output site"]


class Fields(NamedTuple):
    """φ(hˡ) and gˡ of all neurons on training samples, and on each output of them."""

    features: Float[Array | np.ndarray, "layer sample n"]
    gradients: Float[Array | np.ndarray, "layer sample output n"]


class Recorded(NamedTuple):
    """At what kernels are kept: entries, or steps of the sweep.

    Attributes
    ----------
    alone
        Φ(t, t), G(t, t) and what else is kept at a time, ``(record,)``.
    pairs
        Φ(t, s), G(t, s), ``(pair, 2)``.
    """

    alone: np.ndarray
    pairs: np.ndarray

    def at(self, steps: np.ndarray) -> Recorded:
        """Return steps for entries."""
        return Recorded(steps[self.alone], steps[self.pairs])

    @property
    def single(self) -> set[int]:
        """Those of Φ(t, t) and G(t, t)."""
        return set(self.alone.tolist())

    @property
    def paired(self) -> set[int]:
        """Those of which φ(h) and g are kept until they have met all others."""
        return set(self.pairs.ravel().tolist())

    def before(self, step: int) -> Recorded:
        """Return what is recorded before a step."""
        return Recorded(self.alone[self.alone < step], self.pairs[(self.pairs < step).all(axis=1)])

    def waiting(self, step: int) -> set[int]:
        """Return the times before a step that have yet to meet a later one."""
        met = (self.pairs < step).any(axis=1) & (self.pairs >= step).any(axis=1)
        return {int(min(pair)) for pair in self.pairs[met]}


NOTHING = Recorded(np.zeros(0, int), np.zeros((0, 2), int))


class Along(NamedTuple):
    """What has been recorded along a sweep so far.

    Attributes
    ----------
    kernels
        By step.
    fields
        Those that have yet to meet later ones, by step.
    pairs
        By their two steps.
    """

    kernels: dict[int, Kernels]
    fields: dict[int, Fields]
    pairs: dict[tuple[int, int], Kernels]

    @classmethod
    def nothing(cls) -> Along:
        """Return what there is at the beginning."""
        return cls({}, {}, {})

    def meet(self, step: int, now: Fields, recorded: Recorded, weight: float) -> None:
        """Take in φ(h) and g of a step: kernels with earlier ones, and those are let go."""
        self.fields[step] = now
        for t, s in recorded.pairs.tolist():
            if step == max(t, s) and (t, s) not in self.pairs:
                self.pairs[t, s] = between(self.fields[t], self.fields[s], weight)
        for past in self.fields.keys() - recorded.waiting(step + 1):
            del self.fields[past]


def between(t: Fields, s: Fields, weight: float) -> Kernels:
    """Return Φ_μν(t, s) = ⟨φ(h_μ(t))φ(h_ν(s))⟩ and G_μν(t, s), by matrix products."""
    layers, p, c, n = t.gradients.shape
    flat = (np.reshape(part, (layers, p * c, n)) for part in (t.gradients, s.gradients))
    g = np.stack([weight * (a @ b.T) for a, b in zip(*flat, strict=True)])
    phi = np.stack([weight * (a @ b.T) for a, b in zip(t.features, s.features, strict=True)])
    no_h, no_g = np.zeros((layers, p, 0), phi.dtype), np.zeros((layers, p, c, 0), phi.dtype)
    return Kernels(phi, g.reshape(layers, p, c, p, c).swapaxes(2, 3), no_h, no_g)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def fields(model: Model, state: State, constants: Constants) -> tuple[State, Fields]:
    """Return φ(h) and g on training samples, and the state with what its matrices learnt."""
    samples = constants.frozen_kernel.shape[1]
    state, passed = forward_pass(model, state, constants)
    state, g = _gradients(model, state, constants, passed.h[:, :samples])
    outputs = len(state.params.readout)
    return state, Fields(
        passed.features[:, :samples], g.reshape(len(g), samples, outputs, g.shape[-1])
    )


def _gradients(model: Model, state: State, constants: Constants, h) -> tuple[State, Array]:
    """Return g of each output at preactivations, outputs of a sample one after the other."""
    readout = constants.std[-1] * state.params.readout
    rows = jnp.tile(readout, (h.shape[1], 1))
    state, g, _ = backward_pass(model, state, constants, jnp.repeat(h, len(readout), axis=1), rows)
    return state, g


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def measure(model: Model, state: State, constants: Constants) -> tuple[State, Kernels]:
    """Return the kernels of a state, and the state with what its matrices learnt of that."""
    columns, samples = constants.frozen_kernel.shape
    rows = columns if model.kept.test else samples
    weight, sites = constants.precision.weight, model.kept.sites
    state, passed = forward_pass(model, state, constants)
    outputs = len(state.params.readout)
    state, g = _gradients(model, state, constants, passed.h[:, :rows])

    def gram(known):
        def one(x):
            return weight * (x @ x[:known].T)

        return one

    gradients = lax.map(gram(samples * outputs), g)
    gradients = gradients.reshape(len(g), rows, outputs, samples, outputs)
    return state, Kernels(
        lax.map(gram(samples), passed.features[:, :rows]),
        gradients.transpose(0, 1, 3, 2, 4),
        passed.h[:, :samples, :sites],
        g.reshape(len(g), rows, outputs, -1)[:, :samples, :, :sites],
    )


def trajectory_variables(
    problem: Problem, output_shape: tuple[int, ...], kernels: list[Kernels], frozen: np.ndarray
) -> dict[str, np.ndarray]:
    """Return Φ, G and the tangent kernel, records first.

    Parameters
    ----------
    problem, output_shape
        Of the run.
    kernels
        At each record.
    frozen
        The tangent kernel of the part whose features stand still, all samples by training samples.
    """
    samples = problem.samples
    features = np.stack([np.asarray(k.features, np.float64) for k in kernels])
    gradients = np.stack([np.asarray(k.gradients, np.float64) for k in kernels])
    # Axes (layer, output, output_2, record, sample, sample_2), for the sum over layers.
    phi = features.transpose(1, 0, 2, 3)
    g = gradients.transpose(1, 4, 5, 0, 2, 3)
    same = np.eye(problem.outputs)[:, :, None, None, None]
    # The read-out's bias is part of both: of the tangent kernel and of what stands still.
    still = same * (frozen[: features.shape[2]] - problem.maps[-1].bias_kernel_rate)
    ntk = tangent(problem, list(phi), list(g), same) + still
    ntk = ntk.transpose(2, 3, 4, 0, 1)
    gradients = gradients / _units(problem)[:, None, None, None, None] ** 2
    if not output_shape:
        gradients, ntk = gradients[..., 0, 0], ntk[..., 0, 0]
    found = {
        "feature_kernel": features[:, :, :samples],
        "gradient_kernel": gradients[:, :, :samples],
        "ntk": ntk[:, :samples],
    }
    return found if features.shape[2] == samples else found | {"ntk_test": ntk[:, samples:]}


def site_variables(
    problem: Problem, output_shape: tuple[int, ...], kernels: list[Kernels]
) -> dict[str, np.ndarray]:
    """Return h and z of single neurons, ``(record, layer, site, sample[, output])``."""
    h = np.stack([np.asarray(k.h, np.float64) for k in kernels]).swapaxes(2, 3)
    g = np.stack([np.asarray(k.g, np.float64) for k in kernels]).transpose(0, 1, 4, 2, 3)
    g = g / _units(problem)[:, None, None, None]
    return {"site_h": h, "site_g": g if output_shape else g[..., 0]}


def pair_variables(
    problem: Problem, output_shape: tuple[int, ...], pairs: list[Kernels]
) -> dict[str, np.ndarray]:
    """Return Φ(t, s) and G(t, s), ``(pair, layer, sample, sample_2[, output, output_2])``."""
    features = np.stack([np.asarray(k.features, np.float64) for k in pairs])
    gradients = np.stack([np.asarray(k.gradients, np.float64) for k in pairs])
    gradients = gradients / _units(problem)[:, None, None, None, None] ** 2
    if not output_shape:
        gradients = gradients[..., 0, 0]
    return {"feature_kernel_pair": features, "gradient_kernel_pair": gradients}


def _units(problem: Problem) -> np.ndarray:
    """Return the units in which finite networks count g: the branch's factor within branches."""
    return np.where(problem.inside, problem.branch, 1.0)
