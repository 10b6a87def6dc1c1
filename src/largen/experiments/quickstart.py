"""The main job in small: two limits of one network, and how networks reach them, on digits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from largen.architectures import mlp
from largen.experiments.comparison import Comparison, compare
from largen.experiments.digits import digits
from largen.networks import train
from largen.parameterizations import Parameterization, gd, mean_field, ntk
from largen.runs import Run, Trajectory
from largen.theories import solve

if TYPE_CHECKING:
    import xarray

Report = Callable[[str, float], None]


@dataclass(frozen=True)
class Settings:
    """How much is computed.

    Attributes
    ----------
    widths
        N of the networks.
    seeds
        Networks of the smallest width; of the width N there are as many as give the same number
        of neurons altogether, so that every width takes about the same time.
    samples
        Training images; as many again are tested.
    steps
        Of gradient descent.
    rtol
        Relative error asked of the mean-field limit.
    """

    widths: tuple[int, ...] = (32, 64, 128, 256, 512, 1024)
    seeds: int = 1024
    samples: int = 100
    steps: int = 100
    rtol: float = 5e-4

    def seeds_at(self, width: int) -> int:
        """Return how many networks of a width are trained."""
        return max(8, self.seeds * self.widths[0] // width)


FULL = Settings()
FAST = Settings(widths=(32, 64, 128, 256, 512), seeds=256, steps=50, rtol=2e-3)

CASES: dict[str, Parameterization] = {"ntk": ntk(), "mean_field": mean_field(gamma=2.0)}


@dataclass(frozen=True)
class Quickstart:
    """What the quickstart found: for each parameterization the limit and the comparison."""

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
        """Return everything as groups ``/<case>/limit`` and ``/<case>/comparison``."""
        import xarray

        groups = {}
        for case, limit in self.limits.items():
            groups[f"/{case}/limit"] = limit.to_xarray()
            groups[f"/{case}/comparison"] = self.comparisons[case].to_xarray()
        return xarray.DataTree.from_dict(groups)


def quickstart(settings: Settings = FULL, report: Report = lambda text, done: None) -> Quickstart:
    """Solve both limits of a one-hidden-layer network on digits and train networks beside them.

    Parameters
    ----------
    settings
        How much is computed.
    report
        Called with what is being done, and the fraction of all work that is done.
    """
    start = time.perf_counter()
    data = digits(settings.samples, settings.samples)
    limits, comparisons = {}, {}
    parts = len(CASES) * (len(settings.widths) + 1)
    done = 0
    for case, param in CASES.items():
        run = Run(mlp(1, "tanh"), param, data, optimizer=gd(lr=RATE), steps=settings.steps)
        report(f"{case}: the limit", done / parts)
        options: dict[str, Any] = {} if case == "ntk" else {"rtol": settings.rtol}
        limits[case] = solve(run, **options)
        done += 1
        nets = []
        for width in settings.widths:
            seeds = settings.seeds_at(width)
            report(f"{case}: {seeds} networks of width {width}", done / parts)
            nets.append(train(run, width=width, seeds=seeds, key=width))
            done += 1
        comparisons[case] = compare(limits[case], nets)
    report("done", 1.0)
    return Quickstart(limits, comparisons, time.perf_counter() - start)


# Well below the edge of stability of both limits, and high enough that the training loss falls
# by an order of magnitude within the steps.
RATE = 0.5
