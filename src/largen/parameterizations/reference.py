"""Reference networks: one network as it is at one width, carried to all others by powers.

Golikov, *Towards a general theory of infinite-width limits of neural classifiers*, App. A: a
network of width N* has initial deviations σ* and raw rates η*, whatever their origin. A scaling
says how they go on from there,

    σ = σ* (N/N*)^(q_σ),   η̂ = η̂* (N/N*)^q̃,

so that all scalings agree at N*, and a limit can be judged by how well it approximates that one
network. In the rule table, every entry is the reference's number at N* times the scaling's power
of N/N*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from largen.arrays import integer, real
from largen.errors import InvalidInput, one_of
from largen.parameterizations.laws import ROLES
from largen.parameterizations.powers import Power
from largen.parameterizations.rules import Row, Rule, RuleTable

if TYPE_CHECKING:
    from largen.parameterizations.parameterization import Parameterization

Numbers = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Reference:
    """What a network is at its reference width.

    Attributes
    ----------
    width
        N*.
    param
        The parameterization whose rules it obeys there.
    init_std, lr
        Numbers that take the place of these rules at N*, by role.
    """

    width: int
    param: Parameterization
    init_std: Numbers = ()
    lr: Numbers = ()

    def __str__(self) -> str:
        own = [f"{n}={dict(getattr(self, n))}" for n in ("init_std", "lr") if getattr(self, n)]
        return ", ".join([f"{self.param} at N={self.width}", *own])


def reference_of(
    width: Any, param: Parameterization, init_std: Any = None, lr: Any = None
) -> Reference:
    """Check a reference at the door.

    Raises
    ------
    InvalidInput
        If the width or a number is not positive, a role is not known, or ``param`` has a
        reference itself.
    """
    if param.reference is not None:
        raise InvalidInput(f"reference: {param} has a reference itself; give a plain one.")
    width = integer("width", width, at_least=1)
    return Reference(width, param, _numbers("init_std", init_std), _numbers("lr", lr))


def carried(
    scaling: RuleTable[Power], at_reference: RuleTable[Power], reference: Reference
) -> RuleTable[Power]:
    """Return the reference's numbers at N*, with the scaling's powers of N/N*.

    Powers of the depth and of the number of inputs are the reference's.
    """
    rows = []
    for ours, theirs in zip(scaling.rows, at_reference.rows, strict=True):
        rule = _overridden(theirs, reference)
        carried_fields = {
            f.name: _from(getattr(rule, f.name), getattr(ours.rule, f.name), reference.width)
            for f in fields(Rule)
        }
        rows.append(Row(ours.site, ours.kind, Rule(**carried_fields), ours.law))
    return RuleTable(scaling.title, tuple(rows), at_reference.branch, scaling.gamma)


def gamma_from(reference: Reference, d: Fraction) -> float:
    """Return γ₀ of γ = γ₀Nᵈ that has the reference's value at N*."""
    own = reference.param
    return own.gamma * float(reference.width) ** float(own.d - d)


def _from(at_reference: Power, scaling: Power, width: int) -> Power:
    moved = at_reference.width - scaling.width
    return replace(
        at_reference,
        constant=at_reference.constant * float(width) ** float(moved),
        width=scaling.width,
    )


def _overridden(row: Row[Power], reference: Reference) -> Rule[Power]:
    role = "bias" if row.kind == "bias" else row.site.role
    rule, init_std, lr = row.rule, dict(reference.init_std), dict(reference.lr)
    if role in init_std:
        rule = replace(rule, init_std=Power(init_std[role]))
    if role in lr:
        rule = replace(rule, lr=Power(lr[role]), weight_decay=Power(1 / lr[role]))
    return rule


def _numbers(name: str, value: Any) -> Numbers:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise InvalidInput(
            f"{name}: wanted numbers by role, such as {{'output': 0.05}}, got {value!r}."
        )
    for role in value:
        one_of(name, role, ROLES)
    return tuple(
        (role, real(f"{name}[{role!r}]", value[role], above=0)) for role in ROLES if role in value
    )
