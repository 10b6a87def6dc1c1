"""Double precision for what a forward pass makes itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from largen.transfer.torch.process import ALONE


class _Doubles(TorchFunctionMode):
    """A mode in which a forward pass that asks for single precision gets double."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call with double precision in the place of single."""
        func = Tensor.double if func is Tensor.float else func
        args = tuple(_doubled(each) for each in args)
        return func(*args, **{key: _doubled(each) for key, each in (kwargs or {}).items()})


def _doubled(argument: Any) -> Any:
    return torch.float64 if argument is torch.float32 else argument


@contextmanager
def doubles() -> Iterator[None]:
    """Make tensors in double precision, as the parameters of the module that is run.

    Models call ``float()`` on token ids or in norms, which would mix both.
    """
    with ALONE:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with _Doubles():
                yield
        finally:
            torch.set_default_dtype(before)
