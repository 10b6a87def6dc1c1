"""Finite networks and their training: against NumPy, and what holds for every sum over samples."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tests.ordinary.data import plain
from tests.ordinary.registry import call, finite
from tests.ordinary.settings import SAMPLES, WIDTH, Setting, near, right_dtype, symmetric

import largen as lg

PHI = {
    "linear": lambda u: u,
    "relu": lambda u: np.maximum(u, 0),
    "leaky_relu": lambda u: np.where(u > 0, u, 0.01 * u),
    "abs": np.abs,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


def _params(s: Setting, dtype: Any = np.float64) -> Any:
    key = int(s.rng.integers(5))
    return lg.networks.init(s.net, lg.ntk(), width=WIDTH, inputs=s.inputs, key=key, dtype=dtype)


def _forward(steps: tuple, params: Any, x: np.ndarray) -> np.ndarray | None:
    """The network in NumPy, with the factors 1/√fan_in; None if it is not plain."""
    for step, weights in zip(steps, params, strict=True):
        if step[0] == "dense":
            x = step[1] * x @ weights["weight"].astype(float) / np.sqrt(x.shape[1])
            x = x + step[2] * weights["bias"] if step[2] else x
        elif step[1] in PHI:
            x = PHI[step[1]](x)
        else:
            return None
    return x[:, 0]


@call("apply", "FiniteNetwork", "finite_network", "init", takes=finite, weight=2)
def outputs(s: Setting) -> object:
    params = _params(s)
    found = lg.networks.apply(s.net, params, s.x)
    right_dtype("outputs", found, s.x, params[0]["weight"])
    size = np.abs(found).max() + 1e-300
    if s.network.plain:
        want = _forward(s.network.steps or (), params, s.double)
        if want is not None:
            near("NumPy", found, want, 1e-9 if s.tolerance < 1e-6 else 1e-4, size)
    network = lg.networks.finite_network(s.net, lg.ntk(), width=WIDTH, inputs=s.inputs)
    near("record", network.apply(params, s.x), found, 0)
    order = s.rng.permutation(SAMPLES)
    near("permuted", lg.networks.apply(s.net, params, s.plain[order]), found[order], 1e-5, size)
    if not s.network.batched:
        near("rows alone", lg.networks.apply(s.net, params, s.plain[:3]), found[:3], 1e-5, size)
    single = _params_in(params, np.float32)
    found32 = lg.networks.apply(s.net, single, s.plain.astype(np.float32))
    assert found32.dtype == np.float32
    return found


def _params_in(params: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda w: np.asarray(w).astype(dtype), params)


@call("empirical_ntk", takes=lambda n: n.finite and n.tangent and not n.batched, weight=2)
def empirical_ntk(s: Setting) -> object:
    params = _params(s, np.float32 if s.rng.integers(2) else np.float64)
    found = lg.networks.empirical_ntk(s.net, params, s.x)
    right_dtype("tangent kernel", found, s.x, params[0]["weight"])
    tolerance = 1e-8 if found.dtype == np.float64 else 1e-4
    symmetric("tangent kernel", found, tolerance)
    size = np.abs(found).max()
    order = s.rng.permutation(SAMPLES)
    other = lg.networks.empirical_ntk(s.net, params, s.plain[order])
    near("permuted", other, found[np.ix_(order, order)], 10 * tolerance, size)
    block = lg.networks.empirical_ntk(s.net, params, s.plain, s.plain[:3])
    near("block", block, found[:, :3], 10 * tolerance, size)
    return found


def _function(s: Setting) -> Any:
    """The network as a function of the user's own."""
    network = lg.networks.finite_network(s.net, lg.ntk(), width=WIDTH, inputs=s.inputs)
    return network.apply


OWN = ("relu", "tanh, depth 2", "erf", "residual relu", "convolution", "attention", "own, depth 2")


@call("ntk_of_function", "ntk_operator_of_function", takes=OWN, weight=2)
def tangent_kernel(s: Setting) -> object:
    f, params = _function(s), _params(s)
    found = lg.networks.ntk_of_function(f, params, s.x)
    symmetric("tangent kernel", found, 1e-6)
    with jax.enable_x64(True):
        jacobian = jax.jacobian(lambda p: f(p, jnp.asarray(s.double)))(
            jax.tree.map(jnp.asarray, params)
        )
        rows = [np.asarray(leaf).reshape(SAMPLES, -1) for leaf in jax.tree.leaves(jacobian)]
    want = sum(row @ row.T for row in rows)
    tolerance = 1e-9 if s.tolerance < 1e-6 else 1e-4
    near("Jacobian", found, want, tolerance)
    v = s.rng.standard_normal(SAMPLES)
    size = np.abs(want) @ np.abs(v) + 1e-300
    near("operator", lg.networks.ntk_operator_of_function(f, params, s.x) @ v, want @ v, 1e-4, size)
    return found


@call("nngp_of_function", takes=OWN)
def nngp_of_function(s: Setting) -> object:
    f, params = _function(s), _params(s)
    found = lg.networks.nngp_of_function(f, params, s.x)
    out = np.asarray(f(params, s.double)).reshape(SAMPLES, -1)
    near("products", found, out @ out.T / out.shape[1], 1e-8 if s.tolerance < 1e-6 else 1e-4)
    return found


@call("linearize", "taylor_expand", takes=OWN)
def expansions(s: Setting) -> object:
    f, params = _function(s), _params(s)
    moved = jax.tree.map(lambda w: w + 1e-3 * s.rng.standard_normal(w.shape), params)
    line = lg.networks.linearize(f, params)
    start = np.asarray(f(params, s.double))
    size = np.abs(start).max() + 1e-300
    loose = 1e-9 if s.tolerance < 1e-6 else 1e-4
    near("at the start", line(params, s.x), start, loose, size)
    change = np.asarray(line(moved, s.x)) - start
    doubled = jax.tree.map(lambda w, v: 2 * v - w, params, moved)
    near("linear", np.asarray(line(doubled, s.x)) - start, 2 * change, 1e3 * loose, size)
    first = lg.networks.taylor_expand(f, params, 1)
    near("first order", first(moved, s.x), line(moved, s.x), 10 * loose, size)
    traced = jax.jit(lambda p: line(p, s.plain))(moved)
    near("jit", traced, line(moved, s.plain), 1e-4, size)
    return change


# Training: networks whose programs are few.

TRAINED = ("relu", "tanh, depth 2", "erf", "convolution", "relu with biases, depth 3")


def run(s: Setting, param: Any = None, rate: float = 0.1) -> lg.Run:
    """Two steps, by default at a tenth of the critical rate of infinite width."""
    greatest = float(np.linalg.eigvalsh(s.kernels[1])[-1])
    optimizer = lg.gd(lr=rate * 2 * SAMPLES / (greatest or 1.0))
    data = lg.Dataset(s.x, s.y, s.x_new, _new_targets(s))
    param = lg.ntk() if param is None else param
    return lg.Run(s.net, param, data, optimizer=optimizer, steps=2)


def _new_targets(s: Setting) -> Any:
    y = np.asarray(s.y)[:1]
    return np.concatenate([y] * len(s.plain_new))


def few(given: Any, count: int) -> Any:
    """The first samples, in the form in which all are given."""
    return given.iloc[:count] if hasattr(given, "iloc") else given[:count]


def reordered(given: lg.Run, order: np.ndarray) -> lg.Run:
    """The same run with its training samples in another order."""
    d = given.data
    data = lg.Dataset(d.x_train[order], d.y_train[order], d.x_test, d.y_test)
    return lg.Run(given.net, given.param, data, given.loss, given.optimizer, given.steps)


@call("train", "Dataset", "Run", "gd", takes=TRAINED, needs="moderate", weight=2)
def train(s: Setting) -> object:
    given = run(s)
    found = lg.train(given, WIDTH, seeds=2, key=3, progress=False)
    want = np.float32 if plain(s.x).dtype == np.float32 else np.float64
    assert found.f_train.dtype == want, f"trained in {found.f_train.dtype}, wanted {want}"
    size = np.abs(found.f_train).max() + np.abs(s.plain_y).max()
    order = s.rng.permutation(SAMPLES)
    other = lg.train(reordered(given, order), WIDTH, seeds=2, key=3, progress=False)
    near("permuted", other.f_train, found.f_train[:, :, order], 1e-4, size)
    near("the first network", lg.train(given, WIDTH, seeds=1, key=3, progress=False).f_train[0],
         found.f_train[0], 1e-4, size)  # fmt: skip
    return found


def last(network: Any, start: Any, end: Any, x: Any) -> Any:
    """The outputs of the trained network."""
    return network.apply(end, x)


@call("train_and_measure", takes=TRAINED, needs="moderate")
def observe(s: Setting) -> object:
    given = run(s)
    found = lg.networks.train_and_measure(given, WIDTH, last, seeds=2, key=3, progress=False)
    nets = lg.train(given, WIDTH, seeds=2, key=3, progress=False)
    want = np.concatenate([nets.f_train[:, -1], nets.f_test[:, -1]], axis=1)
    size = np.abs(want).max() + np.abs(s.plain_y).max()
    near("outputs", np.asarray(found).reshape(want.shape), want, 1e-4, size)
    return found


@call("predict_networks", takes=("relu", "tanh, depth 2"), needs="moderate theory", weight=0.3)
def predict_networks(s: Setting) -> object:
    given = run(s)
    options = {"pilots": 8, "draws": 16, "throw": False, "progress": False}
    found = lg.training.predict_networks(given, 32, **options)
    low, high = found.interval(0.5)
    assert (low <= high).all()
    near("pilots", np.sort(found.at_width(16).loss_train, 0)[::2],
         np.sort(found.at_width(16)._pilots.losses("train"), 0), 1e-5)  # fmt: skip
    return found


@call("predict_training", takes=("tanh, depth 2", "erf"), needs="moderate theory")
def predict_training(s: Setting) -> object:
    given = run(s)
    params = lg.networks.init(given.net, given.param, width=WIDTH, inputs=s.inputs, key=0,
                     outputs=None if s.plain_y.ndim == 1 else s.plain_y.shape[1])  # fmt: skip
    return lg.training.predict_training(given, params, progress=False)


@call("convergence_bound", takes=TRAINED, needs="moderate theory singular")
def convergence_bound(s: Setting) -> object:
    given = run(s)
    params = lg.networks.init(given.net, given.param, width=WIDTH, inputs=s.inputs, key=0,
                     outputs=None if s.plain_y.ndim == 1 else s.plain_y.shape[1])  # fmt: skip
    found = lg.training.convergence_bound(given, params)
    assert 0 < found.smallest <= found.largest
    return found


@call("learning_rate_curve", "lazy_or_rich", takes=("relu", "tanh, depth 2"),
    needs="moderate theory",
      weight=0.5)  # fmt: skip
def curves(s: Setting) -> object:
    given = run(s)
    lr = given.optimizer.lr
    curve = lg.learning_rate_curve(given, [lr / 2, lr], width=WIDTH, seeds=4, progress=False)
    again = lg.learning_rate_curve(given, [lr / 2, lr], width=WIDTH, seeds=4, progress=False)
    near("again", again.losses, curve.losses, 0)
    return lg.training.lazy_or_rich(given, WIDTH, seeds=4, key=0, progress=False)


@call("catapult", "catapult_diagram", "linear_catapult_diagram", "linear_training",
      takes=("linear",), rows=True, needs="moderate theory singular")  # fmt: skip
def catapult(s: Setting) -> object:
    scalar = s.plain_y.reshape(SAMPLES, -1)[:1, 0]
    data = lg.Dataset(few(s.x, 1), scalar)
    rate = 0.1 / (1 + float(np.mean(s.double[0] ** 2)))
    given = lg.Run(s.net, lg.ntk(), data, optimizer=lg.gd(lr=rate), steps=2)
    found = lg.training.catapult(given, width=WIDTH)
    again = lg.training.catapult(given, width=WIDTH)
    near("again", again.losses, found.losses, 0)
    options: dict[str, Any] = {"widths": [4], "rates": [rate], "seeds": 1, "level": 0.99}
    limit, closed = lg.training.catapult(given), lg.training.linear_training(given)
    near("one sample", closed.f_train[:, 0], limit.outputs, 1e-9)
    lg.training.linear_catapult_diagram(given, **options, progress=False)
    diagram = lg.training.catapult_diagram(given, **options, progress=False)
    return diagram.data.drop_vars("steps")  # NaN where the loss stays above the level
