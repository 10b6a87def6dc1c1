"""Pytrees of parameters as trees of named parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from largen.transfer.structure import Part


def children(node: Any) -> Iterator[tuple[str, Any]]:
    """Return the parts of one node of a pytree, by name; none for a leaf."""
    for path, child in jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda x: x is not node)[
        0
    ]:
        if path:
            yield key_name(path[0]), child


def key_name(key: Any) -> str:
    """Return a key of a path as it is written in code."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def name_of(path: tuple) -> str:
    """Return a path in words, such as ``"blocks.0.weight"``."""
    return ".".join(map(key_name, path))


def is_weight(leaf: Any) -> bool:
    """Whether a leaf is an array of floats, or the shape of one."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and hasattr(leaf, "shape") and np.issubdtype(dtype, np.floating)


def part_of(node: Any) -> Part:
    """Return the tree of a model's parts and the shapes of its weights."""
    weights, parts = {}, {}
    for name, child in children(node):
        if is_weight(child):
            weights[name] = tuple(child.shape)
        elif any(True for _ in children(child)):
            parts[name] = part_of(child)
    return Part(type(node).__name__, weights, parts)


def owners(node: Any, prefix: str = "") -> dict[str, Any]:
    """Return the node that holds each weight, by the weight's full name."""
    found = {}
    for name, child in children(node):
        full = f"{prefix}{name}"
        if is_weight(child):
            found[full] = node
        else:
            found |= owners(child, f"{full}.")
    return found


def instances(node: Any, kind: type, prefix: str = "") -> dict[str, Any]:
    """Return the outermost nodes of one type, by their full names."""
    found = {}
    for name, child in children(node):
        full = f"{prefix}{name}"
        found |= {full: child} if isinstance(child, kind) else instances(child, kind, f"{full}.")
    return found


def map_weights(function: Callable[[str, Any], Any], tree: Any) -> Any:
    """Apply a function of name and array to every weight of a pytree; leave all else alone."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: function(name_of(path), leaf) if is_weight(leaf) else leaf, tree
    )


def weights_of(tree: Any) -> Mapping[str, Any]:
    """Return every weight by its full name."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {name_of(path): leaf for path, leaf in leaves if is_weight(leaf)}
