"""Figures of infinite depth: what is claimed, what came out, and the estimates in them."""

import numpy as np
import pytest
import xarray
from tests.papers.test_initialisation import verdicts

import largen as lg
from papers import figure, produce
from papers.bordelon import error_terms
from papers.bordelon.order_of_limits import NETS, exact
from papers.chaintron.networks import Blocks, Ends, drawn_blocks, drawn_ends, regrouped, stream
from papers.chaintron.networks import trained as trained_streams
from papers.chaintron.rate import bias, fluctuations
from papers.powers import fitted_powers


@pytest.mark.slow
def test_kernels_and_one_step(tmp_path):
    assert verdicts("001-6", tmp_path) == [True]
    # (9) as printed disagrees.
    assert verdicts("001-7", tmp_path) == [True, True, False, True]


@pytest.mark.slow
def test_sizes(tmp_path):
    """Few small networks resolve little, but nothing of the theory is refuted."""
    consistent, *powers = verdicts("001-5", tmp_path)
    assert consistent
    assert False not in powers
    # At fixed width the variance is left, and no power of L, as (b) has it.
    in_width, in_depth, full, *others = verdicts("001-B7", tmp_path)
    assert full is False
    assert False not in (in_width, in_depth, *others)
    assert others[1] is True  # of linear networks, without errors


@pytest.mark.slow
@pytest.mark.parametrize("name", ["001-H", "2603.18168-rate"])
def test_nothing_is_refuted(name, tmp_path):
    assert False not in verdicts(name, tmp_path)


@pytest.mark.slow
def test_biases_of_width_and_depth_are_added_as_signed_numbers(tmp_path):
    wanted = figure("001-I")
    done = produce(wanted, {}, tmp_path, fast=True)
    one, many, bound, norms, *others = [claim.agrees for claim in done.claims]
    assert False not in (one, many)
    assert (bound, norms) == (True, False)  # the sum of norms is a bound, not the error
    assert others[:3] == [True, False, True]
    assert False not in others[3:]
    value, error = error_terms.ratio(wanted.fast, done.found, 32, "squares")
    assert value - 3 * error > 1  # without their product the biases are too small


def made_up_networks(c, d, noise, width, depth, count, rng):
    """Outputs of networks whose errors are known, over network, step and sample."""
    mean = c / width + d / depth
    return mean + noise * rng.standard_normal((count, *c.shape)) / width**0.5


def test_terms_of_made_up_networks():
    rng = np.random.default_rng(4)
    c, d, limit = (rng.standard_normal((5, 3)) for _ in range(3))
    c, noise, count = c + d, 0.5, 4000

    def kept(f):
        axes = ("seed", "step", "sample")[-f.ndim :]
        start = np.zeros((*f.shape[:-2], 1, 3))
        return xarray.Dataset({"f_train": (axes, np.concatenate([start, f], -2))})

    found = {error_terms.LIMIT: kept(limit)}
    for depth in (2, 4):
        found[f"infinite width, depth {depth}"] = kept(limit + d / depth)
        for width in (8, 16):
            f = limit + made_up_networks(c, d, noise, width, depth, count, rng)
            found[f"width {width}, depth {depth}"] = kept(f)
    f = found["width 8, depth 2"]["f_train"].values[:, 1:]
    terms = error_terms.terms(found, 8, 16, 2, f)
    assert terms.variance == pytest.approx(noise**2 / 16, rel=0.03)
    assert terms.depth == pytest.approx(np.mean((d / 2) ** 2))
    assert terms.width == pytest.approx(np.mean((c / 16) ** 2), rel=0.05)
    assert terms.product == pytest.approx(2 * np.mean(c * d) / 32, rel=0.05)
    settings = error_terms.Settings((8, 16), (2, 4), (count, count), (1, 40))
    for ensemble in settings.ensembles:
        value, error = error_terms.ratio(settings, found, ensemble, "signed")
        assert abs(value - 1) < 3 * error < 0.1
    for kind, sign in (("squares", 1), ("triangle", -1)):
        value, error = error_terms.ratio(settings, found, 40, kind)
        assert sign * (value - 1) > 5 * error


@pytest.mark.long_loops
@pytest.mark.slow
def test_branches(tmp_path):
    *nets, half, between, one = verdicts("001-M1", tmp_path)
    assert len(nets) == 5
    assert nets[0] is not False
    assert nets[1] is not False
    assert (half, between, one) == (True, True, True)


@pytest.mark.parametrize("name", ["001-5", "001-B7", "001-H", "001-I", "001-M1", "2603.18168-rate"])
def test_parts_have_names_and_keys_of_their_own(name):
    wanted = figure(name)
    for settings in (wanted.settings, wanted.fast):
        parts = wanted.parts(settings, {})
        assert len({part.name for part in parts}) == len(parts)
        assert len({part.key for part in parts}) == len(parts)


@pytest.mark.parametrize("name", ["linear ResNet", "relu MLP"])
def test_variance_of_independent_factors(name):
    param = None if name == "relu MLP" else lg.depth_mup()
    drawn = lg.finite_width.sample_kernels(
        NETS[name](2), np.ones((1, 3)), width=24, draws=3000, param=param, key=1
    )
    logs = np.log(drawn[:, 0, 0])
    squares = (logs - logs.mean()) ** 2
    assert abs(squares.mean() - exact(name, 24, 2)) < 3.5 * squares.std() / len(logs) ** 0.5


def test_blocks_of_the_same_neurons():
    x = np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32)
    ends, blocks = drawn_ends(1, 6, x, 2), drawn_blocks(0, 6, 4, 4)
    merged = regrouped(blocks, 2)
    assert merged.W.shape == (2, 8, 6)
    h = x @ ends.U.T / 2**0.5
    for first, second in ((0, 1), (2, 3)):
        h = h + sum(
            6**0.5 / 16 * np.tanh(h @ blocks.W[i].T / 6**0.5) @ blocks.V[i].T
            for i in (first, second)
        )
    np.testing.assert_allclose(stream(ends, merged, x), h, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_equal_widths_are_complete_p():
    """For M = D outputs have the distribution of the library's networks."""
    rng, D, L, steps = np.random.default_rng(0), 24, 3, 4
    x, y = rng.standard_normal((3, 4)).astype(np.float32), np.array([1, -1, 1], np.float32)
    block = lg.serial(lg.Dense(), lg.Activation("tanh"), lg.Dense())
    net = lg.serial(lg.Dense(), lg.repeat(lg.Residual(block), L), lg.Dense())
    data = lg.Dataset(x, y)
    run = lg.Run(net, lg.complete_p(), data, optimizer=lg.gd(0.3), steps=steps)
    theirs = lg.train(run, width=D, seeds=400, key=0).f_train[:, -1]
    ours = np.array(
        [
            trained_streams(drawn_ends(s, D, x, 0), drawn_blocks(s, D, D, L), x, y, 0.3, steps)[1]
            for s in range(400)
        ]
    )
    for moment in (1, 2):
        a, b = ours**moment, theirs**moment
        error = np.sqrt((a.var(0) + b.var(0)) / 400)
        assert np.abs((a.mean(0) - b.mean(0)) / error).max() < 3.5
    assert np.abs(theirs.mean(0)).max() > 0.1


def test_variances_over_blocks_and_ends():
    rng = np.random.default_rng(1)
    h = 0.3 * rng.standard_normal((4000, 1, 2, 1)) + rng.standard_normal((4000, 3, 2, 1))
    found = fluctuations(h)
    assert abs(found["blocks"] - 1) < 4 * found["blocks_error"]
    assert abs(found["ends"] - 0.09) < 4 * found["ends_error"]
    assert found["ends_error"] < 0.02


@pytest.mark.parametrize(("size", "least", "most"), [(2.0, 0.85, 1.2), (0.2, 1.0, 1.5)])
def test_square_of_a_bias_without_noise(size, least, most):
    """Its error is right where the bias is resolved, and otherwise too large."""
    rng, found = np.random.default_rng(2), []
    for _ in range(400):
        shallow = rng.standard_normal((12, 1, 30))
        found.append(bias(shallow + size, np.zeros_like(shallow)))
    value, error = np.array(found).T
    assert abs(value.mean() - size**2) < 4 * value.std() / 400**0.5
    assert least < np.mean(error) / value.std() < most


def test_powers_need_as_many_numbers_as_there_are():
    sizes = {"n": np.array([8.0, 16, 32]), "l": np.array([2.0, 2, 2])}
    found = fitted_powers(sizes, np.ones(3), np.full(3, 0.01))
    assert np.isnan(found["n"]).all()
    few = fitted_powers({"n": sizes["n"]}, np.array([1.0, 0.1, 0.1]), np.full(3, 0.1))
    assert np.isnan(few["n"]).all()


def test_ends_share_their_first_neurons():
    x = np.zeros((2, 3), np.float32)
    one, other = drawn_ends(1, 8, x, 4), drawn_ends(2, 16, x, 4)
    assert isinstance(one, Ends)
    assert isinstance(drawn_blocks(0, 8, 2, 3), Blocks)
    np.testing.assert_array_equal(one.U[:4], other.U[:4])
    np.testing.assert_array_equal(one.w[:4], other.w[:4])
    assert (one.U[4:] != other.U[4:8]).all()
