"""All layers that a layer is made of."""

from __future__ import annotations

from collections.abc import Iterator

from largen.architectures import Concatenate, Layer, Product, Repeat, Residual, Serial


def layers_of(layer: Layer) -> Iterator[Layer]:
    """Yield a layer and everything inside it, a repetition's body once."""
    yield layer
    match layer:
        case Serial(inner) | Concatenate(inner) | Product(inner):
            parts = inner
        case Repeat(inner, _):
            parts = (inner,)
        case Residual(branch, shortcut):
            parts = (branch,) if shortcut is None else (branch, shortcut)
        case _:
            parts = ()
    for part in parts:
        yield from layers_of(part)
