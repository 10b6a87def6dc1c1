"""Predicted exponents against networks trained in NumPy at a range of widths."""

from fractions import Fraction as F

import numpy as np
import pytest

import largen as lg

LEAK = 0.1
X = np.random.default_rng(0).normal(size=(4, 3))
Z = np.random.default_rng(1).normal(size=(6, 3))
Y = np.array([1.0, -1.0, 1.0, -1.0])


def relu(h):
    return np.where(h > 0, h, LEAK * h)


def gate(h):
    return np.where(h > 0, 1.0, LEAK)


def slope(widths, squares):
    """Exponent of √⟨square⟩ against width, and its standard error; squares (width, seed)."""
    mean = squares.mean(1)
    error = squares.std(1) / mean / np.sqrt(squares.shape[1]) / 2
    weights = np.log(widths) - np.log(widths).mean()
    weights /= (weights**2).sum()
    return weights @ np.log(mean) / 2, np.sqrt((weights * error) @ (weights * error))


def one_hidden_layer(width, q_sigma, rate_a, rate_w, seed, rate, steps=3):
    """Mean squares of δâ, δŵ and of the four terms of Golikov's (11), logistic loss."""
    rng = np.random.default_rng([seed, width])
    a0, w0 = rng.normal(size=width), rng.normal(size=(width, 3))
    sigma, a, w = width**q_sigma, a0, w0
    for _ in range(steps):
        h = w @ X.T
        residual = Y / (1 + np.exp(Y * (sigma * a @ relu(h)))) / len(Y)
        a, w = (
            a + rate * width**rate_a * sigma * relu(h) @ residual,
            w + rate * width**rate_w * sigma * (a[:, None] * gate(h) * residual) @ X,
        )
    da, dw, gates = a - a0, w - w0, gate(w @ Z.T)
    parts = [
        sigma * (left[:, None] * gates * (right @ Z.T)).sum(0)
        for left, right in ((a0, w0), (da, w0), (a0, dw), (da, dw))
    ]
    return [np.mean(q**2) for q in (da, dw, *parts)]


@pytest.mark.parametrize(
    ("scaling", "rate", "skip"),
    [
        (("-1/2", 0, 0), 1.0, ()),
        # In the mean-field limit f_∅ approaches a small constant from noise of order N^(−1/2);
        # the gates that make it are tested below.
        ((-1, 1, 1), 1.0, ("∅",)),
        (("-3/4", "1/2", "1/2"), 1.0, ()),
        (("-9/10", "4/5", "4/5"), 1.0, ("∅",)),
        # App. E.3: output weights outgrow their initialisation, and ϰ_w = 1 − q_a⁽¹⁾ < 1.
        (("-7/5", "9/5", "4/5"), 5.0, ()),
    ],
)
def test_one_hidden_layer(scaling, rate, skip):
    predicted = lg.scaling.plane_class(*scaling)
    widths = np.array([128, 512, 2048])
    floats = [float(F(q)) for q in scaling]
    squares = np.array(
        [[one_hidden_layer(n, *floats, seed, rate) for seed in range(60)] for n in widths]
    )
    late = {**predicted.increments(3), **{f"f_{n}": q for n, q in predicted.terms(3).items()}}
    for position, (name, exponent) in enumerate(late.items()):
        if name.removeprefix("f_") in skip:
            continue
        measured, error = slope(widths, squares[:, :, position])
        # 0.06 is what the next order in the width leaves at these widths.
        assert abs(measured - float(exponent)) < 0.06 + 3 * error, (name, measured, error)


def test_displaced_gates():
    """The mean behind ϰ_∅ is of third order in the increments, and of second at training inputs.

    Increments of size s stand for N^q; the residuals are held fixed, as they are the same for
    all neurons. Pairs of opposite â⁽⁰⁾ take away what has no mean.
    """
    rng = np.random.default_rng(3)
    seen, new = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    residual = np.array([1.0, -0.8, 0.6, -1.2, 0.9]) / 3
    a0, w0 = rng.normal(size=2**17), rng.normal(size=(2**17, 3))

    def mean(size, x):
        total = 0.0
        for start in (a0, -a0):
            a, w = start, w0
            for _ in range(3):
                h = w @ seen.T
                a, w = (
                    a + size * relu(h) @ residual,
                    w + size * (a[:, None] * gate(h) * residual) @ seen,
                )
            total += start[:, None] * (gate(w @ x.T) - gate(w0 @ x.T)) * (w0 @ x.T)
        return np.sqrt(np.mean(np.mean(total / 2, 0) ** 2))

    # The local powers come from below: 1.95, 2.54, 2.72, … and 1.37, 1.66, 1.83, … at halved sizes.
    assert 2.3 < np.log2(mean(0.1, new) / mean(0.05, new)) < 3.05
    assert 1.55 < np.log2(mean(0.1, seen) / mean(0.05, seen)) < 2.05
    scaling = lg.scaling.plane_class("-19/20", "9/10")
    assert scaling.kappas(2)["∅"] == 1 - 3 * F(1, 20)
    assert scaling.kappas(2, seen=True)["∅"] == 1 - 2 * F(1, 20)


def deep(param, optimizer, hidden_layers, width, seed, steps):
    """Mean squares of δŴ of each layer, of δh of each layer, and of the change of the outputs."""
    net = lg.mlp(hidden_layers, "relu")
    rules = list(param.table(net, optimizer, width=int(width), inputs=3).values())
    rng = np.random.default_rng([seed, width])
    shapes = [(width, 3), *[(width, width)] * (hidden_layers - 1), (1, width)]
    start = [r.init_std * rng.normal(size=s) for r, s in zip(rules, shapes, strict=True)]
    weights = [w.copy() for w in start]

    def forward(inputs):
        signals, h = [], inputs.T
        for position, (rule, w) in enumerate(zip(rules, weights, strict=True)):
            h = rule.multiplier * w @ (h if position == 0 else relu(h))
            signals.append(h)
        return signals

    before = forward(Z)
    for _ in range(steps):
        signals = forward(X)
        g = (Y / (1 + np.exp(Y * signals[-1][0])) / len(Y))[None]
        updates = []
        for position in reversed(range(len(weights))):
            entered = X.T if position == 0 else relu(signals[position - 1])
            updates.append(rules[position].multiplier * g @ entered.T)
            if position:
                back = rules[position].multiplier * weights[position].T @ g
                g = back * gate(signals[position - 1])
        for position, update in enumerate(reversed(updates)):
            # RMSProp's first step is the sign; later ones differ by factors of order one.
            step = np.sign(update) if optimizer.adaptive else update
            weights[position] += optimizer.lr * rules[position].lr * step
    after = forward(Z)
    moved = [
        np.mean((w - s) ** 2) / r.init_std**2 for w, s, r in zip(weights, start, rules, strict=True)
    ]
    return [*moved, *(np.mean((x - y) ** 2) for x, y in zip(after, before, strict=True))]


INVERSE_WIDTH = lg.abc(a=(0, 1, 1), b=0, c=(-1, -2, -1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("param", "optimizer", "hidden_layers", "steps"),
    [
        (lg.ntk(), lg.gd(1.0), 2, 3),
        (lg.ntk(), lg.adam(0.3), 2, 3),
        (lg.mup(), lg.gd(1.0), 2, 3),
        (INVERSE_WIDTH, lg.gd(3.0), 2, 6),  # not trivial with two hidden layers,
        (INVERSE_WIDTH, lg.gd(1.0), 3, 3),  # trivial with three,
        (INVERSE_WIDTH, lg.adam(1.0), 3, 3),  # and not if the update ignores the gradient's size
    ],
)
def test_deep(param, optimizer, hidden_layers, steps):
    report = lg.scaling.classify(param, hidden_layers, optimizer)
    predicted = [*(r.increment for r in report.layers), *(r.change for r in report.layers)]
    widths = np.array([64, 128, 256, 512])
    squares = np.array(
        [[deep(param, optimizer, hidden_layers, n, s, steps) for s in range(8)] for n in widths]
    )
    for position, exponent in enumerate(predicted):
        measured, error = slope(widths, squares[:, :, position])
        assert abs(measured - float(exponent)) < 0.06 + 3 * error, (position, measured, error)
