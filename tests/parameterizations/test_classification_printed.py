"""What else 004 prints of exponents: App. A's rates, §4's conditions, App. G's and App. H's."""

from fractions import Fraction as F

import numpy as np
import pytest

import largen as lg
from largen.experiments.exponents.quantities import decomposition
from largen.parameterizations.classification.one_hidden_layer import increments

HALF = F(1, 2)


def rule(param, name, layers, optimizer=None):
    return param.table(lg.mlp(layers, "relu"), optimizer)[f"{name}.weight"]


@pytest.mark.parametrize("h", [1, 2, 3])
def test_the_deep_mean_field_scaling_solves_its_conditions(h):
    """§4: η̂σ^(H+1)N^H ∝ 1 at both ends, η̂_v σ^(H+1)N^(H−1) ∝ 1, (σN)^(H+1) ∝ 1."""
    param = lg.scaling(-1, 1)
    q_sigma = rule(param, 2 * h + 2, h + 1).init_std.width
    assert (h + 1) * q_sigma + h + 1 == 0
    for place in range(h + 2):
        found = rule(param, 2 * place, h + 1)
        q_rate = found.lr.width - 2 * found.init_std.width
        sums = h if place in (0, h + 1) else h - 1
        assert q_rate + (h + 1) * q_sigma + sums == 0
        assert q_rate == (1 if place in (0, h + 1) else 2)
        # With RMSProp, η̂ = η/σ ∝ 1.
        adaptive = rule(param, 2 * place, h + 1, lg.rmsprop(0.1))
        assert adaptive.lr.width == adaptive.init_std.width


def test_the_deep_ntk_scaling():
    """§4: σ ∝ N^(−½) and η̂ ∝ 1; §4.1 for RMSProp, with the rates that its text asks for."""
    for place, falls in ((0, HALF), (2, 1), (4, HALF)):
        found, adaptive = (rule(lg.scaling("-1/2", 0), place, 2, o) for o in (None, lg.rmsprop(1)))
        assert found.init_std.width == (0 if place == 0 else -HALF)
        assert found.lr.width == 2 * found.init_std.width
        assert adaptive.lr.width - adaptive.init_std.width == -falls


def test_raw_rates_of_appendix_a():
    """η_a ∝ N^(q̃_a + 2q_σ), η_w ∝ N^(q̃_w)."""
    for point in ((-1, 1, 1), ("-3/4", "1/2", "1/2"), ("-1/2", 1, 0)):
        q_sigma, rate_a, rate_w = map(F, point)
        param = lg.scaling(*point)
        assert rule(param, 2, 1).lr.width == rate_a + 2 * q_sigma
        assert rule(param, 0, 1).lr.width == rate_w


def test_rates_of_other_mean_field_works_move_nothing_in_a_fixed_number_of_steps():
    """§2, §3.1.1: with η̂ ∝ 1 steps must be as many as neurons, with η̂ ∝ N a few do."""
    slow = lg.scaling_class(-1, 0)
    assert slow.kind == "vanishing"
    assert slow.increments(9) == {"a": -1, "w": -1}


@pytest.mark.parametrize("rate", [-HALF, F(-1, 4), F(0)])
def test_adaptive_increments_do_not_feed_each_other(rate):
    """(21): whatever the step, an increment has the order of its rate over its initial size."""
    for steps in (1, 2, 7):
        moved = increments(rate, rate, steps, adaptive=True)
        assert (moved.a, moved.w) == (rate, rate)
    large = increments(F(1), F(1, 2), 5, adaptive=True)  # where gradient descent would explode
    assert (large.a, large.w) == (1, HALF)


def test_powers_of_the_rate():
    """App. H: f_a and f_w are linear in the rate, f_aw is quadratic, f_∅ has no power of it."""
    x = np.random.default_rng(0).normal(size=(6, 4))
    data = lg.Dataset(x, np.sign(x[:, 0]))
    param = lg.Parameterization.from_reference(width=128, scaling="NTK")
    found = []
    for rate in (1e-3, 1e-4):
        run = lg.Run(lg.mlp(1, "relu"), param, data, "logistic", lg.gd(rate), steps=3)
        terms = lg.observe(run, 128, seeds=2, key=0, measure=decomposition)
        found.append({name: np.sqrt(np.mean(np.square(term))) for name, term in terms.items()})
    powers = {name: np.log10(found[0][name] / found[1][name]) for name in found[0]}
    assert powers == pytest.approx({"∅": 0, "a": 1, "w": 1, "aw": 2}, abs=0.02)
