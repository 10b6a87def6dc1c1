"""Kernels between all pairs of times, as an array."""

import functools

import numpy as np
import pytest
import xarray

import largen as lg
from largen.errors import InvalidInput, OutOfMemory
from largen.runs.time_pairs import all_pairs, between_times

STEPS = 3


def run():
    x, y = np.array([[1.0], [-0.4]]), np.array([1.0, 0.5])
    data = lg.Dataset(x, y)
    return lg.Run(lg.mlp(1, "erf"), lg.mean_field(1.5), data, optimizer=lg.gd(0.8), steps=STEPS)


@functools.cache
def limit():
    return lg.solve(run(), rtol=1e-2, record_at=range(STEPS + 1), record_pairs="all")


@pytest.mark.slow
def test_all_pairs_of_a_limit():
    found = limit().between_times("gradient_kernel")
    assert found.long_name == "gradient kernel G"
    assert (found.time.long_name, found.time_2.long_name) == ("time $t$", "time $s$")
    assert found.dims == ("step", "step_2", "layer", "sample", "sample_2")
    assert found.time_2.values.tolist() == limit().time.tolist()
    for record in ("feature_kernel", "gradient_kernel"):
        found = limit().between_times(record)
        at_once = found.values[range(STEPS + 1), range(STEPS + 1)]
        np.testing.assert_allclose(at_once, getattr(limit(), record), rtol=1e-12)
        # A covariance of samples and times: symmetric, and positive semidefinite.
        matrix = found.isel(layer=0).transpose("step", "sample", "step_2", "sample_2").values
        matrix = matrix.reshape(2 * (STEPS + 1), 2 * (STEPS + 1))
        np.testing.assert_allclose(matrix, matrix.T, rtol=1e-12)
        assert np.linalg.eigvalsh(matrix).min() > -1e-9 * np.linalg.norm(matrix)
        off = found.values[0, STEPS, 0]
        assert np.abs(off - off.T).max() > 1e-5  # the order of times matters


def test_values_at_exchanged_times_are_those_of_exchanged_samples_and_outputs():
    """From neurons: G(t, s) = ⟨g(t) g(s)⟩ is computed for all pairs, and half of it is recorded."""
    g = np.random.default_rng(0).normal(size=(4, 1, 3, 2, 5))  # time, layer, sample, output, neuron
    whole = np.einsum("tlaon,slbpn->tslabop", g, g)
    pairs = all_pairs(np.array([0, 1, 3]))
    axes = ("pair", "layer", "sample", "sample_2", "output", "output_2")
    recorded = xarray.Dataset(
        {"gradient_kernel_pair": (axes, np.array([whole[t, s] for t, s in pairs]))},
        {
            "pair_step": ("pair", pairs[:, 0]),
            "pair_step_2": ("pair", pairs[:, 1]),
            "layer": [1],
            "time": ("step", np.linspace(0, 1, 4)),
        },
    )
    found = between_times(recorded, "gradient_kernel")
    np.testing.assert_allclose(found, whole[np.ix_([0, 1, 3], [0, 1, 3])])
    some = between_times(recorded.isel(pair=[1, 4]), "gradient_kernel")  # (1, 0) and (3, 1)
    assert np.isnan(some.sel(step=1, step_2=1)).all()
    assert np.isnan(some.sel(step=3, step_2=0)).all()
    np.testing.assert_allclose(some.sel(step=1, step_2=3), whole[1, 3])


@pytest.mark.slow
def test_what_is_not_there_is_said():
    with pytest.raises(InvalidInput, match="take feature_kernel, feature_kernel_error"):
        limit().between_times("ntk")
    with pytest.raises(InvalidInput, match=r"record_pairs: .*all"):
        run().pairs("record_pairs", "some")
    kernel_limit = lg.Run(lg.mlp(1), lg.ntk(), run().data, optimizer=lg.gd(0.1), steps=1)
    with pytest.raises(InvalidInput, match=r"pass record_pairs='all'"):
        lg.solve(kernel_limit).between_times()


def test_more_pairs_than_memory_holds_are_refused(monkeypatch):
    monkeypatch.setattr("largen.memory.available_bytes", lambda: 100.0)
    with pytest.raises(OutOfMemory, match="record_pairs: kernels between all pairs of 4 times"):
        lg.solve(run(), record_pairs="all")
