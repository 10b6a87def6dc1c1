"""Whether the plans of a sweep are such that losses are straight in 1/width."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from largen.errors import instance_of
from largen.sweeps.cells import Cell, Protocol
from largen.transfer.plan import Plan
from largen.transfer.schemes import scheme_of

# Schemes without a limit in which features are learnt.
NO_LIMIT = ("standard", "ntk")
VERIFIED = "verified"  # an attribute of a sweep: what speaks against the plan of each scheme
UNVERIFIED = (
    "rule 1: the plan was not verified, so that nothing says that losses are straight in 1/width; "
    "verify=True does so"
)


def verdicts_of_plans(protocol: Protocol, cells: Sequence[Cell]) -> dict[str, str]:
    """Verify the plan of each scheme at its largest width; return what speaks against it."""
    found: dict[str, list[str]] = {}
    verify: Any = True if protocol.apply is None else (protocol.apply, protocol.task.batch(0)[0])
    for scheme in dict.fromkeys(str(cell.scheme) for cell in cells):
        own = [cell for cell in cells if str(cell.scheme) == scheme]
        if doubts_of_scheme(own[0].scheme):
            continue
        # A forecast is in the width, at any depth, and to a larger one.
        width, depth = protocol.base
        width = max(2 * width, *(cell.width for cell in own))
        found[scheme] = doubts_of_plan(
            protocol.plan(replace(own[0], width=width, depth=depth), verify)
        )
    return {VERIFIED: json.dumps(found)}


def doubts_of_sweep(attributes: Mapping[str, Any], scheme: str) -> list[str]:
    """Return what speaks against forecasts by a scheme of a sweep."""
    if scheme in NO_LIMIT:
        return doubts_of_scheme(scheme)
    return json.loads(attributes.get(VERIFIED, "{}")).get(scheme, [UNVERIFIED])


def doubts_of_plan(plan: Any) -> list[str]:
    """Return what speaks against forecasts by a plan, in words."""
    if plan is None:
        return []
    instance_of("plan", plan, Plan, "a plan of largen.transfer")
    found = [] if plan.verified else [UNVERIFIED]
    for record in plan.verified:
        if not record.passed:
            found.append(f"rule 1: the plan is {str(record).splitlines()[0]}")
    return [*doubts_of_scheme(plan.scheme), *found]


def doubts_of_scheme(scheme: Any) -> list[str]:
    """Return whether losses under a scheme need not have a limit."""
    name = scheme if isinstance(scheme, str) else scheme_of(scheme).name
    if name.partition(" ")[0] not in NO_LIMIT:
        return []
    return [
        f"rule 1: under the scheme {name!r} losses need not be straight in 1/width, since features "
        "have no limit; take 'mup'"
    ]
