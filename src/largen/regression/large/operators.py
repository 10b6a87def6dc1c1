"""Kernel matrices that are never stored: products with vectors, and chosen columns, by blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property, partial
from itertools import pairwise, product
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer, fingerprint
from largen.arrays import floating
from largen.errors import InvalidInput, one_of
from largen.interrupts import check, interruptible
from largen.kernels.masked import Masked, kernel_of
from largen.kernels.nngp_ntk import nngp_kernel, ntk_kernel
from largen.kernels.spread import checked
from largen.memory import check_fits
from largen.parameterizations import Parameterization
from largen.regression.large.inputs import inputs_of_blocks
from largen.regression.large.processes import own_parts, sum_over_processes
from largen.scalars import integer

KINDS = {"nngp": nngp_kernel, "ntk": ntk_kernel}


class KernelOperator:
    """A kernel of infinitely wide networks as a linear map; made by :func:`kernel_operator`.

    ``operator @ v`` is the product with a vector (n2,) or with columns (n2, column), in float64.

    Attributes
    ----------
    shape
        (n1, n2).
    symmetric
        Whether both sets of samples are the same.
    """

    def __init__(
        self,
        net: Layer,
        kind: str,
        param: Parameterization | None,
        first: Masked,
        second: Masked | None,
        block: int,
        devices: tuple[Any, ...],
    ):
        self._net, self._kind, self._param = net, kind, param
        self._first, self._second, self._block = first, second, block
        self._devices = devices or None
        self.symmetric = second is None
        self.shape = (len(first.x), len((first if second is None else second).x))

    @interruptible()
    def __matmul__(self, v: Any) -> np.ndarray:
        """Return the product with a vector or with columns."""
        columns = np.asarray(floating("v", v, ndim=(1, 2)), np.float64)
        if len(columns) != self.shape[1]:
            raise InvalidInput(f"v: wanted {self.shape[1]} rows, got shape {columns.shape}.")
        return self.times(columns)

    def times(
        self,
        v: np.ndarray,
        progress: Callable[[int, int], object] | None = None,
        shared: bool = False,
    ) -> np.ndarray:
        """Return the product with float64 columns; ``progress`` is called after each block.

        With ``shared``, the processes of ``jax.distributed`` compute it together.
        """
        product, blocks = np.zeros((self.shape[0], *v.shape[1:])), self._blocks()
        if shared:
            blocks = own_parts(blocks)
        for done, (rows, columns) in enumerate(blocks, 1):
            diagonal = self.symmetric and rows == columns
            part = self._entries(rows, None if diagonal else columns).astype(np.float64)
            product[rows] += part @ v[columns]
            if self.symmetric and not diagonal:
                product[columns] += part.T @ v[rows]
            check()
            if progress is not None:
                progress(done, len(blocks))
        return sum_over_processes(product) if shared else product

    def columns(self, chosen: np.ndarray) -> np.ndarray:
        """Return some columns, (n1, column)."""
        second = (self._first if self._second is None else self._second).rows(chosen)
        entries = np.empty((self.shape[0], len(chosen)))
        for rows in _spans(self.shape[0], self._block):
            entries[rows] = self._kernel(self._first.rows(rows), second)
            check()
        return entries

    def within(self, chosen: np.ndarray) -> np.ndarray:
        """Return the symmetric kernel of some of the first samples."""
        return self._kernel(self._first.rows(chosen)).astype(np.float64)

    def lower_triangle(self) -> np.ndarray:
        """Return a symmetric kernel in float64, in Fortran's order, with 0 above the diagonal."""
        whole = np.zeros(self.shape, order="F")
        for columns, rows in self._blocks():
            part = self._entries(rows, None if rows == columns else columns)
            whole[rows, columns] = np.tril(part) if rows == columns else part
            check()
        return whole

    @cached_property
    def identity(self) -> str:
        """Text that tells this kernel from others."""
        digest = hashlib.sha256(
            f"{fingerprint(self._net)} {self._kind} {self._param!r} {self.shape}".encode()
        )
        for each in (*self._first, *(self._second or ())):
            digest.update(b"none" if each is None else np.ascontiguousarray(each).tobytes())
        return digest.hexdigest()

    def _blocks(self) -> list[tuple[slice, slice]]:
        """Return rows and columns of all blocks; of a symmetric kernel those of one triangle."""
        both = product(*(_spans(n, self._block) for n in self.shape))
        return [(i, j) for i, j in both if not self.symmetric or i.start <= j.start]

    def _entries(self, rows: slice, columns: slice | None) -> np.ndarray:
        other = self._first if self._second is None else self._second
        return self._kernel(
            self._first.rows(rows), None if columns is None else other.rows(columns)
        )

    def _kernel(self, first: Masked, second: Masked | None = None) -> np.ndarray:
        kernel = partial(KINDS[self._kind], devices=self._devices)
        return np.asarray(kernel_of(kernel, self._net, first, second, param=self._param))

    def __repr__(self) -> str:
        return f"KernelOperator({self._kind!r}, {self.shape[0]} × {self.shape[1]}, {self._net!r})"


def kernel_operator(
    net: Layer,
    x1: ArrayLike,
    x2: ArrayLike | None = None,
    *,
    kind: str = "ntk",
    mask1: ArrayLike | None = None,
    mask2: ArrayLike | None = None,
    param: Parameterization | None = None,
    block: int = 2048,
    devices: Any = None,
) -> KernelOperator:
    """Return a kernel matrix that is never stored, for products with vectors.

    Each product computes all entries again, block by block, and of a symmetric kernel one triangle:
    the memory is that of the samples and of one block. With
    :func:`largen.regression.large.solve_kernel` it gives predictions from more samples than a
    kernel fits into memory or on disk,

        α = (K + σ_n²)⁻¹y,   means  kernel_operator(net, x_test, x) @ α.

    Parameters
    ----------
    net, x1, x2, mask1, mask2, param
        As in :func:`largen.kernel`.
    kind
        ``"nngp"`` or ``"ntk"``.
    block
        Rows and columns of a block.
    devices
        As in :func:`largen.kernel`: the tiles of each block are distributed over them.

    Raises
    ------
    InvalidInput
        For :class:`largen.layers.MultiHeadAttention` with softmax, whose heads are drawn for all
        samples together.
    OutOfMemory
        If a block does not fit into memory.
    NumericalFailure
        In products, if the kernel misses the accuracy of :func:`largen.kernel`.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(10, 3))
    >>> net, v = lg.mlp(1, "relu"), np.ones(10)
    >>> bool(
    ...     np.allclose(
    ...         lg.regression.large.kernel_operator(net, x, block=4) @ v, lg.ntk_kernel(net, x) @ v
    ...     )
    ... )
    True
    """
    one_of("kind", kind, KINDS)
    size = integer("block", block, at_least=1)
    first, second = inputs_of_blocks(net, param, x1, x2, mask1, mask2)
    rows, columns = (min(size, len(each.x)) for each in (first, second or first))
    check_fits(32.0 * rows * columns, f"block: {rows} × {columns} entries", "Take smaller blocks.")
    return KernelOperator(net, kind, param, first, second, size, checked(devices))


def _spans(samples: int, block: int) -> list[slice]:
    """Return ranges of nearly equal length, at most ``block``."""
    edges = np.linspace(0, samples, -(-samples // block) + 1).astype(int).tolist()
    return [slice(a, b) for a, b in pairwise(edges)]
