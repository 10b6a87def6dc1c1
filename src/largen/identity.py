"""Digests that identify functions, models and settings in files across processes.

Names do not identify a function: two lambdas share one, and a function may be edited between two
runs. Values are therefore identified by their contents. A function is identified by its code, its
defaults, its closure and the globals that it reads; an object by its class and state; a class by
its methods and bases; an array by its bytes; an object of an installed package by its name there
and the package's version. Objects without such contents (an open file, a lock) are refused.

Objects that code looks up by a name made at run time (``getattr(module, text)``, ``eval``) do not
enter the digest.
"""

from __future__ import annotations

import enum
import hashlib
import importlib.metadata
import sys
import sysconfig
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import WRAPPER_ASSIGNMENTS, cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from largen.callables import globals_read
from largen.errors import InvalidInput

# Dependencies of largen, in which a name is taken to have the same meaning in every version.
FOUNDATIONS = frozenset(
    {"largen", "numpy", "scipy", "jax", "jaxlib", "torch", "equinox", "optax", "sklearn"}
)


class Unknown(Exception):
    """A value has no contents that distinguish it from others of its type."""


def identity(name: str, value: Any, instead: str) -> str:
    """Return a digest of a value's contents, the same in every process.

    Parameters
    ----------
    name
        Name of the argument, for errors.
    value
        Numbers, texts, arrays, containers of them, functions, classes, modules and objects.
    instead
        Advice for values that cannot be identified, as a sentence without a full stop.

    Raises
    ------
    InvalidInput
        If some part of the value cannot be distinguished from others of its type.

    Examples
    --------
    >>> same = [identity("f", lambda x: c * x, "name it") for c in (1.0, 1.0, 2.0)]
    >>> same[0] == same[1], same[0] == same[2]
    (True, False)
    """
    try:
        return _Digest().of(value)
    except Unknown as error:
        raise InvalidInput(f"{name}: {error}. {instead}.") from None
    except RecursionError:
        raise InvalidInput(f"{name}: it is nested too deeply for a digest. {instead}.") from None


class _Digest:
    """Digests of values that may refer to one another in circles."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}  # by id, numbered in the order of traversal
        self._alive: list[Any] = []  # keeps values alive, so that ids stay unique
        self._path: list[str] = []

    def of(self, value: Any) -> str:
        """Return the digest of a value."""
        found = hashlib.sha256()
        for part in self._parts(value):
            found.update(part if isinstance(part, bytes) else part.encode())
            found.update(b"\0")
        return found.hexdigest()

    def _parts(self, value: Any) -> Iterator[str | bytes]:
        """Yield strings and bytes that together identify a value."""
        if value is None or value is Ellipsis or isinstance(value, (bool, int, str)):
            yield f"{type(value).__name__} {value!r}" if type(value) in PLAIN else repr(value)
            if type(value) not in PLAIN:
                yield self.of(type(value))
            return
        if isinstance(value, (float, complex)):
            yield f"{type(value).__name__} {value!r}"
            return
        if isinstance(value, (bytes, bytearray)):
            yield bytes(value)
            return
        if not isinstance(value, SHARED_OR_NOT):
            if id(value) in self._seen:
                yield f"again {self._seen[id(value)]}"
                return
            self._seen[id(value)] = len(self._seen)
            self._alive.append(value)
        yield from self._composite(value)

    def _composite(self, value: Any) -> Iterator[str | bytes]:
        array = _array(value)
        if array is not None:
            yield f"array {array.shape} {array.dtype} {getattr(value, 'requires_grad', '')}"
            yield self.of(array.tolist()) if array.dtype.hasobject else array.tobytes()
        elif isinstance(value, (list, tuple)) and type(value) in PLAIN:
            yield type(value).__name__
            yield from (self._inside(f"[{i}]", part) for i, part in enumerate(value))
        elif isinstance(value, (set, frozenset)):
            # Each element is digested separately: the order of a set differs between processes.
            yield type(value).__name__
            yield from sorted(_Digest().of(part) for part in value)
        elif isinstance(value, (dict, types.MappingProxyType)) and _is_plain_mapping(value):
            yield "mapping"
            for key, part in value.items():
                yield self.of(key)
                yield self._inside(f"[{key!r}]", part)
        elif isinstance(value, types.ModuleType):
            yield from _module(value)
        elif isinstance(value, types.CodeType):
            yield from self._code(value)
        elif isinstance(value, (property, staticmethod, classmethod, cached_property)):
            yield type(value).__name__
            for attribute in ("fget", "fset", "fdel", "__func__", "func"):
                yield self.of(getattr(value, attribute, None))
        elif isinstance(value, weakref.ref):
            yield "weak reference"
            yield self.of(value())
        elif isinstance(value, enum.Enum):
            yield self.of(type(value))
            yield value.name
        elif _installed_name(value) is not None:
            yield f"name {_installed_name(value)}"
        elif isinstance(value, types.FunctionType):
            yield from self._function(value)
        elif isinstance(value, types.MethodType):
            yield "method"
            yield self.of(value.__func__)
            yield self._inside(".__self__", value.__self__)
        elif isinstance(value, partial):
            yield "partial"
            for part in (value.func, value.args, value.keywords):
                yield self.of(part)
        elif isinstance(value, types.BuiltinMethodType):
            yield f"builtin {value.__name__}"
            yield self._inside(".__self__", value.__self__)
        elif isinstance(value, type):
            yield from self._class(value)
        elif hasattr(value, "__wrapped__"):
            yield from self._wrapper(value)
        else:
            yield from self._object(value)

    def _inside(self, where: str, value: Any) -> str:
        self._path.append(where)
        found = self.of(value)
        self._path.pop()
        return found

    def _code(self, code: types.CodeType) -> Iterator[str | bytes]:
        yield code.co_code
        yield code.co_exceptiontable
        yield f"{code.co_argcount} {code.co_posonlyargcount} {code.co_kwonlyargcount}"
        yield f"{code.co_flags} {code.co_names} {code.co_varnames} {code.co_freevars}"
        yield from map(self.of, code.co_consts)

    def _function(self, function: types.FunctionType) -> Iterator[str | bytes]:
        yield "function"
        yield self.of(function.__code__)
        yield self.of(function.__defaults__)
        yield self.of(function.__kwdefaults__)
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            yield name
            try:
                held = cell.cell_contents
            except ValueError:
                yield "empty"
            else:
                yield self._inside(f"the outer variable {name!r}", held)
        for name, held in globals_read(function):
            yield name
            yield self._inside(f"the global {name!r}", held)

    def _class(self, kind: type) -> Iterator[str | bytes]:
        yield f"class {kind.__name__}"
        yield from map(self.of, kind.__bases__)
        if type(kind) is not type:
            yield self.of(type(kind))
        for name, held in vars(kind).items():
            # Methods such as __call__ count; __doc__ and other metadata of Python do not.
            noted = name.startswith("__") and not isinstance(held, METHODS)
            if not noted and name not in COMPUTED and not isinstance(held, DESCRIPTORS):
                yield name
                yield self._inside(f".{name}", held)

    def _wrapper(self, value: Any) -> Iterator[str | bytes]:
        """Yield the parts of a wrapper: the wrapped function and its other fields (axes, …)."""
        kind = type(value)
        yield "wrapper"
        yield self.of(kind)
        yield self._inside(".__wrapped__", getattr(value, "__wrapped__"))  # noqa: B009
        # Compiled or cached results of a function do not change its identity.
        if kind.__module__.partition(".")[0] not in COMPILED:
            for name, held in (_state(value) or {}).items():
                if name not in (*WRAPPER_ASSIGNMENTS, "__wrapped__"):
                    yield name
                    yield self._inside(f".{name}", held)

    def _object(self, value: Any) -> Iterator[str | bytes]:
        kind = type(value)
        yield "object"
        yield self.of(kind)
        if kind.__module__.partition(".")[0] in ("torch", "numpy", "jax", "jaxlib") and (
            kind.__name__ in ("dtype", "device", "ufunc") or isinstance(value, np.dtype)
        ):
            yield repr(value)
            return
        state = _state(value)
        if state is None:
            where = f"at {' → '.join(self._path)} " if self._path else ""
            raise Unknown(
                f"it holds {where}a {kind.__module__}.{kind.__qualname__}, whose instances cannot "
                "be told apart"
            )
        saved_names = getattr(kind, "saved_names", {}) if _is_ours(kind) else {}
        for name, held in state.items():
            if "_hooks" in name and isinstance(held, Mapping):  # keyed by order of registration
                held = list(held.values())
            yield saved_names.get(name, name)
            yield self._inside(f".{name}", held)


# Equal constants may be one object or several, depending on the compiler.
SHARED_OR_NOT = (tuple, frozenset, types.CodeType, np.generic)
PLAIN = (bool, int, str, type(None), type(Ellipsis), list, tuple)
METHODS = (types.FunctionType, staticmethod, classmethod)
COMPILED = ("functools", "jaxlib", "torch")
COMPUTED = {"_abc_impl", "__annotate__", "__annotate_func__"}
DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)
# Modules whose objects have a state outside of Python, or one that differs in every process.
UNTOLD = ("_io", "_thread", "threading", "socket", "sqlite3", "asyncio", "contextvars")


def _is_ours(kind: type) -> bool:
    """Return whether a class is part of largen; only its classes define ``saved_names``."""
    return kind.__module__.partition(".")[0] == "largen"


def _is_plain_mapping(value: Any) -> bool:
    return isinstance(value, types.MappingProxyType) or type(value).__module__ in (
        "builtins",
        "collections",
    )


def _array(value: Any) -> np.ndarray | None:
    """Return an array of NumPy, JAX or PyTorch as a NumPy array; None for any other value."""
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    if jax is not None and isinstance(value, jax.Array):
        if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
            return np.asarray(jax.random.key_data(value))
        return np.asarray(value)
    if torch is not None and isinstance(value, torch.Tensor) and not value.is_meta:
        plain = value.detach().cpu().contiguous()
        kept = plain.dtype is not torch.bfloat16
        return np.asarray(plain if kept else plain.view(torch.int16))
    return None


def _module(module: types.ModuleType) -> Iterator[str | bytes]:
    """Yield the source of a user's module, which identifies it."""
    package = _package(module.__name__)
    if package is not None:
        yield f"module {module.__name__} {package}"
        return
    yield f"module {module.__name__}"
    file = getattr(module, "__file__", None)
    if file is not None and Path(file).is_file():
        yield Path(file).read_bytes()


def _installed_name(value: Any) -> str | None:
    """Return the full name of an object of an installed package; None for any other."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if name is None and isinstance(value, np.ufunc):
        module, name = "numpy", value.__name__
    if isinstance(value, types.BuiltinFunctionType) and isinstance(
        value.__self__, types.ModuleType
    ):
        module = value.__self__.__name__
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    package = _package(module)
    if package is None:
        return None
    held: Any = sys.modules.get(module)
    for part in name.split("."):
        held = getattr(held, part, None)
    is_type = isinstance(value, (type, types.WrapperDescriptorType, types.MethodDescriptorType))
    return f"{module}.{name} {package}" if held is value or is_type else None


@cache
def _package(module: str) -> str | None:
    """Return an installed package's version, ``""`` if it does not matter; None if not installed.

    Modules in the same environment as Python's own are installed; others belong to the user.
    """
    top = module.partition(".")[0]
    if top == "__main__":
        return None
    if top in sys.stdlib_module_names or top in FOUNDATIONS:
        return ""
    loaded: Any = sys.modules.get(top)
    spec = getattr(loaded, "__spec__", None)
    file = getattr(loaded, "__file__", None) or getattr(spec, "origin", None)
    if file is None:
        return None
    installed = (sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    parents = Path(file).resolve().parents
    if not any(Path(folder).resolve() in parents for folder in installed):
        return None
    for distribution in importlib.metadata.packages_distributions().get(top, ()):
        return importlib.metadata.version(distribution)
    return str(getattr(loaded, "__version__", ""))


def _state(value: Any) -> dict[str, Any] | None:
    """Return an object's state; None if it is inaccessible."""
    kind = type(value)
    if kind.__module__.partition(".")[0] in UNTOLD or isinstance(value, types.GeneratorType):
        return None
    slots = [
        name
        for base in kind.__mro__
        for name in _names(base.__dict__.get("__slots__", ()))
        if name not in ("__dict__", "__weakref__") and hasattr(value, name)
    ]
    if hasattr(value, "__dict__") or slots:
        own = {name: getattr(value, name) for name in slots} | _attributes(value)
        # The state of a container's subclass includes its items.
        for container, read in CONTAINERS.items():
            if isinstance(value, container):
                own["items of the container"] = read(value)
        return own
    if isinstance(value, (dict, Mapping)):
        return {"items of the container": list(value.items())}
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:  # types that cannot be taken apart raise various errors
        return None
    if isinstance(reduced, str):
        return {"name": reduced}
    parts: dict[str, Any] = {"made by": reduced[0], "from": reduced[1]}
    for i, part in enumerate(reduced[2:]):
        parts[str(i)] = list(part) if isinstance(part, Iterator) else part
    return parts


def _attributes(value: Any) -> dict[str, Any]:
    """Return an object's attributes, except those computed from other attributes."""
    return {
        name: held
        for name, held in getattr(value, "__dict__", {}).items()
        if not isinstance(getattr(type(value), name, None), cached_property)
    }


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


CONTAINERS: dict[type, Callable[[Any], Any]] = {
    dict: lambda value: list(value.items()),
    list: list,
    tuple: tuple,
}
