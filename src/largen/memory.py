"""Memory that is freed, but that the C library keeps."""

import ctypes
import sys


def give_back() -> None:
    """Hand freed memory back to the system, where the C library can; elsewhere do nothing.

    XLA's compiler works in several threads, for each of which glibc keeps what it frees: 80 MB
    after the kernel of a few layers, beside results that may take as much.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
