"""One step of a linear network of infinite depth: closed forms against equations and depths."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput
from largen.theories.chains.constants import MapConstants
from largen.theories.mean_field.infinite_depth.linear_network import LinearNetwork
from largen.theories.mean_field.infinite_depth.one_step import infinite_depth_one_step
from largen.theories.mean_field.infinite_depth.riccati import solve

Y, GAMMA, RATE, KERNEL = 0.7, 1.3, 0.8, 0.6


@pytest.mark.parametrize("read_in", [True, False])
@pytest.mark.parametrize("read_out", [True, False])
def test_closed_forms_solve_the_equations(read_in, read_out):
    network = LinearNetwork.of(
        np.array([[KERNEL**0.5]]),
        np.array([float(read_in)]),
        [MapConstants()],
        MapConstants(rate=float(read_out)),
        0.5,
        np.array([RATE]),
        gamma=GAMMA,
    )
    found = solve(network, lambda t, f: Y - f, [0, 1], 14)
    step = infinite_depth_one_step(
        Y, gamma=GAMMA, lr=RATE, kernel=KERNEL, read_in=read_in, read_out=read_out, points=7
    )
    at = found.grid.at(step.tau)
    for features, gradients, record in (
        (step.feature_before, step.gradient_before, 0),
        (step.feature_after, step.gradient_after, 1),
    ):
        np.testing.assert_allclose(at @ found.feature_kernel[record, :, 0, 0], features, rtol=1e-11)
        np.testing.assert_allclose(
            at @ found.gradient_kernel[record, :, 0, 0], gradients, rtol=1e-11
        )
    np.testing.assert_allclose(found.outputs[1], step.f, rtol=1e-11)
    # The output is (1/γ₀) times the response of the features to the read-out's neurons, and what
    # the read-out has learnt itself.
    own = RATE * Y * step.feature_before[-1] * read_out
    np.testing.assert_allclose(step.f, step.response[-1] / GAMMA + own)


def test_printed_forms_fail():
    """Bordelon et al., (9), (94), (101) and (8)."""
    step = infinite_depth_one_step(Y, gamma=GAMMA, lr=RATE, read_in=False)
    tau, k, e = step.tau, (RATE * GAMMA * Y) ** 2, np.exp(step.tau)
    rest = (1 + np.exp(-1)) * (tau**2 * e - tau * e + e - 1)
    printed = e + 2 * k * e * (tau**3 / 3 + tau**2 / 2 + rest)
    finite = lg.theories.kernel_after_one_step(Y, gamma=GAMMA, lr=RATE, blocks=2000).after[-1]
    assert abs(step.feature_after[-1] / finite - 1) < 3e-3
    assert abs(printed[-1] / finite - 1) > 0.05
    assert abs((np.exp(-tau) + 1 - np.exp(-1)) - step.gradient_before).max() > 0.5
    # (8): the kernel without the read-out, ∫GH dτ = e
    assert abs(RATE * Y * np.e / step.f - 1) > 0.4


def test_read_in_at_rest_is_the_kernel_of_before():
    step = infinite_depth_one_step(Y, gamma=GAMMA, lr=RATE, read_in=False)
    known = lg.theories.kernel_after_one_step(Y, gamma=GAMMA, lr=RATE)
    np.testing.assert_allclose(step.feature_after, known.after, rtol=1e-14)


@pytest.mark.parametrize("wrong", [{"kernel": 0.0}, {"lr": -1.0}, {"points": 1}, {"gamma": 1e300}])
def test_wrong_arguments(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong)) + "|lr"):
        infinite_depth_one_step(**{"y": 1.0, "lr": 1e300 if "gamma" in wrong else 1.0, **wrong})
