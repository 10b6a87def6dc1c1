"""Checks of array arguments, and the precision of results.

Every public function and estimator takes the same data. float32 and float64 keep their precision.
Integers, Booleans, half precision, lists, arrays of Python numbers, frames and series of pandas
(nullable ones as well) and what else NumPy reads become float64, or in arrays of JAX its default
precision. PyTorch tensors are read without their gradients: these would end at NumPy in any case,
and since results are not tensors, they are not mistaken for differentiable ones. Refused by name
are missing values, NaN and infinity, complex numbers, text and dates, sparse matrices, masked
arrays, more than 64 bits a number, and ragged lists. ``docs/start.md`` tells users the same.

Importing largen does not change JAX's global configuration, in which 64-bit floats are off. NumPy
float64 inputs must nevertheless give float64 results. Every public function therefore computes
inside :func:`precision`, which enables 64-bit floats if an input has them, and returns its results
through :func:`like`: NumPy arrays for NumPy inputs, JAX arrays for JAX inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import jax
import numpy as np

from largen.errors import InvalidInput, NumericalFailure
from largen.text import shown


def is_traced(*trees: Any) -> bool:
    """Whether any array is a tracer, inside a ``jit``, ``grad`` or ``vmap`` of the caller."""
    for leaf in jax.tree.leaves(trees):
        if isinstance(leaf, jax.Array):
            try:
                leaf.devices()
            except jax.errors.ConcretizationTypeError:
                return True
    return False


def _inside_jit() -> bool:
    """Whether a ``jit`` of the caller records operations, even those of known arrays."""
    return is_traced(jax.lax.neg(np.float32(0)))


def at_once() -> AbstractContextManager[None]:
    """Compute with known arrays now, even where a ``jit`` of the caller records operations."""
    return jax.ensure_compile_time_eval() if _inside_jit() else nullcontext()


def needs_x64(*trees: Any) -> bool:
    """Whether any array holds 64-bit floats."""
    return any(
        np.dtype(getattr(x, "dtype", np.float32)) == np.float64 for x in jax.tree.leaves(trees)
    )


def precision(*trees: Any) -> AbstractContextManager:
    """Return a context in which JAX computes in the precision of these arrays.

    For traced arrays, and inside a ``jit`` of the caller, the context changes nothing: the trace
    has fixed the precision.
    """
    if is_traced(*trees) or not needs_x64(*trees) or _inside_jit():
        return nullcontext()
    return jax.enable_x64(True)


def same_precision(trees: Any) -> Any:
    """Return a tree with all arrays of floats as JAX arrays of one precision, the highest of them.

    Inside :func:`precision`, so that all results have it, too: a derivative by a float32 parameter
    is rounded to float32 whatever the samples are.
    """
    leaves, form = jax.tree.flatten(trees)
    typed = [jax.numpy.issubdtype(getattr(leaf, "dtype", int), np.floating) for leaf in leaves]
    dtype = jax.numpy.result_type(*(leaf for leaf, it in zip(leaves, typed, strict=True) if it))

    def cast(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array):
            return leaf.astype(dtype)
        return jax.device_put(np.asarray(leaf, dtype))  # jnp.asarray would compile

    return form.unflatten(
        [cast(leaf) if it else leaf for leaf, it in zip(leaves, typed, strict=True)]
    )


def like(result: Any, *inputs: Any) -> Any:
    """Return a tree of arrays as NumPy, unless one of the inputs was a JAX array.

    A result that a ``jit`` of the caller traces, from NumPy inputs, is returned unchanged.
    """
    if is_traced(result):
        return result
    if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(inputs)):
        return result
    return jax.tree.map(np.asarray, result)


def known(name: str, value: Any) -> None:
    """Check that an argument of a public function has a concrete value and is not a tracer."""
    if is_traced(value):
        raise InvalidInput(
            f"{name}: wanted a value that is known, got one traced by jax.jit, jax.grad or "
            "jax.vmap. Call this outside of them."
        )


def as_array(name: str, value: Any) -> Any:
    """Return numbers as a NumPy array in native byte order; a JAX array is returned unchanged.

    An array that is one already is returned as another object with the same memory: JAX 0.10 takes
    an array that a program of the user's has captured in single precision for one of single
    precision from then on, wherever it is given that object.

    ``value``: an array, or nested sequences of numbers; a tracer is returned unchanged, and lists
    with tracers as the array that they make.
    """
    if isinstance(value, list | tuple) and is_traced(value):
        value = jax.numpy.asarray(value)
    if isinstance(value, jax.Array):
        return _of_numbers(name, value)
    try:
        known(name, value)
        array = np.asarray(opened(name, value))
        if array.dtype == object:
            array = _of_objects(name, array)
    except InvalidInput:
        raise
    except (TypeError, ValueError, OverflowError, RuntimeError):
        rows = isinstance(value, Sequence) and any(isinstance(row, Sequence) for row in value)
        wanted = "rows of one length" if rows else "an array of numbers"
        raise InvalidInput(
            f"{name}: wanted {wanted}, got {shown(value)}, of type {type(value).__name__}."
        ) from None
    array = _of_numbers(name, array).view()
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def opened(name: str, value: Any) -> Any:
    """Return a value for NumPy to read, with tensors in it as arrays; refuse what would be lost."""
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidInput(
            f"{name}: is or holds a masked array, whose mask would be lost. Fill or drop what is "
            f"masked, e.g. {name}.filled(0.0)."
        )
    if isinstance(value, (list, tuple)):
        return [opened(name, entry) for entry in value]
    if hasattr(value, "detach") and hasattr(value, "numpy"):  # a tensor of PyTorch
        if str(value.layout) != "torch.strided":
            raise InvalidInput(f"{name}: is a sparse tensor; give {name}.to_dense().")
        if value.is_floating_point() and value.element_size() < 4:
            value = value.double()  # NumPy has no bfloat16
        return value.numpy(force=True)  # force: without gradients, in the memory of the CPU
    if hasattr(value, "toarray") and hasattr(value, "nnz"):
        raise InvalidInput(
            f"{name}: is a sparse matrix; give {name}.toarray(), or in a pipeline, for example, "
            "OneHotEncoder(sparse_output=False)."
        )
    return value


def _of_objects(name: str, array: np.ndarray) -> np.ndarray:
    """Return an array of Python numbers, such as a frame of several types, as numbers."""
    for place, entry in np.ndenumerate(array):
        if isinstance(entry, (Real, Decimal, np.bool_)):
            continue
        where = f"the entry at {', '.join(map(str, place))}" if place else "it"
        if entry is None or type(entry).__name__ in ("NAType", "NaTType"):
            raise InvalidInput(
                f"{name}: wanted an array of numbers, and {where} is missing ({entry}); drop or "
                "impute what is missing."
            )
        try:
            float(entry)
            cause = None
        except Exception as error:
            cause = error
        hint = ""
        if isinstance(entry, str):
            convert = f"Convert it, e.g. {name}.astype(float)."
            encode = "Encode categories, e.g. by sklearn.preprocessing.OneHotEncoder."
            hint = f" {encode if cause else convert}"
        raise InvalidInput(
            f"{name}: wanted an array of numbers, and {where} is {shown(entry)}, of type "
            f"{type(entry).__name__}.{hint}"
        ) from cause
    if array.size and all(isinstance(entry, (bool, np.bool_)) for entry in array.flat):
        return array.astype(bool)
    whole = all(isinstance(entry, (Integral, np.bool_)) for entry in array.flat)
    new = array.astype(np.int64 if whole else np.float64)
    if any(isinstance(entry, int) and abs(entry) > 2**53 for entry in array.flat):
        raise OverflowError  # float64 has gaps between such integers
    return new


def _of_numbers(name: str, array: Any) -> Any:
    if array.dtype.type in (np.longdouble, np.clongdouble):
        raise InvalidInput(
            f"{name}: wanted a dtype of at most 64 bits, got {array.dtype}. Round it, e.g. "
            f"{name}.astype(np.float64)."
        )
    numbers = jax.numpy.issubdtype(array.dtype, np.number) and array.dtype.kind != "m"
    if not (numbers or array.dtype == bool):
        hint = f" Convert it, e.g. {name}.astype(float)." if array.dtype.kind in "US" else ""
        raise InvalidInput(f"{name}: wanted an array of numbers, got dtype {array.dtype}.{hint}")
    return array


def floating(
    name: str, value: Any, ndim: int | tuple[int, ...] | None = None, *, no_rows: bool = False
) -> Any:
    """Return finite floats in the right number of axes, converted as the module's notes say.

    ``no_rows``: whether the first axis may have the length 0, as the last batch of a loop may.
    Of traced arrays only the shape and dtype are checked, since their values are unknown.
    """
    array = as_floats(name, as_array(name, value))
    allowed = (ndim,) if isinstance(ndim, int) else ndim
    if allowed is not None and array.ndim not in allowed:
        wanted = " or ".join(map(str, allowed))
        hint = f" For a single row, pass {name}[None, :]." if array.ndim == 1 else ""
        raise InvalidInput(f"{name}: wanted {wanted} axes, got shape {array.shape}.{hint}")
    if array.size == 0 and not (no_rows and array.ndim > 1 and all(array.shape[1:])):
        raise InvalidInput(f"{name}: is empty, its shape is {array.shape}.")
    if not is_traced(array) and not np.isfinite(array).all():
        bad = int(np.size(array) - np.isfinite(array).sum())
        raise InvalidInput(
            f"{name}: {bad} of {array.size} entries are NaN or infinite; drop or impute them."
        )
    return array


def as_floats(name: str, array: Any) -> Any:
    """Return an array as float32 or float64 if it is one of them, and otherwise as float64.

    Arrays of JAX become JAX's default precision instead, as they do in JAX itself.
    """
    if array.dtype in (np.float32, np.float64):
        return array
    if jax.numpy.issubdtype(array.dtype, np.complexfloating):
        raise InvalidInput(f"{name}: wanted floats, got dtype {array.dtype}.")
    if array.dtype == bool and array.ndim == 0:
        raise InvalidInput(f"{name}: wanted a number, got {bool(array)}.")
    if not isinstance(array, jax.Array):
        return convert(name, array, np.float64)
    default = jax.numpy.result_type(float)
    if not is_traced(array) and jax.numpy.issubdtype(array.dtype, np.integer):
        convert(name, array, default)
    return array.astype(default)


def convert(name: str, array: Any, dtype: Any) -> np.ndarray:
    """Return a new NumPy array of another type that holds the same numbers.

    Floats may be rounded, unless all nonzero ones become zero; integers must be representable
    exactly. The result shares no memory with the input.
    """
    array, dtype = np.asarray(array), np.dtype(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        new = np.array(array, dtype)
    if array.dtype.kind == "f":
        lost = ~np.isfinite(new) & np.isfinite(array)
        lost |= (array != 0) & ~new.any()  # e.g. targets of 1e-60 in 32 bits
    else:
        lost = _rounded(array, dtype)
    if lost.any():
        raise InvalidInput(
            f"{name}: {lost.sum()} of {array.size} numbers, such as {array[lost][0]}, cannot be "
            f"represented in {dtype}. Scale them, or give arrays of float64 throughout."
        )
    return new


def _rounded(integers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return which integers lie outside the range that a type represents without gaps."""
    if dtype.kind == "f":
        most = 2 ** (np.finfo(dtype).nmant + 1)
        return (integers > most) | (integers < -most)
    limits = np.iinfo(dtype)
    return (integers > limits.max) | (integers < limits.min)


def numbers(name: str, value: Any) -> np.ndarray:
    """Return finite numbers as a NumPy array of float64, of any shape."""
    known(name, value)
    array = np.asarray(as_floats(name, np.asarray(as_array(name, value))), np.float64)
    if not np.isfinite(array).all():
        bad = int(array.size - np.isfinite(array).sum())
        raise InvalidInput(f"{name}: {bad} of {array.size} numbers are NaN or infinite.")
    return array


def booleans(name: str, value: Any) -> np.ndarray:
    """Return Booleans as a NumPy array."""
    known(name, value)
    array = as_array(name, value)
    if array.dtype != bool:
        raise InvalidInput(f"{name}: wanted Booleans, got dtype {array.dtype}.")
    return np.asarray(array)


def finite_result(name: str, result: Any) -> Any:
    """Return a tree of results after checking that all concrete numbers in it are finite."""
    if not is_traced(result) and not all(np.isfinite(x).all() for x in jax.tree.leaves(result)):
        raise NumericalFailure(
            f"{name}: the result is not finite. Something overflows, or is not defined, for these "
            "parameters and samples: scale them down, or take float64.",
            result,
        )
    return result


def tree_of_floats(name: str, tree: Any) -> Any:
    """Return a tree of arrays, such as parameters, each checked by :func:`floating`.

    Messages name the leaf: ``params['read_in']['weight']``.
    """
    leaves, checked = jax.tree.leaves_with_path(tree), []
    if not leaves:
        raise InvalidInput(f"{name}: wanted a tree of arrays, got {shown(tree)}.")
    for path, leaf in leaves:
        of_leaf = leaf_name(name, path)
        # An array of integers in a tree counts something: it is not a parameter.
        dtype = getattr(leaf, "dtype", np.dtype(float))
        if jax.numpy.issubdtype(dtype, np.integer) or jax.numpy.issubdtype(dtype, np.bool_):
            raise InvalidInput(f"{of_leaf}: wanted floats, got an array of dtype {dtype}.")
        checked.append(floating(of_leaf, leaf))
    return jax.tree.structure(tree).unflatten(checked)


def leaf_name(name: str, path: Any) -> str:
    """Return the name of a leaf of a tree that is an argument."""
    return f"{name}{jax.tree_util.keystr(path)}"


def check_same_tree(name: str, tree: Any, wanted: Any) -> None:
    """Check that a tree has the form of another one, and name a leaf that is missing or extra."""
    if jax.tree.structure(tree) == jax.tree.structure(wanted):
        return
    here, there = (
        [leaf_name(name, path) for path, _ in jax.tree.leaves_with_path(each)]
        for each in (tree, wanted)
    )
    lacking = [leaf for leaf in there if leaf not in here]
    extra = [leaf for leaf in here if leaf not in there]
    found = f"{jax.tree.structure(tree)}"
    if lacking:
        found = f"no {lacking[0]}"
    elif extra:
        found = f"{extra[0]} as well"
    form = jax.tree.structure(wanted)
    raise InvalidInput(f"{name}: wanted a tree of the form {form}, got {found}.")


def samples(name: str, array: Any, *, no_rows: bool = False) -> Any:
    """Check samples: floats, ``(sample, input)`` or ``(sample, *space, channel)``."""
    array = floating(name, array, no_rows=no_rows)
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
