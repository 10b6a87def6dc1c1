"""Graphs of operations: products, constant factors, and values with several readers."""

from dataclasses import dataclass

import numpy as np
import pytest
from tests.own_layers import Mean, Scale, Standardise
from tests.theories.mean_field.transformer.rebuilt import solution_and_network
from tests.theories.mean_field.transformer.test_attention import CAUSAL, DENSE, run_of

import largen as lg
from largen.architectures import Layer, Parallel
from largen.programs import Sum

TANH, LINEAR = lg.Activation("tanh"), lg.Activation("linear")
POOL, HIDDEN = lg.GlobalAvgPool(), lg.serial(lg.Activation("tanh"), lg.Dense())
GATE = lg.serial(DENSE, lg.Activation("sigmoid"))


@dataclass(frozen=True, repr=False)
class Bridge(Parallel):
    """d(a(x)) + 0.8·e(b(x) − 0.6·c(a(x))): neither in series nor in parallel."""

    a: Layer
    b: Layer
    c: Layer
    d: Layer
    e: Layer

    def signal_behind(self, signal):
        return self.a.signal_behind(signal)

    def lower(self, program, value):
        a, b = (program.part(i, part, value) for i, part in enumerate((self.a, self.b)))
        c, d = (program.part(i, part, a) for i, part in ((2, self.c), (3, self.d)))
        e = program.part(4, self.e, program.add(Sum((b, c), (1.0, -0.6))))
        return program.add(Sum((d, e), (1.0, 0.8)))


GATED = lg.Residual(lg.serial(lg.RMSNorm(), lg.layers.Product(DENSE, GATE), DENSE))
REBUILT = {
    "constant factors": (lg.serial(DENSE, Scale(1.7), CAUSAL, Scale(-0.5), POOL, DENSE), None),
    "gain of a norm": (lg.serial(DENSE, Standardise(1.5), CAUSAL, POOL, DENSE), None),
    "skip from the input": (
        lg.serial(Mean(lg.serial(DENSE, CAUSAL), lg.Dense(bias_std=0.3)), CAUSAL, POOL, DENSE),
        None,
    ),
    "attention to the input": (lg.serial(lg.QKVAttention(logit_scale=2.0), POOL, DENSE), None),
    "bridge": (lg.serial(DENSE, Bridge(DENSE, DENSE, CAUSAL, DENSE, DENSE), POOL, DENSE), None),
    "concatenation": (
        lg.serial(
            DENSE,
            lg.layers.Concatenate(lg.serial(CAUSAL, lg.Dense(width_ratio=1 / 2)), DENSE, LINEAR),
            lg.Dense(bias_std=0.3),
            lg.layers.Concatenate(CAUSAL, DENSE),
            POOL,
            DENSE,
        ),
        None,
    ),
    "dense connections": (
        lg.serial(DENSE, lg.layers.Concatenate(HIDDEN, LINEAR), TANH, DENSE, POOL, DENSE),
        1,
    ),
    "gates": (lg.serial(DENSE, GATED, CAUSAL, POOL, DENSE), 1),
    "square": (lg.serial(DENSE, lg.layers.Product(LINEAR, TANH, LINEAR), DENSE, POOL, DENSE), 1),
    "bridge of activations": (
        lg.serial(DENSE, Bridge(HIDDEN, HIDDEN, TANH, HIDDEN, HIDDEN), DENSE, POOL, DENSE),
        1,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("which", REBUILT)
def test_a_finite_network_repeats_the_solution(which):
    net, ratio = REBUILT[which]
    solution, network = solution_and_network(run_of(net, steps=3), ratio)
    assert np.abs(solution[-1] - solution[0]).max() > 0.03
    np.testing.assert_allclose(solution, network, rtol=0, atol=1e-12 * np.abs(network).max())
