"""The equations of motion of the neurons, and the outputs of the network.

With κ = η₀γ₀/P, a full batch and F the directions of the samples, gradient descent is exactly

    f_μ = ⟨z φ(h_μ)⟩/γ₀ + b,            h_μ = F_μ·a
    a ← a + κ ρ ∘ Σ_ν Δ_ν z φ'(h_ν) F_ν,   z ← z + κ ρ_out σ_out² Σ_ν Δ_ν φ(h_ν),
    b ← b + (η₀/P) ρ_b σ_b² Σ_ν Δ_ν

(Pehlevan and Bordelon's lecture notes, eq. (64), at finite step size). With minibatches the mean is
over the samples of the batch. Momentum, weight decay and Langevin noise act on a, z and b as they
do on the weights, since a, z and b are linear in the weights.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from largen.expectations import ActivationFunction
from largen.parameterizations import Averages, momentum_of, temperature_of
from largen.runs import Loss, Run
from largen.theories.mean_field.engine.descent import Step
from largen.theories.mean_field.one_hidden_layer.neurons import Neurons
from largen.theories.mean_field.one_hidden_layer.problem import OneLayerProblem


class OneLayerState(NamedTuple):
    """Trained variables: coordinates a, read-out weights z and the read-out's bias b."""

    directions: Float[Array, "neuron direction"]
    readout: Float[Array, "neuron output"]
    bias: Float[Array, " output"]


class OneLayerConstants(NamedTuple):
    """Constants of training; ``decay`` is λ₀, and ``noise`` √(2T₀ρ), of each trained variable."""

    weights: Float[Array, " neuron"]
    train: Float[Array, "sample direction"]
    test: Float[Array, "test_sample direction"]
    rate: Float[Array, " direction"]
    targets: Shaped[Array, "sample *target"]
    gamma: Float[Array, ""]
    rates: Float[Array, " time"]
    decay: OneLayerState
    momentum: Float[Array, ""]
    out_rate: Float[Array, ""]
    out_bias_rate: Float[Array, ""]
    steps: OneLayerState | None
    noise: OneLayerState | None = None


class Records(NamedTuple):
    """Kernels on the training samples at recorded time indices, and between pairs of these."""

    feature_kernel: Float[Array, "*record sample sample"]
    gradient_kernel: Float[Array, "*record sample sample output output"]
    ntk: Float[Array, "*record sample sample output output"]
    feature_kernel_pair: Float[Array, "pair sample sample"] | None = None
    gradient_kernel_pair: Float[Array, "pair sample sample output output"] | None = None
    ntk_test: Float[Array, "*record test_sample sample output output"] | None = None
    # The largest eigenvalue of the Hessian, its share in one neuron, and the curvature along the
    # gradient: see ``curvature.py``.
    sharpness: Float[Array | np.ndarray, "record 3"] | None = None


class Fields(NamedTuple):
    """φ(h), φ'(h) and z of neurons at several time indices."""

    features: Float[Array, "*time neuron sample"]
    derivatives: Float[Array, "*time neuron sample"]
    readout: Float[Array, "*time neuron output"]


class OneLayerModel(NamedTuple):
    """Static arguments of compiled functions.

    These are the activation, the loss, the shape of a sample's output, the adaptive averages, and
    whether the tangent kernel between test and training samples, and the sharpness, are recorded.
    """

    phi: ActivationFunction
    loss: Loss
    output_shape: tuple[int, ...]
    average: Averages | None = None
    test_kernel: bool = False
    curved: bool = False


def prepare(
    problem: OneLayerProblem, run: Run, neurons: Neurons, dtype
) -> tuple[OneLayerState, OneLayerConstants]:
    """Return the initial state and the constants of a run, in the precision of the neurons."""
    y, optimizer = run.data.y_train, run.optimizer

    def real(value) -> Array:
        return jnp.asarray(value, dtype)

    state = OneLayerState(
        real(neurons.directions), real(neurons.readout), real(np.zeros(problem.outputs))
    )
    constants = OneLayerConstants(
        weights=real(neurons.weights),
        train=real(problem.train),
        test=real(problem.test),
        rate=real(problem.rate),
        targets=real(y) if y.dtype.kind == "f" else jnp.asarray(y),
        gamma=real(problem.gamma),
        rates=real([optimizer.lr] if run.steps is None else np.append(run.rates, 0.0)),
        decay=_decay(problem, optimizer.weight_decay, real),
        momentum=real(momentum_of(optimizer)),
        out_rate=real(problem.out_rate),
        out_bias_rate=real(problem.out_bias_rate),
        steps=_steps(problem, real),
        noise=_noise(problem, temperature_of(optimizer), real),
    )
    return state, constants


def _steps(problem: OneLayerProblem, real) -> OneLayerState | None:
    steps = problem.steps
    if steps is None:
        return None
    return OneLayerState(*(real(step) for step in (steps.directions, steps.readout, steps.bias)))


def _decay(problem: OneLayerProblem, decay: float, real) -> OneLayerState:
    """Return λ₀ of each trained variable; 0 for frozen ones."""
    steps = problem.steps
    rates = (problem.rate, problem.out_rate, problem.out_bias_rate)
    if steps is not None:
        rates = (steps.directions, steps.readout, steps.bias)
    return OneLayerState(*(real(decay * np.sign(rate)) for rate in rates))


def _noise(problem: OneLayerProblem, temperature: float, real) -> OneLayerState | None:
    """Return √(2T₀ρ) in the units of a and z; 0 for b, whose noise vanishes in the limit."""
    if not temperature:
        return None
    rates = (problem.rate, problem.out_rate, 0.0)
    return OneLayerState(*(real(np.sqrt(2 * temperature * np.asarray(rate))) for rate in rates))


def _read_out(
    state: OneLayerState, constants: OneLayerConstants, features: Float[Array, "neuron points"]
):
    """Return outputs ``(sample, output)`` from features ``(neuron, sample)``."""
    weighted = constants.weights[:, None] * state.readout
    return features.T @ weighted / constants.gamma + state.bias


def forward(model: OneLayerModel, state: OneLayerState, constants: OneLayerConstants):
    """Return φ(h), φ'(h) and f on the training samples."""
    h = state.directions @ constants.train.T
    features, derivatives = model.phi(h), model.phi.derivative(h)
    return features, derivatives, _read_out(state, constants, features)


def test_outputs(model: OneLayerModel, state: OneLayerState, constants: OneLayerConstants):
    """Return f on the test samples."""
    features = model.phi(state.directions @ constants.test.T)
    return _read_out(state, constants, features)


def drift(
    model: OneLayerModel, state: OneLayerState, constants: OneLayerConstants, counts, ahead
) -> OneLayerState:
    """Return the negative gradient in the coordinates of the state."""
    return negative_gradient(state, constants, counts, ahead, residual(model, constants, ahead[2]))


def residual(model: OneLayerModel, constants: OneLayerConstants, f: Float[Array, "sample output"]):
    """Return Δ = −∂ℓ/∂f."""
    shaped = f.reshape(f.shape[0], *model.output_shape)
    return model.loss.residual(shaped, constants.targets).reshape(f.shape)


def negative_gradient(
    state: OneLayerState, constants: OneLayerConstants, counts, ahead, residual
) -> OneLayerState:
    """Return the negative gradient of the neurons' parameters for given residuals."""
    features, derivatives, _ = ahead
    pull = counts[:, None] * residual
    kick = constants.gamma * pull
    backward = derivatives * (state.readout @ kick.T)
    return OneLayerState(
        backward @ constants.train * constants.rate,
        features @ kick * constants.out_rate,
        pull.sum(0) * constants.out_bias_rate,
    )


def step_of(constants: OneLayerConstants, index) -> Step:
    """Return the constants of the step after a time index."""
    return Step(constants.rates[index], constants.momentum, constants.decay)


def step_with_decay(
    move: OneLayerState, state: OneLayerState, constants: OneLayerConstants, rate
) -> OneLayerState:
    """Return the step η(move − λθ), with weight decay."""
    return jax.tree.map(lambda dx, x, l: rate * (dx - l * x), move, state, constants.decay)


def kernels(model: OneLayerModel, state: OneLayerState, constants: OneLayerConstants) -> Records:
    """Return Φ, G and the tangent kernel on the training samples."""
    features, derivatives, _ = forward(model, state, constants)
    now = Fields(features, derivatives, state.readout)
    feature_kernel, gradient_kernel = kernels_between(constants, now, now)
    ntk = _tangent(constants, constants.train, feature_kernel, gradient_kernel)
    if not model.test_kernel:
        return Records(feature_kernel, gradient_kernel, ntk)
    h = state.directions @ constants.test.T
    test = Fields(model.phi(h), model.phi.derivative(h), state.readout)
    across = _tangent(constants, constants.test, *kernels_between(constants, test, now))
    return Records(feature_kernel, gradient_kernel, ntk, ntk_test=across)


def _tangent(
    constants: OneLayerConstants, rows: Float[Array, "row direction"], features, gradients
):
    """Return K = ρ_out σ_out² Φ + ρ_b σ_b² + G K⁰ between given samples and training samples.

    Φ = ⟨φ(h)φ(h)⟩ and G = ⟨g g⟩ with g = z φ'(h).
    """
    inputs = (rows * constants.rate) @ constants.train.T
    readout = constants.out_rate * features + constants.out_bias_rate
    ntk = readout[..., None, None] * jnp.eye(gradients.shape[-1], dtype=readout.dtype)
    return ntk + gradients * inputs[..., None, None]


def kernels_between(constants: OneLayerConstants, t: Fields, s: Fields):
    """Return Φ_μν(t, s) = ⟨φ(h_μ(t))φ(h_ν(s))⟩ and G_μν(t, s) = ⟨g_μ(t)g_ν(s)⟩."""
    phi = (constants.weights[:, None] * t.features).T @ s.features
    outputs = t.readout.shape[1]

    def gradient(c, d):
        weight = constants.weights * t.readout[:, c] * s.readout[:, d]
        return (weight[:, None] * t.derivatives).T @ s.derivatives

    rows, columns = jnp.divmod(jnp.arange(outputs**2), outputs)
    stacked = jax.lax.map(lambda pair: gradient(*pair), (rows, columns))
    return phi, jnp.moveaxis(stacked, 0, -1).reshape(*phi.shape, outputs, outputs)


def empty_records(
    model: OneLayerModel, state: OneLayerState, constants: OneLayerConstants, times: int
) -> Records:
    """Return buffers for the kernels at a given number of time indices."""
    samples, outputs = constants.train.shape[0], state.readout.shape[1]
    shape = (times, samples, samples)
    scalar = jnp.zeros(shape, state.readout.dtype)
    vector = jnp.zeros((*shape, outputs, outputs), state.readout.dtype)
    if not model.test_kernel:
        return Records(scalar, vector, vector)
    shape = (times, constants.test.shape[0], samples, outputs, outputs)
    return Records(scalar, vector, vector, ntk_test=jnp.zeros(shape, state.readout.dtype))
