"""PyTorch state of the whole process, which one thread may use at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import torch

from largen.errors import InvalidInput
from largen.text import shown

# Reentrant lock, held while either is in use.
ALONE = RLock()


def check_device(device: Any) -> None:
    """Raise if PyTorch has no such device."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, TypeError, AssertionError, ValueError) as error:
        why = str(error).partition("\n")[0][:200]
        raise InvalidInput(
            f"device: wanted one of PyTorch's, got {shown(device)}: {why}."
        ) from None


@contextmanager
def fixed_seed(seed: int, *, gpus: bool = False) -> Iterator[None]:
    """Seed PyTorch's random state, and restore the state, of accelerators if ``gpus``, at exit.

    Other threads wait to enter; threads that draw outside change the numbers drawn here.
    """
    with ALONE, torch.random.fork_rng(None if gpus else []):
        torch.manual_seed(seed)
        yield
