"""Kernel matrices that are larger than memory: block by block to disk, and resumed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer, fingerprint
from largen.arrays import floating, integer, is_traced
from largen.errors import InvalidInput
from largen.kernels.masked import kernel_of, masked
from largen.kernels.nngp_ntk import kernel
from largen.kernels.tiles import takes_whole_batches
from largen.parameterizations import Parameterization

NAMES = ("nngp", "ntk")


def stored_kernel(
    path: str | Path,
    net: Layer,
    x1: ArrayLike,
    x2: ArrayLike | None = None,
    *,
    mask1: ArrayLike | None = None,
    mask2: ArrayLike | None = None,
    param: Parameterization | None = None,
    block: int = 1024,
    progress: Callable[[int, int], object] | None = None,
) -> Any:
    """Compute NNGP and NTK block by block into a Zarr group, or go on where it was interrupted.

    A block is marked as done once both its kernels are written; called again with the same
    arguments, only missing blocks are computed. Of a symmetric kernel one triangle is computed.
    Memory is that of one block and its intermediate layers, about 12·block² numbers.

    Parameters
    ----------
    path
        Folder of the group; created if it does not exist.
    net, x1, x2, mask1, mask2, param
        As in :func:`largen.kernel`.
    block
        Rows and columns of a block and of a chunk on disk; need not divide the samples.
    progress
        Called with the numbers of blocks that are done, and of all.

    Returns
    -------
    zarr.Group
        With the arrays ``nngp`` and ``ntk``, (n1, n2), in the precision of the inputs.

    Raises
    ------
    InvalidInput
        If the folder holds the kernel of another network, of other samples or blocks; for
        :class:`largen.MultiHeadAttention` with its softmax; as :func:`largen.kernel`.
    NumericalFailure
        If the kernel is not accurate, as :func:`largen.kernel` says.
    ImportError
        Without Zarr: ``pip install 'largen[large]'``.

    Examples
    --------
    >>> import largen as lg, numpy as np, tempfile
    >>> x = np.random.default_rng(0).normal(size=(10, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stored = lg.stored_kernel(folder, lg.mlp(1, "relu"), x, block=4)
    ...     bool(np.allclose(stored["ntk"][:], lg.ntk_kernel(lg.mlp(1, "relu"), x)))
    True
    """
    import zarr

    block = integer("block", block, at_least=1)
    if isinstance(net, Layer) and takes_whole_batches(net):
        raise InvalidInput(
            f"net: {net!r} has attention whose heads are drawn for all samples together; blocks "
            "would have different ones. Use lg.kernel."
        )
    if is_traced(x1, x2):
        raise InvalidInput("x1: is traced; kernels are stored outside of jit and grad.")
    first = np.asarray(floating("x1", x1))
    second = first if x2 is None else np.asarray(floating("x2", x2, ndim=first.ndim))
    dtype = np.result_type(first, second, np.float32)
    shape = (len(first), len(second))
    grid = tuple(-(-n // block) for n in shape)
    symmetric = x2 is None
    one, two = masked("mask1", mask1, first), masked("mask2", mask2, None if symmetric else second)
    two = one if symmetric else two
    masks = () if mask1 is None and mask2 is None else (one.mask, two.mask)
    identity = _identity(net, param, block, first, None if symmetric else second, *masks)
    group: Any = zarr.open_group(str(path), mode="a")
    if "identity" not in group.attrs:
        chunks = tuple(min(block, n) for n in shape)
        for name in NAMES:
            group.create_array(name, shape=shape, chunks=chunks, dtype=dtype)
        group.create_array("done", shape=grid, chunks=(1, 1), dtype=np.bool_)
        group.attrs["identity"] = identity
    elif group.attrs["identity"] != identity:
        raise InvalidInput(
            f"path: {path} holds another kernel, of another network, parameterization, samples or "
            "block size; choose another folder, or delete it."
        )
    wanted = [(i, j) for i in range(grid[0]) for j in range(i if symmetric else 0, grid[1])]
    done = np.asarray(group["done"])
    for count, (i, j) in enumerate(wanted):
        if not done[i, j]:
            rows, columns = (_span(k, block, n) for k, n in zip((i, j), shape, strict=True))
            other = None if symmetric and i == j else two.rows(columns)
            parts = kernel_of(kernel, net, one.rows(rows), other, param=param)
            for name, part in zip(NAMES, parts, strict=True):
                group[name][rows, columns] = np.asarray(part)
                if symmetric and i != j:
                    group[name][columns, rows] = np.asarray(part).T
            group["done"][i, j] = True
        if progress is not None:
            progress(count + 1, len(wanted))
    return group


def _span(k: int, block: int, samples: int) -> slice:
    return slice(k * block, min((k + 1) * block, samples))


def _identity(net, param, block, *arrays) -> str:
    """Return what tells one kernel from another."""
    digest = hashlib.sha256(f"{fingerprint(net)} {param!r} {block}".encode())
    for x in arrays:
        digest.update(b"none" if x is None else f"{x.shape} {x.dtype}".encode())
        if x is not None:
            digest.update(np.ascontiguousarray(x).tobytes())
    return digest.hexdigest()
