"""RMSProp of finite networks against a loop in NumPy, and its invariance under the symmetry."""

from typing import Any

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput

X = np.random.default_rng(0).normal(size=(5, 3))
DATA = lg.Dataset(X, np.sin(X[:, 0]), X[:2] + 0.1, np.sin(X[:2, 0]))
NET = lg.mlp(1, "tanh")


def run(param, **options):
    return lg.Run(NET, param, DATA, optimizer=lg.optimizers.rmsprop(0.05, **options), steps=6)


def by_hand(param, start, *, beta, eps, decay, width):
    table = param.table(NET, lg.optimizers.rmsprop(1.0), width=width, inputs=3)
    rules = table["0.weight"], table["2.weight"]
    theta = [start[0]["weight"].copy(), start[2]["weight"].copy()]
    v = [0.0, 0.0]
    for _ in range(6):
        h = rules[0].multiplier * X @ theta[0]
        f = rules[1].multiplier * np.tanh(h) @ theta[1]
        delta = (f[:, 0] - DATA.y_train) / len(X)
        back = rules[1].multiplier * delta[:, None] * theta[1].T / np.cosh(h) ** 2
        gradients = [
            rules[0].multiplier * X.T @ back,
            rules[1].multiplier * np.tanh(h).T @ delta[:, None],
        ]
        for i, (rule, g) in enumerate(zip(rules, gradients, strict=True)):
            v[i] = beta * v[i] + (1 - beta) * g**2
            step = g / (np.sqrt(v[i]) + eps * rule.eps) + decay * rule.weight_decay * theta[i]
            theta[i] = theta[i] - 0.05 * rule.lr * step
    h = rules[0].multiplier * X @ theta[0]
    return (rules[1].multiplier * np.tanh(h) @ theta[1])[:, 0]


@pytest.mark.parametrize("param", [lg.ntk(), lg.mup()], ids=str)
def test_update(param):
    options = {"beta": 0.9, "eps": 0.1}
    nets = lg.train(run(param, weight_decay=0.3, **options), width=16, seeds=1, key=0)
    network = lg.networks.finite_network(NET, param, width=16, inputs=3)
    import jax

    start = network.init(jax.random.fold_in(jax.random.key(0), 0), np.float64)
    expected = by_hand(param, start, **options, decay=0.3, width=16)
    np.testing.assert_allclose(nets.f_train[0, -1], expected, rtol=1e-9)


def test_symmetry():
    other = lg.mean_field().shift({"input": "1/2", "output": -1})
    one, two = (
        lg.train(run(p, eps=0.01), width=32, seeds=2, key=3) for p in (lg.mean_field(), other)
    )
    assert np.abs(one.f_test[:, -1] - one.f_test[:, 0]).min() > 1e-3
    # Its rates are derived from the sizes of gradients, which the shift moves too.
    assert one.f_test.shape == two.f_test.shape
    np.testing.assert_allclose(one.f_test, two.f_test, rtol=1e-8)


def test_class_and_wrong_input():
    assert lg.scaling.classify(lg.mup(), 2, lg.optimizers.rmsprop(0.1)).kind == "maximal"
    assert "rmsprop" in str(lg.scaling.classify(lg.ntk(), 2, lg.optimizers.rmsprop(0.1)))
    wrong: list[dict[str, Any]] = [{"beta": 1.0}, {"eps": -1.0}, {"batch_size": 0}]
    for bad in wrong:
        with pytest.raises(InvalidInput, match=next(iter(bad))):
            lg.optimizers.rmsprop(0.1, **bad)
