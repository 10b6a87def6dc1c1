"""Learning curves: several settings at several depths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from largen.sweeps import Sweep
from papers.bordelon.claims import alike
from papers.claims import Claim

# Curves: setting → depth → losses (step,).
Curves = dict[str, dict[int, np.ndarray]]


def smoothed(losses: np.ndarray, over: int = 20) -> np.ndarray:
    """Return running means of the loss, measured on one batch per step, over several steps.

    Examples
    --------
    >>> smoothed(np.arange(5.0), over=2)
    array([0.5, 1.5, 2.5, 3.5])
    """
    return np.convolve(losses, np.ones(over) / over, "valid")


def by_depth(swept: Sweep, **at: float) -> dict[int, np.ndarray]:
    """Return a sweep's smoothed curves by depth, at one value of each of its other axes.

    Parameters
    ----------
    swept
        The sweep of trained networks.
    at
        Values of axes, such as ``lr=0.1``; axes that are not named are at their first value.
    """
    losses = swept.data["loss_train"].sel(at)
    first = {axis: 0 for axis in losses.dims if axis not in ("depth", "step")}
    losses = losses.isel(first)
    return {int(d): smoothed(losses.sel(depth=d).values) for d in losses["depth"].values}


def by_setting(swept: Sweep, axis: str, label: str) -> Curves:
    """Return a sweep's smoothed curves by the value of one axis and by depth."""
    values = swept.data[axis].values
    return {f"{label} = {value:g}": by_depth(swept, **{axis: value}) for value in values}


def consistent(title: str, curves: Curves) -> Claim:
    """Check that learning curves differ less between depths than between settings.

    Settings at which networks of all depths diverge are excluded.
    """
    kept = {name: own for name, own in curves.items() if any(map(sound, own.values()))}
    blocks = [
        np.stack([each if sound(each) else np.full_like(each, np.inf) for each in own.values()])
        for own in kept.values()
    ]
    return alike(title, blocks, list(np.stack(blocks, 1)))


def sound(losses: np.ndarray) -> bool:
    """Whether a network did not diverge: whether its loss never reached twice its initial value.

    Examples
    --------
    >>> sound(np.array([2.0, 1.0])), sound(np.array([2.0, 5.0, np.inf]))
    (True, False)
    """
    return bool((losses <= 2 * losses[0]).all())


def draw(panels: Sequence[tuple[str, Curves]]) -> Any:
    """Draw one curve for each setting and depth, with one colour for each setting."""
    from papers.bordelon.pictures import dynamics_figure

    return dynamics_figure(
        [
            (
                title,
                [
                    (f"{setting}, depth {depth}", i, losses)
                    for i, (setting, own) in enumerate(curves.items())
                    for depth, losses in own.items()
                ],
            )
            for title, curves in panels
        ]
    )
