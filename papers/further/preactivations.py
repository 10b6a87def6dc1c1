"""Preactivations of fully connected networks, for measurements before and after training."""

from __future__ import annotations

from typing import Any

from largen.networks import FiniteNetwork


def preactivations(network: FiniteNetwork, params: Any, x: Any, activation: Any) -> list[Any]:
    """Return h of each hidden layer of ``lg.mlp``, (sample, neuron)."""
    found = []
    for place in range(0, len(params) - 1, 2):
        own = {
            name: network.table[f"{place}.{name}"].multiplier * each
            for name, each in params[place].items()
        }
        found.append(x @ own["weight"] + own.get("bias", 0.0))
        x = activation(found[-1])
    return found
