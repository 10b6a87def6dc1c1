"""Checks that compared trajectories belong to the same run."""

from __future__ import annotations

import numpy as np

from largen.errors import InvalidInput
from largen.runs import Status, Trajectory

MATCHING = ("net", "parameterization", "optimizer", "loss")


def check_matching(limit: Trajectory, nets: list[Trajectory], *, any_depth: bool = False) -> None:
    """Check that networks and a limit, possibly of infinite depth or width, belong to one run."""
    if limit.seeds is not None:
        raise InvalidInput("limit: wanted the result of lg.solve, got trained networks.")
    if not nets:
        raise InvalidInput("nets: wanted at least one result of lg.train, got none.")
    if limit.status is not Status.OK:
        raise InvalidInput(
            f"limit: its status is {limit.status!s}; networks have no distance to it."
        )
    theirs = limit.to_xarray().attrs
    for net in nets:
        _check_network(net, any_depth=any_depth)
        ours, where = net.to_xarray().attrs, _words(net)
        for key in MATCHING[any_depth:]:
            if ours[key] != theirs[key]:
                raise InvalidInput(
                    f"nets: the {key} {where} is {ours[key]}, the limit's {theirs[key]}."
                )
        other = _differing(limit, net, ignored="net" if any_depth else "net of any depth")
        if other:
            raise InvalidInput(f"nets: {where}, not the limit's are: {', '.join(other)}.")


def _check_network(net: Trajectory, *, any_depth: bool) -> None:
    """Check that there are distances of networks from a limit."""
    if any_depth and not np.isfinite(net.depth):
        raise InvalidInput(
            "nets: wanted networks with a finite number of blocks, got infinitely many."
        )
    if not any_depth and (net.seeds is None or net.width is None):
        raise InvalidInput("nets: wanted results of lg.train, got a limit.")
    if net.status is not Status.OK:
        raise InvalidInput(
            f"nets: the status {_words(net)} is {net.status!s}; there is no distance from the "
            "limit."
        )


def _differing(limit: Trajectory, net: Trajectory, *, ignored: str) -> list[str]:
    """Return the parts of a run that are not the same for a limit and for networks."""
    # In files without the digests of all parts there still are these.
    arrays = {"times": "time", "y_train": "y_train", "y_test": "y_test"}
    held = {part: (getattr(net, name), getattr(limit, name)) for part, name in arrays.items()}
    other = [part for part, (ours, theirs) in held.items() if not np.array_equal(ours, theirs)]
    known = limit.identity
    other += [p for p, one in net.identity.items() if p != ignored and known.get(p, one) != one]
    return list(dict.fromkeys(other))


def _words(net: Trajectory) -> str:
    return "at infinite width" if net.width is None else f"at width {net.width}"
