"""Multilayer perceptrons beside attention: populations of neurons that are sampled."""

import numpy as np
import pytest
from tests.theories.mean_field.transformer.rebuilt import solution_and_network
from tests.theories.mean_field.transformer.test_attention import (
    CAUSAL,
    DATA,
    DENSE,
    EVERYWHERE,
    UNEQUAL,
    each_position,
    run_of,
    transformer,
)

import largen as lg
from largen.errors import NumericalFailure
from largen.theories.mean_field.transformer import passes
from largen.theories.mean_field.transformer.dynamics import Drawn, InfiniteNetwork, train


def perceptron(phi, *before, wide=DENSE, behind=(), out=DENSE):
    return lg.Residual(lg.serial(*before, wide, lg.Activation(phi), *behind, out))


PLAIN = perceptron("tanh", lg.RMSNorm())
EVERYTHING = perceptron(
    "gelu",
    lg.LayerNorm(eps=0.1),
    wide=lg.Dense(width_ratio=2, weight_std=1.3, bias_std=0.4),
    behind=(lg.LayerNorm(over_space=True),),
    out=lg.Dense(bias_std=0.3),
)
# An activation of the stream itself, whose neurons are sampled then.
STREAM = lg.Residual(lg.serial(lg.LayerNorm(), lg.Activation("relu"), DENSE))
REBUILT = {
    "pooled": (run_of(transformer(CAUSAL, PLAIN), steps=3), 1),
    "stream": (run_of(transformer(STREAM, CAUSAL), steps=3), 1),
    "everything": (
        run_of(
            each_position(EVERYTHING, UNEQUAL, lg.RMSNorm(), readout=lg.Dense(bias_std=0.5)),
            lg.mup(2.0),
            optimizer=lg.sgd(0.05, 2, momentum=0.6, weight_decay=0.3, schedule=[1.0, 0.5, 2.0]),
            steps=3,
            **EVERYWHERE,
        ),
        2,
    ),
}


@pytest.mark.parametrize("which", REBUILT)
def test_a_finite_network_of_its_neurons_repeats_the_solution(which):
    solution, network = solution_and_network(*REBUILT[which])
    assert np.abs(solution[-1] - solution[0]).max() > 0.03
    np.testing.assert_allclose(solution, network, rtol=0, atol=1e-12 * np.abs(network).max())
