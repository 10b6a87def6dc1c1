"""The parts of Golikov's figures: ensembles at each width and scaling, reference curves, limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from largen.networks import train, train_and_measure
from largen.runs.trajectory import mean_loss
from largen.theories import solve
from largen.theories.kernel_limit.dynamics import from_initial
from largen.theories.kernel_limit.limit import KernelLimit, problem_of
from largen.theories.kernel_limit.prior import draw, square_root
from papers.golikov.setups import (
    LIMITS,
    REFERENCE_WIDTH,
    Ladder,
    Setup,
    run_of,
)
from papers.golikov.terms import LETTERS, Final, term_names
from papers.images import Images
from papers.record import Part, Report

if TYPE_CHECKING:
    import xarray

Sets = Mapping[str, Images]


def ladder(
    prefix: str, setup: Setup, images: Sets, scalings: tuple[str, ...], how: Ladder
) -> list[Part]:
    """Return the parts with ensembles of trained networks, one for each scaling and width.

    At the reference width all scalings agree, so that these networks are trained once.
    """
    found = []
    for width in how.widths:
        for name in scalings if width != REFERENCE_WIDTH else scalings[:1]:

            def compute(report: Report, name=name, width=width) -> xarray.Dataset:
                return _ensemble(run_of(setup, images, name), width, how.seeds, report)

            title = "reference" if width == REFERENCE_WIDTH else name
            key = f"ensemble {setup} {title} {width} {how.seeds}"
            cost = _cost(setup, width) * how.seeds
            found.append(Part(f"{prefix}/{title} N={width}", key, cost, compute))
    return found


def diverging(prefix: str, setup: Setup, images: Sets, how: Ladder) -> Part:
    """Return the part with a few networks so wide that the default scaling diverges."""

    def compute(report: Report) -> xarray.Dataset:
        return _ensemble(run_of(setup, images, "default"), how.far, how.few, report)

    key = f"ensemble {setup} default {how.far} {how.few}"
    return Part(f"{prefix}/default, far", key, _cost(setup, how.far) * how.few, compute)


def curves(prefix: str, setup: Setup, images: Sets, how: Ladder) -> list[Part]:
    """Return the parts with test losses at every step, of reference networks and their limits."""

    def reference(report: Report) -> xarray.Dataset:
        import xarray

        run = run_of(setup, images, LIMITS[0])
        nets = train(run, REFERENCE_WIDTH, how.curves, key=1, throw=False, progress=report)
        return xarray.Dataset({"loss": (("seed", "step"), nets.loss_test)})

    key, cost = f"curves {setup}", _cost(setup, REFERENCE_WIDTH)
    found = [Part(f"{prefix}/curves", f"{key} {how.curves}", cost * how.curves, reference)]
    for name in LIMITS:

        def limit(report: Report, name=name) -> xarray.Dataset:
            return _limit(run_of(setup, images, name), how)

        spent = cost * (12 if name != "mean field" else 9 * how.particles / REFERENCE_WIDTH)
        title = f"{key} limit {name} {how.draws} {how.particles}"
        found.append(Part(f"{prefix}/limit {name}", title, spent, limit))
    return found


def _ensemble(run: Any, width: int, seeds: int, report: Report) -> xarray.Dataset:
    import xarray

    measured = train_and_measure(
        run, width, Final(run), seeds=seeds, key=0, throw=False, progress=report
    )
    layers = sum(1 for layer in run.net.layers if hasattr(layer, "weight_std")) - 1
    return xarray.Dataset(
        {
            "loss": ("seed", measured["loss"]),
            "variance": (("seed", "term"), measured["variance"]),
            "increment": (("seed", "weight"), measured["increment"]),
        },
        {"term": term_names(layers), "weight": list(LETTERS[layers])},
        {"width": width},
    )


def _limit(run: Any, how: Ladder) -> xarray.Dataset:
    """Return the limit's test losses, one for each draw of the initial function if it is random."""
    import xarray

    if run.param.canonical_d == 0:
        problem = problem_of(KernelLimit.pose(run))
        losses = _from_draws(run, problem, how.draws)
        error = np.zeros(losses.shape[1])
    elif run.param.canonical_d * 2 == 1:
        limit = solve(run, method="particles", particles=how.particles, record_at=[])
        losses = limit.loss_test[None]
        # |∂ℓ/∂f| ≤ 1: the mean error of the outputs bounds that of the loss.
        error = np.abs(limit.f_test_error).reshape(losses.shape[1], -1).mean(1)
    else:
        losses, error = solve(run).loss_test[None], np.zeros(run.steps + 1)
    return xarray.Dataset({"loss": (("draw", "step"), losses), "error": ("step", error)})


def _from_draws(run: Any, problem: Any, draws: int) -> np.ndarray:
    import jax

    with jax.enable_x64(True):
        root = square_root(problem.nngp, len(problem.ntk))
        start = draw(jax.random.key(2), root, draws // 2, problem.channels)
        _, f = from_initial(problem, *start)
    f = np.asarray(f)
    f = f if run.output_shape else f[..., 0]
    return mean_loss(run.loss, f, run.data.y_test, 1)


def _cost(setup: Setup, width: int) -> float:
    """Return the cost of one network, in units of the simplest one at the reference width."""
    samples = setup.train + setup.test
    inputs = min(samples, 3072) if setup.optimizer == "gd" else 3072
    hidden = (setup.hidden_layers - 1) * width
    once = setup.train if setup.batch is None else setup.batch + setup.train / 2
    work = (2 * once + setup.test) * (inputs + 1.5 * hidden) * width * setup.steps
    return work / (2400 * 1400 * REFERENCE_WIDTH * 50) + 0.5
