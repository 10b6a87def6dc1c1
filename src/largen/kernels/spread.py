"""Distribution of the tiles of kernels over several devices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from largen.errors import InvalidInput
from largen.interrupts import Pace, interruptible
from largen.kernels.tiles import corners_of, own_gaps_of_both, sides_of, tile_at

ACROSS, EVERYWHERE = PartitionSpec("tile"), PartitionSpec()


def checked(devices: Any) -> tuple[Any, ...]:
    """Check devices; without any, JAX's default device is used."""
    if devices is None:
        return ()
    known = isinstance(devices, Sequence) and len(devices) > 0
    if not known or not all(isinstance(device, jax.Device) for device in devices):
        raise InvalidInput(f"devices: wanted some of jax.local_devices(), got {devices!r}.")
    if len(set(devices)) < len(devices):
        raise InvalidInput(f"devices: the same device is given twice, in {devices!r}.")
    if any(device.process_index != jax.process_index() for device in devices):
        raise InvalidInput(
            f"devices: some belong to other processes, in {devices!r}; take those of "
            "jax.local_devices()."
        )
    return tuple(devices)


def kernels_on_devices(devices, program, with_ntk, dtype, tile, constants, x1, x2, masks):
    """Return ``kernels_by_tiles`` in NumPy, with equal tiles for devices that hold all samples."""
    symmetric = x2 is None
    shape = len(x1), len(x1 if symmetric else x2)
    corners = corners_of(*shape, tile, symmetric)
    filled = np.concatenate([corners, np.repeat(corners[-1:], -len(corners) % len(devices), 0)])
    mesh = Mesh(np.array(devices), ("tile",))
    lengths = min(tile, shape[0]), min(tile, shape[1])
    with interruptible():
        own_gaps = own_gaps_of_both(program, constants, x1, x2, masks, tile)
        sides, parts = _begin(
            mesh, program, with_ntk, dtype, lengths, len(filled), (x1, x2), masks, own_gaps
        )
        for begin, end in Pace().segments(0, len(filled) // len(devices)):
            parts = _fill(
                mesh, program, with_ntk, lengths, filled, begin, end, constants, sides, parts
            )
            jax.block_until_ready(parts)

    def whole(part: Any) -> np.ndarray:
        result, pieces = np.zeros(shape, dtype), np.asarray(part)
        for (i, j), piece in zip(corners, pieces[: len(corners)], strict=True):
            result[i : i + piece.shape[0], j : j + piece.shape[1]] = piece
            if symmetric:
                result[j : j + piece.shape[1], i : i + piece.shape[0]] = piece.T
        return result

    return jax.tree.map(whole, parts)


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4, 5))
def _begin(mesh, program, with_ntk, dtype, lengths, tiles, inputs, masks, own_gaps):
    """Return both sets of samples, prepared, and empty arrays for the tiles."""
    room = jnp.zeros((tiles, *lengths), dtype)
    parts = (room, jnp.copy(room) if with_ntk else None)
    parts = jax.lax.with_sharding_constraint(parts, NamedSharding(mesh, ACROSS))
    return sides_of(program, dtype, inputs[0], inputs[1], masks, own_gaps), parts


@partial(jax.jit, static_argnums=(0, 1, 2, 3), donate_argnums=9)
def _fill(mesh, program, with_ntk, lengths, corners, begin, end, constants, sides, parts):
    """Return the tiles after computing some of them on every device."""

    @partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(ACROSS, EVERYWHERE, EVERYWHERE, EVERYWHERE, EVERYWHERE, ACROSS),
        out_specs=ACROSS,
        check_vma=False,
    )
    def of_device(corners, begin, end, constants, sides, parts):
        def one(n, parts):
            found = tile_at(program, with_ntk, lengths, constants, sides, corners[n])
            return jax.tree.map(
                lambda all, part: all.at[n].set(part.astype(all.dtype)), parts, found
            )

        return lax.fori_loop(begin, end, one, parts)

    return of_device(jnp.asarray(corners), begin, end, constants, sides, parts)
