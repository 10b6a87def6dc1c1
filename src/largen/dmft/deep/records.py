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
    """Kernels on the training samples at a time.

    Attributes
    ----------
    features
        Φˡ = ⟨φ(hˡ)φ(hˡ)⟩.
    gradients
        Gˡ = ⟨gˡgˡ⟩, for all pairs of outputs.
    """

    features: Float[Array | np.ndarray, "layer sample sample"]
    gradients: Float[Array | np.ndarray, "layer sample sample output output"]


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def measure(model: Model, state: State, constants: Constants) -> tuple[State, Kernels]:
    """Return the kernels of a state, and the state with what its matrices learnt of that."""
    samples = constants.frozen_kernel.shape[1]
    weight = constants.precision.weight
    state, passed = forward_pass(model, state, constants)
    features = passed.features[:, :samples]
    outputs = len(state.params.readout)
    readout = constants.std[-1] * state.params.readout
    z = jnp.tile(readout, (samples, 1))
    h = jnp.repeat(passed.h[:, :samples], outputs, axis=1)
    state, g, _ = backward_pass(model, state, constants, h, z)

    def gram(x):
        return weight * (x @ x.T)

    gradients = lax.map(gram, g).reshape(len(g), samples, outputs, samples, outputs)
    return state, Kernels(lax.map(gram, features), gradients.transpose(0, 1, 3, 2, 4))


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
        The tangent kernel of the part whose features stand still, on training samples.
    """
    features = np.stack([np.asarray(k.features, np.float64) for k in kernels])
    gradients = np.stack([np.asarray(k.gradients, np.float64) for k in kernels])
    # Axes (layer, output, output_2, record, sample, sample_2), for the sum over layers.
    phi = features.transpose(1, 0, 2, 3)
    g = gradients.transpose(1, 4, 5, 0, 2, 3)
    same = np.eye(problem.outputs)[:, :, None, None, None]
    # The read-out's bias is part of both: of the tangent kernel and of what stands still.
    still = same * (frozen - problem.maps[-1].bias_kernel_rate)
    ntk = tangent(problem, list(phi), list(g), same) + still
    ntk = ntk.transpose(2, 3, 4, 0, 1)
    if any(problem.inside):
        # Within branches finite networks count gradients in units of the branch's factor.
        scale = np.where(problem.inside, problem.branch, 1.0) ** 2
        gradients = gradients / scale[:, None, None, None, None]
    if not output_shape:
        gradients, ntk = gradients[..., 0, 0], ntk[..., 0, 0]
    return {"feature_kernel": features, "gradient_kernel": gradients, "ntk": ntk}
