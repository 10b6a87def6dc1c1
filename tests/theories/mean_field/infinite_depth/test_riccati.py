"""Linear networks of infinite depth against exact finite depths, and against neurons."""

from itertools import pairwise

import numpy as np
import pytest
from tests.theories.mean_field.deep import residual_equations

import largen as lg
from largen.theories.chains.constants import MapConstants
from largen.theories.chains.problem import posed_by
from largen.theories.mean_field.infinite_depth.linear_network import LinearNetwork, numbers_held
from largen.theories.mean_field.infinite_depth.riccati import linear_limit, solve
from largen.theories.mean_field.infinite_depth.time_filters import Filter, Link, in_a_row

RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((2, 3)), np.array([0.9, -0.6])
FIELDS, STEPS, RATE, GAMMA = X / 3**0.5, 3, 0.06, 1.2


def pull(t, f):
    return (Y[:, None] - f) / len(Y)


def limit_of(power, *, maps=1, rtol=1e-9, **options):
    network = LinearNetwork.of(
        FIELDS,
        np.ones(3),
        [MapConstants()] * maps,
        MapConstants(),
        power,
        np.full(STEPS, RATE),
        gamma=GAMMA,
    )
    return linear_limit(network._replace(**options), pull, [0, STEPS], rtol=rtol)


def extrapolated(depths, values):
    """Return the limit of a series in powers of 1/L."""
    column, power = list(values), 1
    while len(column) > 1:
        apart = [depths[i + power] / depths[i] for i in range(len(column) - 1)]
        column = [b + (b - a) / (q - 1) for (a, b), q in zip(pairwise(column), apart, strict=True)]
        power += 1
    return column[0]


@pytest.mark.slow
@pytest.mark.parametrize("power", [0.5, 1.0])
def test_limit_of_exact_finite_depths(power):
    depths, found = (2, 4, 8, 16), []
    for blocks in depths:
        f, h, g = residual_equations.solve(
            X @ X.T / 3,
            Y,
            blocks,
            GAMMA,
            RATE,
            STEPS + 1,
            branch=blocks**-power,
            rate=blocks ** (2 * power - 1),
        )
        found.append([f, h[-1, -1], h[-1, 0], g[-1, 0, :1, :1], g[-1, blocks // 2, :1, :1]])
    limit = limit_of(power)
    middle = limit.grid.at(np.array([0.5]))[0] @ limit.gradient_kernel[-1].reshape(-1, 1)
    wanted = [
        limit.outputs[..., 0],
        limit.feature_kernel[-1, -1],
        limit.feature_kernel[-1, 0],
        limit.gradient_kernel[-1, 0],
        middle[None],
    ]
    for series, value in zip(zip(*found, strict=True), wanted, strict=True):
        size = np.abs(value).max()
        np.testing.assert_allclose(extrapolated(depths, series), value, atol=1e-3 * size)
    assert np.abs(found[-1][0] - wanted[0]).max() > 5e-3  # so that the limit is seen
    assert limit.error.max() < 1e-9


def test_without_response_it_is_another_limit():
    """Bordelon et al., (54) and (90): C has A in it."""
    right = limit_of(0.5)
    link = Link.of(MapConstants(), Filter.of(np.full(STEPS, RATE), GAMMA))
    wrong = limit_of(0.5, links=[link.quiet])
    assert np.abs(right.outputs[-1] / wrong.outputs[-1] - 1).max() > 0.05


def test_every_power_above_one_half_is_alike():
    for maps in (1, 2):
        values = [limit_of(power, maps=maps).outputs for power in (0.6, 0.75, 1.0)]
        np.testing.assert_array_equal(values[0], values[1])
        same = np.abs(values[0] - values[2]).max() < 1e-12
        assert same == (maps == 1)  # within blocks of two, fields move at α = 1 only


def test_maps_in_a_row_learn_as_one_that_learns_more():
    twice = limit_of(0.5, maps=2).outputs
    once = Link.of(MapConstants(rate=2.0), Filter.of(np.full(STEPS, RATE), GAMMA))
    np.testing.assert_allclose(limit_of(0.5, links=[once]).outputs, twice, rtol=1e-12)
    # (141)-(143) let the last map alone move the stream.
    printed = Link.of(MapConstants(), Filter.of(np.full(STEPS, RATE), GAMMA))
    assert np.abs(limit_of(0.5, links=[printed]).outputs[1] / twice[1] - 1).min() > 0.2


def test_biases_of_maps_in_a_row_pass_the_later_ones():
    trained = Filter.of(np.full(2, 0.5), 1.0)
    first, last = MapConstants(1.5, 1.0, 0.7, 0.4), MapConstants(0.8, 2.0, 0.3, 0.6)
    both = in_a_row([Link.of(first, trained), Link.of(last, trained)])
    np.testing.assert_allclose(both.bias_noise, 0.3**2 + (0.8 * 0.7) ** 2)
    np.testing.assert_allclose(both.bias_rate, 0.64 * (0.4 * 0.49 + 2.0 * 0.49) + 0.6 * 0.09)
    np.testing.assert_allclose(both.rate, 2.25 * 0.64 * 3)
    np.testing.assert_allclose(both.bias_tangent, 0.5 * np.tri(3, k=-1) * both.bias_rate)


def test_filters_are_gradient_descent():
    rates, gamma, momentum, decay = np.array([0.3, 0.2, 0.4, 0.1]), 1.5, 0.7, 0.25
    found = Filter.of(rates, gamma, momentum, decay)
    gradients = RNG.standard_normal(5)
    theta, velocity = 0.8, 0.0
    for t, rate in enumerate(rates):
        np.testing.assert_allclose(found.kept[t] * 0.8 + found.taken[t] @ gradients, theta)
        velocity = momentum * velocity + rate * gamma * gradients[t] - rate * decay * theta
        theta = theta + velocity
    np.testing.assert_allclose(found.kept[-1] * 0.8 + found.taken[-1] @ gradients, theta)
    assert not np.triu(found.taken).any()


def test_nan_after_it_has_escaped():
    network = LinearNetwork.of(
        FIELDS, np.ones(3), [MapConstants()], MapConstants(), 1.0, np.full(30, 40.0), gamma=GAMMA
    )
    found = solve(network, pull, [0, 30], 8)
    finite = np.isfinite(found.outputs).all((1, 2))
    assert finite[0]
    assert not finite[-1]
    assert (np.diff(finite.astype(int)) <= 0).all()
    assert np.isfinite(found.ntk[0]).all()
    assert np.isnan(found.ntk[1]).all()


def test_numbers_that_are_held():
    network = LinearNetwork.of(
        FIELDS, np.ones(3), [MapConstants()] * 2, MapConstants(), 1.0, np.full(5, 0.1)
    )
    assert numbers_held(network, 8) == 2 * numbers_held(network._replace(inner=False), 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("maps", "power", "param"),
    [(1, 0.5, lg.depth_mup), (2, 0.5, lg.depth_mup), (2, 1.0, lg.complete_p)],
)
def test_limit_of_depths_with_everything(maps, power, param):
    """Biases, two outputs, test samples, momentum and weight decay, by the library's depths."""
    rng = np.random.default_rng(0)
    x, y, trained = rng.standard_normal((4, 2)), rng.standard_normal((4, 2)), 3
    data, depths, found = lg.Dataset(x[:3], y[:3], x[3:], y[3:]), (8, 16, 32), []
    for blocks in depths:
        net = lg.residual_mlp(blocks, "linear", layers_per_block=maps, weight_std=0.9, bias_std=0.7)
        descent = lg.gd(0.15, momentum=0.6, weight_decay=0.3)
        run = lg.Run(net, param(), data, optimizer=descent, steps=5)
        limit = lg.solve(run, theory=lg.theories.DeepMeanField(method="closed", record="ntk"))
        found.append((np.concatenate([limit.f_train, limit.f_test], 1), limit.ntk[-1]))
    problem = posed_by(run).problem
    *inside, read_out = problem.maps
    scale = np.ones(maps)
    scale[-1] = depths[-1] ** power  # the branch's factor is in its last map
    block = [
        MapConstants(
            m.std * s,
            m.rate * depths[-1] ** (1 - 2 * power),
            m.bias_std * s,
            m.bias_rate * depths[-1] ** (1 - 2 * power),
        )
        for m, s in zip(inside, scale, strict=False)
    ]
    network = LinearNetwork.of(
        problem.fields,
        problem.field_rate,
        block,
        read_out,
        power,
        run.rates,
        outputs=2,
        momentum=0.6,
        decay=0.3,
    )

    def pulled(t, f):
        return np.concatenate([(y[:3] - f[:3]) / trained, 0 * f[3:]])

    limit = linear_limit(network, pulled, [5])
    f, ntk = (extrapolated(depths, part) for part in zip(*found, strict=True))
    np.testing.assert_allclose(f, limit.outputs, atol=1.5e-3 * np.abs(f).max())
    np.testing.assert_allclose(ntk, limit.ntk[0, :3, :3], atol=1.5e-3 * np.abs(ntk).max())
    assert np.abs(found[-1][0] - limit.outputs).max() > 1e-2
