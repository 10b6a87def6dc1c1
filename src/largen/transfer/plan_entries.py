"""The entries of a plan: the settings of one tensor, and a factor of the forward pass."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from largen.errors import InvalidInput, one_of
from largen.scalars import real
from largen.transfer.roles import ROLES
from largen.transfer.updates import UPDATES

COLUMNS = ("init_std", "lr", "weight_decay", "eps")
KINDS = ("output", "attention", "branch", "built")
PLACES = ("input", "output", "key", "first third", "use")


@dataclass(frozen=True)
class ScaledWeight:
    """One tensor of the target model.

    Attributes
    ----------
    name, role, in_branch
        The tensor's name and role, and whether it is inside a residual branch.
    base_shape, shape
        The tensor's shapes in the base model and in the target.
    n
        Ratio of its width to the base; the ratio of the depths belongs to the plan.
    init
        The factor that multiplies the builder's initial values.
    init_std
        The resulting standard deviation relative to the base's.
    lr, weight_decay, eps
        Factors of the user's η₀, λ₀ and ε₀; :attr:`weight_decay` is not used for independent
        decay.
    powers
        The same factors as powers of n and l in words, for the table.
    folded, fold
        Multipliers of the forward pass that are folded into these factors, in words, and the
        product of these multipliers.
    moved_by
        The optimizer that updates the tensor: for Muon, ``"muon"`` or ``"adamw"``.
    tied
        Other names of the same tensor.
    fan_in
        The axis of a matrix that is summed over.
    """

    name: str
    role: str
    in_branch: bool
    base_shape: tuple[int, ...]
    shape: tuple[int, ...]
    n: float
    init: float
    init_std: float
    lr: float
    weight_decay: float
    eps: float
    powers: dict[str, str]
    folded: tuple[str, ...] = ()
    fold: float = 1.0
    moved_by: str = ""
    tied: tuple[str, ...] = ()
    fan_in: int = 1

    def __post_init__(self) -> None:
        one_of("role", self.role, ROLES)
        for name in ("n", "init", *COLUMNS, "fold"):
            real(name, getattr(self, name), above=0)
        if set(self.powers) != set(COLUMNS):
            raise InvalidInput(f"powers: wanted those of {COLUMNS}, got {[*self.powers]}.")
        if len(self.shape) != len(self.base_shape):
            raise InvalidInput(
                f"shape: wanted as many axes as base_shape {self.base_shape}, got {self.shape}."
            )
        if self.fan_in not in (0, 1):
            raise InvalidInput(f"fan_in: wanted 0 or 1, an axis of a matrix, got {self.fan_in}.")
        if self.moved_by:
            one_of("moved_by", self.moved_by, UPDATES)


def parts_of(where: object) -> tuple[Fraction, int] | None:
    """Parse "first 1/3 of each of 4 parts" of an output: the share, and the number of parts."""
    found = re.fullmatch(r"first (\d+/\d+) of each of (\d+) parts", str(where))
    return None if found is None else (Fraction(found[1]), int(found[2]))


@dataclass(frozen=True)
class ForwardMultiplier:
    """A factor that the forward pass needs because it cannot be folded into weights.

    Attributes
    ----------
    module
        Path of the module to which the factor belongs.
    kind
        ``"output"``, ``"attention"`` or ``"branch"``; ``"built"`` undoes a factor in the user's
        model.
    where
        ``"input"`` or ``"output"`` of the module, its ``"key"``, or the ``"first third"`` of its
        output (fused queries, keys and values), or the ``"first 1/3 of each of 4 parts"``;
        ``"use"`` of a weight as a read-out, in JAX.
    factor, power
        The factor's value, and the power that it comes from.
    """

    module: str
    kind: str
    where: str
    factor: float
    power: str

    def __post_init__(self) -> None:
        one_of("kind", self.kind, KINDS)
        if parts_of(self.where) is None:
            one_of("where", self.where, PLACES)
        real("factor", self.factor, above=0)

    def __str__(self) -> str:
        of = self.module or "the model"
        return f"{self.kind}: {self.where} of {of} × {self.power} = {self.factor:.4g}"
