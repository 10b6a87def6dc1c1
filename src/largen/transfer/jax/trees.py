"""Pytrees of parameters as trees of named parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from largen.transfer.structure import Part


def children(node: Any) -> Iterator[tuple[str, Any]]:
    """Return the parts of a node of a pytree by name; Haiku's ``{"net/linear": …}`` is nested."""
    found = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda x: x is not node)[0]
    pairs = [(key_name(path[0]), child) for path, child in found if path]
    yield from (_nest(pairs) if any("." in name for name, _ in pairs) else pairs)


def _nest(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return nested dictionaries for names that are paths."""
    tree: dict[str, Any] = {}
    for name, child in pairs:
        *path, last = name.split(".")
        inner = tree
        for part in path:
            inner = inner.setdefault(part, {})
        if isinstance(child, dict):
            inner.setdefault(last, {}).update(child)
        else:
            inner[last] = child
    return list(tree.items())


def key_name(key: Any) -> str:
    """Return a key of a path as it is written in code; slashes in it are dots here."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute)).replace("/", ".")
    return str(key)


def name_of(path: tuple) -> str:
    """Return a path as a name, such as ``"blocks.0.weight"``."""
    return ".".join(map(key_name, path))


def is_weight(leaf: Any) -> bool:
    """Whether a leaf is a float array, the shape of one, or a variable of flax nnx with one."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and hasattr(leaf, "shape") and jnp.issubdtype(dtype, jnp.floating)


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


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """Return all leaves with full names in JAX's order; a variable of nnx names its array."""
    nodes = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_weight)[0]
    return [(name_of(path), leaf) for path, node in nodes for leaf in jax.tree.leaves(node)]


def map_named(function: Callable[[str, Any], Any], tree: Any) -> Any:
    """Apply a function of name and leaf to every leaf of a pytree."""
    made = [function(name, leaf) for name, leaf in named_leaves(tree)]
    return jax.tree.unflatten(jax.tree.structure(tree), made)


def map_weights(function: Callable[[str, Any], Any], tree: Any) -> Any:
    """Apply a function of name and array to every weight of a pytree; keep all other leaves."""
    return map_named(lambda name, leaf: function(name, leaf) if is_weight(leaf) else leaf, tree)


def weights_of(tree: Any) -> Mapping[str, Any]:
    """Return every weight by its full name."""
    return {name: leaf for name, leaf in named_leaves(tree) if is_weight(leaf)}
