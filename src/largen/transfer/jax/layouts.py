"""Which axes of an array are summed over: by the layers of equinox and flax, or by convention.

Flax's kernels may have several axes on either side, ``(width, heads, head_dim)`` of queries and
``(heads, head_dim, width)`` of the projection behind attention. A bias has the axes of
the fan-out; without one, the usual names in attention and convolutions decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from largen.errors import InvalidInput
from largen.transfer.roles import role_of_sides

LAYOUTS = ("in_out", "out_in")
# Flax's attention: how many of a kernel's three axes, counted from the last, are the fan-out.
ATTENTION = {"query": 2, "key": 2, "value": 2, "out": 1}
# Usual names of weights of channels, of tables, and of weights of positions.
GAINS, BIASES = ("scale", "gain", "g"), ("bias", "offset", "b")
VECTORS = (*GAINS, *BIASES)
TABLES = ("wte", "vocab")
POSITIONAL = ("pos", "wpe", "token", "query", "latent", "cls", "prompt")


@dataclass(frozen=True)
class Weight:
    """The axes of one weight, without an axis along which blocks are stacked."""

    owner: Any  # the node of the pytree that holds the weight
    name: str  # in full
    ndim: int
    growing: tuple[int, ...]  # the axes that grow with the width
    # The number of axes of its layer's bias, if they are its last axes; None without one.
    outputs: int | None = None
    # The axis that is the number of experts; None if it is left out, as that of a stack.
    experts: int | None = None


def role_of(weight: Weight, layout: str | None) -> str:
    """Return a weight's role: ``"in_out"`` matrices act as ``x @ W``, ``"out_in"`` as ``W @ x``."""
    if not weight.growing:
        return "scalar"
    if weight.experts == 0 and layout == "out_in" and not _names_a_router(weight):
        raise InvalidInput(
            f"roles: the weight {weight.name} has the number of experts as its first axis, and "
            "nothing says whether it is a router's matrix or a stack of the experts' vectors. Name "
            f"its role: hints=Hints(roles={{{weight.name!r}: 'router'}}), or 'bias'."
        )
    return _by_convention(weight) or _by_sides(weight, layout)


def _by_convention(weight: Weight) -> str | None:
    """Return the role of a vector, a table or a position, which its axes do not tell."""
    name, kind = weight.name.lower(), _equinox_kind(weight.owner)
    leaf = name.rpartition(".")[2]
    of_norm, last = _is_norm(weight), tuple(weight.growing) == (weight.ndim - 1,)
    if weight.ndim == 1 or _is_bias(weight) or (of_norm and last):
        return "norm" if (of_norm or leaf in GAINS) and leaf not in BIASES else "bias"
    if kind == "Embedding":
        return "positional" if "pos" in name else "embedding"
    if kind is not None or not last:
        return None  # tables have rows of features; other matrices of an embedding's layers do not
    if "unembed" in name:
        return "output"
    if "embed" in name or _contains(leaf, TABLES):
        return "positional" if "pos" in name else "embedding"
    return "positional" if _contains(leaf, POSITIONAL) else None


def _is_norm(weight: Weight) -> bool:
    return "norm" in type(weight.owner).__name__.lower()


def _is_bias(weight: Weight) -> bool:
    """Whether a weight is a bias by its name, of which there may be a stack without a key."""
    leaf = weight.name.rpartition(".")[2].lower()
    return leaf == "bias" or (leaf == "bias_n" and _equinox_kind(weight.owner) == "recurrent")


def _by_sides(weight: Weight, layout: str | None) -> str:
    """Return the role of a matrix from the sides that grow, and from the layer that holds it."""
    growing, kind = weight.growing, _equinox_kind(weight.owner)
    sides = axes(weight, layout)
    if sides is None and len(growing) >= 2:
        return "hidden"
    if sides is None:
        raise InvalidInput(
            f"layout: the weight {weight.name} has one growing side, and nothing says whether it "
            "is summed over. Pass layout='in_out' if matrices are applied as x @ W, 'out_in' if as "
            f"W @ x, or name its role: hints=Hints(roles={{{weight.name!r}: 'output'}})."
        )
    role = role_of_sides(*(any(axis in growing for axis in side) for side in sides))
    if kind == "Conv" and getattr(weight.owner, "groups", 1) > 1:
        return {"input": "depthwise", "hidden": "grouped"}.get(role, role)
    name = weight.name.lower()
    if kind == "recurrent" and role == "hidden" and name.rpartition(".")[2] == "weight_hh":
        return "recurrent"
    return "router" if role == "output" and _contains(name, ("router", "gate")) else role


def _contains(name: str, words: tuple[str, ...]) -> bool:
    return any(word in name for word in words)


def axes(weight: Weight, layout: str | None) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the axes of fan-in and fan-out, or None if they cannot be determined."""
    ndim = weight.ndim
    if ndim < 2 or _is_bias(weight):
        return (), tuple(range(ndim))
    if _equinox_kind(weight.owner) in ("Linear", "Conv", "recurrent"):
        # There are more axes in a stack whose length no key of the shapes is, as of filter_vmap.
        first = ndim - 2 - getattr(weight.owner, "num_spatial_dims", 0)
        return (first + 1,), (first,)
    if layout == "out_in":
        if not set(weight.growing) <= {0, 1}:
            raise _unclear(weight)
        return (1,), (0,)
    if layout == "in_out":
        outputs = _outputs(weight)
        if outputs is None:
            return (ndim - 2,), (ndim - 1,)
        return tuple(range(ndim - outputs)), tuple(range(ndim - outputs, ndim))
    return None


def stacks_experts(weight: Weight, layout: str | None) -> bool:
    """Whether a weight stacks those of all experts, or is a router with an output for each.

    A stack of matrices has three axes or more. Two axes are told apart by the name, or by the
    layout ``"in_out"``: the number of experts is the first axis of a stack and the last of a
    router.
    """
    if weight.ndim != 2 or weight.name.rpartition(".")[2].lower() in VECTORS:
        return weight.ndim > 1
    return weight.experts == 0 and layout == "in_out" and not _names_a_router(weight)


def _names_a_router(weight: Weight) -> bool:
    """Whether a weight with an output for each expert has a router's name, or a layer's."""
    own, kind = weight.name.lower(), _equinox_kind(weight.owner)
    return "router" in own or "gate" in own or own.endswith("weight") or kind is not None


def _outputs(weight: Weight) -> int | None:
    """Return how many last axes are the fan-out; None for a matrix or a stack of matrices."""
    if weight.ndim == 2:
        return None
    if weight.outputs is not None:
        return weight.outputs
    *path, leaf = weight.name.lower().split(".")
    holder = path[-1] if path else ""
    if weight.ndim == 3 and holder in ATTENTION:
        return ATTENTION[holder]
    if "conv" in weight.name.lower():
        return 1
    if leaf == "kernel" or not set(weight.growing) <= {weight.ndim - 2, weight.ndim - 1}:
        raise _unclear(weight)
    return None


def _unclear(weight: Weight) -> InvalidInput:
    return InvalidInput(
        f"layout: the weight {weight.name} has {weight.ndim} axes, of which {weight.growing} grow, "
        "and nothing says which are summed over: it is no convolution by its name, no part of "
        "flax's attention, and has no bias. Give its layer a bias, call it conv… if it is a "
        "convolution, or make it a matrix in init and reshape it in the forward pass."
    )


def _equinox_kind(owner: Any) -> str | None:
    import equinox as eqx

    kinds = {
        "Linear": eqx.nn.Linear,
        "Conv": eqx.nn.Conv,
        "Embedding": eqx.nn.Embedding,
        "recurrent": (eqx.nn.LSTMCell, eqx.nn.GRUCell),
    }
    return next((kind for kind, types in kinds.items() if isinstance(owner, types)), None)
