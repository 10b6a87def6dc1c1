"""Reference networks: a network of one width, scaled to all other widths by powers.

Golikov, *Towards a general theory of infinite-width limits of neural classifiers*, App. A: a
network of width N* has initial standard deviations σ* and raw rates η*, whatever their origin. A
scaling extends them to other widths,

    σ = σ* (N/N*)^(q_σ),   η̂ = η̂* (N/N*)^q̃,

so that all scalings agree at N*, and limits can be compared by how well they approximate this
network. In the rule table, every entry is the reference's number at N* times the scaling's power of
N/N*.
"""

from __future__ import annotations

from dataclasses import fields, replace

from largen.parameterizations.powers import Power, power
from largen.parameterizations.rules import Row, Rule, RuleTable

Numbers = tuple[tuple[str, float], ...]  # by role


def from_reference_width(
    scaling: RuleTable[Power],
    at_reference: RuleTable[Power],
    width: int,  # N*
    # init_std, lr: initial standard deviations and rates that replace those of the reference, by
    # role.
    init_std: Numbers,
    lr: Numbers,
) -> RuleTable[Power]:
    """Return the reference's numbers at N*, with the scaling's powers of N/N* alone."""
    rows = []
    for ours, theirs in zip(scaling.rows, at_reference.rows, strict=True):
        rule = _override(theirs, init_std, lr)
        carried_fields = {
            f.name: _from(getattr(rule, f.name), getattr(ours.rule, f.name), width)
            for f in fields(Rule)
        }
        rows.append(Row(ours.site, ours.kind, Rule(**carried_fields), ours.distribution))
    return RuleTable(scaling.title, tuple(rows), at_reference.branch, scaling.gamma)


def _from(at_reference: Power, scaling: Power, width: int) -> Power:
    moved = at_reference.width - scaling.width
    return replace(
        at_reference, constant=at_reference.constant * power(width, moved), width=scaling.width
    )


def _override(row: Row[Power], init_stds: Numbers, rates: Numbers) -> Rule[Power]:
    role, rule, init_std, lr = row.role, row.rule, dict(init_stds), dict(rates)
    if role in init_std and not row.site.gain:
        rule = replace(rule, init_std=Power(init_std[role]))
    if role in lr:
        rule = replace(rule, lr=Power(lr[role]), weight_decay=Power(1 / lr[role]))
    return rule
