"""Limits of training, comparison with networks, and corrections of finite width."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from tests.ordinary.of_networks import few, reordered, run
from tests.ordinary.registry import call, with_tangents
from tests.ordinary.settings import SAMPLES, WIDTH, Setting, near, sizes

import largen as lg


@call("solve", takes=lambda n: with_tangents(n) and n.name != "dropout", needs="moderate theory",
      weight=2)  # fmt: skip
def kernel_limit(s: Setting) -> object:
    if s.options:
        return None
    given = run(s)
    found = lg.solve(given)
    T, cross = s.kernels[1], s.kernels_at(s.plain_new.astype(float), s.double)[1]
    y = s.plain_y
    f, f_new = np.zeros_like(y), np.zeros((len(s.plain_new), *y.shape[1:]))
    for _ in range(2):
        error = given.optimizer.lr / SAMPLES * (y - f)
        f, f_new = f + T @ error, f_new + cross @ error
    size = np.abs(y).max() + np.abs(f).max()
    near("training samples", found.f_train[-1], f, 10 * s.tolerance, size)
    near("new samples", found.f_test[-1], f_new, 10 * s.tolerance, size + np.abs(f_new).max())
    near("kernel", found.ntk, T, s.tolerance, sizes(T))
    return found


MOVING = ("erf", "tanh, depth 2", "linear", "relu")


def mean_field_run(s: Setting) -> lg.Run:
    """A run in the mean field, with targets of order one."""
    return run(s, lg.mean_field(), rate=0.05 / (1 + float(np.abs(s.plain_y).max())))


@call("solve", "mean_field", takes=MOVING, needs="moderate theory")
def mean_field(s: Setting) -> object:
    given = mean_field_run(s)
    cheap: dict[str, Any] = {"theory": lg.theories.DeepMeanField(particles=128, replicates=2)}
    options = cheap if s.network.name.endswith("2") else {}
    found = lg.solve(given, throw=False, **options)
    order = s.rng.permutation(SAMPLES)
    other = lg.solve(reordered(given, order), throw=False, **options)
    if not options:
        error = found.f_train_error[:, order] + other.f_train_error  # of replicates: a scale
        error = error + 1e-6 * (np.abs(found.f_train).max() + np.abs(s.plain_y).max())
        near("permuted", other.f_train, found.f_train[:, order], 10, error)
    return found


@call("equilibrium", takes=("linear", "relu"), needs="moderate theory singular")
def equilibrium(s: Setting) -> object:
    """At rest f = Φ(Φ + κ)⁻¹y, with Φ from the neurons themselves."""
    size = float(np.diag(s.kernels[0]).mean() * np.abs(s.plain_y).max()) or 1.0
    given = run(s, lg.mean_field(), rate=0.1)
    decay = lg.gd(lr=given.optimizer.lr, weight_decay=0.1 * size / SAMPLES)
    found = lg.training.equilibrium(given.with_changes(optimizer=decay))
    assert found.stationarity < 2e-3  # the root of rtol
    return found


@call("compare", "cite", "save", "load", takes=("relu", "erf"), needs="moderate theory")
def compare(s: Setting) -> object:
    given = run(s)
    limit = lg.solve(given)
    nets = lg.train(given, WIDTH, seeds=3, key=0, progress=False)
    found = lg.compare(limit, nets)
    assert len(str(found)) > 20
    assert len(lg.cite(limit)) > 20
    with tempfile.TemporaryDirectory() as folder:
        again = lg.load(lg.save(Path(folder) / "both.nc", limit=limit, nets=nets))
    near("loaded", again["limit"].f_train, limit.f_train, 0)
    return found


@call(
    "response_functions",
    takes=("tanh, depth 2", "erf", "relu"),
    needs="moderate theory",
    weight=0.5,
)
def response_functions(s: Setting) -> object:
    return lg.theories.response_functions(mean_field_run(s), particles=128, replicates=2)


@call("measure_exponents", "feature_movement", takes=("relu",), needs="moderate theory", weight=0.3)
def exponents(s: Setting) -> object:
    given = run(s)
    lg.training.feature_movement(given, [0.5, 1.0], [4, 8], seeds=2, key=0, progress=False)
    return lg.scaling.measure_exponents(given, [4, 8, 16], seeds=2, key=0, progress=False)


@call("width_corrections_in_training", takes=("erf", "tanh, depth 2"), needs="moderate theory",
      weight=0.5)  # fmt: skip
def corrections_in_training(s: Setting) -> object:
    options = {"width": 4, "replicates": 2, "max_replicates": 2, "progress": False}
    return lg.training.width_corrections_in_training(mean_field_run(s), **options)


WIDE = ("relu", "erf", "tanh, depth 2", "linear", "relu with biases, depth 3", "residual relu")
FULLY = tuple(name for name in WIDE if name != "residual relu")


@call("width_corrections", takes=WIDE, rows=True, needs="singular theory")
def width_corrections(s: Setting) -> object:
    count = 2 if s.network.name == "residual relu" else 3  # as many as there are rules for
    found = lg.finite_width.width_corrections(s.net, few(s.x, count), width=100)
    K = s.kernels_at(s.double[:count])
    near("kernel", found.kernel, K[0], s.tolerance, sizes(K[0]))
    last = [count - 1, 0]
    part = lg.finite_width.width_corrections(s.net, s.double[last], width=100)
    for name in ("kernel_shift", "ntk_shift"):
        whole, of_two = getattr(found, name), getattr(part, name)
        if whole is not None:
            size = np.abs(whole).max() + np.abs(K[0]).max() / 100
            near(name, of_two, whole[np.ix_(last, last)], 1e-4, size)
    V = np.asarray(found.kernel_covariance)
    near("covariance", V, V.T, 1e-9)
    if s.network.name == "linear":  # S = Σ zz'/n: (K_ac K_bd + K_ad K_bc)/n
        a, b = np.asarray(found.pairs).T
        K = K[0]
        want = K[np.ix_(a, a)] * K[np.ix_(b, b)] + K[np.ix_(a, b)] * K[np.ix_(b, a)]
        near("Wishart", V, want / 100, s.tolerance)
    return found


@call("width_fluctuations", takes=WIDE, rows=True, needs="singular theory")
def width_fluctuations(s: Setting) -> object:
    options: dict[str, Any] = {"width": 100, "draws": 8, "key": 0}
    found = lg.finite_width.width_fluctuations(s.net, s.x, **options)
    again = lg.finite_width.width_fluctuations(s.net, s.x, **options)
    near("again", again.kernel_samples, found.kernel_samples, 0)
    near("kernel", found.kernel, s.kernels[0], s.tolerance, sizes(s.kernels[0]))
    return found


@call("kernel_spectrum", takes=FULLY, rows=True, needs="singular theory")
def kernel_spectrum(s: Setting) -> object:
    found = lg.finite_width.kernel_spectrum(s.net, s.x, width=2 * SAMPLES)
    z = -0.1 * float(found.covariance_eigenvalues.mean())
    assert 0 < found.resolvent(z) * -z <= 1 + 1e-9
    assert np.all(found.to_xarray()["density"] >= 0)
    return found


@call("corrected_posterior", takes=FULLY, rows=True, needs="singular theory")
def corrected_posterior(s: Setting) -> object:
    y = s.y if s.plain_y.ndim == 1 else s.plain_y[:, 0]
    noise = 0.1 * (float(np.diag(s.kernels[0]).mean()) or 1.0)
    options: dict[str, Any] = {"width": 100, "noise": noise, "draws": 8, "key": 0}
    found = lg.finite_width.corrected_posterior(s.net, s.x, y, s.x_new, **options)
    cross = s.kernels_at(s.plain_new.astype(float), s.double)[0]
    A = s.kernels[0] + noise * np.eye(SAMPLES)
    want = cross @ np.linalg.solve(A, np.asarray(y, float))
    near("mean", found.mean, want, 1e3 * s.tolerance, np.abs(s.plain_y).max() + np.abs(want).max())
    return found


@call("sample_kernels", "sample_tangent_kernels", takes=FULLY, rows=True, needs="theory")
def samples_of_kernels(s: Setting) -> object:
    options: dict[str, Any] = {"width": 8, "draws": 300, "key": 0}
    found = lg.finite_width.sample_kernels(s.net, s.x, **options)
    near("again", lg.finite_width.sample_kernels(s.net, s.x, **options), found, 0)
    near("symmetric", found, found.transpose(0, 2, 1), 1e-12)
    if s.network.plain and s.network.name.count("depth") == 0:  # the mean is that of any width
        error = found.std(0, ddof=1) / np.sqrt(len(found))
        size = sizes(s.kernels[0])
        size = size + 1e-9 * size.max() + 1e-300  # rows of zeros
        unseen = 3 / (300 * 8)  # the probability below which an event is missed at 95 %
        z = np.abs(found.mean(0) - s.kernels[0]) / (error + unseen * size)
        assert z.max() < 6, f"mean: {z.max():.1f} standard errors from the kernel"
    return lg.finite_width.sample_tangent_kernels(s.net, s.x, **options)


@call("homogeneous_moments", "layer_learning_rates", "linear_network_output", "output_law",
      takes=("relu", "linear"),
      rows=True, needs="singular theory")  # fmt: skip
def moments(s: Setting) -> object:
    rates = lg.finite_width.layer_learning_rates(s.net, s.x, width=10)
    one = few(s.x, 1)
    law = lg.finite_width.output_law(s.net, one, width=10)
    near("law", law.variance, s.kernels[0][0, 0], max(s.tolerance, 1e-2))
    if s.network.name == "relu":
        found = lg.finite_width.homogeneous_moments(s.net, one, width=10)
        near("kernel", found.kernel, s.kernels[0][0, 0], s.tolerance)
    else:
        found = lg.finite_width.linear_network_output(s.net, one, width=10)
        near("variance", found.variance, s.kernels[0][0, 0], s.tolerance)
    return rates, found, law
