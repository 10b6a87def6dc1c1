"""What belongs to the whole process in PyTorch, used by one thread at a time.

The random state from which models are initialised is one for all threads, and so are the methods
that symbolic tracing replaces while it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import torch

from largen.errors import InvalidInput
from largen.text import shown

# Held while either is in use; by the same thread as often as it likes.
ALONE = RLock()


def check_device(device: Any) -> None:
    """Raise if PyTorch has no such device.

    Raises
    ------
    InvalidInput
        With what PyTorch says of it.
    """
    try:
        torch.empty(0, device=device)
    except (RuntimeError, TypeError, AssertionError, ValueError) as error:
        why = str(error).partition("\n")[0][:200]
        raise InvalidInput(
            f"device: wanted one of PyTorch's, got {shown(device)}: {why}."
        ) from None


@contextmanager
def seeded(seed: int, *, gpus: bool = False) -> Iterator[None]:
    """Seed PyTorch's random state, and restore it in the end.

    Other threads that want to seed it wait. Those that draw from it without (dropout, say) do
    not, and disturb what is drawn here.

    Parameters
    ----------
    seed
        The seed.
    gpus
        Whether to restore the states of accelerators, too.
    """
    with ALONE, torch.random.fork_rng(None if gpus else []):
        torch.manual_seed(seed)
        yield
