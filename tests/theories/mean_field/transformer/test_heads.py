"""The mean-field limit of many heads of a fixed size, whose logits differ from head to head."""

import numpy as np
import pytest
from tests.theories.mean_field.transformer.rebuilt import solution_and_network
from tests.theories.mean_field.transformer.test_attention import (
    DENSE,
    EVERYWHERE,
    X,
    Y,
    distances,
    each_position,
    run_of,
    transformer,
)
from tests.theories.mean_field.transformer.test_perceptrons import PLAIN

import largen as lg
from largen.errors import InvalidInput, NoTheory


def heads(*before, behind=DENSE, **options):
    attention = lg.layers.MultiHeadAttention(**options)
    return lg.Residual(lg.serial(*before, attention, behind))


PLAIN_HEADS = heads(key_size=2, causal=True)
EVERYTHING = heads(
    lg.LayerNorm(over_space=True),
    queries=lg.Dense(width_ratio=2, weight_std=1.5),
    keys=lg.serial(lg.Dense(bias_std=0.5), lg.Dense(width_ratio=2)),
    values=lg.Dense(width_ratio=2, bias_std=0.3),
    key_size=4,
    logit_scale=-1.5,
    behind=lg.Dense(weight_std=0.7, bias_std=0.4),
)
REBUILT = {
    "pooled": (run_of(transformer(PLAIN_HEADS), steps=4), 1),
    "perceptron": (run_of(transformer(PLAIN_HEADS, PLAIN), steps=3), 1),
    "everything": (
        run_of(
            each_position(EVERYTHING, lg.RMSNorm(), readout=lg.Dense(bias_std=0.5)),
            lg.mup(2.0),
            optimizer=lg.sgd(0.05, 2, momentum=0.6, weight_decay=0.3, schedule=[1.0, 0.5, 2.0]),
            steps=3,
            **EVERYWHERE,
        ),
        2,
    ),
}


@pytest.mark.parametrize("which", REBUILT)
def test_a_finite_network_of_its_heads_repeats_the_solution(which):
    solution, network = solution_and_network(*REBUILT[which])
    assert np.abs(solution[-1] - solution[0]).max() > 0.03
    np.testing.assert_allclose(solution, network, rtol=0, atol=1e-12 * np.abs(network).max())


@pytest.mark.slow
def test_the_first_step_is_that_of_the_tangent_kernel():
    # At small rates: the terms of second order in the rate are below 1e-4 here.
    attention = lg.serial(heads(lg.RMSNorm(), key_size=2, causal=True, logit_scale=1.5))
    run = run_of(transformer(attention), optimizer=lg.gd(0.01), steps=1)
    kernel = lg.kernels.averaged_kernel(run.net, X, param=run.param, replicates=8)
    expected = 0.01 / 3 * kernel.ntk[:, :3] @ Y[:3]
    uncertain = 0.01 / 3 * kernel.ntk_error[:, :3] @ np.abs(Y[:3])
    limit = lg.solve(run, replicates=8)
    found, error = (
        np.concatenate([getattr(limit, f"f_{part}{kind}")[1] for part in ("train", "test")])
        for kind in ("", "_error")
    )
    error = np.hypot(error, uncertain)
    assert (error < 0.01 * np.abs(expected).max()).all()
    assert (np.abs(found - expected) < 4 * error).all()


def limit_of(key_size, **options):
    run = run_of(transformer(heads(lg.RMSNorm(), key_size=key_size, **options)), steps=5)
    limit = lg.solve(run, rtol=1e-3, max_particles=2**15)
    return limit.f_train[-1], limit.f_train_error[-1]


@pytest.mark.slow
def test_heads_of_many_neurons_have_the_limit_of_large_keys():
    # With logits q·k/d the distance is a/d + b/d² + …, whose first terms cancel below.
    block = lg.Residual(lg.serial(lg.RMSNorm(), lg.QKVAttention(causal=True), DENSE))
    large = lg.solve(run_of(transformer(block), steps=5)).f_train[-1]
    found = [limit_of(d, logit_scale=d**-0.5, causal=True) for d in (4, 8, 16)]
    off, errors = (np.stack(each) for each in zip(*found, strict=True))
    off = off - large
    first, second = -np.diff(np.log2(np.linalg.norm(off, axis=1)))
    assert 0.65 < first < second < 1.1, (first, second)
    assert (np.abs(off[-1]) > 15 * errors[-1]).all()
    weights = np.array([1, -6, 8]) / 3
    z = (weights @ off) / np.sqrt(weights**2 @ errors**2)
    assert np.abs(z).max() < 3.5, z


@pytest.mark.slow
def test_networks_converge_with_their_width():
    few, large = (
        lg.Residual(lg.serial(lg.RMSNorm(), attention, DENSE))
        for attention in (
            lg.layers.MultiHeadAttention(key_size=2, causal=True, logit_scale=1.5),
            lg.QKVAttention(causal=True, logit_scale=1.5 * 2**0.5),
        )
    )
    run = run_of(transformer(few), optimizer=lg.gd(0.15), steps=8)
    limit = lg.solve(run, key=2, rtol=5e-3)
    narrow, wide = (distances(run, width, 400, limit) for width in (32, 128))
    slope = np.log2(np.mean(wide**2) / np.mean(narrow**2)) / 4
    assert abs(slope + 0.5) < 0.1, slope
    # At this width the means are within their errors of the limit, and not of that of large keys.
    left = np.concatenate([limit.f_train_error, limit.f_test_error], 1)[-1]
    error = np.sqrt(wide[:, -1].var(0) / len(wide) + left**2)
    assert np.abs(wide[:, -1].mean(0) / error).max() < 3.5
    other = lg.solve(run.with_changes(net=transformer(large)))
    off = np.concatenate([limit.f_train - other.f_train, limit.f_test - other.f_test], 1)[-1]
    assert np.abs((wide[:, -1].mean(0) + off) / error).max() > 8


OTHERS = {
    "growing keys": (heads(), NoTheory, "key_size"),
    "no softmax": (heads(key_size=2, mechanism="identity"), NoTheory, "no softmax"),
    "more values": (heads(values=lg.Dense(width_ratio=2), key_size=2), NoTheory, "2 values for"),
}


@pytest.mark.parametrize("which", OTHERS)
def test_what_is_not_covered_is_refused_with_the_reason(which):
    block, kind, words = OTHERS[which]
    with pytest.raises(kind, match=words):
        lg.solve(run_of(transformer(block)), theory="mean field, branches and attention")


def test_sizes_that_do_not_fit_are_refused_at_the_door():
    with pytest.raises(InvalidInput, match="key_size: wanted"):
        lg.layers.MultiHeadAttention(key_size=0)
    with pytest.raises(InvalidInput, match="options of 'softmax'"):
        lg.layers.MultiHeadAttention(mechanism="identity", causal=True)
    run = run_of(transformer(heads(key_size=3)))
    with pytest.raises(InvalidInput, match="10 features of queries"):
        lg.train(run, width=10, seeds=1, progress=False)


def test_what_heads_are_is_told():
    run = run_of(transformer(heads(key_size=3), PLAIN), steps=2)
    limit = lg.solve(run, particles=512, replicates=2, rtol=0.1)
    assert "heads of a fixed size whose logits differ" in limit.reason
    assert "where activations act and in heads" in limit.reason
    assert "512 neurons in sampled populations" in limit.notes[0]
    np.testing.assert_allclose(limit.attention.sum(-1), 1, rtol=1e-12)
