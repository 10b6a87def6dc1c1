"""Digests of the parts of a run, which identify it in saved files."""

from __future__ import annotations

import hashlib
import re

import jax
import numpy as np

from largen.architectures import fingerprint, of_any_depth
from largen.parameterizations import Optimizer, Parameterization
from largen.runs.run import Run

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of a function, in its repr


def identity_of(run: Run) -> dict[str, str]:
    """Return a digest of each part of a run; digests are equal if and only if the parts are.

    Digests of arrays depend on their values alone, not on their precision; those of networks and
    losses on the functions that they compute.
    """
    data = run.data
    arrays = {
        name: np.asarray(getattr(data, name), np.float64)
        for name in ("x_train", "y_train", "x_test", "y_test")
    }
    # Values in single precision have the same digits whatever the precision of the caller.
    with jax.enable_x64(False), np.errstate(over="ignore"):
        words = {
            "net": fingerprint(run.net),
            "net of any depth": fingerprint(of_any_depth(run.net)),
            "parameterization": _as_saved(run.param),
            "optimizer": _of_optimizer(run.optimizer),
            "loss": run.loss.fingerprint(data.y_train, run.output_shape),
        }
    parts = {name: ADDRESS.sub("", text).encode() for name, text in words.items()}
    for name, array in (arrays | {"times": run.times}).items():
        # −0.0 equals 0.0 but has other bits.
        parts[name] = f"{array.shape}".encode() + np.ascontiguousarray(array + 0.0).tobytes()
    return {name: hashlib.sha256(part).hexdigest()[:16] for name, part in parts.items()}


def _of_optimizer(optimizer: Optimizer) -> str:
    """Return the repr of an optimizer; one of the user's own may have the name of another."""
    module = type(optimizer).__module__
    known = module.partition(".")[0] == __name__.partition(".")[0]
    return repr(optimizer) if known else f"{module}.{optimizer!r}"


def _as_saved(param: Parameterization) -> str:
    """Return the repr of a parameterization with fields named as in files that exist."""
    text = repr(param)
    for name, saved in Parameterization.saved_names.items():
        text = text.replace(f", {name}=", f", {saved}=")
    return text
