"""Checks that compared trajectories belong to the same run."""

from __future__ import annotations

import numpy as np

from largen.errors import InvalidInput
from largen.runs import Run, Status, Trajectory

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
    for net in nets:
        _check_network(net, any_depth=any_depth)
        _check_parts(limit, net, _words(net), any_depth=any_depth)


def check_limit(limit: Trajectory, run: Run) -> None:
    """Check that a limit of infinite width is that of a run."""
    if limit.status is not Status.OK:
        raise InvalidInput(f"limit: its status is {limit.status!s}; nothing is known about it.")
    nothing = (
        np.zeros((len(run.times), len(x), *run.output_shape), run.data.x_train.dtype)
        for x in (run.data.x_train, run.data.x_test)
    )
    own = Trajectory.of(run, *nothing, theory=limit.theory, reason="")
    _check_parts(limit, own, "of the run", any_depth=False)


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


def _check_parts(limit: Trajectory, net: Trajectory, where: str, *, any_depth: bool) -> None:
    """Check that two results have the same network, scaling, optimizer, loss, data and times."""
    ours, theirs = net.to_xarray().attrs, limit.to_xarray().attrs
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
