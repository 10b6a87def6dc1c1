"""The terms of a trained network's output, by initial values and increments of its weights.

With the gates φ′ of the trained network, f is linear in each matrix, and each matrix is the sum of
its initial value and its increment: f is the sum of 2^(L+1) terms (Golikov's (11) and (37)).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from largen.networks import FiniteNetwork

# The paper's names of the weights, from input to output.
LETTERS = {1: ("w", "a"), 2: ("w", "v", "a"), 3: ("w", "v¹", "v²", "a")}


def term_names(hidden_layers: int) -> list[str]:
    """Return the names of the terms, ordered by their number of increments.

    Examples
    --------
    >>> term_names(1)
    ['∅', 'a', 'w', 'aw']
    """
    letters = LETTERS[hidden_layers]
    subsets = [[]]
    for letter in reversed(letters):
        subsets += [[*subset, letter] for subset in subsets]
    return ["".join(subset) or "∅" for subset in sorted(subsets, key=len)]


def split_outputs(network: FiniteNetwork, start: Any, end: Any, x: Any) -> dict[str, Any]:
    """Return every term by name, ``(sample, output)``; they add up to the trained outputs.

    The network has (leaky) relu activations and no biases.
    """
    places = [i for i, params in enumerate(end) if params]
    letters = LETTERS[len(places) - 1]
    parts = {"": x}
    for place, letter in zip(places, letters, strict=True):
        m = network.table[f"{place}.weight"].multiplier
        before, after = (m * params[place]["weight"] for params in (start, end))
        # The letter of a later layer comes first, as in "aw".
        moved = {letter + name: h @ (after - before) for name, h in parts.items()}
        parts = {name: h @ before for name, h in parts.items()} | moved
        if place != places[-1]:
            h = sum(parts.values())
            phi = network.net.layers[place + 1].function  # type: ignore[attr-defined]
            gates = jnp.where(h == 0, 0, phi(h) / jnp.where(h == 0, 1, h))
            parts = {name: gates * h for name, h in parts.items()}
    return {name or "∅": value for name, value in parts.items()}


class Final:
    """Measurements on a trained network: test loss, variances of terms, increments.

    A term's variance is taken over test images (the paper's App. C) and averaged over outputs. An
    increment is the mean over neurons of |δŵ|, in units of the initial standard deviation.
    """

    def __init__(self, run: Any):
        self.loss, self.targets = run.loss, jnp.asarray(run.data.y_test)
        self.samples = len(run.data.x_train)

    def __call__(self, network: FiniteNetwork, start: Any, end: Any, x: Any) -> dict[str, Any]:
        """Return ``loss ()``, ``variance (term)`` and ``increment (weight)``."""
        test = x[self.samples :]
        found = split_outputs(network, start, end, test)
        places = [i for i, params in enumerate(end) if params]
        names = term_names(len(places) - 1)
        increments = []
        for place in places:
            moved = end[place]["weight"] - start[place]["weight"]
            # |δŵ| of the vector of weights into a neuron; for the read-out, of each weight.
            size = jnp.abs(moved) if place == places[-1] else jnp.linalg.norm(moved, axis=0)
            increments.append(size.mean() / network.table[f"{place}.weight"].init_std)
        return {
            "loss": self.loss.mean(network.outputs_of(end, test), self.targets),
            "variance": jnp.stack([jnp.var(found[name], axis=0).mean() for name in names]),
            "increment": jnp.stack(increments),
        }
