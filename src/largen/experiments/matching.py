"""Checks that compared trajectories belong to the same run."""

from __future__ import annotations

import numpy as np

from largen.errors import InvalidInput
from largen.runs import Run, Trajectory
from largen.runs.identity import identity_of

MATCHING = ("net", "parameterization", "optimizer", "loss")


def check_matching(limit: Trajectory, nets: list[Trajectory], *, any_depth: bool = False) -> None:
    """Check that networks and a limit, possibly of infinite depth or width, belong to one run."""
    _check_solved(limit)
    if not nets:
        raise InvalidInput("nets: wanted at least one result of lg.train, got none.")
    for net in nets:
        _check_network(net, any_depth=any_depth)
        _check_parts(limit, net, any_depth=any_depth)


def check_limit(limit: Trajectory, run: Run) -> None:
    """Check that a limit is that of a run."""
    _check_solved(limit)
    known = limit.identity
    other = [part for part, one in identity_of(run).items() if known.get(part, one) != one]
    if other:
        named = ", ".join(part for part in other if part != "net of any depth")
        raise InvalidInput(f"limit: it is of another run; not the limit's are: {named}.")


def _check_solved(limit: Trajectory) -> None:
    """Check that a trajectory is a limit that is known."""
    if limit.seeds is not None:
        raise InvalidInput("limit: wanted the result of lg.solve, got trained networks.")
    if not limit.status.has_numbers:
        raise InvalidInput(
            f"limit: its status is {limit.status!s}; networks have no distance to it."
        )


def _check_network(net: Trajectory, *, any_depth: bool) -> None:
    """Check that there are distances of networks from a limit."""
    if any_depth and not np.isfinite(net.depth):
        raise InvalidInput(
            "nets: wanted networks with a finite number of blocks, got infinitely many."
        )
    if not any_depth and (net.seeds is None or net.width is None):
        raise InvalidInput("nets: wanted results of lg.train, got a limit.")
    if not net.status.has_numbers:
        raise InvalidInput(
            f"nets: the status {_words(net)} is {net.status!s}; there is no distance from the "
            "limit."
        )


def _check_parts(limit: Trajectory, net: Trajectory, *, any_depth: bool) -> None:
    """Check that two results have the same network, scaling, optimizer, loss, data and times."""
    ours, theirs, where = net.to_xarray().attrs, limit.to_xarray().attrs, _words(net)
    for key in MATCHING[any_depth:]:
        if ours[key] != theirs[key]:
            raise InvalidInput(
                f"nets: the {key} {where} is {ours[key]}, the limit's {theirs[key]}."
            )
    # In files without the digests of all parts there still are these.
    arrays = {"times": "time", "y_train": "y_train", "y_test": "y_test"}
    held = {part: (getattr(net, name), getattr(limit, name)) for part, name in arrays.items()}
    other = [part for part, (one, two) in held.items() if not np.array_equal(one, two)]
    known, ignored = limit.identity, "net" if any_depth else "net of any depth"
    other += [p for p, one in net.identity.items() if p != ignored and known.get(p, one) != one]
    if other:
        raise InvalidInput(
            f"nets: {where}, not the limit's are: {', '.join(dict.fromkeys(other))}."
        )


def _words(net: Trajectory) -> str:
    return "at infinite width" if net.width is None else f"at width {net.width}"
