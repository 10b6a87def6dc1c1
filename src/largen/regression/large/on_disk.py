"""Kernel matrices larger than memory: computed block by block on disk, and resumed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from joblib import effective_n_jobs

from largen.architectures import Layer, fingerprint
from largen.callables import takes
from largen.files import as_path
from largen.interrupts import check, interruptible, resume_hint
from largen.jobs import OncePerWorker, number_of_jobs, results_of
from largen.kernels.masked import kernel_of
from largen.kernels.nngp_ntk import kernel
from largen.memory import check_fits
from largen.parameterizations import Parameterization
from largen.regression.large.inputs import inputs_of_blocks
from largen.scalars import integer

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
    jobs: int = 1,
    progress: Callable[[int, int], object] | None = None,
) -> Any:
    """Compute NNGP and NTK block by block into a Zarr group, or resume after an interruption.

    A further call with the same arguments computes only the blocks that are missing or damaged, as
    their checksums show. Missing entries are NaN. Of a symmetric kernel one triangle is computed.
    The memory is that of one block and its intermediate layers, about 12·block² numbers.

    Parameters
    ----------
    path
        Folder of the group; created if it does not exist.
    net, x1, x2, mask1, mask2, param
        As in :func:`largen.kernel`.
    block
        Rows and columns of a block and of a chunk on disk; need not divide the number of samples.
    jobs
        Number of blocks computed at once, by ``joblib``: −1 for one on each core. Inside
        ``joblib.parallel_config(backend="ray")`` or ``"dask"`` other machines compute them, which
        must see the folder. Workers write their blocks themselves: one that is killed loses
        its block, and the same call resumes. The same call in several processes at once shares the
        blocks, which each takes in another order.
    progress
        Called with the number of finished blocks and the total number.

    Returns
    -------
    zarr.Group
        With the arrays ``nngp`` and ``ntk``, (n1, n2), in the precision of the inputs.

    Raises
    ------
    DamagedFile
        If the metadata of the matrices are not those that were written.
    CannotWrite
        If the disk is full, or writing is not permitted.
    InvalidInput
        If the folder holds the kernel of another network, or of other samples or blocks; for
        :class:`largen.layers.MultiHeadAttention` with softmax; otherwise as for
        :func:`largen.kernel`.
    OutOfMemory
        If the blocks that are computed at once do not fit into memory.
    NumericalFailure
        If the kernel misses the accuracy of :func:`largen.kernel`.
    ImportError
        Without Zarr: ``pip install 'largen[large]'``.

    Examples
    --------
    >>> import largen as lg, numpy as np, tempfile
    >>> x = np.random.default_rng(0).normal(size=(10, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stored = lg.regression.large.stored_kernel(folder, lg.mlp(1, "relu"), x, block=4)
    ...     bool(np.allclose(stored["ntk"][:], lg.ntk_kernel(lg.mlp(1, "relu"), x)))
    True
    """
    from largen.regression.large.store import open_group  # Zarr need not be there

    path = as_path("path", path)
    block, jobs = integer("block", block, at_least=1), number_of_jobs(jobs)
    if progress is not None:
        takes("progress", progress, ("done", "total"))
    one, two = inputs_of_blocks(net, param, x1, x2, mask1, mask2)
    symmetric, two = two is None, two or one
    first, second = one.x, two.x
    dtype = np.result_type(first, second, np.float32)
    shape = (len(first), len(second))
    grid = -(-shape[0] // block), -(-shape[1] // block)
    masks = () if mask1 is None and mask2 is None else (one.mask, two.mask)
    identity = _identity(net, param, block, first, None if symmetric else second, *masks)
    chunks = min(block, shape[0]), min(block, shape[1])
    at_once = min(effective_n_jobs(jobs), grid[0] * grid[1])
    check_fits(
        4.0 * at_once * chunks[0] * chunks[1] * np.dtype(dtype).itemsize,
        f"block: two kernels of {chunks[0]} × {chunks[1]} samples, computed and written"
        + (f" by {at_once} workers," if at_once > 1 else ","),
        "Take smaller blocks.",
    )
    group = open_group(path, identity, NAMES, shape, chunks, dtype)
    wanted = list(_blocks(grid, shape, block, symmetric=symmetric))
    tell = progress or (lambda done, total: None)
    goes_on = f"Finished blocks are in {path}: the same call resumes from them."
    with resume_hint(goes_on), interruptible():
        missing = []
        for place in wanted:
            check()
            if not _is_done(group, place):
                missing.append(place)
        done = len(wanted) - len(missing)
        if done:
            tell(done, len(wanted))
        computed = _compute_all(group, net, param, one, two, missing, jobs)
        for count, _ in enumerate(computed, done + 1):
            check()
            tell(count, len(wanted))
    return group


def _blocks(
    grid: tuple[int, int], shape: tuple[int, int], block: int, *, symmetric: bool
) -> Iterator[Block]:
    """Yield the blocks of a matrix; of a symmetric one, those of one triangle."""
    for i in range(grid[0]):
        for j in range(i if symmetric else 0, grid[1]):
            rows, columns = _span(i, block, shape[0]), _span(j, block, shape[1])
            yield Block(rows, columns, diagonal=symmetric and i == j, symmetric=symmetric)


class Block(NamedTuple):
    """A block of a kernel, by its rows and columns."""

    rows: slice
    columns: slice
    diagonal: bool
    symmetric: bool

    @property
    def places(self) -> list[tuple[slice, slice]]:
        """The block, and its mirror image if that stands in the kernel as well."""
        mirrored = self.symmetric and not self.diagonal
        return [(self.rows, self.columns), *([(self.columns, self.rows)] if mirrored else [])]


def _compute_all(group, net, param, one, two, missing, jobs) -> Iterator[None]:
    """Compute blocks, here or by workers, which open the group themselves; yield after each.

    In random order, so that several processes on one folder rarely compute the same block.
    """
    blocks = random.Random().sample(missing, len(missing))
    where = group if jobs == 1 else str(group.store.root.resolve())
    network = (net, param) if jobs == 1 else OncePerWorker((net, param))
    work = (
        (
            where,
            network,
            block,
            one.rows(block.rows),
            None if block.diagonal else two.rows(block.columns),
        )
        for block in blocks
    )
    if jobs == 1:
        for arguments in work:
            check()
            yield _compute(*arguments)
    else:
        yield from results_of(((_compute, arguments) for arguments in work), jobs)


def _compute(group, network, block: Block, first, second) -> None:
    """Compute a block of both kernels and write it, with its mirror image."""
    if isinstance(group, str):
        from largen.regression.large.store import reopen_group

        group = reopen_group(group)
    if _is_done(group, block):  # by another process, since this one has looked
        return
    net, param = network.value if isinstance(network, OncePerWorker) else network
    for name, part in zip(NAMES, kernel_of(kernel, net, first, second, param=param), strict=True):
        for place, entries in zip(
            block.places, (np.asarray(part), np.asarray(part).T), strict=False
        ):
            group[name][place] = entries


def _is_done(group: Any, block: Block) -> bool:
    """Whether a block of both kernels and its mirror image are stored undamaged."""
    return all(_is_whole(group[name], *place) for name in NAMES for place in block.places)


def _is_whole(matrix: Any, rows: slice, columns: slice) -> bool:
    """Whether a chunk of a matrix is stored undamaged."""
    try:
        return not np.isnan(matrix[rows, columns]).any()
    except Exception:  # from the checksum, the decoding or the disk
        return False


def _span(k: int, block: int, samples: int) -> slice:
    return slice(k * block, min((k + 1) * block, samples))


def _identity(net, param, block, *arrays) -> str:
    """Return the text that identifies a kernel."""
    digest = hashlib.sha256(f"{fingerprint(net)} {param!r} {block}".encode())
    for x in arrays:
        digest.update(b"none" if x is None else f"{x.shape} {x.dtype}".encode())
        if x is not None:
            digest.update(np.ascontiguousarray(x).tobytes())
    return digest.hexdigest()
