"""What tells one run from another, by parts, after the programs that made them have ended."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import replace

import jax
import numpy as np

from largen.architectures import Layer, Repeat, depth, fingerprint, mapped
from largen.runs.run import Run

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of a function, in its repr


def identity_of(run: Run) -> dict[str, str]:
    """Return a digest of each part of a run, which are equal if the parts are.

    Arrays count by value, in whatever precision; networks and losses by what they do.
    """
    data = run.data
    arrays = {
        name: np.asarray(getattr(data, name), np.float64)
        for name in ("x_train", "y_train", "x_test", "y_test")
    }
    # Digits of values in single precision: the same wherever this is called.
    with jax.enable_x64(False), np.errstate(over="ignore"):
        words = {
            "net": fingerprint(run.net),
            "net of any depth": fingerprint(mapped(run.net, _endless)),
            "parameterization": repr(run.param),
            "optimizer": repr(run.optimizer),
            "loss": run.loss.fingerprint(data.y_train, run.output_shape),
        }
    parts = {name: ADDRESS.sub("", text).encode() for name, text in words.items()}
    for name, array in (arrays | {"times": run.times}).items():
        # −0.0 is 0.0 by value, and other bits.
        parts[name] = f"{array.shape}".encode() + np.ascontiguousarray(array + 0.0).tobytes()
    return {name: hashlib.sha256(part).hexdigest()[:16] for name, part in parts.items()}


def _endless(layer: Layer, path: tuple[int, ...]) -> Layer:
    """Return infinitely many residual blocks for a number of them."""
    if isinstance(layer, Repeat) and depth(layer) > 0:
        return replace(layer, times=math.inf)
    return layer
