"""Rates of single weights or roles: factors in the rule table, 0 for frozen weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from largen.errors import InvalidInput, one_of
from largen.parameterizations.distributions import ROLES
from largen.parameterizations.powers import Power
from largen.parameterizations.rules import Row, RuleTable
from largen.scalars import real

Rates = tuple[tuple[str, float], ...]


def rates_of(rates: Mapping[str, float]) -> Rates:
    """Return the factors as pairs of name and number, after a check."""
    if not isinstance(rates, Mapping):
        raise InvalidInput(
            f"rates: wanted factors by name, such as {{'input': 0.0}}, got {rates!r}."
        )
    checked = {str(name): real(f"rates[{name!r}]", r, at_least=0) for name, r in rates.items()}
    return tuple(sorted(checked.items()))


def at_rates(table: RuleTable[Power], rates: Rates) -> RuleTable[Power]:
    """Return the table with its rates multiplied by the factors."""
    if not rates:
        return table
    factors = dict(rates)
    known = {name for row in table.rows for name in (row.name, row.site.name)}
    for name in factors:
        one_of("rates", name, known | set(ROLES))
    return replace(table, rows=tuple(_at_rate(row, factors) for row in table.rows))


def _at_rate(row: Row[Power], factors: dict[str, float]) -> Row[Power]:
    names = (row.name, row.site.name, row.role)
    factor = next((factors[name] for name in names if name in factors), 1.0)
    decay = Power(1 / factor) if factor else Power(0.0)
    rule = row.rule
    rule = replace(rule, lr=rule.lr * Power(factor), weight_decay=rule.weight_decay * decay)
    return replace(row, rule=rule)


def rates_in_words(rates: Rates) -> str:
    """Describe rates in words, such as ``"input frozen, rate of 2.weight × 0.5"``."""
    words = [f"{name} frozen" if not r else f"rate of {name} × {r:g}" for name, r in rates]
    return ", ".join(words)
