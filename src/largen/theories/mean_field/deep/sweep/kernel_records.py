"""Kernels recorded at chosen times."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from largen.compilation import Sooner
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.sweep.causal_sweep import (
    Seen,
    backward_field,
    backward_pass,
    forward_pass,
    hidden,
    live_features,
)
from largen.theories.mean_field.deep.sweep.state import SweepConstants, SweepModel, SweepState
from largen.theories.mean_field.record_times import Recorded

# The variables that a record of outliers becomes.
OUTLIERS = ("singular_values", "right_overlap", "left_overlap", "bulk_edge")


class RecordedKernels(NamedTuple):
    """Kernels at a time, between all samples (or the training samples) and the training samples."""

    # Φˡ = ⟨φ(hˡ)φ(hˡ)⟩, the mean over positions after pooling.
    features: Float[Array | np.ndarray, "layer sample train"]
    # Gˡ = ⟨gˡgˡ⟩, for all pairs of outputs; the sum over positions.
    gradients: Float[Array | np.ndarray, "layer sample train output output"]
    tangent: Float[Array | np.ndarray, "sample train output output"]
    # h, g, z: the fields h, g and z of the sample neurons on training samples.
    h: Float[Array | np.ndarray, "layer train position neuron"]
    g: Float[Array | np.ndarray, "layer train output position neuron"]
    z: Float[Array | np.ndarray, "layer train output position neuron"]
    # Of hidden weights, on request; see ``outliers.py``.
    outliers: Float[Array | np.ndarray, "matrix four value"] = np.zeros((0, 4, 0))


class Fields(NamedTuple):
    """φ(hˡ) of all neurons on training samples, and gˡ on training samples and outputs.

    All positions are in one row. Those of φ(hˡ) are after pooling, divided by the root of their
    number.
    """

    features: Float[Array | np.ndarray, "layer sample n"]
    gradients: Float[Array | np.ndarray, "layer sample output n"]


class Along(NamedTuple):
    """The records of a sweep so far."""

    kernels: dict[int, RecordedKernels]  # equal-time kernels by step
    fields: dict[int, Fields]  # the fields that are needed for kernels with later times, by step
    pairs: dict[tuple[int, int], RecordedKernels]  # kernels between two times, by their two steps

    @classmethod
    def nothing(cls) -> Along:
        """Return empty records."""
        return cls({}, {}, {})

    def meet(self, step: int, now: Fields, recorded: Recorded, weight: float) -> None:
        """Record kernels between the fields of a step and earlier ones; drop fields after use."""
        self.fields[step] = now
        for t, s in recorded.pairs.tolist():
            if step == max(t, s) and (t, s) not in self.pairs:
                self.pairs[t, s] = between(self.fields[t], self.fields[s], weight)
        for past in self.fields.keys() - recorded.waiting(step + 1):
            del self.fields[past]


def between(t: Fields, s: Fields, weight: float) -> RecordedKernels:
    """Return Φ_μν(t, s) = ⟨φ(h_μ(t))φ(h_ν(s))⟩ and G_μν(t, s), without K, by matrix products."""
    layers, p, c, n = t.gradients.shape
    flat = (np.reshape(part, (layers, p * c, n)) for part in (t.gradients, s.gradients))
    g = np.stack([weight * (a @ b.T) for a, b in zip(*flat, strict=True)])
    phi = np.stack([weight * (a @ b.T) for a, b in zip(t.features, s.features, strict=True)])
    none = (layers, p, 1, 0), (layers, p, c, 1, 0), (layers, p, c, 1, 0)
    rest = (np.full(shape, np.nan) for shape in ((p, p, c, c), *none))
    return RecordedKernels(phi, g.reshape(layers, p, c, p, c).swapaxes(2, 3), *rest)


@partial(Sooner, static_argnums=0, donate_argnums=1)
def look(
    model: SweepModel, state: SweepState, constants: SweepConstants
) -> tuple[SweepState, Seen]:
    """Return the fields of a record, and the state with the directions that they add."""
    _, total, samples = constants.kernels.shape
    rows = total if model.kept.test else samples
    state, passed = forward_pass(model, state, constants)
    h = passed.h[:, : rows * constants.positions.places]
    state, g = _gradients(model, state, constants, h)
    return state, Seen(h, g, passed.last[:rows])


@partial(Sooner, static_argnums=0)
def fields(model: SweepModel, state: SweepState, constants: SweepConstants, seen: Seen) -> Fields:
    """Return φ(h) and g on training samples."""
    samples, at = constants.kernels.shape[2], constants.positions
    h = seen.h[:, : samples * at.places]
    g = seen.g[:, : samples * at.places * len(state.params.readout)]
    features = lax.map(
        lambda l: at.pool(l, live_features(model, constants, l, h[l])), jnp.arange(len(h))
    )
    return Fields(features, g.reshape(len(g), samples, len(state.params.readout), -1))


def _gradients(
    model: SweepModel, state: SweepState, constants: SweepConstants, h
) -> tuple[SweepState, Array]:
    """Return g of each output at given h, with the outputs of a sample in consecutive rows.

    Where outputs depend on other samples, there is none of a sample alone, and g is 0.
    """
    readout = constants.std[-1] * state.params.readout
    layers, columns, n = h.shape
    samples = columns // constants.positions.places
    each = jnp.repeat(h.reshape(layers, samples, -1, n), len(readout), axis=1)
    if model.coupled:
        return state, jnp.zeros_like(each).reshape(layers, -1, n)
    rows = jnp.tile(readout, (samples, 1))
    state, g, _ = backward_pass(model, state, constants, each.reshape(layers, -1, n), rows)
    return state, g


def _backward_fields(
    model: SweepModel, state: SweepState, constants: SweepConstants, g: Array
) -> Array:
    """Return z¹ … zᴸ for gradients whose directions are already in the bases."""
    at, count = constants.positions, hidden(state, constants)
    readout = constants.std[-1] * state.params.readout
    samples = g.shape[1] // (len(readout) * at.places)
    z = jnp.zeros_like(g).at[count].set(at.from_readout(jnp.tile(readout, (samples, 1))))

    def layer(l, z):
        draws = state.draws[model.streams[0]]
        _, z_l, *_ = backward_field(
            model, state.matrices, state.share(l), constants, l, g[l + 1], draws
        )
        return z.at[l].set(z_l)

    return lax.fori_loop(0, count, layer, z) if state.matrices.number else z


@partial(Sooner, static_argnums=0)
def measure(
    model: SweepModel, state: SweepState, constants: SweepConstants, seen: Seen
) -> RecordedKernels:
    """Return the kernels of the fields of a state."""
    weight, at, outputs = constants.precision.weight, constants.positions, len(state.params.readout)
    (h, g, last), samples = seen, constants.kernels.shape[2]
    (layers, _, n), rows = h.shape, len(last)

    def gram(x, of_one):
        return weight * (x @ x[: samples * of_one].T)

    def pair(l):
        features = at.pool(l, live_features(model, constants, l, h[l]))
        g_l = g[l].reshape(rows * outputs, -1)
        return gram(features, 1), gram(g_l, outputs)

    features, gradients = lax.map(pair, jnp.arange(layers))
    gradients = gradients.reshape(layers, rows, outputs, samples, outputs)
    z = _backward_fields(model, state, constants, g) if model.kept.sample_neurons else g
    by_neuron = (x.reshape(layers, rows, outputs, at.places, n) for x in (g, z))
    all_neurons = (h.reshape(layers, rows, at.places, n), *by_neuron)
    return RecordedKernels(
        features,
        gradients.transpose(0, 1, 3, 2, 4),
        _tangent(model, constants, h, g, last),
        *(x[:, :samples, ..., : model.kept.sample_neurons] for x in all_neurons),
    )


def _tangent(
    model: SweepModel, constants: SweepConstants, h, g, last
) -> Float[Array, "sample train o o"]:
    """Return K = Φᴸ + Σ Gˡ Φˡ⁻¹, as in ``tangent`` in ``initial_kernels.py``.

    Between two different outputs only the terms with gradients contribute.
    """
    rows, samples = len(last), constants.kernels.shape[2]
    weight, at = constants.precision.weight, constants.positions
    outputs = g.shape[1] // h.shape[1]
    rated = (constants.fields * constants.field_rate)[: rows * at.places]
    rated = rated @ constants.fields[: samples * at.places].T

    def term(g, read, each):
        known = samples * outputs * each
        gram = weight * (g @ g[:known].T).reshape(rows, outputs, each, samples, outputs, each)
        return jnp.einsum("mcandb,manb->mncd", gram, read.reshape(rows, each, samples, each))

    def behind(l):
        x = at.patches(l, live_features(model, constants, l, h[l]))
        phi = weight * (x @ x[: samples * at.output_positions].T)
        read = constants.rate[l] * constants.std[l] * phi
        read = read + constants.bias_rate[l] * constants.bias_std[l]
        return term(at.narrow(g[l + 1]), read, at.output_positions)

    kernel = term(g[0], rated, at.places)
    if len(h) > 1:
        kernel = kernel + lax.map(behind, jnp.arange(len(h) - 1)).sum(0)
    phi = constants.rate[-1] * constants.std[-1] * weight * (last @ last[:samples].T)
    phi = phi + constants.bias_rate[-1] * constants.bias_std[-1]
    return kernel + phi[:, :, None, None] * jnp.eye(outputs, dtype=phi.dtype)


def kernel_variables(
    problem: Problem,
    output_shape: tuple[int, ...],
    kernels: list[RecordedKernels],
    pairs: list[RecordedKernels],
) -> dict[str, np.ndarray]:
    """Return all kernels by name, at single times and between pairs of times."""
    found = trajectory_variables(problem, output_shape, kernels) if kernels else {}
    return found | (pair_variables(problem, output_shape, pairs) if pairs else {})


def trajectory_variables(
    problem: Problem, output_shape: tuple[int, ...], kernels: list[RecordedKernels]
) -> dict[str, np.ndarray]:
    """Return Φ, G and the tangent kernel, with a leading axis of records."""
    samples = problem.samples
    features, gradients, ntk = (
        np.stack([np.asarray(getattr(k, name), np.float64) for k in kernels])
        for name in ("features", "gradients", "tangent")
    )
    gradients = gradients / _units(problem)[:, None, None, None, None] ** 2
    if not output_shape:
        gradients, ntk = gradients[..., 0, 0], ntk[..., 0, 0]
    found = {
        "feature_kernel": _of_own_neurons(problem, features)[:, :, :samples],
        "gradient_kernel": gradients[:, :, :samples],
        "ntk": ntk[:, :samples],
    }
    if kernels[0].outliers.size:
        parts = np.moveaxis(np.stack([np.asarray(k.outliers) for k in kernels]), 2, 0)
        found |= dict(zip(OUTLIERS, (*parts[:3], parts[3, ..., 0]), strict=True))
    return found if features.shape[2] == samples else found | {"ntk_test": ntk[:, samples:]}


def neuron_variables(
    problem: Problem, output_shape: tuple[int, ...], kernels: list[RecordedKernels]
) -> dict[str, np.ndarray]:
    """Return h, g and z of neurons, ``(record, layer, neuron, sample[, position][, output])``.

    Values are NaN at positions that a layer does not have; with one position the axis is absent.
    """
    h = np.stack([np.asarray(k.h, np.float64) for k in kernels]).transpose(0, 1, 4, 2, 3)
    found = {"neuron_h": h}
    for name in ("g", "z"):
        x = np.stack([np.asarray(getattr(k, name), np.float64) for k in kernels])
        x = x.transpose(0, 1, 5, 2, 4, 3) / _units(problem)[:, None, None, None, None]
        found[f"neuron_{name}"] = x if output_shape else x[..., 0]
    if max(problem.positions) == 1:
        return {name: x[:, :, :, :, 0] for name, x in found.items()}
    for x in found.values():
        for l, positions in enumerate(problem.positions):
            x[:, l, :, :, positions:] = np.nan
    return found


def pair_variables(
    problem: Problem, output_shape: tuple[int, ...], pairs: list[RecordedKernels]
) -> dict[str, np.ndarray]:
    """Return Φ(t, s) and G(t, s), ``(pair, layer, sample, sample_2[, output, output_2])``."""
    features = np.stack([np.asarray(k.features, np.float64) for k in pairs])
    gradients = np.stack([np.asarray(k.gradients, np.float64) for k in pairs])
    gradients = gradients / _units(problem)[:, None, None, None, None] ** 2
    if not output_shape:
        gradients = gradients[..., 0, 0]
    features = _of_own_neurons(problem, features)
    return {"feature_kernel_pair": features, "gradient_kernel_pair": gradients}


def _of_own_neurons(problem: Problem, features: np.ndarray) -> np.ndarray:
    """Return Φ as means over each layer's neurons, given averages per unit of width."""
    return features / np.array(problem.ratios, float)[:, None, None]


def _units(problem: Problem) -> np.ndarray:
    """Return the units of g in finite networks: the branch's factor within residual branches."""
    return np.where(problem.inside, problem.branch, 1.0)
