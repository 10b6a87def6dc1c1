"""Order 1/width of weights that are not Gaussian, against exact sums over paths and networks."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory

X = np.random.default_rng(0).normal(size=(2, 5))
ROWS, COLUMNS = np.triu_indices(2)
LAWS = {
    0.0: None,
    -2.0: [-1.0, 1.0],
    3.0: [-(6**0.5), 6**0.5, *10 * [0.0]],
}  # entries, all as likely


def weights(excess, rng, *shape):
    law = LAWS[excess]
    return rng.standard_normal(shape) if law is None else rng.choice(law, size=shape)


def coefficients(function, width=100):
    """The coefficient of 1/width of a rational function, from three widths."""
    limit, one, two = (function(n) for n in (10**9, width, 2 * width))
    return 2 * (2 * width * (two - limit)) - width * (one - limit)


@pytest.mark.parametrize(
    ("excess", "moments"), [(0.0, (3, 15, 105)), (-1.2, (9 / 5, 27 / 7, 9)), (1.0, (4, 16, 64))]
)
@pytest.mark.parametrize("name", ["relu", "linear"])
def test_moments_are_those_of_sums_over_paths(name, excess, moments):
    net = lg.mlp(3, name, weight_std=1.3)
    x = np.ones((4, 4000))  # so many inputs that the first preactivations are Gaussian
    found = lg.finite_width.width_corrections(net, x[:1], width=1, excess=excess)
    H = found.ntk[0, 0]

    def paths(factors, *contractions):
        def of_width(n):
            answer = lg.finite_width.path_sum(
                net, x[:factors], contractions, width=n, moments=moments
            )
            return answer.value

        return coefficients(of_width)

    fourth = found.expectation(lambda f: f[:, 0, 0] ** 4).shift
    assert fourth == pytest.approx(paths(4), rel=2e-3)
    assert found.ntk_shift[0, 0] == pytest.approx(paths(2, (0, 1)), abs=2e-3 * H)
    square = found.ntk_covariance[0, 0] + 2 * H * found.ntk_shift[0, 0]
    assert square == pytest.approx(paths(4, (0, 1), (2, 3)), rel=2e-3)
    K = found.kernel[0, 0]
    product = found.ntk_kernel_covariance[0, 0] + K * found.ntk_shift[0, 0]
    assert product == pytest.approx(paths(4, (0, 1)), rel=2e-3)


@pytest.mark.parametrize("excess", [-2.0, 3.0])
def test_shifts_are_those_of_networks(excess):
    n, count, rng = 24, 60_000, np.random.default_rng(3)
    net = lg.mlp(2, "tanh", weight_std=1.3, bias_std=0.2)
    kernels, tangents = [], []
    for _ in range(count // 2000):
        first, biases = rng.standard_normal((2000, 5, n)), rng.standard_normal((2, 2000, 1, n))
        second, last = weights(excess, rng, 2000, n, n), weights(excess, rng, 2000, 1, n)
        one = np.tanh(1.3 * X @ first / 5**0.5 + 0.2 * biases[0])
        two = np.tanh(1.3 * one @ second / n**0.5 + 0.2 * biases[1])
        g = 1.3 * last * (1 - two**2) / n**0.5
        back = 1.3 * g @ second.swapaxes(1, 2) / n**0.5 * (1 - one**2)
        S = 1.3**2 * two @ two.swapaxes(1, 2) / n + 0.2**2
        behind = 1.3**2 * one @ one.swapaxes(1, 2) / n + 0.2**2
        tangent = S + g @ g.swapaxes(1, 2) * behind
        tangent += back @ back.swapaxes(1, 2) * (1.3**2 * X @ X.T / 5 + 0.2**2)
        kernels.append(S[:, ROWS, COLUMNS])
        tangents.append(tangent[:, ROWS, COLUMNS])
    found = lg.finite_width.width_corrections(net, X, width=n, excess=excess)
    normal = lg.finite_width.width_corrections(net, X, width=n)
    for draws, limit, shift, other in (
        (kernels, found.kernel, found.kernel_shift, normal.kernel_shift),
        (tangents, found.ntk, found.ntk_shift, normal.ntk_shift),
    ):
        values = np.concatenate(draws)
        error = values.std(0) / len(values) ** 0.5
        z, of_normal = (
            (values.mean(0) - (limit + each)[ROWS, COLUMNS]) / error for each in (shift, other)
        )
        assert np.abs(z).max() < 3.5
        assert np.abs(of_normal).max() > 4


@pytest.mark.parametrize("excess", [-2.0, 3.0])
def test_shifts_are_those_of_residual_networks(excess):
    n, rng = 16, np.random.default_rng(5)
    block = lg.Residual(lg.serial(lg.Activation("tanh"), lg.Dense(weight_std=1.2)))
    net = lg.serial(lg.Dense(), block, block, block, lg.Activation("tanh"), lg.Dense())
    draws = []
    for _ in range(30):
        h = X @ rng.standard_normal((2000, 5, n)) / 5**0.5
        for _ in range(3):
            h = h + 1.2 * np.tanh(h) @ weights(excess, rng, 2000, n, n) / n**0.5
        phi = np.tanh(h)
        draws.append((phi @ phi.swapaxes(1, 2) / n)[:, ROWS, COLUMNS])
    values = np.concatenate(draws)
    error = values.std(0) / len(values) ** 0.5
    found = lg.finite_width.width_corrections(net, X, width=n, excess=excess)
    normal = lg.finite_width.width_corrections(net, X, width=n)
    np.testing.assert_allclose(found.kernel_covariance, normal.kernel_covariance)
    z, of_normal = (
        (values.mean(0) - (each.kernel + each.kernel_shift)[ROWS, COLUMNS]) / error
        for each in (found, normal)
    )
    assert np.abs(z).max() < 3.5
    assert np.abs(of_normal).max() > 4


def test_wrong_moments_are_named():
    net = lg.mlp(2, "tanh")
    with pytest.raises(InvalidInput, match=r"excess: .*-3"):
        lg.finite_width.width_corrections(net, X, width=8, excess=-3)
    with pytest.raises(InvalidInput, match="excess: wanted one for each of 2 hidden layers, got 3"):
        lg.finite_width.width_corrections(net, X, width=8, excess=[0, 0, 0])
    found = lg.finite_width.width_corrections(net, X, width=8, excess=[0, -1.2])
    with pytest.raises(NoTheory, match="neurons=1"):
        found.expectation(lambda f: f[:, 0, 0] ** 2 * f[:, 1, 0] ** 2, [0], neurons=2)
