"""Kernels of infinite width: reference values, and what holds for every kernel."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from tests.ordinary.networks import JUMPS, of_name
from tests.ordinary.references import Covariance, Unresolved, expectations
from tests.ordinary.registry import call, with_kernels, with_tangents
from tests.ordinary.settings import (
    DOUBLE,
    LIMITED,
    SINGLE,
    WIDTH,
    Setting,
    near,
    right_dtype,
    sizes,
    symmetric,
)

import largen as lg


def compare(s: Setting, what: str, got: tuple, want: tuple, tolerance: float, at=None) -> None:
    """Compare NNGP and NTK, relative to the diagonals of the symmetric kernels."""
    rows, columns = at or (None, None)
    for name, found, value, whole in zip(("nngp", "ntk"), got, want, s.kernels, strict=True):
        if found is not None and value is not None:
            near(f"{what}: {name}", found, value, tolerance, sizes(whole, rows, columns))


@call("kernel", "nngp_kernel", "ntk_kernel", takes=with_kernels, weight=6)
def kernels(s: Setting) -> object:
    found = s.kernels_at(s.x)
    for name, K in zip(("nngp", "ntk"), found, strict=True):
        if K is not None:
            right_dtype(name, K, s.x)
            symmetric(name, K, s.tolerance)
    compare(s, "as given", found, s.kernels, s.tolerance)
    if s.reference is not None:
        compare(s, "reference", s.kernels, s.reference, DOUBLE)
    s.one_of(
        2,
        lambda: _permuted(s),
        lambda: _block(s),
        lambda: _other_rows(s),
        lambda: _rotated(s),
        lambda: _scaled(s),
        lambda: _opposite(s),
        lambda: _single(s),
        lambda: _again(s),
        lambda: _parts(s),
    )
    return found


def _permuted(s: Setting) -> None:
    order = s.rng.permutation(len(s.double))
    want = [None if K is None else K[np.ix_(order, order)] for K in s.kernels]
    compare(s, "permuted", s.kernels_at(s.double[order]), tuple(want), DOUBLE, (order, order))


def _block(s: Setting) -> None:
    if s.network.name == "dropout":
        return  # of two sets, samples that are equal have masks of their own
    want = tuple(None if K is None else K[:, :3] for K in s.kernels)
    found = s.kernels_at(s.double, s.double[:3])
    compare(s, "block", found, want, DOUBLE, (slice(None), slice(0, 3)))


def _other_rows(s: Setting) -> None:
    changed = s.double.copy()
    large = 3.0 if s.network.name in LIMITED else 30.0
    changed[0] = s.rng.standard_normal(changed[0].shape) * s.rng.choice([1e-2, 1.0, large])
    rest = slice(1, None)
    found = tuple(None if K is None else K[1:, 1:] for K in s.kernels_at(changed))
    want = tuple(None if K is None else K[1:, 1:] for K in s.kernels)
    compare(s, "another row", found, want, DOUBLE, (rest, rest))


def _rotated(s: Setting) -> None:
    if s.network.rows:
        d = s.double.shape[1]
        turn = np.linalg.qr(s.rng.standard_normal((d, d)))[0]
        # Angles lose half of the digits of products, which rotations round in another way.
        tolerance = DOUBLE if s.kind.name == "gaussian" else 1e-6
        compare(s, "rotated", s.kernels_at(s.double @ turn), s.kernels, tolerance)


def _scaled(s: Setting) -> None:
    if s.network.homogeneous:
        c = float(s.rng.choice([0.25, 3.0, 64.0]))
        found = tuple(None if K is None else K / c**2 for K in s.kernels_at(c * s.double))
        compare(s, "scaled", found, s.kernels, DOUBLE)


def _opposite(s: Setting) -> None:
    if s.network.odd:
        found = tuple(None if K is None else -K for K in s.kernels_at(s.double, -s.double))
        compare(s, "opposite", found, s.kernels, 1e-7)


def _single(s: Setting) -> None:
    if np.abs(s.double).max() < 1e5:
        single = s.double.astype(np.float32)
        found, want = s.kernels_at(single), s.kernels_at(single.astype(float))
        compare(s, "single precision", found, want, SINGLE)


def _again(s: Setting) -> None:
    for K, L in zip(s.kernels, s.kernels_at(s.double.copy()), strict=True):
        assert K is None or np.array_equal(K, L), "the same call gives other numbers"


def _parts(s: Setting) -> None:
    if s.network.tangent:
        parts = (f(s.net, s.double, **s.options) for f in (lg.nngp_kernel, lg.ntk_kernel))
        compare(s, "parts", tuple(parts), s.kernels, DOUBLE)


@call("kernel_of_stds", takes=with_tangents)
def kernel_of_stds(s: Setting) -> object:
    found = lg.kernels.kernel_of_stds(s.net, s.x, **s.options)
    kernels = found({})
    compare(s, "function", tuple(kernels), s.kernels, s.tolerance)
    return kernels


@call("kernel_operator", takes=with_tangents)
def kernel_operator(s: Setting) -> object:
    v = s.rng.standard_normal((len(s.plain), 2))
    kind = str(s.rng.choice(["nngp", "ntk"]))
    K = s.kernels[kind == "ntk"]
    found = lg.regression.large.kernel_operator(s.net, s.x, kind=kind, block=4, **s.options) @ v
    size = sizes(K) @ np.abs(v)
    near("operator", found, K @ v, s.tolerance, size)
    return found


@call("stored_kernel", takes=("relu", "tanh, depth 2", "convolution", "erf, depth 3"))
def stored_kernel(s: Setting) -> object:
    with tempfile.TemporaryDirectory() as folder:
        stored = lg.regression.large.stored_kernel(folder, s.net, s.x, block=4)
        found = stored["nngp"][:], stored["ntk"][:]
    right_dtype("stored", found[0], s.plain)
    compare(s, "stored", found, s.kernels, s.tolerance)
    return found


@call("averaged_kernel", takes=("relu", "heads", "attention", "tanh, depth 2"))
def averaged_kernel(s: Setting) -> object:
    found = lg.kernels.averaged_kernel(s.net, s.x, replicates=2)
    # Nothing is random in these networks.
    compare(s, "estimate", (found.nngp, found.ntk), s.kernels, s.tolerance)
    return found


SHALLOW = ("erf", "relu", "tanh", "sin, depth 2", "BatchNorm", "convolution", "relu, depth 10")


@call("monte_carlo_kernel", takes=SHALLOW)
def monte_carlo_kernel(s: Setting) -> object:
    options: dict[str, Any] = {"width": WIDTH, "draws": 64, "key": int(s.rng.integers(100))}
    found = lg.networks.monte_carlo_kernel(s.net, s.x, **options)
    again = lg.networks.monte_carlo_kernel(s.net, s.x, **options)
    for name, got, other in zip(found._fields, found, again, strict=True):
        assert np.array_equal(got, other), f"{name}: the same key gives other numbers"
    near("symmetric", found.nngp, found.nngp.T, 1e-12)
    if s.network.name in ("erf", "tanh"):  # one hidden layer: the mean is exact, tails are light
        for i in (0, 1)[: 2 - s.rare_slopes]:
            K, error = s.kernels[i], np.asarray(found[2 + i], float)
            size = sizes(K).astype(float)
            rounding = 1e-15 * size.max() + 1e-300  # of rows of zeros
            z = np.abs(found[i] - K) / (error + 1e-6 * size + rounding)
            assert z.max() < 7, f"{found._fields[i]}: {z.max():.1f} standard errors from the limit"
    return found


@call("gaussian_moments", takes=lambda n: n.plain, rows=True)
def gaussian_moments(s: Setting) -> object:
    phi = next(step[1] for step in s.network.steps or () if step[0] == "phi")
    x = s.double
    gram = x @ x.T / x.shape[1]
    q = np.diag(gram)
    if not q.all():
        gram, q = gram + 1, q + 1
    q12 = np.clip(gram, -np.sqrt(np.outer(q, q)), np.sqrt(np.outer(q, q)))
    q1, q2 = np.broadcast_arrays(q[:, None], q[None])
    found = lg.expectations.gaussian_moments(of_name(phi), q1, q12, q2)
    found = found[: 2 - (phi in JUMPS)]  # E[φ'φ'] of equal numbers is infinite
    near_one = np.abs(q12) > (1 - 1e-12) * np.sqrt(q1 * q2)
    try:
        with np.errstate(all="ignore"):
            wide = (np.asarray(each, np.longdouble) for each in (q1, q12, q2))
            want = expectations(phi, Covariance(*wide))
    except Unresolved:
        return found
    size = np.sqrt(np.outer(np.diag(want[0]), np.diag(want[0])))
    near("moments", found[0], want[0], DOUBLE, size)
    if want[1] is not None:
        # The derivative of a kinked activation falls as the angle, half of whose digits are lost.
        size = np.sqrt(np.abs(np.outer(np.diag(want[1]), np.diag(want[1]))))
        near("derivatives", found[1], want[1], np.where(near_one, 1e-6, DOUBLE), size)
    return found


@call("propagate", takes=with_tangents, needs="zeros")
def propagate(s: Setting) -> object:
    found = lg.criticality.propagate(s.net, s.x, **s.options)
    if s.network.rows and s.network.name != "product":
        near("variance", found.variance[-1], np.diag(s.kernels[0]), s.tolerance,
             np.diag(s.kernels[0]))  # fmt: skip
    order = s.rng.permutation(len(s.plain))
    other = lg.criticality.propagate(s.net, s.double[order], **s.options)
    size = np.maximum(np.abs(found.variance[:, order]), 1e-300)
    near("permuted", other.variance, found.variance[:, order], s.tolerance, size)
    return other.variance


@call("input_gradients", takes=("relu", "tanh"), rows=True)
def input_gradients(s: Setting) -> object:
    found = lg.criticality.input_gradients(s.net, s.x, **s.options)
    near("variance", found.output_std**2, np.diag(s.kernels[0]), s.tolerance)
    order = s.rng.permutation(len(s.plain))
    other = lg.criticality.input_gradients(s.net, s.double[order], **s.options)
    size = np.multiply.outer(found.norm, found.norm)
    near("permuted", other.kernel, found.kernel[np.ix_(order, order)], s.tolerance,
         size[np.ix_(order, order)])  # fmt: skip
    near("symmetric", found.kernel, found.kernel.T, s.tolerance, size)
    return found.kernel


@call("network_diagram", takes=("relu", "tanh"), needs="zeros")
def network_diagram(s: Setting) -> object:
    def network(w: float, b: float) -> lg.Layer:
        return lg.residual_mlp(2, s.network.name, weight_std=w, bias_std=b)

    found = lg.criticality.network_diagram(network, s.x[:3], [0.7, 1.6], [0.2], **s.options)
    for weight, *numbers in zip(
        found.weight_std, found.variance[:, 0], found.correlation[:, 0], strict=True
    ):
        K = np.asarray(lg.kernel(network(weight, 0.2), s.double[:3]).nngp)
        size = np.sqrt(np.diag(K))
        apart = ~np.eye(len(K), dtype=bool)
        want = np.diag(K).mean(), (K / np.outer(size, size))[apart].mean()
        near("outputs", np.array(numbers), np.array(want), s.tolerance, np.array([want[0], 1.0]))
    return found


@call("covariance_sde", takes=("relu", "tanh"), rows=True, needs="singular")
def covariance_sde(s: Setting) -> object:
    gram = s.plain @ s.plain.T / s.plain.shape[1]
    given = {"slopes": (0, -1)} if s.network.name == "relu" else {"activation": "tanh"}
    options = {**given, "time": 0.1, "draws": 3, "steps": 4, "key": 0}
    found = lg.finite_width.covariance_sde(gram[:2, :2], **options)
    again = lg.finite_width.covariance_sde(gram[:2, :2], **options)
    assert np.array_equal(found.covariance, again.covariance)
    return found


@call("with_positions", "token_inputs", takes=("attention", "one axis"))
def positions(s: Setting) -> object:
    found = lg.with_positions(s.x, std=0.5)
    right_dtype("positions", found, s.x)
    again = lg.with_positions(s.plain, std=0.5)
    near("as given", found, again, s.tolerance)
    tokens = s.rng.integers(0, 3, (3, 4))
    of_tokens = lg.token_inputs(tokens if s.rng.integers(2) else tokens.tolist(), vocabulary=3)
    near("tokens", of_tokens, np.sqrt(3) * np.eye(3)[tokens], 1e-14)
    return found
