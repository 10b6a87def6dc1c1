"""The mean-field limit of attention with logits that are averages over keys."""

import math

import numpy as np
import pytest
from tests.theories.mean_field.transformer.rebuilt import solution_and_network

import largen as lg
from largen.errors import NoRule, NoTheory, NumericalFailure
from largen.theories.mean_field.transformer import random_matrix

DRAW = np.random.default_rng(3)
TOKENS, Y = np.array([[0, 1, 1], [2, 0, 1], [1, 2, 2], [0, 0, 2]]), np.array([1.0, -1.0, 1.0, -1.0])
X = lg.with_positions(lg.token_inputs(TOKENS, 3))
DATA = lg.Dataset(X[:3], Y[:3], X[3:], Y[3:])
TWO = lg.Dataset(X[:3], np.stack([Y[:3], Y[1:]], 1), X[3:], np.stack([Y[3:], Y[:1]], 1))


DENSE = lg.Dense()


def block(*before, branch=lg.Residual, behind=DENSE, **options):
    return branch(lg.serial(*before, lg.QKVAttention(**options), behind))


def transformer(*blocks, readout=DENSE):
    return lg.serial(DENSE, *blocks, lg.GlobalAvgPool(), readout)


def run_of(net, param=None, data=DATA, optimizer=None, steps=4, loss="mse"):
    optimizer = optimizer or lg.gd(0.5)
    return lg.Run(net, param or lg.mean_field(), data, loss=loss, optimizer=optimizer, steps=steps)


CAUSAL = block(logit_scale=4.0, causal=True)
UNEQUAL = block(
    lg.LayerNorm(over_space=True),
    queries=lg.Dense(width_ratio=1 / 2, weight_std=1.5),
    keys=lg.serial(lg.Dense(bias_std=0.5), lg.Dense(width_ratio=1 / 2)),
    values=lg.Dense(width_ratio=2, bias_std=0.3),
    logit_scale=-3.0,
    behind=lg.Dense(weight_std=0.7, bias_std=0.4),
)
REBUILT = {
    "one block": run_of(transformer(CAUSAL), steps=6),
    "no residual": run_of(transformer(block(branch=lambda layer: layer))),
    "two blocks": run_of(transformer(*[block(lg.RMSNorm(eps=0.1), causal=True)] * 2)),
    "depth_mup": run_of(transformer(CAUSAL, CAUSAL), lg.depth_mup(0.5)),
    "its own keys": run_of(
        transformer(lg.Residual(lg.serial(lg.RMSNorm(), lg.layers.SelfAttention(), lg.Dense())))
    ),
    "everything": run_of(
        transformer(UNEQUAL, lg.RMSNorm(), lg.Dense(width_ratio=3), readout=lg.Dense(bias_std=0.5)),
        lg.mup(2.0).with_rates({"hidden": 0.7, "1.0.1.0.weight": 0.0}),
        TWO,
        lg.sgd(0.02, 2, momentum=0.6, weight_decay=0.3, schedule=[1.0, 0.5, 2.0, 1.0]),
    ),
}


# A read-out at each position: real targets, and the next of the tokens 0, 1, 2.
NEXT = np.array([[1, 1, 2], [0, 1, 0], [2, 2, 1], [0, 2, 2]])
NEXT_REAL = lg.Dataset(X[:3], DRAW.standard_normal((3, 3)), X[3:], np.zeros((1, 3)))
NEXT_TOKEN = lg.Dataset(X[:3], NEXT[:3], X[3:], NEXT[3:])
EVERYWHERE = {"data": NEXT_TOKEN, "loss": "cross_entropy"}


def each_position(*blocks, readout=DENSE):
    return lg.serial(DENSE, *blocks, readout)


REBUILT |= {
    "positions": run_of(each_position(CAUSAL), data=NEXT_REAL, steps=6),
    "next token": run_of(each_position(*[block(lg.RMSNorm(), causal=True)] * 2), **EVERYWHERE),
    "next token, everything": run_of(
        each_position(UNEQUAL, lg.RMSNorm(), readout=lg.Dense(bias_std=0.5)),
        lg.mup(2.0),
        optimizer=lg.sgd(0.05, 2, momentum=0.6, weight_decay=0.3, schedule=[1.0, 0.5, 2.0, 1.0]),
        **EVERYWHERE,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("which", REBUILT)
def test_a_finite_network_of_its_coordinates_repeats_the_solution(which):
    solution, network = solution_and_network(REBUILT[which])
    assert np.abs(solution[-1] - solution[0]).max() > 0.03
    np.testing.assert_allclose(solution, network, rtol=0, atol=1e-12 * np.abs(network).max())


@pytest.mark.parametrize("causal", [False, True])
def test_the_first_step_is_that_of_uniform_attention(causal):
    # At initialisation a = e = 0. With pooled inputs m and pooled averages M of visible inputs,
    # f = ⟨w(Em + V_o V_v E M)⟩/γ₀; after one step every path counts once for each of its matrices.
    run = run_of(transformer(block(causal=causal, logit_scale=5.0)), lg.mean_field(1.7), steps=2)
    limit = lg.solve(run, record_at=[0, 1, 2])
    positions, inputs = X.shape[1:]
    seen = np.tri(positions) if causal else np.ones((positions, positions))
    seen /= seen.sum(1, keepdims=True)
    m = X.mean(1) / inputs**0.5
    pooled = (seen @ X).mean(1) / inputs**0.5
    kernel = 2 * m @ m[:3].T + 4 * pooled @ pooled[:3].T
    expected = 0.5 / 3 * kernel @ Y[:3]
    found = np.concatenate([limit.f_train[1], limit.f_test[1]])
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(limit.attention[:2, 0], np.broadcast_to(seen, (2, 3, 3, 3)))
    assert np.abs(limit.attention[2, 0] - seen).max() > 1e-3


def test_the_first_step_of_a_readout_at_each_position():
    # As above, with x_s and M_s of positions in place of pooled ones, and Δ_s = y_s/S.
    run = run_of(each_position(block(causal=True)), lg.mean_field(1.7), NEXT_REAL, steps=1)
    seen = np.tri(3) / np.arange(1, 4)[:, None]
    x, means = (each.reshape(12, -1) / X.shape[2] ** 0.5 for each in (X, seen @ X))
    kernel = 2 * x @ x[:9].T + 4 * means @ means[:9].T
    expected = 0.5 / 3 * kernel @ NEXT_REAL.y_train.reshape(9) / 3
    limit = lg.solve(run)
    found = np.concatenate([limit.f_train[1], limit.f_test[1]])
    np.testing.assert_allclose(found, expected.reshape(4, 3), rtol=1e-12)


@pytest.mark.slow
def test_next_tokens_are_learned_and_compared_with_networks():
    run = run_of(each_position(CAUSAL), steps=3, **EVERYWHERE)
    limit = lg.solve(run)
    np.testing.assert_allclose(limit.loss_train[0], np.log(3), rtol=1e-12)
    assert (np.diff(limit.loss_train) < 0).all()
    assert limit.to_xarray().f_test.dims == ("step", "test_sample", "position", "output")
    nets = lg.train(run, width=1024, seeds=3, key=0)
    report = lg.compare(limit, nets, on="train").to_xarray()
    assert report.mean_shift.dims == ("step", "sample", "position", "output")
    # Initial outputs alone have a standard deviation of a tenth of the outputs' size at this width.
    assert report.single[0] < 0.3 * report.output_size[0]


@pytest.mark.slow
def test_learning_rates_of_language_models():
    run = run_of(each_position(CAUSAL), steps=3, **EVERYWHERE)
    curve = lg.learning_rate_curve(run, [0.1, 0.5, 1e3], on="train", progress=False)
    for rate, loss in zip(curve.rates[:2], curve.losses[:2], strict=True):
        limit = lg.solve(run.with_changes(optimizer=lg.gd(rate)))
        np.testing.assert_allclose(loss, limit.loss_train[-1], rtol=1e-12)
    assert curve.threshold[0] < 1e3


LINEAR = {
    "plain": (lg.mlp(3, "linear", bias_std=0.4), lg.gd(0.05, momentum=0.5)),
    "ratios": (
        lg.serial(lg.Dense(width_ratio=2), lg.Dense(width_ratio=1 / 2), DENSE, DENSE),
        lg.gd(0.3, weight_decay=0.2),
    ),
    "residual": (
        lg.serial(DENSE, lg.Residual(lg.serial(lg.Activation("linear"), DENSE)), DENSE, DENSE),
        lg.gd(0.3),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("which", LINEAR)
def test_linear_networks_follow_their_closed_equations(which):
    net, optimizer = LINEAR[which]
    x = DRAW.standard_normal((4, 3))
    data = lg.Dataset(x[:3], Y[:3], x[3:], Y[3:])
    run = run_of(net, lg.mean_field(1.5), data, optimizer, steps=8)
    closed = lg.solve(run, theory="mean field, deep", method="closed")
    found = lg.solve(run, theory="mean field, branches and attention")
    for name in ("f_train", "f_test"):
        np.testing.assert_allclose(getattr(found, name), getattr(closed, name), atol=2e-6)


def test_attention_to_a_single_token_is_a_pair_of_matrices():
    x = DRAW.standard_normal((3, 1, 2))
    data = lg.Dataset(x, Y[:3])
    slow = lg.gd(0.1)
    attends = run_of(transformer(block(logit_scale=3.0)), data=data, optimizer=slow, steps=6)
    pair = lg.serial(DENSE, lg.Residual(lg.serial(DENSE, DENSE)), DENSE)
    matrices = run_of(pair, data=lg.Dataset(x[:, 0], Y[:3]), optimizer=slow, steps=6)
    closed = lg.solve(matrices, theory="mean field, deep", method="closed")
    np.testing.assert_allclose(lg.solve(attends).f_train, closed.f_train, atol=2e-6)


def test_nothing_depends_on_the_tolerance_of_directions_or_on_the_number_of_heads(monkeypatch):
    run = run_of(transformer(block(lg.RMSNorm(), causal=True, logit_scale=2.0)), steps=12)
    fine = lg.solve(run).f_train
    for tolerance in (1e-9, 1e-13):
        monkeypatch.setattr(random_matrix, "TOLERANCE", tolerance)
        np.testing.assert_allclose(lg.solve(run).f_train, fine, atol=1e-8)
    many = transformer(block(lg.RMSNorm(), causal=True, logit_scale=2.0, heads=4))
    np.testing.assert_array_equal(
        lg.solve(run.with_changes(net=many)).f_train, lg.solve(run).f_train
    )


REFUSED = {
    "conv": (transformer(lg.Conv((2,))), {}, NoRule, r"Conv\(\(2,\)\)"),
    "flatten": (lg.serial(DENSE, CAUSAL, lg.Flatten(), DENSE), {}, NoRule, "Flatten"),
    "concatenation": (
        transformer(lg.layers.Concatenate(DENSE, DENSE), lg.RMSNorm()), {}, NoRule,
        "behind a concatenation: no rule for a normalisation over channels",
    ),
    "activation of data": (
        lg.serial(lg.Activation("relu"), DENSE, CAUSAL, lg.GlobalAvgPool(), DENSE), {}, NoTheory,
        "the read-in, before",
    ),
    "data": (lg.serial(lg.GlobalAvgPool(), DENSE, DENSE), {}, NoTheory, "the read-in, before"),
    "attention to data": (
        lg.serial(lg.layers.SelfAttention(), lg.GlobalAvgPool(), DENSE, DENSE), {}, NoTheory,
        "the read-in",
    ),
    "depth": (
        transformer(lg.repeat(CAUSAL, math.inf)), {"param": lg.complete_p()}, NoTheory,
        "infinitely deep",
    ),
    "kernel scaling": (transformer(CAUSAL), {"param": lg.ntk()}, NoTheory, r"kernel limit"),
    "adam": (transformer(CAUSAL), {"optimizer": lg.adam(0.1)}, NoTheory, "Adam"),
    "noise": (transformer(CAUSAL), {"optimizer": lg.optimizers.langevin(0.1, 0.1)}, NoTheory,
        "noise"),
}  # fmt: skip


@pytest.mark.parametrize("which", REFUSED)
def test_what_is_not_covered_is_refused_with_the_reason(which):
    net, changed, kind, words = REFUSED[which]
    with pytest.raises(kind, match=words):
        lg.solve(run_of(net, **changed), theory=lg.theories.AttentionMeanField())


def test_gradient_flow_is_refused():
    run = lg.Run(
        transformer(CAUSAL), lg.mean_field(), DATA, optimizer=lg.gradient_flow(), times=[1.0]
    )
    with pytest.raises(NoTheory, match="gradient flow"):
        lg.solve(run, theory=lg.theories.AttentionMeanField())


def test_directions_that_outgrow_the_budget_are_told():
    run = run_of(transformer(CAUSAL), steps=30)
    with pytest.raises(NumericalFailure, match="memory_budget") as caught:
        lg.solve(run, memory_budget=1e6)
    told = lg.solve(run, memory_budget=1e6, throw=False)
    assert caught.value.result.status == told.status == "out of memory"
    first = np.isfinite(told.f_train).all(1)
    assert first[0]
    assert not first[-1]


NORMALIZED = block(lg.RMSNorm(), causal=True, logit_scale=4.0)


def distances(run, width, seeds=1024, limit=None):
    """Return the distances of networks in single precision from the limit."""
    data, limit = run.data, limit or lg.solve(run)
    x, xt = np.float32(data.x_train), np.float32(data.x_test)
    y, yt = (a if a.dtype.kind == "i" else np.float32(a) for a in (data.y_train, data.y_test))
    single = run.with_changes(data=lg.Dataset(x, y, xt, yt))
    nets = lg.train(single, width=width, seeds=seeds, key=width, progress=False)
    return np.concatenate([nets.f_train - limit.f_train, nets.f_test - limit.f_test], 2)


# Each with the weights of the means at widths 32, 64, 128 in which the shift cancels: its term in
# 1/N, and for language models, whose 1/N² is not small at these widths, that one as well.
CONVERGING = {
    "pooled": (transformer(NORMALIZED), {}, (0, -1, 2)),
    "next token": (each_position(NORMALIZED), EVERYWHERE, (1 / 3, -2, 8 / 3)),
}


@pytest.mark.long_loops
@pytest.mark.slow
@pytest.mark.parametrize("which", CONVERGING)
def test_networks_converge_with_their_width(which):
    net, options, weights = CONVERGING[which]
    run = run_of(net, optimizer=lg.gd(0.12), steps=10, **options)
    means, squares, shifts = [], [], []
    for width in (32, 64, 128):
        off = distances(run, width)
        means.append(off[:, -1].mean(0))
        squares.append(off[:, -1].var(0) / len(off))
        shifts.append(np.mean(off**2) ** 0.5)
    slopes = np.diff(np.log2(shifts))
    assert (np.abs(slopes + 0.5) < 0.1).all(), slopes
    beyond = np.tensordot(weights, means, 1)
    z = beyond / np.sqrt(np.tensordot(np.square(weights), squares, 1))
    assert np.abs(z).max() < 3.5, z
    far = means[0] / np.sqrt(squares[0])
    assert np.abs(far).max() > 5, far  # it is seen at the smallest width


def test_the_picture_has_the_attention_weights_of_both_ends():
    limit = lg.solve(run_of(transformer(CAUSAL)))
    panels = [ax for ax in limit.plot().axes if ax.get_images()]
    assert len(panels) == 4
    # The last layer with all tokens is the stream in front of the pool's, which W_o reads.
    kernels = limit.feature_kernel_tokens[[0, -1], 3].reshape(2, 9, 9)
    for ax, kernel in zip(panels[:2], kernels, strict=True):
        np.testing.assert_array_equal(ax.get_images()[0].get_array(), kernel)
    for ax, weights in zip(panels[2:], limit.attention[[0, -1], 0, 0], strict=True):
        np.testing.assert_array_equal(ax.get_images()[0].get_array(), weights)
