"""Double precision for what a forward pass makes itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from largen.transfer.torch.process import ALONE


@contextmanager
def doubles() -> Iterator[None]:
    """Make new tensors in double precision, as the parameters of the module that is run."""
    with ALONE:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)
