"""Limits under pseudo-gradients: exact cases, networks that repeat them, and ensembles."""

import numpy as np
import pytest
from tests.theories.mean_field.transformer import test_attention as attending
from tests.theories.mean_field.transformer.rebuilt import solved_and_trained

import largen as lg
from largen.errors import NoTheory
from largen.theories import FeedbackKernelLimit, FeedbackMeanField

RNG = np.random.default_rng(11)
X, XT = RNG.standard_normal((4, 3)), RNG.standard_normal((2, 3))
Y = np.array([1.0, -1.0, 0.5, -0.3])
KERNELS = ["feature_kernel", "gradient_kernel", "pseudo_gradient_kernel", "effective_ntk"]
FROM_ZERO = lg.abc(a=(0, "1/2", "1/2"), b=0, c=0, d="1/4")
rule, hebbian = lg.optimizers.feedback_alignment, lg.optimizers.hebbian


def run_of(optimizer, net, *, steps=6, y=Y, param=None):
    data = lg.Dataset(X, y, XT, y[:2])
    param = lg.mean_field(1.3) if param is None else param
    return lg.Run(net, param, data, optimizer=optimizer, steps=steps)


HOW = {"momentum": 0.5, "weight_decay": 0.2, "batch_size": 2, "seed": 1}
BRANCH = lg.Residual(lg.serial(lg.Dense(), lg.Dense(bias_std=0.5)))
RESIDUAL = lg.serial(lg.Dense(), BRANCH, BRANCH, lg.Dense())
REBUILT = {
    "linear": (run_of(rule(0.3, 0.6, **HOW), lg.mlp(3, "linear", bias_std=0.4)), None),
    "residual, two outputs": (
        run_of(rule(0.3, 0.0), RESIDUAL, y=np.stack([Y, Y**2], 1)),
        None,
    ),
    "direct, two outputs": (
        run_of(rule(0.3, direct=True, **HOW), lg.mlp(2, "linear"), y=np.stack([Y, Y**2], 1)),
        None,
    ),
    "direct, tanh": (run_of(rule(0.3, direct=True), lg.mlp(3, "tanh"), steps=4), 1),
    "Hebbian, two outputs": (
        run_of(hebbian(0.3, **HOW), lg.mlp(2, "linear", bias_std=0.4), y=np.stack([Y, Y**2], 1)),
        None,
    ),
    "Hebbian, tanh": (run_of(hebbian(0.3, **HOW), lg.mlp(3, "tanh"), steps=4), 1),
    "attention": (
        attending.run_of(
            attending.transformer(attending.CAUSAL),
            optimizer=rule(0.3, 0.6, momentum=0.5, weight_decay=0.1),
            steps=4,
        ),
        None,
    ),
    "tanh": (run_of(rule(0.3, 0.6, **HOW), lg.mlp(2, "tanh"), steps=4), 1),
    "tanh, uncorrelated": (run_of(rule(0.3, 0.0), lg.mlp(2, "tanh"), steps=4), 1),
    "tanh, initial weights": (run_of(rule(0.3, 1.0), lg.mlp(2, "tanh"), steps=4), 1),
}


@pytest.mark.parametrize("which", REBUILT)
def test_a_finite_network_of_its_coordinates_repeats_the_solution(which):
    run, ratio = REBUILT[which]
    solved, (f, _) = solved_and_trained(run, ratio)
    f = f.reshape(solved.f.shape)
    assert np.abs(solved.f[-1] - solved.f[0]).max() > 0.03
    np.testing.assert_allclose(solved.f, f, rtol=0, atol=1e-11 * np.abs(f).max())


def moments(rho, steps, lr=0.5, gamma=1.3):
    """Return f(t) and G̃(t) of one linear hidden layer from the moments of (a, w, b)."""
    fields, second, found = X / 3**0.5, np.eye(5), []
    second[3, 4] = second[4, 3] = rho
    kernels = []
    for _ in range(steps + 1):
        f = fields @ second[:3, 3] / gamma
        found.append(f)
        kernels.append(second[3, 4])
        push, move = lr * gamma / 4 * (Y - f) @ fields, np.eye(5)
        move[:3, 4] += push  # a moves along b, w along a
        move[3, :3] += push
        second = move @ second @ move.T
    return np.array(found), np.array(kernels)


@pytest.mark.parametrize("rho", [0.0, 0.4, 1.0])
def test_one_linear_hidden_layer(rho):
    run = run_of(rule(0.5, rho), lg.mlp(1, "linear"), steps=8)
    limit = lg.solve(run, record=[*KERNELS, "alignment"], record_at=range(9))
    f, kernel = moments(rho, 8)
    assert limit.theory == "mean field, pseudo-gradients"
    np.testing.assert_allclose(limit.f_train, f, rtol=0, atol=1e-12)
    np.testing.assert_allclose(limit.pseudo_gradient_kernel[:, 0, 1, 2], kernel, atol=1e-12)
    cosines = kernel / np.sqrt(limit.gradient_kernel[:, 0, 1, 1])  # b has the variance 1
    np.testing.assert_allclose(limit.alignment[:, 0, 1], cosines, atol=1e-12)
    effective = limit.feature_kernel[:, 0] + kernel[:, None, None] * (X @ X.T / 3)
    np.testing.assert_allclose(limit.effective_ntk, effective, atol=1e-12)


def test_one_linear_hidden_layer_of_hebbian_learning():
    lr, gamma = 0.5, 1.3
    run = run_of(hebbian(lr), lg.mlp(1, "linear"), steps=8, param=lg.mean_field(gamma))
    limit = lg.solve(run, record=["pseudo_gradient_kernel", "effective_ntk"], record_at=range(9))
    fields, second = X / 3**0.5, np.eye(4)  # the second moments of (a, w)
    for t in range(9):
        f = fields @ second[:3, 3] / gamma
        delta = Y - f
        np.testing.assert_allclose(limit.f_train[t], f, rtol=0, atol=1e-12)
        mixed = np.tile(delta * gamma * f, (4, 1))  # ⟨w Δ_ν h_ν⟩
        np.testing.assert_allclose(limit.pseudo_gradient_kernel[t, 0], mixed, atol=1e-12)
        effective = fields @ second[:3, :3] @ fields.T + mixed * (X @ X.T / 3)
        np.testing.assert_allclose(limit.effective_ntk[t], effective, atol=1e-12)
        move = np.eye(4)
        move[:3, :3] += lr * gamma / 4 * (fields.T * delta**2) @ fields
        move[3, :3] += lr * gamma / 4 * delta @ fields
        second = move @ second @ move.T


def test_features_move_more_with_less_correlation():
    """What Bordelon and Pehlevan find in rich training (arXiv 2210.02157, abstract)."""
    moved = []
    for rho in (0.0, 0.5, 1.0):
        run = run_of(rule(0.5, rho), lg.mlp(2, "linear"), steps=40, param=lg.mean_field(2.0))
        limit = lg.solve(run, record="feature_kernel")
        assert limit.loss_train[-1] < 0.3 * limit.loss_train[0]
        before, after = limit.feature_kernel[:, -1]
        moved.append(np.linalg.norm(after - before))
    assert moved[0] > 1.1 * moved[1] > 1.2 * moved[2]


@pytest.mark.slow
def test_the_first_step_at_full_correlation_is_that_of_gradient_descent():
    net = lg.mlp(2, "linear")
    one, other = (lg.solve(run_of(how, net)).f_train for how in (lg.gd(0.5), rule(0.5, 1.0)))
    np.testing.assert_allclose(one[:2], other[:2], rtol=0, atol=1e-12)
    assert np.abs(one[-1] - other[-1]).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.0, 0.6, 1.0])
def test_the_static_kernel_has_a_power_of_the_correlation_for_each_map(rho):
    net = lg.mlp(2, "tanh", bias_std=0.3)
    lazy = lg.solve(run_of(rule(0.5, rho), net, param=FROM_ZERO))
    inner = [lg.kernel(lg.mlp(n, "tanh", bias_std=0.3), X) for n in (1, 2)]
    # Θ of two layers = K² + Θ̇¹Θ¹; rates of lower layers fall by ρ and ρ².
    (k1, theta1), (k2, theta2) = inner
    slopes = (theta2 - k2) / theta1
    expected = k2 + rho * slopes * (k1 + rho * (theta1 - k1))
    np.testing.assert_allclose(lazy.effective_ntk, expected, rtol=1e-9)
    assert lazy.theory == "kernel, pseudo-gradients"
    assert "ntk" not in lazy.to_xarray()
    if rho == 1:
        plain = lg.solve(run_of(lg.gd(0.5), net, param=FROM_ZERO))
        np.testing.assert_allclose(lazy.f_train, plain.f_train, rtol=0, atol=1e-12)


@pytest.mark.parametrize("how", [rule(0.5, 0.6), hebbian(0.5), lg.gd(0.5)], ids=str)
def test_the_mean_field_of_sampled_neurons_is_lazy_at_small_gamma(how):
    net, of_gd = lg.mlp(2, "tanh"), "mean field, branches and attention"
    theory = {"theory": of_gd} if isinstance(how, type(lg.gd(0.5))) else {}
    lazy = lg.solve(run_of(how, net, param=FROM_ZERO))
    limit = lg.solve(run_of(how, net, param=lg.mean_field(1e-3)), rtol=0.01, **theory)
    assert np.abs(limit.f_train[0]).max() < 1e-5  # rounding errors of single precision, over γ₀
    off = np.abs(limit.f_train - lazy.f_train)[1:] / limit.f_train_error[1:]
    assert 0.1 < np.sqrt(np.mean(off**2)) < 3
    assert np.abs(limit.f_train - lazy.f_train).max() < 0.02 * np.abs(lazy.f_train).max()


@pytest.mark.slow
def test_the_kernel_limit_predicts_networks():
    run = run_of(rule(0.5, 0.5), lg.mlp(1, "tanh"), param=lg.ntk(), steps=10)
    nets, limit = lg.train(run, 512, seeds=64), lg.solve(run)
    given = FeedbackKernelLimit().condition(limit, nets.f_train[:, 0], nets.f_test[:, 0])
    change = np.abs(nets.f_train[:, -1] - nets.f_train[:, 0]).mean()
    assert np.abs(given[0] - nets.f_train).mean() < 0.05 * change


@pytest.mark.slow
@pytest.mark.parametrize(
    ("activation", "how"),
    [("tanh", rule(0.4)), ("relu", rule(0.4, 0.5)), ("tanh", hebbian(0.4))],
    ids=str,
)
def test_networks_approach_the_limit(activation, how):
    run = run_of(how, lg.mlp(2, activation), steps=8)
    limit = lg.solve(run, rtol=0.01, record=KERNELS)
    narrow, wide = (lg.train(run, n, seeds=s, record=KERNELS) for n, s in ((32, 1024), (64, 512)))
    for name in ("f_train", "f_test", *KERNELS):
        one, two = (getattr(nets, name) for nets in (narrow, wide))
        mean = 2 * two.mean(0) - one.mean(0)  # without the order 1/width
        variance = 4 * two.var(0) / len(two) + one.var(0) / len(one)
        error = np.sqrt(variance + getattr(limit, f"{name}_error") ** 2)
        z = (getattr(limit, name) - mean)[error > 0] / error[error > 0]
        assert np.sqrt(np.mean(z**2)) < 2, name
        assert np.abs(z).max() < 4.5, name


def test_what_has_no_limit_is_refused():
    net = lg.mlp(2, "tanh")
    with pytest.raises(NoTheory, match="weight decay"):
        FeedbackKernelLimit.pose(run_of(rule(0.1, weight_decay=0.1), net, param=lg.ntk()))
    with pytest.raises(NoTheory, match="different numbers of affine maps"):
        FeedbackKernelLimit.pose(run_of(rule(0.1), lg.residual_mlp(2, "tanh"), param=lg.ntk()))
    repeated = lg.repeat(lg.serial(lg.Dense(), lg.Activation("tanh")), 2)
    chain = lg.serial(lg.Dense(), repeated, lg.Dense())
    with pytest.raises(NoTheory, match="a rate in common"):
        FeedbackKernelLimit.pose(run_of(rule(0.1, 0.5), chain, param=lg.ntk()))
    for theory, param in ((FeedbackKernelLimit, lg.ntk()), (FeedbackMeanField, lg.mean_field())):
        with pytest.raises(NoTheory, match="GradientDescent"):
            theory.pose(run_of(lg.gd(0.1), net, param=param))
    endless = lg.residual_mlp(np.inf, "tanh")
    with pytest.raises(NoTheory, match="number of blocks"):
        FeedbackMeanField.pose(run_of(rule(0.1), endless, param=lg.depth_mup()))
    for theory in ("mean field, deep", "mean field, branches and attention"):
        with pytest.raises(NoTheory, match="FeedbackAlignment"):
            lg.solve(run_of(rule(0.1), net), theory=theory)
