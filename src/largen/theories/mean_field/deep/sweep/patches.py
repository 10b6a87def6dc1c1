"""From the features of all positions to the patches that the output positions read, and back.

Columns are (sample, position), with the position varying fastest. The features that the taps of a
map read at one output position are concatenated to a *patch*, a vector over taps and neurons. The
matrices of all taps, side by side, are one matrix that acts on patches.

Layers have different numbers of positions. In compiled programs all layers are padded to the
largest number of positions and taps. Padded positions read nothing and are not read, and columns of
zeros add no directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from largen.programs.receptive_fields import Reading, gather, scatter
from largen.theories.mean_field.deep.matrices.row_buffers import Index


class OnePosition(NamedTuple):
    """Fully connected networks: with one position and one tap all methods are trivial."""

    places = output_positions = 1

    def patches(self, l: Index, x: Array) -> Array:
        """Return the patches that matrix l reads."""
        return x

    def spread(self, l: Index, patches: Array) -> Array:
        """Apply the transpose of :meth:`patches`."""
        return patches

    def readable(self, x: Array) -> Array:
        """Return the patch that the read-out reads."""
        return x

    def from_readout(self, z: Array) -> Array:
        """Apply the transpose of :meth:`readable`."""
        return z

    def widen(self, x: Array) -> Array:
        """Pad rows at the output positions of matrices to rows at all positions."""
        return x

    def narrow(self, x: Array) -> Array:
        """Restrict rows at all positions to the output positions of matrices."""
        return x

    def pool(self, l: Index, x: Array) -> Array:
        """Return features after pooling, with all positions in one row."""
        return x

    def live(self, l: Index) -> Any:
        """Return the number of taps of matrix l; None for a single tap."""
        return None


class Positions(NamedTuple):
    """Several positions or taps, with the methods of :class:`OnePosition`."""

    # T of all matrices, padded to the largest number of taps and positions.
    taps: Float[Array, "matrix tap behind before"]
    number: Float[Array, " matrix"]
    readout: Float[Array, "tap 1 before"]  # T of the read-out
    # The pooling matrix of each hidden layer, over the root of its number of output positions.
    pooling: Float[Array, "layer before before"]

    @property
    def places(self) -> int:
        """The largest number of positions of a layer."""
        return self.readout.shape[2]

    @property
    def output_positions(self) -> int:
        """The largest number of output positions of a matrix."""
        return self.taps.shape[2]

    def patches(self, l: Index, x: Float[Array, "_ n"]) -> Float[Array, "_ _"]:
        """Return the patches that matrix l reads."""
        return gather(self.taps[l], x)

    def spread(self, l: Index, patches: Float[Array, "_ _"]) -> Float[Array, "_ n"]:
        """Apply the transpose of :meth:`patches`."""
        return scatter(self.taps[l], patches)

    def readable(self, x: Float[Array, "_ n"]) -> Float[Array, "sample _"]:
        """Return the patch that the read-out reads."""
        return gather(self.readout, x)

    def from_readout(self, z: Float[Array, "sample _"]) -> Float[Array, "_ n"]:
        """Apply the transpose of :meth:`readable`."""
        return scatter(self.readout, z)

    def widen(self, x: Float[Array, "_ n"]) -> Float[Array, "_ n"]:
        """Pad rows at the output positions of matrices to rows at all positions."""
        rows = x.reshape(-1, self.output_positions, x.shape[1])
        rows = jnp.pad(rows, ((0, 0), (0, self.places - self.output_positions), (0, 0)))
        return rows.reshape(-1, x.shape[1])

    def narrow(self, x: Float[Array, "_ n"]) -> Float[Array, "_ n"]:
        """Restrict rows at all positions to the output positions of matrices."""
        return x.reshape(-1, self.places, x.shape[1])[:, : self.output_positions].reshape(
            -1, x.shape[1]
        )

    def pool(self, l: Index, x: Float[Array, "_ n"]) -> Float[Array, "sample _"]:
        """Return features after pooling, with all positions in one row."""
        rows = self.pooling[l] @ x.reshape(-1, self.places, x.shape[1])
        return rows.reshape(len(rows), -1)

    def live(self, l: Index) -> Any:
        """Return the number of taps of matrix l."""
        return self.number[l]


def positions_of(
    readings: Sequence[Reading], positions: Sequence[int], dtype: Any
) -> OnePosition | Positions:
    """Return the taps of all maps after the first, the read-out's last, padded to one size."""
    if all(reading.plain for reading in readings):
        return OnePosition()
    *hidden, last = readings
    places, output_positions = max(positions), max(positions[1:], default=1)
    most = max((reading.number for reading in hidden), default=1)
    taps = np.zeros((len(hidden), most, output_positions, places), dtype)
    for to, reading in zip(taps, hidden, strict=True):
        number, behind, before = reading.taps.shape
        to[:number, :behind, :before] = reading.taps
    readout = np.zeros((last.number, 1, places), dtype)
    readout[:, :, : last.taps.shape[2]] = last.taps
    pooling = np.zeros((len(readings), places, places), dtype)
    for to, reading in zip(pooling, readings, strict=True):
        left, before = reading.pooled.shape
        to[:left, :before] = reading.pooled / np.sqrt(left)
    number = np.array([reading.number for reading in hidden], dtype)
    return Positions(*map(jnp.asarray, (taps, number, readout, pooling)))


def of_samples(x: Array, batch: Any, axis: int, each: int) -> Array:
    """Return the columns of given samples along an axis, with ``each`` columns per sample."""
    before = (slice(None),) * axis
    if each == 1:
        return x[(*before, batch)]
    shape = x.shape
    x = x.reshape(*shape[:axis], -1, each, *shape[axis + 1 :])[(*before, batch)]
    return x.reshape(*shape[:axis], -1, *shape[axis + 1 :])
