"""Residual branches at order 1/width: closed forms, dense networks, simulation, refusals."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoRule, NoTheory, NumericalFailure
from largen.finite_width import residual

X = np.array([[1.2, 0.3, -0.7, 0.4], [0.2, 1.0, 0.5, -1.1]])


@pytest.mark.parametrize("param", [lg.ntk(), lg.depth_mup()])
def test_linear_streams_in_closed_form(param):
    # |h|² is multiplied by |e + βσ_w g/√n|², with g Gaussian: mean 1 + a, second moment
    # (1 + a)² + (4a + 2a²)/n, a = β²σ_w².
    blocks, n, std = 5, 10**7, 1.3
    found = lg.finite_width.width_corrections(
        lg.residual_mlp(blocks, "linear", weight_std=std), X[:1], width=n, param=param
    )
    a = std**2 * (1 / blocks if param.branch else 1)
    size = std**2 * X[0] @ X[0] / 4
    K = size * (1 + a) ** blocks * std**2 / (n if param.d else 1)
    assert found.kernel[0, 0] == pytest.approx(K, rel=1e-12)
    assert abs(found.kernel_shift[0, 0]) * n < 1e-9 * K
    relative = 2 + blocks * (4 * a + 2 * a**2) / (1 + a) ** 2
    assert found.kernel_covariance[0, 0] * n / K**2 == pytest.approx(relative, rel=1e-9)
    assert found.kernel_third_cumulant is None
    assert found.ntk_covariance is None


@pytest.mark.slow
def test_limits_are_the_kernels():
    net = lg.residual_mlp(3, "gelu", layers_per_block=2, weight_std=1.3, bias_std=0.2)
    for param in (lg.ntk(), lg.depth_mup()):
        found = lg.finite_width.width_corrections(net, X, width=50, param=param)
        unit = 50 if param.d else 1  # the read-out is divided by γ√n
        assert np.allclose(unit * found.kernel, lg.nngp_kernel(net, X, param=param), rtol=1e-9)


def test_drawn_streams_are_dense_networks():
    rng, draws, n, std, bias = np.random.default_rng(0), 40_000, 4, 1.2, 0.3
    net = lg.residual_mlp(2, "tanh", weight_std=std, bias_std=bias)
    drawn = lg.finite_width.sample_kernels(
        net, X, width=n, draws=draws, key=0, param=lg.depth_mup()
    )
    h = np.einsum("rni,pi->rnp", rng.normal(size=(draws, n, 4)) * std / 2, X)
    h = h + bias * rng.normal(size=(draws, n, 1))
    for _ in range(2):
        W = rng.normal(size=(draws, n, n)) * std / np.sqrt(n)
        h = h + (W @ np.tanh(h) + bias * rng.normal(size=(draws, n, 1))) / np.sqrt(2)
    f = np.tanh(h)
    dense = bias**2 / n + std**2 / n**2 * np.einsum("rna,rnb->rab", f, f)
    for of in (lambda S: S, lambda S: S[:, :, :, None] * S[:, :1, :1, None]):
        seen, wanted = of(drawn), of(dense)
        error = np.hypot(seen.std(axis=0), wanted.std(axis=0)) / np.sqrt(draws)
        assert np.all(np.abs(seen.mean(axis=0) - wanted.mean(axis=0)) < 4 * error)


@pytest.mark.slow
def test_shifts_against_the_exact_distribution(monkeypatch):
    net, draws = lg.residual_mlp(4, "tanh", weight_std=1.5, bias_std=0.3), 100_000
    for n in (20, 60):
        given = {"width": n, "param": lg.depth_mup()}
        found = lg.finite_width.width_corrections(net, X[:1], **given)
        S = lg.finite_width.sample_kernels(net, X[:1], **given, draws=draws, key=n)[:, 0, 0]
        error = S.std() / np.sqrt(draws)
        left = 2 / n * abs(found.kernel_shift[0, 0])
        assert abs(S.mean() - found.kernel[0, 0] - found.kernel_shift[0, 0]) < 3.5 * error + left
        V, error = S.var(), np.std((S - S.mean()) ** 2) / np.sqrt(draws)
        assert abs(V - found.kernel_covariance[0, 0]) < 3.5 * error + 2 / n * V
    # Without what neurons' responses share with their past, hardly any of the shift is there.
    own = residual.covariance_along
    monkeypatch.setattr(
        residual, "covariance_along", lambda *args: (own(*args)[0], 0 * own(*args)[1])
    )
    without = lg.finite_width.width_corrections(net, X[:1], **given).kernel_shift[0, 0]
    assert abs(without) < 0.1 * abs(found.kernel_shift[0, 0])


@pytest.mark.long_loops
@pytest.mark.slow
@pytest.mark.parametrize(("name", "layers"), [("gelu", 1), ("relu", 1), ("sin", 2)])
def test_two_inputs_against_the_exact_distribution(name, layers):
    net = lg.residual_mlp(3, name, layers_per_block=layers, weight_std=1.3, bias_std=0.3)
    draws, distances = 100_000, []
    for n in (30, 120):
        found = lg.finite_width.width_corrections(net, X, width=n, param=lg.depth_mup())
        S = lg.finite_width.sample_kernels(
            net, X, width=n, draws=draws, key=n, param=lg.depth_mup()
        )
        i, j = found.pairs.T
        S = S[:, i, j]
        error = S.std(axis=0) / np.sqrt(draws)
        shift = found.kernel_shift[i, j]
        left = 3 / n * np.abs(shift).max()
        assert np.all(np.abs(S.mean(axis=0) - found.kernel[i, j] - shift) < 3.5 * error + left)
        V = np.cov(S.T)
        distances.append(np.abs(V - found.kernel_covariance).max() / V.max())
    assert distances[1] < max(distances[0] / 2, 0.03)


def test_an_affine_map_draws_the_stream_anew():
    # Two hidden layers of which the second has no branch: the recursion without streams.
    block = lg.Residual(lg.serial(lg.Activation("tanh"), lg.Dense(weight_std=1e-3)))
    tail = [lg.Activation("tanh"), lg.Dense(weight_std=1.2), lg.Activation("tanh"), lg.Dense()]
    found = lg.finite_width.width_corrections(lg.serial(lg.Dense(), block, *tail), X, width=30)
    plain = lg.finite_width.width_corrections(lg.serial(lg.Dense(), *tail), X, width=30)
    assert np.allclose(found.kernel_covariance, plain.kernel_covariance, rtol=1e-5, atol=1e-7)
    assert np.allclose(found.kernel_shift, plain.kernel_shift, rtol=1e-4, atol=1e-6)


def test_what_is_refused():
    net = lg.residual_mlp(2, "tanh")
    with pytest.raises(InvalidInput, match="one width"):
        lg.finite_width.width_corrections(net, X, width=(3, 4, 5))
    with pytest.raises(InvalidInput, match="at most 2"):
        lg.finite_width.width_corrections(net, np.eye(3), width=9)
    with pytest.raises(NoRule, match="LayerNorm"):
        lg.finite_width.width_corrections(lg.serial(lg.LayerNorm(), net), X, width=9)
    open_end = lg.serial(lg.Dense(), lg.Residual(lg.serial(lg.Activation("tanh"), lg.Dense())))
    with pytest.raises(NoTheory, match="wanted Dense"):
        lg.finite_width.width_corrections(open_end, X, width=9)
    two = [lg.Residual(lg.serial(lg.Activation(name), lg.Dense())) for name in ("tanh", "relu")]
    mixed = lg.serial(lg.Dense(), *two, lg.Activation("relu"), lg.Dense())
    with pytest.raises(NoTheory, match="one stream"):
        lg.finite_width.width_corrections(mixed, X, width=9)
    narrow = lg.Residual(lg.serial(lg.Activation("tanh"), lg.Dense(width_ratio=2)))
    with pytest.raises(InvalidInput, match="1 and 2 features"):
        lg.finite_width.width_corrections(
            lg.serial(lg.Dense(), narrow, lg.Activation("tanh"), lg.Dense()), X, width=9
        )
    with pytest.raises(NumericalFailure, match="coincide"):
        lg.finite_width.width_corrections(net, X[[0, 0]], width=9)
    assert "NTK" not in repr(lg.finite_width.width_corrections(net, X, width=9))
