"""The network and the samples of kernels that are computed in blocks, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from largen.arrays import floating, is_traced, samples
from largen.errors import InvalidInput
from largen.kernels.checks import check_network
from largen.kernels.masked import Masked, masked
from largen.kernels.tiles import takes_whole_batches
from largen.programs import program_of
from largen.text import shown


def inputs_of_blocks(
    net: Any, param: Any, x1: Any, x2: Any, mask1: Any, mask2: Any
) -> tuple[Masked, Masked | None]:
    """Return both sets of samples with their masks; None for a second set that is the first."""
    check_network(net, param)
    if takes_whole_batches(program_of(net)):
        raise InvalidInput(
            f"net: {net!r} has attention whose heads are drawn for all samples together; blocks "
            "would have different ones. Use lg.kernel."
        )
    if is_traced(x1, x2):
        raise InvalidInput("x1: is traced; blocks are computed outside of jit and grad.")
    first = np.asarray(samples("x1", x1))
    second = None if x2 is None else np.asarray(floating("x2", x2, ndim=first.ndim))
    if second is not None and second.shape[1:] != first.shape[1:]:
        raise InvalidInput(f"x2: wanted samples like x1's {first.shape}, got {shown(second)}.")
    for name, mask in (("mask1", mask1), ("mask2", mask2)):
        if mask is not None and first.ndim == 2:
            raise InvalidInput(
                f"{name}: its samples, of shape {first.shape[1:]}, have no positions."
            )
    one, two = masked("mask1", mask1, first), masked("mask2", mask2, second)
    return one, None if second is None else two
