"""Tiles of kernels spread over several devices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from largen.errors import InvalidInput
from largen.kernels.tiles import corners_of, sides_of, tile_at


def checked(devices: Any) -> tuple[Any, ...]:
    """Check devices at the door; none of them are those of JAX's default."""
    if devices is None:
        return ()
    known = isinstance(devices, Sequence) and len(devices) > 0
    if not known or not all(isinstance(device, jax.Device) for device in devices):
        raise InvalidInput(f"devices: wanted some of jax.devices(), got {devices!r}.")
    if len(set(devices)) < len(devices):
        raise InvalidInput(f"devices: some are there twice, in {devices!r}.")
    return tuple(devices)


def kernels_on_devices(devices, skeleton, with_ntk, dtype, tile, constants, x1, x2, masks):
    """Return what ``kernels_by_tiles`` does, as NumPy arrays, equal numbers of tiles on each.

    Samples are on all devices; tiles of a symmetric kernel are those of one triangle.
    """
    symmetric = x2 is None
    shape = len(x1), len(x1 if symmetric else x2)
    corners = corners_of(*shape, tile, symmetric)
    filled = np.concatenate([corners, np.repeat(corners[-1:], -len(corners) % len(devices), 0)])
    mesh = Mesh(np.array(devices), ("tile",))
    lengths = min(tile, shape[0]), min(tile, shape[1])
    parts = _tiles(mesh, skeleton, with_ntk, dtype, lengths, filled, constants, (x1, x2), masks)

    def whole(part: Any) -> np.ndarray:
        result, pieces = np.zeros(shape, dtype), np.asarray(part)
        for (i, j), piece in zip(corners, pieces[: len(corners)], strict=True):
            result[i : i + piece.shape[0], j : j + piece.shape[1]] = piece
            if symmetric:
                result[j : j + piece.shape[1], i : i + piece.shape[0]] = piece.T
        return result

    return jax.tree.map(whole, parts)


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _tiles(mesh, skeleton, with_ntk, dtype, lengths, corners, constants, inputs, masks):
    across, everywhere = PartitionSpec("tile"), PartitionSpec()

    @partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(across, everywhere, everywhere, everywhere),
        out_specs=across,
        check_vma=False,
    )
    def of_device(corners, constants, inputs, masks):
        sides = sides_of(skeleton, dtype, inputs[0], inputs[1], masks)

        def one(corner):
            found = tile_at(skeleton, with_ntk, lengths, constants, sides, corner)
            return jax.tree.map(lambda part: part.astype(dtype), found)

        return lax.map(one, corners)

    return of_device(corners, constants, inputs, masks)
