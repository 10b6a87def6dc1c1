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


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def measure(model: Model, state: State, constants: Constants) -> tuple[State, Kernels]:
    """Return the kernels of a state, and the state with what its matrices learnt of that."""
    columns, samples = constants.frozen_kernel.shape
    rows = columns if model.kept.test else samples
    weight, sites = constants.precision.weight, model.kept.sites
    state, passed = forward_pass(model, state, constants)
    outputs = len(state.params.readout)
    readout = constants.std[-1] * state.params.readout
    h = jnp.repeat(passed.h[:, :rows], outputs, axis=1)
    state, g, _ = backward_pass(model, state, constants, h, jnp.tile(readout, (rows, 1)))

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
    if any(problem.inside):
        # Within branches finite networks count gradients in units of the branch's factor.
        scale = np.where(problem.inside, problem.branch, 1.0) ** 2
        gradients = gradients / scale[:, None, None, None, None]
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
    g = g / np.where(problem.inside, problem.branch, 1.0)[:, None, None, None]
    return {"site_h": h, "site_g": g if output_shape else g[..., 0]}
