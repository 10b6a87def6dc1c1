"""Lemma 3.2.1 of the lectures on scaling limits: the rate at which the loss falls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.images import Images
from papers.record import Figure, Found, Part, Report
from papers.verdicts import alternative, equals, mean_of, numbers, pair_of

X = np.eye(3, 4) + 0.3
TIMES = np.linspace(0.25, 6.0, 24)


class Settings(NamedTuple):
    """Networks that are trained."""

    width: int
    seeds: int


def _run(targets: np.ndarray) -> lg.Run:
    return lg.Run(
        lg.mlp(1, "tanh"), lg.ntk(), lg.Dataset(X, targets), optimizer=lg.gradient_flow(),
        times=TIMES,
    )  # fmt: skip


def _targets() -> tuple[np.ndarray, float]:
    """Return the lowest eigenvector of the limit's tangent kernel, and its eigenvalue δ."""
    kernel = np.asarray(lg.kernel(lg.mlp(1, "tanh"), X).ntk)
    eigenvalues, vectors = np.linalg.eigh(kernel)
    return vectors[:, 0], float(eigenvalues[0])


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    def compute(report: Report) -> xarray.Dataset:
        targets, smallest = _targets()
        # Targets far larger than initial outputs: along the lowest eigenvector, and generic ones.
        run, other = (_run(10 * y) for y in (targets, np.array([1.0, -1.0, 0.5])))
        bound = np.exp(-2 * smallest * run.times / len(X))
        below, losses = [], []
        for key in range(settings.seeds):
            loss, mixed = (
                np.asarray(
                    lg.train(each, width=settings.width, seeds=1, key=key).to_xarray()[
                        "loss_train"
                    ],
                    np.float64,
                ).ravel()
                for each in (run, other)
            )
            losses.append(loss)
            below.append(float(np.mean(mixed / mixed[0] <= bound)))
        losses = np.array(losses)
        times, half = run.times, len(run.times) // 2
        rates = np.log(losses[:, half] / losses[:, -1]) / (times[-1] - times[half])
        found = numbers(rate=mean_of(rates), below=(float(np.mean(below)), 0.0))
        return found.assign(loss=(("seed", "step"), losses), time=("step", times))

    return [Part("trained", f"gradient flow {settings} {TIMES[-1]}", 1.0, compute)]


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims that losses fall as in the lemma, and on the rate that is attained."""
    _, smallest = _targets()
    drawn, P = found["trained"], len(X)
    where = f"of {settings.seeds} networks of width {settings.width}"
    return [
        equals(
            "losses stay below e^{−2δt/|D|}, with δ of the limit's kernel, for targets at large",
            f"share of times {where}", pair_of(drawn, "below"), 1.0, 1e-6,
        ),
        equals(
            "along the weakest eigenvector losses fall at the rate 2δ/|D|",
            f"rate {where}", pair_of(drawn, "rate"), 2 * smallest / P, 0.1,
        ),
        alternative(equals(
            "the bound δ/|D| of Lemma 3.2.1 as printed is attained",
            f"rate {where}", pair_of(drawn, "rate"), smallest / P, 0.1,
        )),
    ]  # fmt: skip


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(5, 3.5), layout="constrained")
    axes = picture.subplots()
    _, smallest = _targets()
    loss = found["trained"]["loss"].values
    times = found["trained"]["time"].values
    axes.semilogy(times, (loss / loss[:, :1]).T, color="C0", alpha=0.5)
    axes.semilogy(times, np.exp(-2 * smallest * times / len(X)), color="black", label="2δ/|D|")
    axes.semilogy(times, np.exp(-smallest * times / len(X)), "--", color="gray", label="δ/|D|")
    axes.set(xlabel="time", ylabel="loss over its beginning")
    axes.legend()
    return picture


FIGURE = Figure(
    name="002-3.2",
    title="Losses under gradient flow and the smallest eigenvalue of the tangent kernel",
    source="Hanin, lectures on scaling limits of neural networks, Lemma 3.2.1",
    images=(),
    settings=Settings(4096, 12),
    fast=Settings(2048, 4),
    parts=_parts,
    claims=claims,
    draw=_draw,
)
