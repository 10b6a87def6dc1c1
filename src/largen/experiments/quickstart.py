"""A small example: two limits of one network on digits, and the approach of networks to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from largen.architectures import mlp
from largen.experiments.comparison import Comparison, compare
from largen.experiments.digits import digits
from largen.networks import train
from largen.parameterizations import Parameterization, gd, mean_field, ntk
from largen.results.protocol import to_store
from largen.runs import Run, Trajectory
from largen.theories import solve

if TYPE_CHECKING:
    import xarray

Report = Callable[[str, float], None]


@dataclass(frozen=True)
class Settings:
    """The sizes of the computation."""

    # Number of networks of each width. The shift of the ensemble mean falls as 1/N and its
    # statistical error as 1/√(N·seeds): its resolution needs many networks and smaller widths,
    # while a few networks resolve the distance of single networks at any width.
    seeds: Mapping[int, int]
    samples: int = 100  # number of training images, and of test images
    steps: int = 40  # the number of steps of gradient descent
    rtol: float = 1e-3  # requested relative error of the mean-field limit


FULL = Settings({32: 1024, 64: 1024, 128: 1024, 256: 256, 512: 64, 1024: 16})
FAST = Settings({32: 512, 64: 256, 128: 64, 256: 32, 512: 16}, rtol=3e-3)

CASES: dict[str, Parameterization] = {"ntk": ntk(), "mean_field": mean_field(gamma=2.0)}
TITLES = {"ntk": "kernel limit", "mean_field": "mean-field limit"}


@dataclass(frozen=True)
class Quickstart:
    """Results of the quickstart: for each parameterization the limit and the comparison."""

    limits: dict[str, Trajectory]
    comparisons: dict[str, Comparison]
    seconds: float

    def summary(self) -> dict[str, Any]:
        """Return exponents, their errors and the time; None for an exponent not resolved."""

        def numbers(field: str) -> dict[str, dict[str, float | None]]:
            return {
                case: {
                    kind: round(getattr(estimate, field), 4) if estimate.resolved else None
                    for kind, estimate in comparison.exponents.items()
                }
                for case, comparison in self.comparisons.items()
            }

        return {
            "exponents": numbers("value"),
            "errors": numbers("error"),
            "seconds": round(self.seconds, 1),
        }

    def to_datatree(self) -> xarray.DataTree:
        """Return everything as groups ``/<case>/limit`` and ``/<case>/comparison``.

        :func:`largen.load` reads them as results.
        """
        import xarray

        groups = {}
        for case, limit in self.limits.items():
            groups[f"/{case}/limit"] = to_store(limit)
            groups[f"/{case}/comparison"] = to_store(self.comparisons[case])
        return xarray.DataTree.from_dict(groups)


def quickstart(settings: Settings = FULL, report: Report = lambda text, done: None) -> Quickstart:
    """Solve both limits of a one-hidden-layer network on digits and train networks to compare."""
    start = time.perf_counter()
    data = digits(settings.samples, settings.samples)
    limits, comparisons = {}, {}
    parts = len(CASES) * (len(settings.seeds) + 1)
    done = 0
    for case, param in CASES.items():
        run = Run(mlp(1, "tanh"), param, data, optimizer=gd(lr=RATE), steps=settings.steps)
        report(f"the {TITLES[case]}", done / parts)
        limits[case] = solve(run, rtol=settings.rtol)
        done += 1
        nets = []
        for width, seeds in settings.seeds.items():
            report(f"{TITLES[case]}: {seeds} networks of width {width}", done / parts)
            nets.append(train(run, width=width, seeds=seeds, key=width, progress=False))
            done += 1
        comparisons[case] = compare(limits[case], nets)
    report("done", 1.0)
    return Quickstart(limits, comparisons, time.perf_counter() - start)


# Well below the edge of stability of both limits, and high enough that the training loss falls
# by an order of magnitude within the steps.
RATE = 2.0
