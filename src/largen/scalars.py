"""Checks of arguments that are numbers, choices, lists or random keys."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from operator import index
from typing import Any

import jax
import numpy as np

from largen.arrays import known
from largen.errors import InvalidInput
from largen.text import shown

SMALLEST, LARGEST = 1e-150, 1e150  # their squares are representable in float64
MOST_COUNTED = 2**31 - 1  # JAX counts with 32 bits
LARGEST_SEED = 2**63 - 1


def random_key(key: Any) -> jax.Array:
    """Return a JAX random key from a key or from an integer seed of up to 63 bits."""
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        if not -LARGEST_SEED <= key <= LARGEST_SEED:
            raise InvalidInput(f"key: wanted a seed below 2**63, got {shown(int(key))}.")
        with jax.enable_x64(True):  # otherwise only 32 bits of the seed would be used
            return jax.random.key(int(key))
    if isinstance(key, jax.Array):
        if jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key):
            if key.ndim == 0:
                return key
        elif key.shape == (2,) and key.dtype == np.uint32:
            return jax.random.wrap_key_data(key)
    raise InvalidInput(f"key: wanted jax.random.key(seed) or an integer seed, got {shown(key)}.")


def numpy_generator(key: Any) -> np.random.Generator:
    """Return NumPy's generator that a key or an integer seed stands for."""
    return np.random.default_rng(np.asarray(jax.random.key_data(random_key(key))).ravel())


def integer(name: str, value: Any, at_least: int, at_most: int = MOST_COUNTED) -> int:
    """Check that an argument of a public function is an integer in a range."""
    known(name, value)
    try:
        count = None if isinstance(value, bool) else index(value)
    except TypeError:
        count = None
    if count is None or count < at_least:
        raise InvalidInput(f"{name}: wanted an integer ≥ {at_least}, got {shown(value)}.")
    if count > at_most:
        raise InvalidInput(f"{name}: wanted an integer ≤ {at_most}, got {shown(value)}.")
    return count


def integers(name: str, values: Any, at_least: int, at_most: int = MOST_COUNTED) -> list[int]:
    """Check that an argument of a public function is a sequence of integers in a range."""
    entries = sequence(name, values, f"a list of integers ≥ {at_least}")
    return [integer(name, entry, at_least, at_most) for entry in entries]


def sequence(name: str, values: Any, wanted: str) -> list[Any]:
    """Return the entries of an argument that is a list, tuple, range or array."""
    known(name, values)
    arraylike = isinstance(values, (np.ndarray, jax.Array))
    if (arraylike and values.ndim) or (
        isinstance(values, Sequence) and not isinstance(values, (str, bytes, bytearray))
    ):
        return list(values)
    raise InvalidInput(f"{name}: wanted {wanted}, got {shown(values)}.")


def flag(name: str, value: Any) -> bool:
    """Check that an argument of a public function is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidInput(f"{name}: wanted True or False, got {shown(value)}.")
    return bool(value)


def sample_shape(name: str, value: Any) -> int | tuple[int, ...]:
    """Check that an argument is the shape of a sample: D, or (*space, channels)."""
    if not isinstance(value, tuple):
        return integer(name, value, at_least=1)
    if not value:
        raise InvalidInput(f"{name}: wanted a number or (*space, channels), got ().")
    *space, channels = (integer(name, entry, at_least=1) for entry in value)
    return (*space, channels) if space else channels


def _is_real(value: Any) -> bool:
    """Whether a value is a real number, or an array of one."""
    if not isinstance(value, (np.ndarray, jax.Array)):
        return isinstance(value, Real) and not isinstance(value, bool)
    real = (np.floating, np.integer)
    return value.ndim == 0 and any(jax.numpy.issubdtype(value.dtype, kind) for kind in real)


def real(
    name: str, value: Any, *, above: float | None = None, at_least: float | None = None
) -> float:
    """Check that an argument is a real number, with an open or a closed lower bound.

    Its square must be representable in float64 as well: the absolute values of numbers other than 0
    must lie between :data:`SMALLEST` and :data:`LARGEST`.
    """
    known(name, value)
    bound = f" > {above:g}" if above is not None else ""
    bound += f" ≥ {at_least:g}" if at_least is not None else ""
    if not _is_real(value):
        raise InvalidInput(f"{name}: wanted a number{bound}, got {shown(value)}.")
    try:
        number = float(value)
    except OverflowError:
        number = np.inf
    below = (above is not None and number <= above) or (at_least is not None and number < at_least)
    if below or not np.isfinite(number):
        raise InvalidInput(f"{name}: wanted a finite number{bound}, got {shown(value)}.")
    if value != 0 and not SMALLEST <= abs(number) <= LARGEST:
        raise InvalidInput(
            f"{name}: wanted 0 or a size between {SMALLEST:g} and {LARGEST:g}, whose square is a "
            f"floating-point number, got {shown(value)}."
        )
    return number
