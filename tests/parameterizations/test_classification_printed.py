"""Every exponent that 004 prints, and the test that has it.

In ``one_hidden_layer``: (9), (10), (12) to (15), §3.1, §3.1.1, §3.2, Figure 3, App. C, D and E.
In ``deep``: the mean-field scaling for all depths, (38), (40) and (41), and that of RMSProp.
Here: App. A's rates, the scalings of §2, §4 and §4.1, the sums of App. G, the powers of App. H.
"""

from fractions import Fraction as F

import numpy as np
import pytest

import largen as lg
from largen.experiments.exponents.quantities import decomposition
from largen.parameterizations.classification.one_hidden_layer import increments
from largen.parameterizations.classification.recursion import Moved, orders_of
from largen.parameterizations.classification.scaled_program import scaled_program

HALF = F(1, 2)
LETTERS = ("w", "v1", "v2", "a")


def rule(param, name, layers, optimizer=None):
    return param.table(lg.mlp(layers, "relu"), optimizer)[f"{name}.weight"]


@pytest.mark.parametrize("h", [1, 2, 3])
def test_the_deep_mean_field_scaling_solves_its_conditions(h):
    """§4: η̂σ^(H+1)N^H ∝ 1 at both ends, η̂_v σ^(H+1)N^(H−1) ∝ 1, (σN)^(H+1) ∝ 1."""
    param = lg.scaling.plane_scheme(-1, 1)
    q_sigma = rule(param, 2 * h + 2, h + 1).init_std.width
    assert (h + 1) * q_sigma + h + 1 == 0
    for place in range(h + 2):
        found = rule(param, 2 * place, h + 1)
        q_rate = found.lr.width - 2 * found.init_std.width
        sums = h if place in (0, h + 1) else h - 1
        assert q_rate + (h + 1) * q_sigma + sums == 0
        assert q_rate == (1 if place in (0, h + 1) else 2)
        # With RMSProp, η̂ = η/σ ∝ 1.
        adaptive = rule(param, 2 * place, h + 1, lg.optimizers.rmsprop(0.1))
        assert adaptive.lr.width == adaptive.init_std.width


def test_the_deep_ntk_scaling():
    """§4: σ ∝ N^(−½) and η̂ ∝ 1; §4.1 for RMSProp, with the rates that its text asks for."""
    for place, falls in ((0, HALF), (2, 1), (4, HALF)):
        found, adaptive = (
            rule(lg.scaling.plane_scheme("-1/2", 0), place, 2, o)
            for o in (None, lg.optimizers.rmsprop(1))
        )
        assert found.init_std.width == (0 if place == 0 else -HALF)
        assert found.lr.width == 2 * found.init_std.width
        assert adaptive.lr.width - adaptive.init_std.width == -falls


def test_raw_rates_of_appendix_a():
    """η_a ∝ N^(q̃_a + 2q_σ), η_w ∝ N^(q̃_w)."""
    for point in ((-1, 1, 1), ("-3/4", "1/2", "1/2"), ("-1/2", 1, 0)):
        q_sigma, rate_a, rate_w = map(F, point)
        param = lg.scaling.plane_scheme(*point)
        assert rule(param, 2, 1).lr.width == rate_a + 2 * q_sigma
        assert rule(param, 0, 1).lr.width == rate_w


def test_rates_of_other_mean_field_works_move_nothing_in_a_fixed_number_of_steps():
    """§2, §3.1.1: with η̂ ∝ 1 steps must be as many as neurons, with η̂ ∝ N a few do."""
    slow = lg.scaling.plane_class(-1, 0)
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
    param = lg.scaling.from_reference(width=128, scaling="NTK")
    found = []
    for rate in (1e-3, 1e-4):
        run = lg.Run(lg.mlp(1, "relu"), param, data, "logistic", lg.gd(rate), steps=3)
        terms = lg.networks.train_and_measure(run, 128, seeds=2, key=0, measure=decomposition)
        found.append({name: np.sqrt(np.mean(np.square(term))) for name, term in terms.items()})
    powers = {name: np.log10(found[0][name] / found[1][name]) for name in found[0]}
    assert powers == pytest.approx({"∅": 0, "a": 1, "w": 1, "aw": 2}, abs=0.02)


def backward_sum(moved):
    """q_Σ of App. G for H = 2: the order of ∂f/∂h of the first layer over σ³, with increments."""
    param, net = lg.scaling.plane_scheme(-1, 1), lg.mlp(3, "relu")
    network = scaled_program(net, param.table(net), False)
    state = tuple(
        Moved(None if letter not in moved else step.weight.initial + moved[letter])
        for letter, step in zip(LETTERS, network.maps, strict=True)
    )
    return orders_of(network, state)[0].backward + 3


def test_sums_of_appendix_g():
    """q_Σ,∅ = 1, q_Σ,v = q_v + 3/2, 2q_v + 2 for both; q_Σ,a = q_a + 1, where 3/2 is printed."""
    small, q = F(-2), F(-1, 4)
    assert backward_sum({}) == 1
    assert backward_sum({"v1": q}) == backward_sum({"v2": q}) == q + F(3, 2)
    assert backward_sum({"v1": small}) == 1
    assert backward_sum({"v1": q, "v2": q}) == 2 * q + 2
    assert backward_sum({"a": F(1)}) == 2
    assert backward_sum({"a": q}) == 1


def test_sums_of_appendix_g_in_networks():
    """The sums themselves, with each increment at the first step, in units of its size."""

    def size(t):
        return np.sqrt(np.mean(t**2))

    def sums(width, seed):
        rng = np.random.default_rng([width, seed])
        w, v1, v2, a = (rng.normal(size=s) for s in ((width, 3), *[(width, width)] * 2, width))
        h = [w @ rng.normal(size=3)]
        for v in (v1, v2):
            h.append(v @ np.maximum(h[-1], 0))
        phi, gate = np.maximum(h, 0), np.greater(h, 0)

        def through(a, v2, v1):
            return v1.T @ (gate[1] * (v2.T @ (gate[2] * a)))

        back = v2.T @ (gate[2] * a)
        da, dv2, dv1 = phi[2], np.outer(gate[2] * a, phi[1]), np.outer(gate[1] * back, phi[0])
        return [
            size(through(a, v2, v1)),
            size(through(da, v2, v1)) / size(da),
            size(through(a, dv2, v1)) / size(dv2),
            size(through(a, v2, dv1)) / size(dv1),
        ]

    widths = np.array([64, 128, 256, 512])
    found = np.log([np.mean([sums(n, seed) for seed in range(12)], 0) for n in widths])
    powers = np.polyfit(np.log(widths), found, 1)[0]
    np.testing.assert_allclose(powers, [1, 1, 1.5, 1.5], atol=0.12)
