"""The table: a core operation of PyTorch → its form in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from largen.traces.torch.forms import (
    draws,
    elementwise,
    norms,
    places,
    products,
    reductions,
    shapes,
    windows,
)

Form = Callable[..., Any]
DRAWS = draws.DRAWS
# By the name of an operation, with its overload where this is another function.
FORMS: dict[str, Form] = {
    **elementwise.FORMS, **shapes.FORMS, **reductions.FORMS, **places.FORMS, **products.FORMS,
    **windows.FORMS, **norms.FORMS, **draws.FORMS,
}  # fmt: skip


def form_of(operation: str) -> Form | None:
    """Return the form of an operation, such as ``"add.Tensor"``; None if it has none."""
    return FORMS.get(operation) or FORMS.get(operation.partition(".")[0])
