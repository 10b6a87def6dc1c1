"""Order 1/width of weights that are not Gaussian, against exact sums over paths and networks."""

import warnings

import numpy as np
import pytest
import scipy.stats

import largen as lg
from largen.errors import InvalidInput, NotGaussian, NoTheory

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
    found = lg.finite_width.width_corrections(net, X, width=n, excess=[excess] * 2)
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
    found = lg.finite_width.width_corrections(net, X, width=n, excess=[excess] * 4)
    normal = lg.finite_width.width_corrections(net, X, width=n)
    np.testing.assert_allclose(found.kernel_covariance, normal.kernel_covariance)
    z, of_normal = (
        (values.mean(0) - (each.kernel + each.kernel_shift)[ROWS, COLUMNS]) / error
        for each in (found, normal)
    )
    assert np.abs(z).max() < 3.5
    assert np.abs(of_normal).max() > 4


@pytest.mark.filterwarnings("ignore::largen.errors.NotGaussian")
@pytest.mark.parametrize("net", [lg.mlp(1, "tanh"), lg.residual_mlp(1, "tanh")])
def test_first_weights_that_are_signs_count_to_first_order_in_one_over_their_number(net):
    """Sums of D signs are binomial, and so is E φφ behind them; D signs leave an error of 1/D²."""
    phi = np.tanh
    branched = len(net.layers) > 3
    points, masses = np.polynomial.hermite_e.hermegauss(60)
    masses = masses / masses.sum()
    left = []
    for D in (32, 64):
        sums = (2 * np.arange(D + 1) - D) / D**0.5
        chances = scipy.stats.binom(D, 0.5).pmf(np.arange(D + 1))
        exact = chances @ phi(sums) ** 2
        if branched:  # h + βu with a Gaussian u of variance E φφ, given many neurons
            # A network of one branch has β = 1.
            exact = chances @ phi(sums[:, None] + exact**0.5 * points) ** 2 @ masses
        excess = [-2.0, *[0.0] * (2 if branched else 1)]
        found = lg.finite_width.width_corrections(net, np.ones((1, D)), width=10**9, excess=excess)
        assert abs(found.kernel_shift[0, 0]) > 10 * abs(
            exact - found.kernel[0, 0] - found.kernel_shift[0, 0]
        )
        left.append(exact - found.kernel[0, 0] - found.kernel_shift[0, 0])
    assert left[0] / left[1] == pytest.approx(4, rel=0.2)


def test_few_first_weights_that_are_not_gaussian_are_warned_of():
    net, x = lg.mlp(2, "tanh"), np.random.default_rng(1).normal(size=(2, 100))
    with pytest.warns(NotGaussian, match=r"sums over 4 inputs have an excess kurtosis of -"):
        lg.finite_width.width_corrections(net, x[:, :4], width=64, excess=-1.2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few = lg.finite_width.width_corrections(net, x[:, :4], width=64, excess=[-1.2, -1.2])
        lg.finite_width.width_corrections(net, x, width=64, excess=-1.2)
        lg.finite_width.width_corrections(net, x[:, :4], width=64)
    same = lg.finite_width.width_corrections(net, x[:, :4], width=64, excess=[0, -1.2, -1.2])
    np.testing.assert_array_equal(same.kernel_shift, few.kernel_shift)


def test_wrong_moments_are_named():
    net = lg.mlp(2, "tanh")
    with pytest.raises(InvalidInput, match=r"excess: .*-3"):
        lg.finite_width.width_corrections(net, X, width=8, excess=-3)
    with pytest.raises(InvalidInput, match=r"excess: wanted one for each of 2 hidden .*got 4"):
        lg.finite_width.width_corrections(net, X, width=8, excess=[0] * 4)
    found = lg.finite_width.width_corrections(net, X, width=8, excess=[0, -1.2])
    with pytest.raises(NoTheory, match="neurons=1"):
        found.expectation(lambda f: f[:, 0, 0] ** 2 * f[:, 1, 0] ** 2, [0], neurons=2)
