"""What layers of attention with queries, keys and values share, as records."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from largen.architectures.attention import check_positions
from largen.architectures.branches import Branches
from largen.architectures.layers import Dense
from largen.architectures.traits import check_layer
from largen.errors import InvalidInput
from largen.programs.signals import Signal


@dataclass(frozen=True, repr=False, init=False)
class QueriesKeysValues(Branches):
    """Base of the layers whose three branches are maps of the same input."""

    def __init__(self, queries: Any = None, keys: Any = None, values: Any = None):
        given = {"queries": queries, "keys": keys, "values": values}
        for name, branch in given.items():
            if branch is not None:
                check_layer(name, branch)
        super().__init__(*(Dense() if b is None else b for b in given.values()))

    def __repr__(self) -> str:
        shown = [repr(branch) for branch in self.branches]
        for field in fields(self)[1:]:
            if (value := getattr(self, field.name)) != field.default:
                shown.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def keeps_shape(self) -> bool:
        """Whether queries, keys and values keep the spatial axes and the features per width."""
        return all(branch.keeps_shape for branch in self.branches)

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the signal behind the values; queries and keys must have the same positions."""
        check_positions(self, signal)
        queries, keys, values = (branch.signal_behind(signal) for branch in self.branches)
        for other in (keys, values):
            if (other.space, other.from_data) != (signal.space, False) or queries != keys:
                raise InvalidInput(
                    f"net: queries, keys and values of {self!r} want affine maps that keep the "
                    "spatial axes, and as many queries as keys."
                )
        return values
