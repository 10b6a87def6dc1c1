"""Regression on kernels: against NumPy's linear algebra, and what every predictor keeps to."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.ordinary.data import CLASSES
from tests.ordinary.networks import Network
from tests.ordinary.registry import call, with_kernels, with_tangents
from tests.ordinary.settings import SAMPLES, Setting, near, symmetric

import largen as lg
from largen.regression.learning_curves.mean_squares import mean_squares
from largen.regression.learning_curves.pool import pool_of

NOISE = 0.05  # relative to the mean of the diagonal


def _targets(s: Setting) -> float:
    """The size of targets, by which errors of predictions are measured."""
    return float(np.abs(s.plain_y).max(initial=0))


def _noise(s: Setting, which: int) -> float:
    K = s.kernels[which]
    return NOISE * float(np.diag(K).mean()) or NOISE


def _rounding(s: Setting, A: np.ndarray) -> float:
    return s.tolerance * max(10.0, float(np.linalg.cond(A)))


@call("posterior", takes=with_kernels, needs="singular", weight=2)
def posterior(s: Setting) -> object:
    kind = str(s.rng.choice(["nngp", "ntk-gp"])) if s.network.tangent else "nngp"
    which = int(kind == "ntk-gp")
    noise, given = _noise(s, which), {"kind": kind, **s.options}
    found = lg.posterior(s.net, s.x, s.y, noise=noise, **given).predict(s.x_new)
    K, cross = s.kernels[which], s.kernels_at(s.plain_new.astype(float), s.double)[which]
    own = s.kernels_at(s.plain_new.astype(float))[which]
    A = K + noise * np.eye(SAMPLES)
    weights = np.linalg.solve(A, cross.T)
    tolerance = _rounding(s, A)
    # At most √(K** / noise) times the targets: by the prior's size, as for few samples.
    bound = np.sqrt(np.diag(own).max() / noise) + 1
    near("mean", found.mean, weights.T @ s.plain_y, tolerance * bound, _targets(s))
    variance = np.diag(own) - np.sum(cross.T * weights, axis=0)
    near("variance", found.variance, variance, tolerance * bound, np.diag(own).max())
    assert np.all(np.asarray(found.variance) >= 0)
    return found


@call("posterior", takes=with_kernels, needs="singular")
def interpolation(s: Setting) -> object:
    """Without noise the training targets are what is predicted, and nothing is left to chance."""
    if s.condition() > 1e6 or s.network.name == "dropout":  # of two sets, masks differ
        return lg.posterior(s.net, s.x, s.y, noise="auto", **s.options).predict(s.x_new)
    given = lg.posterior(s.net, s.x, s.y, **s.options)
    found = given.predict(s.x)
    tolerance = s.tolerance * max(10.0, s.condition())
    near("interpolated", found.mean, s.plain_y, tolerance, _targets(s))
    near("variance", found.variance, np.zeros(SAMPLES), tolerance, np.diag(s.kernels[0]).max())
    part = given.predict(s.x_new)
    near("one row", given.predict(s.plain_new[:1]).mean, part.mean[:1], tolerance,
         _targets(s) + np.abs(part.mean).max())  # fmt: skip
    return part


@call("posterior", takes=with_tangents, needs="singular tangent")
def trained_posterior(s: Setting) -> object:
    noise = _noise(s, 1)
    found = lg.posterior(s.net, s.x, s.y, kind="ntk", noise=noise, **s.options).predict(s.x_new)
    cross = s.kernels_at(s.plain_new.astype(float), s.double)[1]
    A = s.kernels[1] + noise * np.eye(SAMPLES)
    want = cross @ np.linalg.solve(A, s.plain_y)
    near("mean", found.mean, want, 100 * _rounding(s, A), _targets(s) + np.abs(want).max())
    return found


@call("flow_posterior", takes=with_tangents, needs="singular tangent")
def flow_posterior(s: Setting) -> object:
    T = s.kernels[1]
    time = float(s.rng.choice([0.3, 5.0])) * SAMPLES / (float(np.diag(T).mean()) or 1.0)
    found = lg.regression.flow_posterior(s.net, s.x, s.y, time=time, **s.options).predict(s.x_new)
    cross = s.kernels_at(s.plain_new.astype(float), s.double)[1]
    values, modes = np.linalg.eigh(T)
    exponents = values * time / SAMPLES
    slow = np.where(np.abs(exponents) < 1e-12, 1, -np.expm1(-exponents) / np.where(
        np.abs(exponents) < 1e-12, 1, exponents))  # fmt: skip
    B = cross @ (modes * slow * time / SAMPLES) @ modes.T
    size = _targets(s) * (np.abs(B).sum(1).max() + 1)
    near("mean", found.mean, B @ s.plain_y, 100 * s.tolerance, size)
    assert np.all(np.asarray(found.variance) >= 0)
    return found


@call("log_likelihood", takes=with_kernels, needs="singular")
def log_likelihood(s: Setting) -> object:
    noise = _noise(s, 0)
    found = lg.regression.log_likelihood(s.net, s.x, s.y, noise=noise, **s.options)
    A = s.kernels[0] + noise * np.eye(SAMPLES)
    y = s.plain_y.reshape(SAMPLES, -1)
    fit = np.sum(y * np.linalg.solve(A, y))
    volume = np.linalg.slogdet(2 * np.pi * A)[1] * y.shape[1]
    tolerance = _rounding(s, A)
    near("likelihood", found.value, -(fit + volume) / 2, tolerance, fit + abs(volume) + SAMPLES)
    assert all(np.isfinite(float(g)) for g in found.gradient.values())
    return found


FITTED = ("relu with biases, depth 3", "erf, depth 3", "tanh", "relu", "convolution")


@call("fit_likelihood", takes=FITTED, needs="singular", weight=0.5)
def fit_likelihood(s: Setting) -> object:
    found = lg.regression.fit_likelihood(
        s.net, s.x, s.y, noise=_noise(s, 0), max_steps=5, throw=False
    )
    assert found.log_likelihood >= found.start - 1e-6 * abs(found.start)
    return found


@call("fit_cross_validation", takes=FITTED, needs="singular tangent", weight=0.5)
def fit_cross_validation(s: Setting) -> object:
    found = lg.regression.fit_cross_validation(
        s.net, s.x, s.y, noise=_noise(s, 1), max_steps=5, throw=False
    )
    assert found.error <= found.start * (1 + 1e-6)
    return found


@call("learning_curve", takes=with_tangents, needs="singular tangent")
def learning_curve(s: Setting) -> object:
    """The leave-one-out error is that of refits, for as many samples as there are."""
    ridge = _noise(s, 1)
    found = lg.regression.learning_curve(
        s.net, s.x, s.y, ridge=ridge, sizes=[1, SAMPLES - 1], **s.options
    )
    inverse = np.linalg.inv(s.kernels[1] + ridge * np.eye(SAMPLES))
    want = np.mean((inverse @ s.plain_y.reshape(SAMPLES, -1)).T ** 2 / np.diag(inverse) ** 2, 1)
    near("leave one out", np.atleast_1d(found.data["leave_one_out"]), want,
         100 * _rounding(s, s.kernels[1] + ridge * np.eye(SAMPLES)), _targets(s) ** 2)  # fmt: skip
    assert (found.mse_test >= 0).all()
    return found.mse_test


@call("random_feature_curve", takes=with_kernels, needs="singular")
def random_feature_curve(s: Setting) -> object:
    """Errors of many features are those of their kernel, and best ridges are no worse than one."""
    ridge = _noise(s, 0)
    found = lg.regression.random_feature_curve(
        s.net, s.x, s.y, ridge=ridge, sizes=[2, SAMPLES - 1], widths=[2, 10**9], **s.options
    )
    pool = pool_of(s.kernels[0].astype(float), s.plain_y.reshape(SAMPLES, -1).astype(float))
    alone = np.array([mean_squares(pool, n, ridge).outside for n in (2, SAMPLES - 1)])
    near("many features", found.mse_test[:, 1].reshape(2, -1), alone,
         100 * _rounding(s, s.kernels[0] + ridge * np.eye(SAMPLES)), _targets(s) ** 2)  # fmt: skip
    mean = found.mse_test.reshape(2, 2, -1).mean(axis=-1)
    best = found.data["best_mse"].values.reshape(2, 2, -1).mean(axis=-1)
    assert (best <= mean * (1 + 1e-3) + 1e-12 * _targets(s) ** 2).all()
    return found.mse_test


@call("target_spectrum", takes=with_tangents, needs="singular tangent")
def target_spectrum(s: Setting) -> object:
    """The trace of the kernel and the mean square of the targets are sums over modes."""
    found = lg.regression.target_spectrum(s.net, s.x, s.y, **s.options)
    K = s.kernels[1]
    near("trace", found.eigenvalues.sum(), np.trace(K) / SAMPLES, 100 * s.tolerance,
         np.trace(K) / SAMPLES)  # fmt: skip
    near("power", found.power.sum(axis=0), np.mean(s.plain_y**2, axis=0), s.tolerance,
         _targets(s) ** 2)  # fmt: skip
    return found.power


@call("rescaled_posterior", takes=("relu", "erf", "linear"), rows=True, needs="singular")
def rescaled_posterior(s: Setting) -> object:
    """Of networks that are very wide it is the posterior, for targets of the prior's size."""
    noise, size = _noise(s, 0), float(np.sqrt(np.diag(s.kernels[0]).max())) or 1.0
    y = s.plain_y.reshape(SAMPLES, -1)[:, 0]
    y = y / (np.abs(y).max() or 1.0) * size
    found = lg.regression.rescaled_posterior(s.net, s.x, y, s.x_new, width=10**7, noise=noise)
    want = lg.posterior(s.net, s.double, y, noise=noise).predict(s.plain_new)
    size = size * (size / np.sqrt(noise) + 1) + np.abs(want.mean).max()
    near("mean", found.mean, want.mean, 1e3 * s.tolerance + 1e-4, size)
    return found


@call("low_rank_posterior", takes=lambda n: n.kernels and n.name != "dropout", needs="singular")
def low_rank_posterior(s: Setting) -> object:
    """With all samples as landmarks it is the posterior itself."""
    noise = _noise(s, 0)
    given = lg.regression.large.low_rank_posterior(
        s.net, s.x, s.y, noise=noise, landmarks=SAMPLES, **s.options
    )
    found = given.predict(s.x_new)
    want = lg.posterior(s.net, s.double, s.plain_y, noise=noise, **s.options).predict(s.plain_new)
    size = (
        _targets(s) * (np.sqrt(np.diag(s.kernels[0]).max() / noise) + 1) + np.abs(want.mean).max()
    )
    near("mean", found.mean, want.mean, 1e3 * s.tolerance, size)
    return found


@call("solve_kernel", takes=with_kernels, needs="singular")
def solve_kernel(s: Setting) -> object:
    K, noise = s.kernels[0], _noise(s, 0)
    found = lg.regression.large.solve_kernel(K, s.y, noise=noise, rank=3)
    A = K + noise * np.eye(SAMPLES)
    residual = A @ np.asarray(found.weights, float) - s.plain_y.reshape(found.weights.shape)
    near("residual", residual, 0 * residual, 1e-6, _targets(s))
    return found


@call("posterior_from_kernel", "flow_posterior_from_kernel", takes=with_tangents,
      needs="singular tangent")  # fmt: skip
def from_kernel(s: Setting) -> object:
    K, T = s.kernels
    noise = _noise(s, 0)
    cross = s.kernels_at(s.plain_new.astype(float), s.double)
    found = lg.regression.posterior_from_kernel(K, s.y, noise=noise).predict(cross[0])
    want = cross[0] @ np.linalg.solve(K + noise * np.eye(SAMPLES), s.plain_y)
    size = _targets(s) + np.abs(want).max()
    near("mean", found.mean, want, _rounding(s, K + noise * np.eye(SAMPLES)), size)
    time = SAMPLES / (float(np.diag(T).mean()) or 1.0)
    flow = lg.regression.flow_posterior_from_kernel(T, s.y, time=time).predict(cross[1])
    want = lg.regression.flow_posterior(s.net, s.double, s.plain_y, time=time, **s.options)
    want = want.predict(s.plain_new.astype(float)).mean
    near("flow", flow.mean, want, 1e-6, _targets(s) + np.abs(want).max())
    return found, flow.mean


@call("critical_learning_rate", "optimal_learning_rate", "relaxation_times", takes=with_tangents,
      needs="singular tangent")  # fmt: skip
def rates(s: Setting) -> object:
    T = s.kernels[1]
    values = np.linalg.eigvalsh(T)
    near("critical", lg.regression.critical_learning_rate(T), 2 * SAMPLES / values[-1], 1e-10)
    best = lg.regression.optimal_learning_rate(T)
    assert 0 < best <= 2 * SAMPLES / values[-1] * (1 + 1e-9)
    times = lg.regression.relaxation_times(T).times
    finite_ones = np.sort(times)[: np.sum(values > 1e-6 * values[-1])]
    near("times", finite_ones, SAMPLES / values[::-1][: len(finite_ones)], 1e-8,
         SAMPLES / values[::-1][: len(finite_ones)])  # fmt: skip
    return finite_ones


def _linear(network: Network) -> bool:
    return network.name in ("linear", "linear, depth 5")


@call("solve_deep_linear", "whitened_linear_flow", takes=_linear, needs="moderate singular")
def solve_deep_linear(s: Setting) -> object:
    gram = s.double @ s.double.T / s.double.shape[1]
    y = s.y if s.plain_y.ndim == 1 else s.plain_y[:, 0]
    # At a rate that is small for these samples and targets.
    lr = 0.05 / (float(np.linalg.eigvalsh(gram)[-1]) * (1 + _targets(s)) or 1.0)
    found = lg.theories.solve_deep_linear(gram, y, hidden_layers=2, lr=lr, steps=2)
    order = s.rng.permutation(SAMPLES)
    y = np.asarray(y, float)[order]
    other = lg.theories.solve_deep_linear(
        gram[np.ix_(order, order)], y, hidden_layers=2, lr=lr, steps=2
    )
    near("permuted", other.f_train, found.f_train[:, order], 1e-9, _size(s, found.f_train))
    length = float(np.linalg.norm(y))
    if 0.01 < length < 30:
        flow = lg.theories.whitened_linear_flow(np.array([0.0, 0.5]), y=length)
        assert np.all(np.abs(flow.f) <= length)
    return found


ESTIMATED = ("relu", "erf, depth 3", "tanh, depth 2", "relu with biases, depth 3", "gelu, depth 2")


@call("NNGPRegressor", "NTKRegressor", "KernelFlowRegressor", takes=ESTIMATED, rows=True,
      needs="singular tangent", weight=2)  # fmt: skip
def regressors(s: Setting) -> object:
    kind = (lg.NNGPRegressor, lg.NTKRegressor, lg.regression.KernelFlowRegressor)[s.rng.integers(3)]
    options = (
        {}
        if kind is lg.regression.KernelFlowRegressor
        else {"noise": ("auto", 0.1)[s.rng.integers(2)]}
    )
    estimator = kind(s.net, normalize_y=bool(s.rng.integers(2)), **options)
    found = _fit(estimator, s, s.y)
    near("a column or not", found.shape[1:], np.shape(s.y)[1:], 0)
    near("twice", _fit(clone(estimator), s, s.y), found, 0)
    spread = _size(s, found)
    rows = estimator.predict(s.x_new)
    near("one row", estimator.predict(s.plain_new[:1]), rows[:1], 1e-3, spread)

    def permuted() -> None:
        order = s.rng.permutation(SAMPLES)
        other = _fit(clone(estimator), s, s.plain_y[order], s.plain[order])
        near("permuted", other, found, 1e-3, spread)

    def other_units() -> None:
        if options.get("noise") == "auto" and not estimator.normalize_y:
            return  # the likelihood of noise compares targets with the kernel's scale
        other = _fit(clone(estimator), s, 8 * s.plain_y)
        near("other units", other, 8 * found, 1e-3, 8 * spread)

    def in_pipeline() -> None:
        pipeline = make_pipeline(StandardScaler(), clone(estimator))
        pipeline.fit(s.plain, s.y).predict(s.plain_new)  # scikit-learn's step takes no tensors

    s.one_of(1, permuted, other_units, in_pipeline)
    return found


def _size(s: Setting, found: np.ndarray) -> float:
    return _targets(s) + float(np.abs(found).max())


def _fit(estimator: Any, s: Setting, y: Any, x: Any = None) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # scikit-learn's, of columns and names
        return estimator.fit(s.x if x is None else x, y).predict(s.x_new)


@call("NNGPClassifier", "NTKClassifier", "KernelFlowClassifier", takes=ESTIMATED, rows=True,
      needs="singular tangent", weight=2)  # fmt: skip
def classifiers(s: Setting) -> object:
    kind = (lg.NNGPClassifier, lg.NTKClassifier, lg.regression.KernelFlowClassifier)[
        s.rng.integers(3)
    ]
    options = (
        {}
        if kind is lg.regression.KernelFlowClassifier
        else {"noise": ("auto", 0.1)[s.rng.integers(2)]}
    )
    estimator = kind(s.net, **options)
    classes = CLASSES[str(s.rng.choice([*CLASSES]))](s.rng, SAMPLES)
    found = _fit(estimator, s, classes)
    assert set(found) <= set(np.asarray(classes)), f"{set(found)} are no classes"
    assert list(estimator.classes_) == sorted(set(np.asarray(classes)))
    chances = estimator.predict_proba(s.x_new)
    near("probabilities", chances.sum(1), np.ones(len(chances)), 1e-6)
    assert np.array_equal(_fit(clone(estimator), s, classes), found)
    return found


@call("critical_learning_rate", takes=lambda n: n.finite and not n.batched, needs="singular")
def rates_of_networks(s: Setting) -> object:
    """Tangent kernels of finite networks are taken as they come."""
    params = lg.networks.init(s.net, lg.ntk(), width=8, inputs=s.inputs, key=1)
    T = lg.networks.empirical_ntk(s.net, params, s.x)
    symmetric("tangent kernel", T, 1e-4)
    found = lg.regression.critical_learning_rate(T)
    with np.errstate(divide="ignore"):  # where nothing moves, every rate is stable
        near("critical", found, 2 * SAMPLES / np.linalg.eigvalsh(T.astype(float))[-1], 1e-3)
    return T
