"""Which axes of a weight are summed over, by the type of the module that holds it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from torch import nn

from largen.errors import InvalidInput
from largen.transfer.roles import role_of_sides

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
POSITIONAL = ("pos", "token", "emb", "query", "queries", "latent", "cls", "prompt", "mask")


@dataclass(frozen=True)
class Layout:
    """A weight's sides: the axes of fan-in and fan-out, and a role that overrides the plain one."""

    fan_in: tuple[int, ...]
    fan_out: tuple[int, ...]
    label: str | None = None


def role_of(
    # module, path: the module that holds the weight, and its path.
    module: nn.Module,
    path: str,
    name: str,  # the weight's name in the module
    # ndim, growing: the number of axes, and which of them grow with the width.
    ndim: int,
    growing: Collection[int],
    # The axes that the forward pass sums over, for modules of unknown type; None if not known.
    summed: Collection[int] | None = None,
) -> str:
    """Return the role of one weight."""
    layout = _layout(module, name)
    if layout is not None:
        sides = (any(axis in growing for axis in side) for side in (layout.fan_in, layout.fan_out))
        return _narrow_role(role_of_sides(*sides), layout.label, path, module)
    if (role := _role_by_axes(name, ndim, growing, summed)) is not None:
        return role
    full = f"{path}.{name}" if path else name
    raise InvalidInput(
        f"roles: the weight {full} of {type(module).__name__} has one growing axis, and nothing "
        "says whether it is summed over. Name its role: "
        f"hints=Hints(roles={{{full!r}: 'output'}}) if it is, 'input' or 'positional' if it is not."
    )


def _role_by_axes(
    name: str, ndim: int, growing: Collection[int], summed: Collection[int] | None
) -> str | None:
    """Return the role of a weight of an unknown module; None if nothing determines it."""
    if not growing:
        return "scalar"
    if ndim == 1:
        return "bias" if "bias" in name.lower() else "norm"  # a gain multiplies each channel
    if _both_ways(summed, ndim):  # read-outs by an input weight have factors of their own
        return role_of_sides(len(growing) == 2, True)
    if summed:
        inner = any(axis in summed for axis in growing)
        return role_of_sides(inner, any(axis not in summed for axis in growing))
    if len(growing) >= 2:
        return "hidden"
    looks_added = ndim >= 3 or any(hint in name.lower() for hint in POSITIONAL)
    if looks_added and ndim - 1 in growing:
        return "positional"
    # Used in the recorded forward pass, without a sum over its axes.
    return None if summed is None else "norm"


def fan_in_axes(
    module: nn.Module, name: str, ndim: int, summed: Collection[int] | None = None
) -> tuple[int, ...]:
    """Return the axes of the fan-in: of unknown modules those summed over, else the last."""
    layout = _layout(module, name)
    if layout is not None:
        return layout.fan_in
    last = tuple(range(ndim))[-1:]  # a scalar has none
    return last if not summed or _both_ways(summed, ndim) else tuple(summed)


def _both_ways(summed: Collection[int] | None, ndim: int) -> bool:
    """Whether a matrix and its transpose are used."""
    return ndim == 2 and len(summed or ()) == 2


def _layout(module: nn.Module, name: str) -> Layout | None:
    if isinstance(module, nn.MultiheadAttention):
        if name.endswith("proj_weight"):
            return Layout((1,), (0,), "attention")
        return Layout((0,), (2,), "positional") if name in ("bias_k", "bias_v") else None
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
        label = "recurrent" if name.startswith("weight_hh") else None
        return Layout((1,), (0,), label) if name.startswith("weight") else None
    if name != "weight":
        return None
    if isinstance(module, (nn.Linear, nn.Bilinear)):
        return Layout((1, 2), (0,))
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return Layout((0,), (1,), "embedding")
    if isinstance(module, CONVOLUTIONS):
        return Layout((1,), (0,), "depthwise, grouped" if module.groups > 1 else None)
    if isinstance(module, TRANSPOSED):
        return Layout((0,), (1,), "depthwise, grouped" if module.groups > 1 else None)
    return None


def _narrow_role(plain: str, label: str | None, path: str, module: nn.Module) -> str:
    """Return the narrower role within the same family."""
    own = path.rsplit(".", 1)[-1].lower()
    if plain == "input" and label in ("embedding", "positional"):
        return "positional" if "pos" in own or label == "positional" else "embedding"
    if label == "depthwise, grouped":
        if isinstance(module, TRANSPOSED) and plain == "output":
            plain = "input"  # its two sides are groups, which grow, and channels in each
        return {"input": "depthwise", "hidden": "grouped"}.get(plain, plain)
    if plain == "hidden" and label in ("attention", "recurrent"):
        return label
    if plain == "output" and ("router" in own or "gate" in own):
        return "router"
    return plain
