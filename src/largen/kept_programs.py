"""Compiled programs in a folder, where the next process finds them."""

from __future__ import annotations

import hashlib
import os
import platform
from os import PathLike
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from largen.files import as_path, make_folder

_CPU = Path("/proc/cpuinfo")


def keep_programs(folder: str | PathLike[str] | None = None) -> Path:
    """Keep the programs that this process compiles, and use those that earlier ones kept.

    The first call of a kind compiles a program of XLA, which takes seconds and is most of the time
    of a small computation. Importing largen configures nothing of JAX; this function does, for the
    process: it switches JAX's persistent cache on, for programs of any size.

    Parameters
    ----------
    folder
        Where programs are kept, ``~/.cache/largen`` by default (``$XDG_CACHE_HOME/largen`` if that
        variable is set). It is made if necessary, has a part for each kind of processor, since
        programs of one may not run on another, and may be deleted at any time.

    Returns
    -------
    Path
        The folder with the programs of this kind of processor.

    Raises
    ------
    InvalidInput
        If the folder cannot be made.

    Examples
    --------
    >>> import jax, largen as lg, tempfile
    >>> before = jax.config.jax_compilation_cache_dir
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = lg.keep_programs(folder)
    ...     jax.config.update("jax_compilation_cache_dir", before)  # as it was
    >>> str(kept).startswith(folder)
    True
    """
    if folder is None:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "largen"
    kept = make_folder("folder", as_path("folder", folder).absolute() / _processor())
    jax.config.update("jax_compilation_cache_dir", str(kept))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    compilation_cache.reset_cache()  # a process that has compiled does not ask for the folder again
    return kept


def _processor() -> str:
    """Return a name of the instructions that this processor has, which JAX's keys leave out."""
    lines = _CPU.read_text().splitlines() if _CPU.exists() else []
    features = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    what = f"{platform.machine()} {features or platform.processor()}"
    return f"{platform.machine()}-{hashlib.sha256(what.encode()).hexdigest()[:8]}"
