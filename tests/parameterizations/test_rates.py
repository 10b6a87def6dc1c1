"""Rates of single weights and roles: the table, finite networks, the tangent kernel."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput

NET = lg.mlp(2, "relu", weight_std=1.2, bias_std=0.5)
X = np.random.default_rng(3).normal(size=(4, 3))
READOUT = lg.ntk().with_rates({"input": 0, "hidden": 0, "bias": 0})


def mean_tangent_kernel(param, width, seeds=16):
    kernels = [
        lg.networks.empirical_ntk(
            NET, lg.networks.init(NET, param, width=width, inputs=3, key=k), X, param=param
        )
        for k in range(seeds)
    ]
    return np.mean(kernels, 0), np.std(kernels, 0, ddof=1) / np.sqrt(seeds)


def test_most_specific_rate_counts():
    table = lg.ntk().with_rates({"bias": 2, "2": 3, "2.bias": 0}).table(NET)
    rates = {name: rule.lr.constant for name, rule in table.items()}
    assert rates == {
        "0.weight": 1, "0.bias": 2, "2.weight": 3, "2.bias": 0, "4.weight": 1, "4.bias": 2,
    }  # fmt: skip
    assert table["2.weight"].weight_decay.constant == 1 / 3
    assert table["2.bias"].weight_decay.constant == 0
    assert str(lg.ntk().with_rates({"input": 0, "2": 3})) == "ntk, rate of 2 × 3, input frozen"


def test_wrong_rates():
    with pytest.raises(InvalidInput, match=r"rates\['input'\]: wanted a finite number ≥ 0"):
        lg.ntk().with_rates({"input": -1.0})
    with pytest.raises(InvalidInput, match=r"rates: 'inptu' is not known\. Did you mean 'input'"):
        lg.ntk().with_rates({"inptu": 0.0}).table(NET)


@pytest.mark.slow
def test_frozen_weights_stay():
    """In training with decay, only the read-out moves; and the kernel limit follows it."""
    data = lg.Dataset(X, np.array([1.0, -1.0, 0.5, 0.0]))
    run = lg.Run(NET, READOUT, data, optimizer=lg.gd(0.5), steps=40)
    limit = lg.solve(run)
    nngp, ntk = lg.kernel(NET, X, param=READOUT)
    np.testing.assert_allclose(ntk, nngp - 0.25, rtol=1e-12)  # all but the last bias
    mode = np.linalg.matrix_power(np.eye(4) - 0.5 / 4 * ntk, 40)
    np.testing.assert_allclose(limit.f_train[-1], data.y_train - mode @ data.y_train, rtol=1e-6)
    nets = lg.train(run, width=512, seeds=24, key=1)
    f = nets.f_train[:, -1]
    z = (f.mean(0) - limit.f_train[-1]) / (f.std(0, ddof=1) / np.sqrt(24))
    assert np.abs(z).max() < 4


@pytest.mark.slow
def test_kernel_with_rates_against_networks():
    param = lg.ntk().with_rates({"0.weight": 0.5, "hidden": 3, "bias": 0, "4.bias": 2})
    want = lg.ntk_kernel(NET, X, param=param)
    got, error = mean_tangent_kernel(param, 1024)
    assert np.all(np.abs(got - want) < 4 * error + 3 * want.max() / 1024)
    assert np.all(np.abs(want - lg.ntk_kernel(NET, X)) > 6 * error)


@pytest.mark.slow
def test_kernel_of_the_standard_parameterization():
    """The limit of K/N, in which the first layer and the biases have no share."""
    param = lg.standard()
    want = lg.ntk_kernel(NET, X, param=param)
    rates = {"0.weight": 0, "bias": 0, "hidden": 1.2**-2, "output": 1.2**-2}
    np.testing.assert_allclose(
        want, lg.ntk_kernel(NET, X, param=lg.ntk().with_rates(rates)), rtol=1e-12
    )
    got, error = mean_tangent_kernel(param, 1024)
    assert np.all(np.abs(got / 1024 - want) < 4 * error / 1024 + 10 * want.max() / 1024)
    frozen = lg.standard().with_rates(dict.fromkeys(("input", "hidden", "output", "bias"), 0))
    assert not lg.ntk_kernel(NET, X, param=frozen).any()
