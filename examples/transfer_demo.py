"""Hyperparameter transfer from beginning to end on digits: tune small, train large, check.

A residual MLP without normalisation is tuned at a small size; a large one is trained at the small
one's best rate, under three schemes; and coordinate checks measure how activations scale.

    python -m examples.transfer_demo [--fast] [--output FOLDER] [--jobs 1]

Some minutes of one core, with --fast some seconds. Numbers are printed, and the losses drawn.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from examples.models import ResidualMLP
from examples.tasks import digits_task
from largen.cli.work import ending_in_order, make_output_folder, progress
from largen.files import save_figure
from largen.plots.sweeps import sweep_figure
from largen.sweeps import Grid, Sweep, Task, sweep
from largen.transfer.torch import coordinate_check, scale
from largen.transfer.torch.replicas import cross_entropy, tensors

SCHEMES = ("standard", "mup", "depth_mup")
Report = Callable[[str, float], object]


@dataclass(frozen=True)
class Settings:
    """The sizes, rates and steps of the demonstration.

    Attributes
    ----------
    base, target
        (width, depth) of the model that is tuned and of the one that is trained.
    lrs, around
        Rates for the small model; factors of its best rate for the large model.
    steps, batch_size
        The number of steps and the batch size of every training.
    check_widths, check_depths
        Sizes at which activations are measured.
    """

    base: tuple[int, int] = (64, 4)
    target: tuple[int, int] = (256, 16)
    lrs: tuple[float, ...] = tuple(2.0**k for k in range(-8, 2))
    around: tuple[float, ...] = tuple(2.0**k for k in range(-8, 2))
    steps: int = 200
    batch_size: int = 128
    check_widths: tuple[int, ...] = (128, 256, 512, 1024)
    check_depths: tuple[int, ...] = (4, 8, 16, 32)


FULL = Settings()
FAST = Settings(target=(128, 16), steps=60, check_widths=(128, 256), check_depths=(4, 8))


@dataclass(frozen=True)
class Demo:
    """The results of the demonstration.

    Attributes
    ----------
    settings
        The settings of the demonstration.
    tuned, large
        Losses of the small model at all rates, and of the large model around the best rate found.
    lr
        The best rate of the small model.
    plan
        The plan of depth-μP for the large model.
    checks
        Coordinate checks by scheme, and by ``"width"`` and ``"depth"``.
    seconds
        Elapsed time.
    """

    settings: Settings
    tuned: Sweep
    large: Sweep
    lr: float
    plan: Any
    checks: dict[str, dict[str, Any]]
    seconds: float

    def losses(self) -> dict[str, tuple[float, float, float]]:
        """Return for each scheme the large model's loss at the transferred rate, and its best loss.

        The third number is the rate of the best loss.
        """
        loss = self.large.data["loss"].mean("seed").squeeze(["width", "depth"])
        found = {}
        for scheme in SCHEMES:
            own = loss.sel(scheme=scheme)
            here = float(own.sel(lr=self.lr, method="nearest"))
            best = own.isel(lr=int(np.argmin(own.values)))
            found[scheme] = here, float(best), float(best["lr"])
        return found

    def slopes(self) -> dict[str, dict[str, tuple[float, float]]]:
        """Return the log₂-slopes, in width and depth, of the changes of features and output.

        The keys are the scheme, then ``"features"`` for the end of the trunk and ``"output"``.
        """
        layers = {"features": f"blocks.{self.settings.base[1] - 1}", "output": "read_out"}
        return {
            scheme: {
                name: (both["width"][layer].change, both["depth"][layer].change)
                for name, layer in layers.items()
            }
            for scheme, both in self.checks.items()
        }


def transfer_demo(
    settings: Settings = FULL, report: Report = lambda text, done: None, jobs: int = 1
) -> Demo:
    """Tune a small residual MLP on digits, train a large one, and check how activations scale.

    Parameters
    ----------
    settings
        The sizes, rates and steps of the demonstration.
    report
        Called with a description of the current work and the finished fraction.
    jobs
        Passed on to :func:`largen.sweeps.sweep`.
    """
    begin = time.perf_counter()
    task = digits_task(settings.steps, settings.batch_size)
    tuned = sweep(
        ResidualMLP,
        task,
        Grid(lrs=settings.lrs, base=settings.base, schemes=["depth_mup"]),
        jobs=jobs,
        progress=_within(report, "tuning the small model", 0.0, 0.1),
    )
    lr = float(2.0 ** tuned.best()["grid"].squeeze())
    large = sweep(
        ResidualMLP,
        task,
        Grid(
            lrs=[lr * factor for factor in settings.around],
            base=settings.base,
            widths=[settings.target[0]],
            depths=[settings.target[1]],
            schemes=SCHEMES,
        ),
        jobs=jobs,
        progress=_within(report, "training the large model", 0.1, 0.8),
    )
    base: dict[str, Any] = {"width": settings.base[0], "depth": settings.base[1]}
    target: dict[str, Any] = {"width": settings.target[0], "depth": settings.target[1]}
    plan = scale(ResidualMLP, base, target, scheme="depth_mup", optimizer="sgd")
    report("checking coordinates", 0.8)
    checks = {
        scheme: _checks(settings, task, scheme, lr, report, 0.8 + 0.1 * i)
        for i, scheme in enumerate(("standard", "depth_mup"))
    }
    return Demo(settings, tuned, large, lr, plan, checks, time.perf_counter() - begin)


def _checks(
    settings: Settings, task: Task, scheme: str, lr: float, report: Report, done: float
) -> dict[str, Any]:
    batches = [tensors(task.batch(t)) for t in range(4)]
    width, depth = settings.base
    found = {}
    # The initial output of a random read-out vanishes with the width, and so do the first errors.
    silent = partial(ResidualMLP, readout_std=0.0)
    for along, make_model, targets in (
        ("width", silent, [{"width": n, "depth": depth} for n in settings.check_widths]),
        ("depth", ResidualMLP, [{"width": width, "depth": l} for l in settings.check_depths]),
    ):
        report(f"checking coordinates of {scheme} in {along}", done)
        found[along] = coordinate_check(
            make_model,
            {"width": width, "depth": depth},
            targets,
            batches,
            lambda model, batch: cross_entropy(model(batch[0]), batch[1]),
            # A small rate, at which nothing diverges: only the power of the size is measured.
            lr=lr / 16,
            optimizer="sgd",
            scheme=scheme,
        )
    return found


def _within(report: Report, text: str, start: float, end: float) -> Callable[[int, int], None]:
    def inner(done: int, total: int) -> None:
        report(text, start + (end - start) * done / total)

    return inner


def run_demo(folder: Path, settings: Settings, jobs: int, console: Console) -> None:
    """Run the demonstration, print its results, and draw its pictures."""
    with progress(console) as report:
        found = transfer_demo(settings, report, jobs)
    (n, depth), (large_n, large_depth) = settings.base, settings.target
    console.print(
        "A residual MLP without normalisation learns scikit-learn's digits by gradient descent, "
        f"{settings.steps} steps.\n\n"
        f"1. Tune small: width {n}, depth {depth}, {len(settings.lrs)} rates. "
        f"The best is {found.lr:g}.\n\n"
        f"2. Train large: width {large_n}, depth {large_depth}, at that rate."
    )
    table = Table(box=None)
    for title in ("scheme", "loss at the small one's rate", "best loss", "at the rate"):
        table.add_column(title, justify="left" if title == "scheme" else "right")
    for scheme, (here, best, lr) in found.losses().items():
        table.add_row(scheme, _loss(here), _loss(best), f"{lr:g}")
    console.print(table)
    console.print("\nWhat depth-μP does to the large one's weights:")
    console.print(str(found.plan), markup=False, soft_wrap=True)
    console.print(
        "\n3. Check: how what four steps change grows with the size, on logarithmic scales. "
        "Where hyperparameters transfer, slopes are near 0."
    )
    table = Table(box=None)
    for title in ("scheme", "change of", "slope in width", "slope in depth"):
        table.add_column(title, justify="right" if "slope" in title else "left")
    for scheme, layers in found.slopes().items():
        for layer, (in_width, in_depth) in layers.items():
            table.add_row(scheme, layer, _slope(in_width), _slope(in_depth))
    console.print(table)
    for path in _draw(found, folder):
        console.print(f"  {path}")
    console.print(f"\nTook {found.seconds:.0f} s.")


def _loss(value: float) -> str:
    return f"{value:.3g}" if value < float("inf") else "diverges"


def _slope(value: float) -> str:
    return f"{value:+.2f}" if abs(value) < float("inf") else "diverges"


def _draw(found: Demo, folder: Path) -> list[Path]:
    small, large = folder / "small.png", folder / "large.png"
    found.tuned.plot(small)
    save_figure(large, sweep_figure(found.large.data, found.large.best(), found.lr))
    return [small, large]


def main() -> None:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("transfer-demo"), help="for pictures")
    parser.add_argument("--fast", action="store_true", help="smaller networks: seconds")
    parser.add_argument("--jobs", type=int, default=1, help="cores; −1 for all")
    given = parser.parse_args()
    console = Console(highlight=False)
    make_output_folder(given.output, console)
    with ending_in_order():
        run_demo(given.output, FAST if given.fast else FULL, given.jobs, console)


if __name__ == "__main__":
    main()
