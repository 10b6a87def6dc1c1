"""Wrong types at public functions, as users meet them: without the type checker of the tests."""

import subprocess
import sys

import pytest

PRELUDE = """
import numpy as np, largen as lg
x, y = np.eye(3), np.array([1.0, -1.0, 1.0])
data = lg.Dataset(x, y)
net = lg.mlp(1, "tanh")
def run(**kw):
    kw = {"net": net, "param": lg.ntk(), "data": data, "optimizer": lg.gd(0.1), "steps": 3, **kw}
    return lg.Run(**kw)
"""

CASES = {
    "lg.mlp('three')": "hidden_layers: wanted an integer",
    "lg.mlp(2, activation=3)": "activation",
    "lg.Dense(weight_std='wide')": "weight_std: wanted a number",
    "lg.Dense(512)": "Dense has no width: lg.train(run, width=512)",
    "lg.Dense(units=512)": "Dense has no width: lg.train(run, width=512)",
    "lg.Conv(64)": "lg.train(run, width=64)",
    "lg.Conv(64, (3, 3))": "Conv has no width: lg.train(run, width=64)",
    "lg.layers.AvgPool(2)": "window: wanted a tuple",
    "lg.layers.SelfAttention(2.0)": "SelfAttention: too many positional arguments",
    "lg.layers.Dropout()": "Dropout: missing a required argument: 'rate'",
    "lg.serial(lg.Dense)": "forget the parentheses",
    "lg.Residual('skip')": "branch: wanted a layer",
    "lg.gd('fast')": "lr: wanted a number",
    "lg.Dataset('x', y)": "x_train: wanted an array of numbers",
    "lg.Dataset(x, ['a', 'b', 'c'])": "y_train: wanted an array of numbers",
    "run(net='mlp')": "net: wanted a Layer",
    "run(param='ntk')": "param: wanted a Parameterization",
    "run(optimizer=0.1)": "optimizer: wanted e.g. lg.gd",
    "run(loss=3)": "loss: wanted a name or a function",
    "run(steps=2.5)": "steps: wanted an integer",
    "lg.solve(net)": "run: wanted an lg.Run",
    "lg.solve(run(), theory='kernels')": "Did you mean 'kernel'",
    "lg.solve(run(), rtoll=1)": "option of the theory 'kernel'",
    "lg.train(run(), width=0, seeds=1, key=0)": "width",
    "lg.train(run(), width=-8, seeds=1, key=0)": "width",
    "lg.train(run(), width=8, seeds=0, key=0)": "seeds",
    "lg.train(run(), width=8, seeds=1, key='k')": "key",
    "lg.networks.train_and_measure(run(), 8, 'weights')": "measure: wanted a function",
    "lg.networks.train_and_measure(net, 8, print)": "run: wanted an lg.Run",
    "lg.scaling.measure_exponents(run(), [8, 64], key=0)": "at least 3 different widths",
    "lg.scaling.measure_exponents(run(), [8, 12, 16], key=0)": "factor of at least 4",
    "lg.scaling.measure_exponents(run(), 8, key=0)": "widths: wanted a list",
    "lg.scaling.measure_exponents(run(), [8, 16, 'x'], key=0)": "widths: wanted an integer",
    "lg.scaling.measure_exponents(run(), [8, 16, 32], seeds=1)": "seeds: wanted an integer ≥ 2",
    "lg.scaling.measure_exponents(run(), [8, 16, 32], key=0, on='test')": "on: wanted 'train'",
    "lg.scaling.measure_exponents(net, [8, 16, 32], key=0)": "run: wanted an lg.Run",
    "lg.scaling.plane_map(q_sigma=(-1, -1))": "from < to",
    "lg.scaling.plane_map(rate=-1)": "wanted a pair",
    "lg.scaling.plane_map(rate=(0.123456789123, 1))": "rational",
    "lg.scaling.plane_map(per_unit=3)": "even integer",
    "lg.training.feature_movement(run(), [1], [8, 16])": "gammas: wanted at least two",
    "lg.training.feature_movement(run(), [1, -2], [8, 16])": "gammas: wanted a finite number > 0",
    "lg.training.feature_movement(run(), 2, [8, 16])": "gammas: wanted a list",
    "lg.training.feature_movement(run(), [1, 2], [8], key=0)": "widths: wanted at least two",
    "lg.scaling.plane_class('1/0', 0)": "q_sigma: wanted a rational exponent, got '1/0'",
    "lg.scaling.plane_class(True, 0)": "q_sigma: wanted a rational exponent, got True",
    "lg.scaling.plane_class(np.float32(-0.1), 0)": "which is none to 1e-9",
    "lg.scaling.plane_class(-0.5, 1e-7)": "rate_a: wanted a rational exponent",
    "lg.ntk().shift('input')": "theta: wanted powers by role",
    "lg.ntk().with_rates('input')": "rates: wanted factors by name",
    "lg.kernel(net, x, x[:, :2])": "x2",
    "lg.kernel(net, x * np.nan)": "NaN",
    "lg.kernel(net, np.eye(3) * 1j)": "floats",
    "lg.posterior(net, x, y, kind=['nngp'])": "kind: ['nngp'] is not known",
    "lg.regression.fit_likelihood(net, x, y, fit_noise=1)": "fit_noise: wanted True or False",
    "lg.regression.flow_posterior(net, x, y, time=1, weights='even')": "weights: wanted an array",
    "lg.train(run(), width=8, seeds=1, key=0, record=1)": "record: wanted names out of",
    "lg.posterior('mlp', x, y)": "net: wanted a network",
    "lg.posterior(net, x, y, param='ntk')": "param: wanted",
    "lg.posterior(net, x, y, noise=-1)": "noise: wanted finite numbers",
    "lg.posterior(net, x, y).predict('x')": "x_test: wanted an array of numbers",
    "lg.regression.log_likelihood('mlp', x, y, noise=1.0)": "net: wanted a network",
    "lg.regression.relaxation_times('ntk')": "ntk: wanted an array of numbers",
    "lg.NTKRegressor('mlp').fit(x, y)": "net: wanted a network",
    "lg.expectations.gaussian_moments('relu', 1.0, 2.0, 1.0)": "q12",
}


@pytest.fixture(scope="module")
def answers():
    """What each case raises, all in one fresh interpreter."""
    lines = [PRELUDE, "from largen.errors import LargenError"]
    for code in CASES:
        lines.append(
            f"try:\n    {code}\n    print('accepted')\n"
            "except LargenError as error:\n    print(repr(str(error)))\n"
            "except Exception as error:\n    print('NOT NAMED', type(error), repr(str(error)))"
        )
    out = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    return dict(zip(CASES, out.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("code", CASES)
def test_wrong_type(answers, code):
    answer = answers[code]
    assert answer != "accepted"
    assert not answer.startswith("NOT NAMED"), answer
    assert CASES[code] in answer
