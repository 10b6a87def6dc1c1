"""Feedback alignment and Hebbian learning: against NumPy, and kernels against small steps."""

import numpy as np
import pytest
from tests.wrong_arguments.examples import examples

import largen as lg
from largen.errors import InvalidInput, LargenError

RNG = np.random.default_rng(5)
X, XT = RNG.standard_normal((4, 3)), RNG.standard_normal((2, 3))
Y = np.array([1.0, -1.0, 0.5, -0.3])
RECORDS = ["pseudo_gradient_kernel", "effective_ntk", "alignment"]
rule, hebbian = lg.optimizers.feedback_alignment, lg.optimizers.hebbian


def run_of(optimizer, net=None, *, steps=6, y=Y, param=None):
    data = lg.Dataset(X, y, XT, y[:2])
    net = lg.mlp(2, "tanh") if net is None else net
    return lg.Run(net, param or lg.mean_field(), data, optimizer=optimizer, steps=steps)


def weights_at_start(network, start, end, x):
    return start


@pytest.mark.parametrize("local", [False, True])
def test_pseudo_gradients_pass_by_the_initial_weights_or_are_local(local):
    """Two hidden layers in NumPy, with momentum, weight decay and batches of two."""
    width, lr, beta, decay, steps = 16, 0.4, 0.6, 0.1, 5
    given = {"momentum": beta, "weight_decay": decay, "batch_size": 2, "seed": 3}
    how = hebbian(lr, **given) if local else rule(lr, 1.0, **given)
    run = run_of(how, steps=steps)
    start = lg.networks.train_and_measure(run, width, weights_at_start, key=2)
    w0, w1, w2 = (layer["weight"][0] for layer in start if layer)
    b1, b2 = w1.copy(), w2.copy()
    v = [np.zeros_like(w) for w in (w0, w1, w2)]
    found = []
    for batch in [*run.batches, np.arange(4)]:
        one = np.tanh(X @ w0 / 3**0.5)
        two = np.tanh(one @ w1 / width**0.5)
        f = (two @ w2)[:, 0] / width  # γ₀ = 1
        found.append(f)
        delta = np.zeros(4)
        delta[batch] = (Y - f)[batch] / len(batch)
        g2 = delta[:, None] * (1 - two**2) * b2[:, 0]
        g1 = (1 - one**2) * (g2 @ b1.T) / width**0.5
        if local:
            g1, g2 = (len(batch) * delta[:, None] ** 2 * x for x in (one, two))
        moves = (X.T @ g1 / 3**0.5, one.T @ g2 / width**0.5, two.T @ delta[:, None])
        for w, each, move in zip((w0, w1, w2), v, moves, strict=True):
            each *= beta
            each += lr * (move - decay * w)
            w += each
    nets = lg.train(run, width, key=2)
    np.testing.assert_allclose(nets.f_train[0], found, rtol=0, atol=1e-13)
    plain = lg.sgd(lr, 2, momentum=beta, weight_decay=decay, seed=3)
    other = lg.train(run.with_changes(optimizer=plain), width, key=2)
    alike = 1 if local else 2  # the first step is that of gradients
    np.testing.assert_allclose(other.f_train[0, :alike], found[:alike], rtol=0, atol=1e-13)
    assert np.abs(other.f_train[0, -1] - found[-1]).max() > 1e-3


NETS = {
    "biases and two outputs": lg.mlp(2, "tanh", bias_std=0.5),
    "repeated blocks": lg.residual_mlp(3, "tanh"),
    "normalisation": lg.serial(lg.mlp(1, "tanh"), lg.LayerNorm(), lg.Dense()),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "how"),
    [
        ("biases and two outputs", {"correlation": 1.0}),
        ("biases and two outputs", {"direct": True}),
        ("biases and two outputs", None),
        ("repeated blocks", {"correlation": 0.7}),
        ("normalisation", {}),
    ],
)
def test_small_steps_follow_the_effective_kernel(which, how):
    y = np.stack([Y, -Y[::-1]], 1)
    optimizer = hebbian(1e-6) if how is None else rule(1e-6, **how)
    run = run_of(optimizer, NETS[which], y=y, steps=1)
    nets = lg.train(run, 8, seeds=2, record=[*RECORDS, "gradient_kernel", "ntk"], record_at=[0])
    f = nets.f_train
    moved = np.einsum("smncd,snd->smc", nets.effective_ntk[:, 0], y - f[:, 0]) / 4
    np.testing.assert_allclose((f[:, 1] - f[:, 0]) / 1e-6, moved, rtol=1e-3, atol=1e-4)
    if how == {"correlation": 1.0}:
        np.testing.assert_allclose(nets.effective_ntk, nets.ntk, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(nets.alignment, 1, rtol=1e-10)
        pseudo = nets.pseudo_gradient_kernel
        np.testing.assert_allclose(pseudo, nets.gradient_kernel, rtol=1e-10, atol=1e-12)
    else:
        assert (np.abs(nets.alignment) < 0.999).all()


def test_convolutions_pass_backward_by_feedback():
    net = lg.serial(
        lg.Conv((3,)), lg.Activation("tanh"), lg.Conv((2,)), lg.Activation("tanh"),
        lg.GlobalAvgPool(), lg.Dense(),
    )  # fmt: skip
    data = lg.Dataset(RNG.standard_normal((4, 5, 2)), Y)
    runs = [
        lg.Run(net, lg.ntk(), data, optimizer=how, steps=1)
        for how in (lg.gd(0.3), rule(0.3, 1.0), rule(0.3, 0.0))
    ]
    plain, aligned, other = (lg.train(run, 8, key=1).f_train for run in runs)
    np.testing.assert_allclose(plain, aligned, rtol=0, atol=1e-13)
    assert np.abs(plain - other).max() > 1e-3


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_the_initial_alignment_falls_with_the_distance_from_the_output(rho):
    run = run_of(rule(0.4, rho), steps=1)
    nets = lg.train(run, 128, seeds=64, record="alignment", record_at=[0])
    found = nets.alignment[:, 0].mean(-1)  # (seed, layer)
    error = found.std(0, ddof=1) / 8
    np.testing.assert_array_less(np.abs(found.mean(0) - [rho**2, rho]), 3.5 * error)


def test_networks_align_with_their_feedback():
    nets = lg.train(run_of(rule(0.5), steps=40), 128, seeds=4, record="alignment")
    first, last = nets.alignment.mean((0, 3))
    assert (np.abs(first) < 0.1).all()
    assert (last > 0.15).all()
    assert (nets.loss_train[:, -1] < 0.3 * nets.loss_train[:, 0]).all()


def test_longer_runs_have_the_same_feedback():
    short, long = (lg.train(run_of(rule(0.4), steps=n), 8, key=4).f_train for n in (3, 6))
    np.testing.assert_allclose(short[0], long[0, :4], rtol=1e-12)


def test_wrong_constants_and_records_are_named():
    for correlation in (-0.1, 1.5, np.nan):
        with pytest.raises(InvalidInput, match="correlation"):
            rule(0.1, correlation)
    with pytest.raises(InvalidInput, match="correlation: direct feedback"):
        rule(0.1, 0.5, direct=True)
    repeated = lg.repeat(lg.serial(lg.Dense(), lg.Activation("tanh")), 2)
    for net in (lg.residual_mlp(1), lg.serial(lg.Dense(), repeated, lg.Dense())):
        for how in (rule(0.1, direct=True), hebbian(0.1)):
            with pytest.raises(InvalidInput, match="one by one, without branches"):
                run_of(how, net)
    with pytest.raises(InvalidInput, match="momentum"):
        rule(0.1, momentum=1.0)
    with pytest.raises(InvalidInput, match="'alignment' is a kernel of"):
        lg.train(run_of(lg.gd(0.1)), 8, record="alignment")
    with pytest.raises(InvalidInput, match="'effective_ntk' is a kernel of"):
        lg.solve(run_of(lg.gd(0.1)), record="effective_ntk")


FOLLOW = {
    "feature_movement", "learning_rate_curve", "predict_networks", "solve", "solve.mean_field",
    "train", "train_and_measure",
}  # fmt: skip


@pytest.mark.slow
def test_what_takes_a_run_follows_the_rule_or_refuses_it_by_name():
    taking = {
        name: example
        for name, example in examples().items()
        if isinstance(example.arguments.get("run"), lg.Run) and "Trajectory" not in name
    }
    assert set(taking) > FOLLOW
    for name in set(taking) - FOLLOW:
        given = dict(taking[name].arguments)
        given["run"] = given["run"].with_changes(optimizer=rule(0.1))
        given.pop("limit", None)  # of the run before
        with pytest.raises(LargenError, match="FeedbackAlignment"):
            taking[name].call(**given)
