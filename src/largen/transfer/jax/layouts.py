"""Which side of an array is summed over: by equinox's layers, or by the user's convention."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from largen.errors import InvalidInput
from largen.transfer.roles import role_of_sides

LAYOUTS = ("in_out", "out_in")
POSITIONAL = ("pos", "wpe", "token", "query", "latent", "cls", "prompt")


def role_of(owner: Any, name: str, ndim: int, growing: Collection[int], layout: str | None) -> str:
    """Return the role of one weight.

    Parameters
    ----------
    owner
        The node that holds it.
    name
        Its full name.
    ndim, growing
        How many axes it has, and which of them grow with the width; an axis along which blocks
        are stacked does not count.
    layout
        ``"in_out"`` for matrices that are applied as ``x @ W``, ``"out_in"`` for ``W @ x``.

    Raises
    ------
    InvalidInput
        If the sides of a matrix cannot be told apart.
    """
    leaf, own = name.rpartition(".")[2].lower(), name.lower()
    if not growing:
        return "scalar"
    kind = _equinox_kind(owner)
    if ndim == 1:
        is_norm = "norm" in type(owner).__name__.lower() or leaf in ("scale", "gain", "g")
        return "norm" if is_norm and leaf not in ("bias", "b", "offset") else "bias"
    if kind == "Embedding" or "embed" in own or any(hint in leaf for hint in ("wte", "vocab")):
        return "positional" if "pos" in own else "embedding"
    if kind is None and tuple(growing) == (ndim - 1,) and any(h in leaf for h in POSITIONAL):
        return "positional"
    sides = axes(owner, ndim, layout)
    if sides is None:
        if len(growing) >= 2:
            return "hidden"
        raise InvalidInput(
            f"layout: the weight {name} has one growing side, and nothing says whether it is "
            "summed over. Pass layout='in_out' if matrices are applied as x @ W, 'out_in' if as "
            f"W @ x, or name its role: roles={{{name!r}: 'output'}}."
        )
    fan_in, fan_out = sides
    plain = role_of_sides(fan_in in growing, fan_out in growing)
    groups = getattr(owner, "groups", 1)
    if kind == "Conv" and groups > 1:
        return {"input": "depthwise", "hidden": "grouped"}.get(plain, plain)
    if kind == "recurrent" and plain == "hidden" and leaf == "weight_hh":
        return "recurrent"
    if plain == "output" and ("router" in own or "gate" in own):
        return "router"
    return plain


def axes(owner: Any, ndim: int, layout: str | None) -> tuple[int, int] | None:
    """Return the axes of fan-in and fan-out, or None if nothing says which they are."""
    if _equinox_kind(owner) in ("Linear", "Conv", "recurrent") or layout == "out_in":
        return 1, 0
    if layout == "in_out":
        return ndim - 2, ndim - 1
    return None


def _equinox_kind(owner: Any) -> str | None:
    import equinox as eqx

    kinds = {
        "Linear": eqx.nn.Linear,
        "Conv": eqx.nn.Conv,
        "Embedding": eqx.nn.Embedding,
        "recurrent": (eqx.nn.LSTMCell, eqx.nn.GRUCell),
    }
    return next((kind for kind, types in kinds.items() if isinstance(owner, types)), None)
