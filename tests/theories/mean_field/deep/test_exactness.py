"""A network of random matrices is a network: rebuilt from its bases and trained in plain NumPy.

With every direction kept, V(0) = (Ξ_i Q_iᵀ + Q_o Ξ_oᵀ)/N is one fixed matrix that has answered all
questions, whatever the order in which they came. So the sweep must be plain training of it.
"""

from functools import partial

import jax
import numpy as np
import pytest
from scipy.special import softmax

import largen as lg
from largen.theories.chains.problem import posed_by
from largen.theories.mean_field.deep.matrices.by_directions import Precision
from largen.theories.mean_field.deep.matrices.dense import drawn_by, stored
from largen.theories.mean_field.deep.sweep.causal_sweep import sweep
from largen.theories.mean_field.deep.sweep.schedule import descent
from largen.theories.mean_field.deep.sweep.start import begin, draw, initial_matrices
from largen.theories.mean_field.deep.sweep.state import SweepModel
from largen.theories.mean_field.options import SAMPLINGS

solve = partial(lg.solve, theory="mean field, deep")

RNG = np.random.default_rng(11)
X, XT = RNG.standard_normal((5, 7)), RNG.standard_normal((2, 7))
Y = np.array([1.0, -1.0, 1.0, 0.5, -0.3])
CLASSES = np.array([0, 1, 2, 0, 1])
STEPS, NEURONS = 7, 256
RATIOS = (1, 1 / 2, 3 / 2)


def case(layers, optimizer, param=None, bias_std=0.0, weight_std=1.0, classes=False, net=None):
    y, yt = (CLASSES, CLASSES[:2]) if classes else (Y, Y[:2])
    return lg.Run(
        net or lg.mlp(layers, "tanh", weight_std=weight_std, bias_std=bias_std),
        param or lg.mean_field(1.3),
        lg.Dataset(X, y, XT, yt),
        loss="softmax" if classes else "mse",
        optimizer=optimizer,
        steps=STEPS,
    )


CASES = {
    "three layers": case(3, lg.gd(0.8)),
    "rates": case(2, lg.gd(0.3), param=lg.mup(0.7)),
    "frozen": case(
        2, lg.gd(0.4, weight_decay=0.4), param=lg.mup(0.7).with_rates({"input": 0.0, "hidden": 0.0})
    ),
    "biases": case(2, lg.gd(0.5), bias_std=0.6, weight_std=1.3),
    "momentum": case(3, lg.gd(0.4, momentum=0.7)),
    "decay": case(
        3, lg.gd(0.6, momentum=0.7, weight_decay=0.3, schedule=lambda t: 0.8**t), bias_std=0.5
    ),
    "nothing is kept": case(  # η₀λ₀ = 1
        2, lg.gd(0.8, weight_decay=1.25), param=lg.mup(0.7).with_rates({"input": 0, "output": 0})
    ),
    "minibatch": case(2, lg.sgd(0.5, batch_size=2)),
    "classes": case(2, lg.gd(0.8), classes=True),
    "residual": case(
        0,
        lg.gd(0.4, momentum=0.5, weight_decay=0.2),
        param=lg.complete_p(1.2).with_rates({"output": 0.0}),
        net=lg.residual_mlp(2, "tanh", layers_per_block=2, bias_std=0.4),
    ),
    "ratios": case(3, lg.gd(0.4), net=lg.mlp(3, "tanh", bias_std=0.4, width_ratios=RATIOS)),
    "ratios and decay": case(
        3, lg.gd(0.4, momentum=0.5, weight_decay=0.2), net=lg.mlp(3, "tanh", width_ratios=RATIOS)
    ),
}


def swept(run, mode, dense_start=False):
    posed, rule = posed_by(run).problem, Precision(1 / NEURONS, 1e-6)
    model = SweepModel.of(posed, run, mode)
    with jax.enable_x64(True):
        start = draw(posed, mode, NEURONS, np.random.default_rng(3), rule, np.float64)
        keys = jax.random.split(jax.random.key(0), max(posed.streams) + 1)
        matrices = initial_matrices(start, (256, 256))
        if dense_start:
            start = start._replace(anchors=None)
            rng = np.random.default_rng(5)
            sides, dtype = (start.inputs, start.outputs), np.dtype(np.float64)
            matrices = stored(*sides, NEURONS, start.live, drawn_by(rng), dtype)
        weights = np.array(matrices.change)
        state, constants = begin(posed, run, descent(run), start, keys, rule, matrices)
        state, _ = sweep(model, state, constants, STEPS + 1)
        return posed, start, jax.tree.map(np.asarray, state._replace(draws=None)), weights


def dense(matrices):
    """Return V(0) of every matrix, neurons behind by neurons before."""
    inputs, outputs = matrices.inputs, matrices.outputs
    seen = np.einsum("lri,lrj->lij", inputs.images, inputs.basis)
    return (seen + np.einsum("lri,lrj->lij", outputs.basis, outputs.images)) / NEURONS


def trained(run, posed, start, weights):
    """Return f (step, sample, output) of gradient descent on every parameter."""
    optimizer, p = run.optimizer, posed.samples
    has = [False, *(bool(m.bias_std) for m in posed.maps[:-1])]
    zero = np.zeros(start.fields.shape[1])
    theta = [start.fields, start.readout, zero, *start.biases, *weights]
    theta.append(np.zeros(posed.outputs))
    velocity = [0 * part for part in theta]
    layers, maps, outputs = posed.hidden_layers, posed.maps, []
    for step in range(STEPS + 1):
        a, w, b, v, constant = *theta[:2], theta[2 : 2 + layers], theta[2 + layers : -1], theta[-1]
        h = [posed.fields @ a]
        for l in range(layers - 1):
            new = maps[l].std * np.tanh(h[-1]) @ v[l].T + maps[l].bias_std * b[l + 1]
            h.append(new + h[posed.skips[l]] if posed.skips[l] >= 0 else new)
        f = maps[-1].std * np.tanh(h[-1]) @ w.T / (posed.gamma * NEURONS) + constant
        outputs.append(f)
        rows = np.arange(p) if run.batches is None else run.batches[min(step, STEPS - 1)]
        if run.output_shape:
            delta = np.eye(3)[CLASSES[rows]] - softmax(f[rows], axis=1)
        else:
            delta = Y[rows, None] - f[rows]
        delta = delta / len(rows)
        eta = run.rates[min(step, STEPS - 1)]
        kappa = eta * posed.gamma
        pushes = [np.zeros_like(x[rows]) for x in h]
        pushes[-1] = (maps[-1].std * delta @ w) * (1 - np.tanh(h[-1][rows]) ** 2)
        step_w = kappa * maps[-1].rate * maps[-1].std * delta.T @ np.tanh(h[-1][rows])
        step_b, step_v = [np.zeros_like(part) for part in b], []
        for l in reversed(range(1, layers)):
            push, affine, skip = pushes[l], maps[l - 1], posed.skips[l - 1]
            if has[l]:
                step_b[l] = kappa * affine.bias_rate * affine.bias_std * push.sum(0)
            rate = kappa * affine.rate * affine.std / NEURONS
            step_v.insert(0, rate * push.T @ np.tanh(h[l - 1][rows]))
            if skip >= 0:
                pushes[skip] += push
            slope = 1 - np.tanh(h[l - 1][rows]) ** 2
            pushes[l - 1] += affine.std * (push @ v[l - 1]) * slope
        step_a = kappa * posed.field_rate[:, None] * (posed.fields[rows].T @ pushes[0])
        step_constant = eta * maps[-1].bias_kernel_rate * delta.sum(0)
        steps = [step_a, step_w, *step_b, *step_v, step_constant]
        decay = eta * optimizer.weight_decay
        moves = [posed.field_rate[:, None] > 0, maps[-1].rate > 0, True]
        moves += [m.bias_rate > 0 for m in maps[:-1]] + [m.rate > 0 for m in maps[:-1]] + [True]
        velocity = [
            optimizer.momentum * u + g - decay * m * t
            for u, g, t, m in zip(velocity, steps, theta, moves, strict=True)
        ]
        theta = [t + u for t, u in zip(theta, velocity, strict=True)]
    return np.array(outputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_training_of_the_rebuilt_network(name):
    mode = SAMPLINGS[len(name) % 2]
    run = CASES[name]
    posed, start, state, _ = swept(run, mode)
    expected = trained(run, posed, start, dense(state.matrices))
    assert np.abs(expected[-1] - expected[0]).max() > 0.1
    np.testing.assert_allclose(state.outputs[:, 0], expected, atol=2e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["biases", "minibatch", "decay"])
def test_linear_models_train_beside_the_network(name):
    """One by the exact tangent kernel, one by that of the neurons, which is that at the start."""
    run = CASES[name]
    _, start, state, _ = swept(run, "variance_reduced")
    exact, own = start.kernels
    x = np.concatenate([X, XT])
    np.testing.assert_allclose(exact, lg.kernel(run.net, x, X).ntk, rtol=1e-6)
    np.testing.assert_allclose(exact, own, atol=0.15 * exact.max())
    f, velocity = np.zeros((2, *state.outputs.shape[2:])), 0.0
    for step in range(STEPS):
        rows = np.arange(len(X)) if run.batches is None else run.batches[step]
        gradient = start.kernels[:, :, rows] @ (Y[rows, None] - f[:, rows]) / len(rows)
        eta, decay = run.rates[step], run.optimizer.weight_decay
        velocity = getattr(run.optimizer, "momentum", 0) * velocity + eta * (gradient - decay * f)
        f = f + velocity
        np.testing.assert_allclose(state.outputs[step + 1, 1:], f, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["decay", "residual", "ratios"])
def test_training_of_stored_matrices(name):
    """They answer at initialisation as those that are not stored, and then train as any others."""
    run = CASES[name]
    posed, start, state, weights = swept(run, "variance_reduced", dense_start=True)
    for v, (q_i, xi_i), (q_o, xi_o) in zip(weights, start.inputs, start.outputs, strict=True):
        np.testing.assert_allclose(v @ q_i.T, xi_i.T, atol=1e-9)
        np.testing.assert_allclose(q_o @ v, xi_o + (q_o @ xi_i.T) @ q_i / NEURONS, atol=1e-9)
        fresh = np.random.default_rng(0).standard_normal((200, v.shape[1])) @ v.T
        wide = np.any(v, 1).sum() * np.any(v, 0).sum()
        np.testing.assert_allclose(np.sum(fresh**2) * NEURONS / wide / 200, 1, atol=0.1)
    expected = trained(run, posed, start, weights)
    assert np.abs(expected[-1] - expected[0]).max() > 0.1
    np.testing.assert_allclose(state.outputs[:, 0], expected, atol=2e-9)


@pytest.mark.slow
def test_distribution_at_finite_width():
    """Mean and variance over seeds are those of networks of that width."""
    run = lg.Run(
        lg.mlp(3, "tanh"),
        lg.mean_field(1.0),
        lg.Dataset(X[:3], Y[:3]),
        optimizer=lg.gd(0.6),
        steps=10,
    )
    width, seeds = 64, 300
    ours = solve(
        run, sampling="finite_width", particles=width, replicates=seeds, rtol=3e-4, record_at=[]
    )
    theirs = lg.train(run, width=width, seeds=seeds, key=0).f_train[:, 1:]
    mean, variance = theirs.mean(0), theirs.var(0, ddof=1)
    z_mean = (ours.f_train[1:] - mean) / np.sqrt(2 * variance / seeds)
    # Outputs are nearly Gaussian: the logarithm of a sample variance has variance 2/seeds.
    z_variance = np.log(ours.f_train_std[1:] ** 2 / variance) / np.sqrt(4 / seeds)
    assert np.abs(z_mean).max() < 4
    assert np.abs(z_variance).max() < 4
