"""Results at all scales of targets, rates, inputs and γ₀, where theories are equivariant.

In a mean field outputs enter as γ₀f alone, so that targets s·y with γ₀/s have s times the outputs;
of homogeneous networks inputs s·x with targets s·y and rates over s² do as well; f(s·y)/s and
f(s·η₀)/s approach limits as s → 0, with an error of order s². Outputs of the kernel limit, of
posteriors and of estimators are linear in the targets.
"""

import math

import numpy as np
import pytest

import largen as lg

rng = np.random.default_rng(3)
X, Y, XT = rng.standard_normal((4, 5)), rng.standard_normal(4), rng.standard_normal((2, 5))
SCALES = (1e-12, 1e-7, 1e-3, 1e5, 1e12)
TOKENS = rng.standard_normal((6, 3, 1))


def attention():
    block = lg.Residual(lg.serial(lg.QKVAttention(causal=True), lg.Dense()))
    return lg.serial(lg.Dense(), block, lg.GlobalAvgPool(), lg.Dense())


def convolution():
    conv = lg.Conv((3,), padding="SAME")
    return lg.serial(conv, lg.Activation("tanh"), lg.GlobalAvgPool(), lg.Dense())


# The network, its scaling by γ₀, and the optimizer by its rate.
CASES = {
    "one hidden layer": (lg.mlp(1, "tanh"), lg.mean_field, lg.gd),
    "one hidden layer, relu": (lg.mlp(1, "relu"), lg.mean_field, lg.gd),
    "one hidden layer, linear": (lg.mlp(1, "linear"), lg.mean_field, lg.gd),
    "deep": (lg.mlp(2, "tanh"), lg.mean_field, lg.gd),
    "momentum": (lg.mlp(2, "tanh"), lg.mean_field, lambda lr: lg.gd(0.5 * lr, momentum=0.5)),
    "flow": (lg.mlp(2, "tanh"), lg.mean_field, lg.gradient_flow),
    "relu": (lg.mlp(2, "relu"), lg.mean_field, lg.gd),
    "linear": (lg.mlp(2, "linear"), lg.mean_field, lg.gd),
    "residual": (lg.residual_mlp(2, "tanh"), lg.depth_mup, lg.gd),
    "convolution": (convolution(), lg.mean_field, lg.gd),
    "feedback": (lg.mlp(2, "tanh"), lg.mean_field, lg.optimizers.feedback_alignment),
    "attention": (attention(), lg.mean_field, lg.gd),
    "infinite depth": (lg.residual_mlp(math.inf, "tanh"), lg.depth_mup, lg.gd),
    "adaptive, one hidden layer": (lg.mlp(1, "tanh"), lg.mean_field, lambda lr: lg.adam(0.2 * lr)),
    "adaptive": (lg.mlp(2, "tanh"), lg.mean_field, lambda lr: lg.adam(0.2 * lr)),
}
ADAPTIVE = tuple(name for name in CASES if name.startswith("adaptive"))
QUICK = ("one hidden layer, linear", "linear")


def limit(case, *, x=1.0, y=1.0, rate=1.0, gamma=1.0):
    """Return the limit of a run with its inputs, targets, rate and γ₀ times factors."""
    net, scaling, optimizer = CASES[case]
    tokens = case in ("attention", "convolution")
    inputs = (TOKENS[:4], TOKENS[4:]) if tokens else (X, XT)
    data = lg.Dataset(x * inputs[0], y * Y, x * inputs[1], np.zeros(2))
    flows = {"times": np.array([0.0, 0.7, 1.5])} if case == "flow" else {"steps": 3}
    run = lg.Run(net, scaling(gamma), data, optimizer=optimizer(0.5 * rate), **flows)
    return lg.solve(run, rtol=3e-2, throw=False, progress=False)


def outputs(found, scale=1.0):
    """Return outputs of all samples over a scale, and half of their intervals."""
    held = found.to_xarray()
    parts = []
    for name in ("f", "margin"):
        of = [f"f_{which}" + ("" if name == "f" else "_margin") for which in ("train", "test")]
        if of[0] not in held:  # a deterministic solution has an error instead
            of = [each.replace("margin", "error") for each in of]
        zero = np.zeros(1)
        both = [np.asarray(held[each]) if each in held else zero for each in of]
        parts.append(np.concatenate([each.ravel() for each in both]) / scale)
    return parts


def agree(found, scale, other, of_other, close=1e-9):
    """Assert that outputs agree within their own intervals, which are as small as requested."""
    assert found.status == other.status == "ok"
    (f, margin), (g, wide) = outputs(found, scale), outputs(other, of_other)
    size = np.linalg.norm(g)
    assert size > 0
    apart = np.linalg.norm(f - g) / size
    within = (np.linalg.norm(margin) + np.linalg.norm(wide)) / size
    assert apart <= within + close, (apart, within)
    assert within < 2 * 1.96 * 1.2 * 3e-2


each_case = pytest.mark.parametrize(
    "case",
    [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES],
)


@each_case
def test_targets_times_s_and_gamma_over_s_have_s_times_the_outputs(case):
    if case in ADAPTIVE:
        pytest.skip("the size of a step does not depend on that of the error")
    for s in (1e-12, 1e12):
        agree(limit(case, y=s, gamma=1 / s), s, limit(case), 1.0)


@each_case
def test_small_targets_have_outputs_in_proportion(case):
    if case in ADAPTIVE:
        pytest.skip("outputs overshoot targets that are smaller than a step")
    known = limit(case, y=1e-3)
    for s in (1e-7, 1e-12):
        agree(limit(case, y=s), s, known, 1e-3, close=1e-5)


@each_case
def test_small_rates_have_outputs_in_proportion(case):
    known = limit(case, rate=1e-4)
    for s in (1e-7, 1e-11):
        agree(limit(case, rate=s), s, known, 1e-4, close=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["one hidden layer, relu", "one hidden layer, linear", "relu"])
def test_inputs_and_targets_of_homogeneous_networks_scale_together(case):
    for s in (1e-9, 1e9):
        agree(limit(case, x=s, y=s, rate=s**-2), s, limit(case), 1.0)


@pytest.mark.parametrize("scale", SCALES)
def test_the_kernel_limit_posteriors_and_estimators_are_linear_in_targets(scale):
    net = lg.mlp(2, "tanh")
    flow = {"optimizer": lg.gd(0.5), "steps": 5}

    def kernel(s):
        return lg.solve(lg.Run(net, lg.ntk(), lg.Dataset(X, s * Y, XT, 0 * Y[:2]), **flow)).f_test

    def posterior(s):
        return lg.regression.posterior(net, X, s * Y, noise=1e-2).predict(XT).mean

    found = [kernel, posterior]
    for kind in (lg.regression.NNGPRegressor, lg.regression.NTKRegressor):
        found.append(lambda s, kind=kind: kind(net).fit(X, s * Y).predict(XT))
    for of in found:
        np.testing.assert_allclose(np.asarray(of(scale)) / scale, of(1.0), rtol=1e-6, atol=1e-12)
