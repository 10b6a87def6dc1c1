"""Kernels of the limit of attention between samples, tokens and times."""

import jax
import numpy as np
import pytest
from tests.theories.mean_field.transformer import test_attention, test_graphs, test_heads
from tests.theories.mean_field.transformer.rebuilt import solved_and_trained
from tests.theories.mean_field.transformer.test_attention import (
    CAUSAL,
    EVERYWHERE,
    NORMALIZED,
    each_position,
    run_of,
    transformer,
)
from tests.theories.mean_field.transformer.test_perceptrons import EVERYTHING

import largen as lg
from largen.errors import InvalidInput, NoTheory
from largen.theories.mean_field.options import wanted_kernels

ALL = ("feature_kernel", "gradient_kernel", "ntk")
REBUILT = {
    "depth_mup": (test_attention.REBUILT["depth_mup"], None),
    "everything": (test_attention.REBUILT["everything"], None),
    "perceptron": (
        run_of(transformer(EVERYTHING), lg.mup(2.0), optimizer=lg.gd(0.05), steps=2),
        2,
    ),
    "heads": test_heads.REBUILT["perceptron"],
    "concatenation": (run_of(test_graphs.REBUILT["concatenation"][0], steps=2), None),
    "gates": (run_of(test_graphs.REBUILT["gates"][0], steps=2), 1),
}


def by_map(probe):
    """Return what each map but the first reads, and gradients behind each map but the last."""
    features, gradients = (jax.tree.leaves(each) for each in probe[:2])
    features = [np.asarray(x).reshape(len(x), -1, x.shape[-1]) for x in features]
    gradients = [np.asarray(g).reshape(len(g), -1, *g.shape[-2:]) for g in gradients]
    return zip(features[1:], gradients[:-1], strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("which", REBUILT)
def test_kernels_are_those_of_a_finite_network_of_its_coordinates(which):
    run, ratio = REBUILT[which]
    pair, p = (0, run.steps), len(run.data.x_train)
    wanted = wanted_kernels(run, ALL, (0, run.steps), [pair])
    solved, (_, probes) = solved_and_trained(run, ratio, wanted)
    found = solved.kernels

    def check(value, expected, size=0.0):
        expected = np.asarray(expected)
        value = value.reshape(expected.shape)  # a single output may have no axes
        size = max(size, np.abs(expected).max())
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-12 * size)

    for record, t in enumerate(wanted.recorded.alone):
        check(found["ntk"][record], probes[t][2][:p])
        check(found["ntk_test"][record], probes[t][2][p:])
    for ending, record, t, s in (("", 0, 0, 0), ("", 1, run.steps, run.steps), ("_pair", 0, *pair)):
        both = zip(by_map(probes[t]), by_map(probes[s]), strict=True)
        for layer, ((x, g), (x2, g2)) in enumerate(both):
            kernels = [
                found[f"{name}{ending}"][record, layer]
                for name in (
                    "feature_kernel_tokens", "feature_kernel",
                    "gradient_kernel_tokens", "gradient_kernel",
                )
            ]  # fmt: skip
            read, behind = x.shape[1], g.shape[1]
            features = np.einsum("msi,nti->msnt", x[:p], x2[:p]) / x.shape[-1]
            gradients = np.einsum("msci,ntdi->msntcd", g[:p], g2[:p])
            check(kernels[0][:, :read, :, :read], features)
            assert np.isnan(kernels[0][:, read:]).all()
            check(kernels[1], np.einsum("msns->mn", features) / read)
            # Gradients of queries and keys are 0 at first, where logits are.
            largest = np.abs(found[f"gradient_kernel{ending}"][record]).max()
            check(kernels[2][:, :behind, :, :behind], gradients, largest)
            check(kernels[3], np.einsum("msnscd->mncd", gradients), largest)


def test_kernels_of_positions_are_features_alone():
    run = run_of(each_position(CAUSAL), steps=2, **EVERYWHERE)
    limit = lg.solve(run, record_pairs=[(0, 2)])
    assert "gradient_kernel" not in limit
    held = limit.to_xarray()
    tokens = ("layer", "sample", "position", "sample_2", "position_2")
    assert held.feature_kernel_tokens.dims == ("record", *tokens)
    assert held.feature_kernel_tokens_pair_error.dims == ("pair", *tokens)
    assert not limit.feature_kernel_tokens_error.any()
    assert not np.isnan(limit.feature_kernel_tokens).any()
    # Equal at initialisation: averages over equal positions of what q, k, v read.
    np.testing.assert_array_equal(held.record_step, [0, 2])
    traced = np.einsum("rlmsns->rlmn", limit.feature_kernel_tokens) / 3
    np.testing.assert_allclose(limit.feature_kernel, traced, rtol=1e-12)
    np.testing.assert_array_equal(limit.feature_kernel[:, 0], limit.feature_kernel[:, 2])
    with pytest.raises(NoTheory, match="record: gradient kernels"):
        lg.solve(run, record=["gradient_kernel"])
    nothing = lg.solve(run, record=[], record_at=[1])
    assert "feature_kernel" not in nothing
    assert nothing.attention.shape[0] == 1
    with pytest.raises(InvalidInput, match="record_pairs"):
        lg.solve(run, record_pairs=[(0, 3)])


def test_response_functions_are_refused_by_name():
    with pytest.raises(NoTheory, match=r"response functions .* QKVAttention"):
        lg.theories.response_functions(run_of(transformer(CAUSAL)))


def test_kernels_do_not_change_the_solution_and_diverge_with_it():
    run = run_of(transformer(NORMALIZED), steps=5)
    bare = lg.solve(run, record=[])
    f = lg.solve(run, record=ALL, record_pairs=[(0, 5), (3, 1)]).f_train
    np.testing.assert_allclose(f, bare.f_train, rtol=0, atol=1e-12)
    lost = lg.solve(
        run_of(transformer(CAUSAL), optimizer=lg.gd(1e6), steps=9), record_at=[9], throw=False
    )
    assert np.isnan(lost.feature_kernel).all()
    assert lost.ntk.shape == (1, 3, 3)


@pytest.mark.long_loops
@pytest.mark.slow
def test_kernels_of_networks_converge_with_their_width():
    run = run_of(transformer(NORMALIZED), optimizer=lg.gd(0.12), steps=6)
    limit, far = lg.solve(run), []
    narrow, wide = (
        lg.train(run, width=n, seeds=400, key=n, record=ALL, progress=False) for n in (32, 128)
    )
    for name in ("feature_kernel", "gradient_kernel", "ntk"):
        off = [getattr(nets, name)[:, -1] - getattr(limit, name)[-1] for nets in (narrow, wide)]
        slope = np.diff(np.log2([np.mean(each**2) for each in off])).item() / 4
        assert abs(slope + 0.5) < 0.1, (name, slope)
        # The shift of the mean is of order 1/N, and cancels in (4 m(128) − m(32))/3.
        means, squares = ([f(each) for each in off] for f in (_mean, _square))
        z = (4 * means[1] - means[0]) / np.sqrt(16 * squares[1] + squares[0])
        assert np.abs(z).max() < 4.5, (name, np.abs(z).max())
        far.append(np.abs(means[0] / np.sqrt(squares[0])).max())
    assert max(far) > 5, far  # it is seen at the smaller width


def _mean(each):
    return each.mean(0)


def _square(each):
    return each.var(0) / len(each)
