"""Digests that identify functions, models and settings in files, across processes and Pythons.

Names do not identify a function: two lambdas share one, and a function may be edited between two
runs. Values are therefore identified by their contents. A function is identified by its source
text, its defaults, and what it reads from outside: outer variables, globals, and attributes of
modules; a class by its bases, methods and attributes; an array by its bytes; any other object by
what pickle would save of it; what an installed package defines by its name there and the package's
version. What has no such contents (an open file, a lock, a function without source) is refused.

Objects that code looks up by a name made at run time (``getattr(module, text)``, ``eval``) do not
enter the digest.
"""

from __future__ import annotations

import copyreg
import enum
import hashlib
import importlib.metadata
import sys
import sysconfig
import types
import weakref
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from largen.callables import outer_variables, read_from_outside, source_of
from largen.errors import InvalidInput

# Dependencies of largen, in which a name is taken to have the same meaning in every version.
FOUNDATIONS = frozenset(
    {"largen", "numpy", "scipy", "jax", "jaxlib", "torch", "equinox", "optax", "sklearn"}
)
PLAIN: tuple[type, ...] = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
# Equal constants may be one object or several, depending on the compiler.
SHARED_OR_NOT: tuple[type, ...] = (*PLAIN, tuple, frozenset, np.generic)
COMPILED = ("functools", "jaxlib", "torch")
DEFINED = (staticmethod, classmethod, property)
# Attributes of a class that Python computes.
COMPUTED = {"_abc_impl", "_is_protocol", "_is_runtime_protocol"}
DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)


class Unknown(Exception):
    """A value has no contents that distinguish it from others of its type."""


def identity(name: str, value: Any, instead: str) -> str:
    """Return a digest of a value, the same in every process, or refuse with ``instead``."""
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

    def of(self, value: Any, where: str = "") -> str:
        """Return the digest of a value, which is there within the whole."""
        self._path.append(where)
        parts = hashlib.sha256()
        for part in self._parts(value):
            parts.update(part if isinstance(part, bytes) else part.encode())
            parts.update(b"\0")
        self._path.pop()
        return parts.hexdigest()

    def _parts(self, value: Any) -> Iterator[str | bytes]:
        """Yield strings and bytes that together identify a value."""
        if type(value) in PLAIN:
            yield f"{type(value).__name__} {value!r}"
            return
        if not isinstance(value, SHARED_OR_NOT):
            if id(value) in self._seen:
                yield f"again {self._seen[id(value)]}"
                return
            self._seen[id(value)] = len(self._seen)
            self._alive.append(value)
        array, name = _array(value), _installed_name(value)
        if array is not None:
            yield f"array {array.shape} {array.dtype} {getattr(value, 'requires_grad', '')}"
            yield self.of(array.tolist()) if array.dtype.hasobject else array.tobytes()
        elif name is not None:
            yield f"name {name}"
        elif type(value) in (list, tuple, set, frozenset, dict, types.MappingProxyType):
            yield from self._container(value)
        elif isinstance(value, types.ModuleType):
            yield from _module(value)
        elif isinstance(value, types.FunctionType):
            yield from self._function(value)
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, (*DEFINED, cached_property, weakref.ref)):
            yield type(value).__name__
            for attribute in ("fget", "fset", "fdel", "__func__", "func"):
                yield self.of(getattr(value, attribute, None))
            yield self.of(value() if isinstance(value, weakref.ref) else None)
        elif hasattr(value, "__wrapped__"):
            yield from self._wrapper(value)
        else:
            yield from self._object(value)

    def _wrapper(self, value: Any) -> Iterator[str | bytes]:
        """Yield the parts of an object that wraps another."""
        yield "wrapper"
        yield self.of(type(value))
        yield self.of(value.__wrapped__, ".__wrapped__")
        # Compiled or cached results of a function do not change its identity.
        if type(value).__module__.partition(".")[0] not in COMPILED:
            yield from self._named(value, getattr(value, "__dict__", {}))

    def _container(self, value: Any) -> Iterator[str]:
        yield "mapping" if isinstance(value, types.MappingProxyType) else type(value).__name__
        if isinstance(value, (list, tuple)):
            yield from (self.of(part, f"[{i}]") for i, part in enumerate(value))
        elif isinstance(value, (set, frozenset)):
            # Each element is digested separately: the order of a set differs between processes.
            yield from sorted(_Digest().of(part) for part in value)
        else:
            for key, part in value.items():
                yield self.of(key)
                yield self.of(part, f"[{key!r}]")

    def _function(self, function: types.FunctionType) -> Iterator[str | bytes]:
        yield "function"
        yield self.of(function.__defaults__)
        yield self.of(function.__kwdefaults__)
        code, home = function.__code__, str(function.__globals__.get("__name__"))
        package = _package(home)
        if package is not None:  # made by a function of an installed package
            words = (code.co_varnames, code.co_names) if code.co_name == "<lambda>" else ""
            yield f"{home}.{code.co_qualname} {words} {package}"
            for name, held in outer_variables(function):
                yield self.of(held, name)
            return
        if "__name__" not in function.__globals__:  # made by a library, such as jaxtyping
            yield f"{code.co_names} {code.co_varnames} {code.co_consts}"
            yield code.co_code
            return
        text = source_of(function)
        if text is None:
            raise Unknown(
                f"it holds {self._place()}a function {function.__qualname__!r}, whose source is "
                "not known"
            )
        yield text
        for name, held in read_from_outside(function, lambda top: _package(top) is not None):
            yield name
            yield self.of(held, name)

    def _class(self, kind: type) -> Iterator[str | bytes]:
        yield f"class {kind.__name__}"
        yield from map(self.of, kind.__bases__)
        if type(kind) is not type:
            yield self.of(type(kind))
        if issubclass(kind, enum.Enum):
            yield self.of([(member.name, member.value) for member in kind])
        held = dict(vars(kind))
        yield repr(list(getattr(kind, "__dataclass_fields__", ())))
        for name, part in held.items():
            special = name.startswith("__") and not isinstance(part, (types.FunctionType, *DEFINED))
            hidden = name in COMPUTED or (name.startswith("_") and issubclass(kind, enum.Enum))
            if not (special or hidden or isinstance(part, DESCRIPTORS) or _is_made(part)):
                yield name
                yield self.of(part, f".{name}")

    def _object(self, value: Any) -> Iterator[str | bytes]:
        """Yield what pickle would save of an object."""
        kind = type(value)
        yield "object"
        try:
            reduce = copyreg.dispatch_table.get(kind)
            saved = value.__reduce_ex__(4) if reduce is None else reduce(value)
        except Exception:  # locks and open files raise various errors
            raise Unknown(
                f"it holds {self._place()}a {kind.__module__}.{kind.__qualname__}, whose "
                "instances cannot be told apart"
            ) from None
        if isinstance(saved, str):
            yield f"{kind.__module__}.{kind.__qualname__} {saved}"
            return
        for part in saved:
            if isinstance(part, dict):
                yield from self._named(value, part)
            else:
                yield self.of(list(part) if isinstance(part, Iterator) else part)

    def _named(self, value: Any, state: dict[str, Any]) -> Iterator[str | bytes]:
        """Yield the attributes of an object, except those computed from other attributes."""
        for name, held in state.items():
            computed = isinstance(getattr(type(value), str(name), None), cached_property)
            if not (computed or str(name).startswith("__")):  # metadata, such as __doc__
                # Hooks of torch have the numbers of their registration as keys.
                hooks = str(name).endswith("_hooks") and isinstance(held, dict)
                yield str(name)
                yield self.of(list(held.values()) if hooks else held, f".{name}")

    def _place(self) -> str:
        path = [where for where in self._path if where]
        return f"at {' → '.join(path)} " if path else ""


def _is_made(part: Any) -> bool:
    """Whether Python made an attribute from the fields of a dataclass or a named tuple."""
    method = getattr(part, "__func__", part)
    if not isinstance(method, types.FunctionType):
        return type(part).__name__ == "_tuplegetter"
    top = str(method.__globals__.get("__name__")).partition(".")[0]
    return method.__code__.co_filename == "<string>" or top in sys.stdlib_module_names


def _module(value: types.ModuleType) -> Iterator[str | bytes]:
    """Yield the name of a module, and its text if there is a file."""
    yield f"module {value.__name__}"
    file = Path(getattr(value, "__file__", None) or "")
    yield file.read_bytes() if file.is_file() else ""


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


def _installed_name(value: Any) -> str | None:
    """Return the full name of an object of an installed package; None for any other."""
    if isinstance(value, types.ModuleType):
        package = _package(value.__name__)
        return None if package is None else f"{value.__name__} {package}"
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
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
