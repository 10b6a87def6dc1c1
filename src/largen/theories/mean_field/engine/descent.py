r"""Gradient descent, the same in all limits of infinite width.

With the negative gradient γ in units of the learning rate η, momentum β, weight decay λ, and
Langevin noise of temperature T, every trained variable makes the step

    v ← βv + η(γ − λθ) + √(2ηT) ξ,   θ ← θ + v.

It is linear in weights, and acts on all coordinates of weights in this form.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from largen.runs import Loss, Run

ESCAPED = 1e6  # outputs beyond this many times the size of the targets have diverged


class Step(NamedTuple):
    """The constants of a step."""

    rate: Any  # η₀
    momentum: Any  # β
    decay: Any  # λ₀, a tree like that of the variables; 0 for frozen ones


def moved(values: Any, velocity: Any, gradient: Any, step: Step) -> tuple[Any, Any]:
    """Return trees of variables and velocities after a step along γ; v = None without momentum."""
    change = jax.tree.map(
        lambda g, x, decay: step.rate * (g - decay * x), gradient, values, step.decay
    )
    if velocity is not None:
        change = jax.tree.map(lambda v, dx: step.momentum * v + dx, velocity, change)
    return jax.tree.map(operator.add, values, change), velocity if velocity is None else change


def moved_matrices(
    matrices: Any, gradient: Array, decay: Float[Array, " matrix"], step: Step
) -> Any:
    """Return matrices V = s V(0) + Q_o M Q_iᵀ/N after the step of :func:`moved` in M.

    The factor s is a variable without gradient that moves with the parameters.
    """
    step = step._replace(decay=decay[:, None, None])
    change, velocity = moved(matrices.change, matrices.velocity, gradient, step)
    return matrices._replace(change=change, velocity=velocity)


def noisy(values: Any, sizes: Any, rate: Any, key: Any) -> Any:
    """Return a tree of variables plus √η · size · ξ, with standard Gaussian ξ; size is √(2T)."""
    structure = jax.tree.structure(values)
    keys = structure.unflatten(list(jax.random.split(key, structure.num_leaves)))

    def with_noise(x: Array, size: Any, key: Any) -> Array:
        return x + jnp.sqrt(rate) * size * jax.random.normal(key, x.shape, x.dtype)

    return jax.tree.map(with_noise, values, sizes, keys)


def samples_of(batches: Array | None, step: Any, samples: int) -> Any:
    """Return the samples of a step: all of them without batches."""
    if batches is None:
        return slice(0, samples)
    return batches[jnp.minimum(step, len(batches) - 1)]


def sample_weights(run: Run, dtype) -> Float[Array, "_ sample"]:
    """Return the weight of each sample in the gradient of each step; one row if all are equal."""
    samples = len(run.data.x_train)
    if run.batches is None:
        return jnp.full((1, samples), 1 / samples, dtype)
    counts = np.zeros((len(run.batches) + 1, samples))
    for row, batch in zip(counts, run.batches, strict=False):
        row += np.bincount(batch, minlength=samples) / len(batch)  # some may be in it twice
    return jnp.asarray(counts, dtype)


def residual(
    loss: Loss, output_shape: tuple[int, ...], f: Float[Array, "k output"], targets: Array
) -> Float[Array, "k output"]:
    """Return Δ = −∂ℓ/∂f of samples over their number."""
    delta = loss.residual(f.reshape(-1, *output_shape), targets)
    return delta.reshape(f.shape).astype(f.dtype) / len(f)


def pulled_together(
    delta: Float[Array, "k output"], readout: Float[Array, "output n"], coupled: bool = False
) -> tuple[Float[Array, "k n"], Float[Array, " k"]]:
    """Return z and coefficients p with Σ_c Δ_c w_c = p z for each sample.

    Only Σ_c Δ_c ∂f_c/∂θ enters the update, so that one backward pass from z serves all outputs, and
    all samples if outputs depend on other samples (``coupled``): p is the same for them.
    """
    if delta.shape[1] == 1 and not coupled:
        return jnp.broadcast_to(readout, (len(delta), readout.shape[1])), delta[:, 0]
    size = jnp.abs(delta).max(1) + jnp.finfo(delta.dtype).tiny
    size = jnp.full_like(size, size.max()) if coupled else size
    return (delta / size[:, None]) @ readout, size


def largest_outputs(targets: Any) -> Any:
    """Return the size of outputs beyond which training has diverged."""
    return ESCAPED * (1 + abs(targets).max())


def goes_on(step: Any, stop: Any, outputs: Array, targets: Array) -> Bool[Array, ""]:
    """Whether training goes on before a step, given the outputs at all times so far."""
    bounded = jnp.all(jnp.abs(outputs[jnp.maximum(step - 1, 0)]) < largest_outputs(targets))
    return (step < stop) & ((step == 0) | bounded)
