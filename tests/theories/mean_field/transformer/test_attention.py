"""The mean-field limit of attention with logits that are averages over keys."""

import numpy as np
import pytest
from tests.theories.mean_field.transformer.rebuilt import solution_and_network

import largen as lg

DRAW = np.random.default_rng(3)
TOKENS, Y = DRAW.integers(0, 3, (4, 3)), np.array([1.0, -1.0, 1.0, -1.0])
X = lg.with_positions(lg.token_inputs(TOKENS, 3))
DATA = lg.Dataset(X[:3], Y[:3], X[3:], Y[3:])
TWO = lg.Dataset(X[:3], np.stack([Y[:3], Y[1:]], 1), X[3:], np.stack([Y[3:], Y[:1]], 1))


DENSE = lg.Dense()


def block(*before, branch=lg.Residual, behind=DENSE, **options):
    return branch(lg.serial(*before, lg.QKVAttention(**options), behind))


def transformer(*blocks, readout=DENSE):
    return lg.serial(DENSE, *blocks, lg.GlobalAvgPool(), readout)


def run_of(net, param=None, data=DATA, optimizer=None, steps=4):
    optimizer = optimizer or lg.gd(0.5)
    return lg.Run(net, param or lg.mean_field(), data, optimizer=optimizer, steps=steps)


CAUSAL = block(logit_scale=4.0, causal=True)
UNEQUAL = block(
    lg.LayerNorm(over_space=True),
    queries=lg.Dense(width_ratio=1 / 2, weight_std=1.5),
    keys=lg.serial(lg.Dense(bias_std=0.5), lg.Dense(width_ratio=1 / 2)),
    values=lg.Dense(width_ratio=2, bias_std=0.3),
    logit_scale=-3.0,
    behind=lg.Dense(weight_std=0.7, bias_std=0.4),
)
REBUILT = {
    "one block": run_of(transformer(CAUSAL), steps=6),
    "no residual": run_of(transformer(block(branch=lambda layer: layer))),
    "two blocks": run_of(transformer(*[block(lg.RMSNorm(eps=0.1), causal=True)] * 2)),
    "depth_mup": run_of(transformer(CAUSAL, CAUSAL), lg.depth_mup(0.5)),
    "its own keys": run_of(
        transformer(lg.Residual(lg.serial(lg.RMSNorm(), lg.SelfAttention(), lg.Dense())))
    ),
    "everything": run_of(
        transformer(UNEQUAL, lg.RMSNorm(), lg.Dense(width_ratio=3), readout=lg.Dense(bias_std=0.5)),
        lg.mup(2.0).with_rates({"hidden": 0.7, "1.0.1.0.weight": 0.0}),
        TWO,
        lg.sgd(0.02, 2, momentum=0.6, weight_decay=0.3, schedule=[1.0, 0.5, 2.0, 1.0]),
    ),
}


@pytest.mark.parametrize("which", REBUILT)
def test_a_finite_network_of_its_coordinates_repeats_the_solution(which):
    solution, network = solution_and_network(REBUILT[which])
    assert np.abs(solution[-1] - solution[0]).max() > 0.03
    np.testing.assert_allclose(solution, network, rtol=0, atol=1e-12 * np.abs(network).max())
