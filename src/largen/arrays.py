"""How arrays cross the border of the library: checks at the door, and one precision inside.

Importing largen leaves JAX's global configuration alone, in which 64-bit floats are off. NumPy
float64 in must nevertheless give float64 out, so every door computes inside :func:`precision`,
which switches 64-bit floats on for the block when its inputs have them, and hands its results
back through :func:`like`: NumPy for NumPy, JAX for JAX.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np

from largen.errors import InvalidInput


def is_traced(*trees: Any) -> bool:
    """Whether any array is a tracer, inside ``jit``, ``grad`` or ``vmap`` of the user's own."""
    for leaf in jax.tree.leaves(trees):
        if isinstance(leaf, jax.Array):
            try:
                leaf.devices()
            except jax.errors.ConcretizationTypeError:
                return True
    return False


def needs_x64(*trees: Any) -> bool:
    """Whether any array holds 64-bit floats."""
    return any(
        np.dtype(getattr(x, "dtype", np.float32)) == np.float64 for x in jax.tree.leaves(trees)
    )


def precision(*trees: Any) -> AbstractContextManager:
    """Return a context in which JAX computes in the precision of these arrays.

    Traced arrays already live in the precision of whoever traces them: nothing is switched.
    """
    if is_traced(*trees) or not needs_x64(*trees):
        return nullcontext()
    return jax.enable_x64(True)


def like(result: Any, *inputs: Any) -> Any:
    """Return a tree of arrays as NumPy, unless one of the inputs was a JAX array."""
    if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(inputs)):
        return result
    return jax.tree.map(np.asarray, result)


def floating(name: str, array: Any, ndim: int | tuple[int, ...] | None = None) -> Any:
    """Check an argument at the door: a finite array of floats of the right number of axes.

    Lists become float64 arrays; arrays keep their dtype. Traced arrays pass with their shape
    checked, since their values are not there yet.

    Raises
    ------
    InvalidInput
        For a wrong number of axes, an empty axis, NaN or infinity, and for integers or Booleans:
        pixels of 0..255 are almost never meant as they stand.
    """
    if not isinstance(array, (np.ndarray, jax.Array)):
        try:
            array = np.asarray(array, dtype=np.float64)
        except (TypeError, ValueError):
            raise InvalidInput(
                f"{name}: wanted an array of floats, got {type(array).__name__}."
            ) from None
    if not np.issubdtype(array.dtype, np.floating):
        raise InvalidInput(
            f"{name}: wanted floats, got dtype {array.dtype}. Convert it where you know its "
            f"scale, e.g. `{name}.astype(float) / 255` for pixels."
        )
    allowed = (ndim,) if isinstance(ndim, int) else ndim
    if allowed is not None and array.ndim not in allowed:
        wanted = " or ".join(map(str, allowed))
        hint = f" For a single row, pass {name}[None, :]." if array.ndim == 1 else ""
        raise InvalidInput(f"{name}: wanted {wanted} axes, got shape {array.shape}.{hint}")
    if array.size == 0:
        raise InvalidInput(f"{name}: is empty, its shape is {array.shape}.")
    if not is_traced(array) and not np.isfinite(array).all():
        bad = int(np.size(array) - np.isfinite(array).sum())
        raise InvalidInput(
            f"{name}: {bad} of {array.size} entries are NaN or infinite; drop or impute them."
        )
    return array


def samples(name: str, array: Any) -> Any:
    """Check samples at the door: floats, ``(sample, input)`` or ``(sample, *space, channel)``.

    Raises
    ------
    InvalidInput
        As :func:`floating` does.
    """
    array = floating(name, array)
    if array.ndim < 2:
        hint = f" For a single sample, pass {name}[None, :]." if array.ndim == 1 else ""
        raise InvalidInput(
            f"{name}: wanted samples, (sample, input) or (sample, *space, channel), got shape "
            f"{array.shape}.{hint}"
        )
    return array


def shape_of(samples: Any) -> int | tuple[int, ...]:
    """Return the shape of a sample: D, or (*space, channels)."""
    return samples.shape[1] if samples.ndim == 2 else samples.shape[1:]


def in_words(shape: int | tuple[int, ...]) -> str:
    """Return the shape of a sample in words."""
    return f"shape {shape}" if isinstance(shape, tuple) else f"{shape} inputs"


def random_key(key: Any) -> jax.Array:
    """Return a JAX random key from a key or from an integer seed."""
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        return jax.random.key(int(key))
    if isinstance(key, jax.Array):
        if jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key):
            if key.ndim == 0:
                return key
        elif key.shape == (2,) and key.dtype == np.uint32:
            return jax.random.wrap_key_data(key)
    raise InvalidInput(f"key: wanted jax.random.key(seed) or an integer seed, got {key!r}.")


def integer(name: str, value: Any, at_least: int) -> int:
    """Check a count at the door."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < at_least:
        raise InvalidInput(f"{name}: wanted an integer ≥ {at_least}, got {value!r}.")
    return int(value)


def flag(name: str, value: Any) -> bool:
    """Check a choice of yes or no at the door."""
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidInput(f"{name}: wanted True or False, got {value!r}.")
    return bool(value)


def sample_shape(name: str, value: Any) -> int | tuple[int, ...]:
    """Check the shape of a sample at the door: D, or (*space, channels)."""
    if not isinstance(value, tuple):
        return integer(name, value, at_least=1)
    if not value:
        raise InvalidInput(f"{name}: wanted a number or (*space, channels), got ().")
    *space, channels = (integer(name, entry, at_least=1) for entry in value)
    return (*space, channels) if space else channels


def real(
    name: str, value: Any, *, above: float | None = None, at_least: float | None = None
) -> float:
    """Check a finite number at the door, with an open or a closed lower bound."""
    bound = f" > {above:g}" if above is not None else ""
    bound += f" ≥ {at_least:g}" if at_least is not None else ""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name}: wanted a number{bound}, got {value!r}.") from None
    if (
        not np.isfinite(number)
        or (above is not None and number <= above)
        or (at_least is not None and number < at_least)
    ):
        raise InvalidInput(f"{name}: wanted a finite number{bound}, got {value!r}.")
    return number
