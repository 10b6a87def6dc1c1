"""A linear residual network of infinite width and depth, and the time filters of its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from largen.theories.chains.constants import MapConstants
from largen.theories.mean_field.infinite_depth.time_filters import Filter, Link, in_a_row


class LinearNetwork(NamedTuple):
    """A linear residual network of infinite depth, and its training."""

    # F of all samples, h(0) = F a: shape (sample, direction).
    fields: Float[np.ndarray, "sample direction"]
    # e with F e = 1, the direction of the biases; None without biases in the blocks.
    constant: Float[np.ndarray, " direction"] | None
    # Variance of a at initialisation, 1 or 0 for each direction.
    start: Float[np.ndarray, " direction"]
    read_in: Float[np.ndarray, " direction"]  # ρ of each direction of a
    # read_in_kept, read_in_taken: d(t)d(s), shape (direction, time, time), and k(t, s) of a.
    read_in_kept: Float[np.ndarray, "direction time time"]
    read_in_taken: Float[np.ndarray, "time time"]
    links: Sequence[Link]  # the links of the maps of a block
    # Whether fields inside a block learn: α = 1, several maps. Otherwise there is one link.
    inner: bool
    read_out: Link  # the link of the read-out w; its bias gives the output's constant
    gamma: float  # γ₀
    outputs: int

    @property
    def times(self) -> int:
        """The number of times, the first included."""
        return len(self.read_in_taken)

    @classmethod
    def of(
        cls,
        # fields, read_in, gamma, outputs: as above; biases of the read-in are among the directions.
        fields: Float[np.ndarray, "sample direction"],
        read_in: Float[np.ndarray, " direction"],
        # maps, read_out: the maps of a block, starting with the one that reads the stream, and the
        # read-out, with rates ρ that do not depend on L: L^(1 − 2 power) times those of a finite
        # network.
        maps: Sequence[MapConstants],
        read_out: MapConstants,
        # power, rates, momentum, decay: α, η₀ of each step, β and λ₀.
        power: float,
        rates: Float[np.ndarray, " step"],
        *,
        gamma: float = 1.0,
        outputs: int = 1,
        momentum: float = 0.0,
        decay: float = 0.0,
    ) -> LinearNetwork:
        """Return the network with blocks of some maps and branches L^(−power), power ≥ ½."""
        trained = Filter.of(rates, gamma, momentum, decay)
        links = [Link.of(one, trained) for one in maps]
        inner = power == 1 and len(links) > 1
        if not inner:
            links = [in_a_row(links)]
            links = links if power == 0.5 else [links[0].quiet]
        start, constant = np.ones_like(read_in), None
        if any(one.bias_std for one in maps):
            fields = np.concatenate([fields, np.ones((len(fields), 1))], 1)
            constant = np.eye(fields.shape[1])[-1]
            start, read_in = np.append(start, 0.0), np.append(read_in, 0.0)
        kept = [(trained if rate else trained.standing).kept for rate in read_in]
        kept = np.stack([np.multiply.outer(one, one) for one in kept])
        last = Link.of(read_out, trained)
        taken = trained.taken
        return cls(
            fields, constant, start, read_in, kept, taken, links, inner, last, gamma, outputs
        )


def numbers_held(network: LinearNetwork, nodes: int) -> int:
    """Return the count of numbers that the equations store."""
    forward, backward = len(network.start), network.outputs
    inner = len(network.links) - 1 if network.inner else 0
    each = 5 * forward**2 + 4 * forward * backward + 5 * backward**2
    return (1 + inner) * nodes * network.times**2 * each
