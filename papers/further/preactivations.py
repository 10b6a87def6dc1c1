"""Preactivations of fully connected networks, for measurements before and after training."""

from __future__ import annotations

from typing import Any

from largen import FiniteNetwork


def preactivations(network: FiniteNetwork, params: Any, x: Any, activation: Any) -> list[Any]:
    """Return h of each hidden layer, (sample, neuron), of ``lg.mlp`` without biases."""
    found = []
    for place in range(0, len(params) - 1, 2):
        multiplier = network.table[f"{place}.weight"].multiplier
        found.append(multiplier * x @ params[place]["weight"])
        x = activation(found[-1])
    return found
