"""Distributions of single weights: their moments, and how networks and reference networks start."""

import numpy as np
import pytest
from scipy import stats

import largen as lg
from largen.errors import InvalidInput, NoTheory
from largen.parameterizations.distributions import FROM_NORMAL, from_normal

KURTOSIS = {
    "gaussian": 3.0,
    "uniform": 9 / 5,
    "truncated": stats.truncnorm(-2, 2).stats("k") + 3,
    "sign": 1.0,
}


@pytest.mark.parametrize("distribution", FROM_NORMAL)
def test_moments(distribution):
    """Against the exact ones, by the midpoint rule in the probability."""
    p = (np.arange(20_000) + 0.5) / 20_000
    values = np.asarray(from_normal(distribution, stats.norm.ppf(p).astype(np.float32)), np.float64)
    assert np.mean(values) == pytest.approx(0, abs=1e-6)
    assert np.mean(values**2) == pytest.approx(1, abs=1e-3)
    assert np.mean(values**4) == pytest.approx(float(KURTOSIS[distribution]), rel=5e-3)


def test_networks_start_with_their_distribution():
    """PyTorch's affine maps: uniform within ±1/√fan_in; the same bits as Gaussian ones inside."""
    net = lg.mlp(2, "relu", weight_std=3**-0.5, bias_std=0.1)
    param = lg.scaling.from_reference(width=64, scaling="mean field", distribution="uniform")
    assert "uniform weights" in str(param)
    first, _, second, _, _ = lg.networks.init(net, param, width=64, inputs=5, key=0)
    for layer, fan_in in ((first, 5), (second, 64)):
        bound = fan_in**-0.5
        assert 0.98 * bound < np.abs(layer["weight"]).max() <= bound * (1 + 1e-6)
        assert stats.kstest(layer["weight"].ravel() / bound, "uniform", (-1, 2)).pvalue > 1e-3
        assert np.abs(layer["bias"]).max() <= 0.1 * 3**0.5
    by_role = lg.ntk().with_distribution({"output": "sign"})
    plain, signs = (
        lg.networks.init(lg.mlp(1), p, width=32, inputs=2, key=1) for p in (lg.ntk(), by_role)
    )
    np.testing.assert_array_equal(signs[0]["weight"], plain[0]["weight"])
    np.testing.assert_array_equal(signs[2]["weight"], np.sign(plain[2]["weight"]))
    assert by_role.with_distribution("gaussian") == lg.ntk()


def test_distributions_follow_a_reference_and_the_symmetry():
    uniform = lg.standard().with_distribution({"input": "uniform"})
    scaled = lg.scaling.from_reference(width=8, scaling="NTK", reference=uniform)
    for param in (scaled, uniform.shift({"input": 1})):
        assert param.table(lg.mlp(1)).distribution("0.weight") == "uniform"
        assert param.table(lg.mlp(1)).distribution("2.weight") == "gaussian"
    assert lg.scaling.classify(scaled, 1).kind == "kernel"


def test_limits_that_depend_on_the_distribution_of_single_weights_say_so():
    data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]))
    rest = {"hidden": "uniform", "output": "uniform"}

    def limit(param, layers):
        run = lg.Run(lg.mlp(layers), param, data, optimizer=lg.gd(0.1), steps=2)
        return lg.solve(run)

    with pytest.raises(NoTheory, match=r"0.weight starts with the sign distribution"):
        limit(lg.ntk().with_distribution("sign"), 1)
    same = limit(lg.ntk(), 2), limit(lg.ntk().with_distribution(rest), 2)
    np.testing.assert_array_equal(same[0].f_train, same[1].f_train)
    with pytest.raises(NoTheory, match=r"4.weight starts with the uniform distribution"):
        limit(lg.mean_field().with_distribution(rest), 2)


@pytest.mark.parametrize(
    ("distribution", "message"),
    [
        ("normal", "distribution: 'normal'"),
        ({"readout": "sign"}, "'readout'"),
        (3, "distribution: 3"),
    ],
)
def test_wrong_distributions(distribution, message):
    with pytest.raises(InvalidInput, match=message):
        lg.ntk().with_distribution(distribution)
