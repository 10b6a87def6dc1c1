"""Figure M.1: branches 1/L and 1/√L of four matrices that start at zero; and other powers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from largen.experiments import LearningRateCurve
from largen.plots.style import size_axis
from papers.bordelon import branches
from papers.claims import Claim, above, below
from papers.images import Images
from papers.record import Figure, Found, Part, Report
from papers.verdicts import WITHIN, near

SCALINGS = {"ODE": "1", "SDE": "1/2"}
LINEAR = {"1/2": -1.0, "3/4": -0.5, "1": -1.0}  # L^(1−2α) for ½ < α < 1, 1/L at both ends
GAMMA, STEPS = 2.0, 15
RATES = tuple(0.2 * 2 ** (k / 2) for k in range(6))
RATES_OF_ONE = tuple(0.5 * 2 ** (k / 2) for k in range(6))  # for blocks of one matrix
SLOW = 0  # index of a rate far below the best one, at which all steps are early in training
STEP = 1.0  # largest shift of a best rate, in factors of two, as in the other figures
RESAMPLES = 200


class Settings(NamedTuple):
    """Width, depths and number of networks of four matrices a block; depths of linear networks."""

    width: int
    depths: tuple[int, ...]
    networks: int
    linear: tuple[int, ...]


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    width, count = settings.width, settings.networks

    def trained(
        make: Callable[[float], lg.Run],
        width: int,
        depth: int,
        rates: tuple[float, ...],
        report: Report,
    ) -> xarray.Dataset:
        losses = []
        for k, lr in enumerate(rates):
            nets = lg.train(make(lr), width=width, seeds=count, key=depth, throw=False)
            losses.append(nets.loss_train)
            report(k + 1, len(rates))
        return xarray.Dataset({"loss": (("lr", "seed", "step"), losses)}, {"lr": list(rates)})

    def solved(report: Report) -> xarray.Dataset:
        run = _one_matrix(math.inf, RATES_OF_ONE[0])
        curve = lg.learning_rate_curve(run, RATES_OF_ONE)
        return xarray.Dataset({"loss": ("lr", curve.losses)}, {"lr": list(RATES_OF_ONE)})

    found = []
    for name, alpha in SCALINGS.items():
        for depth in settings.depths:
            make = partial(_zero, depth, alpha)
            key = f"{_name(name, depth)}, width {width}, {count} networks, γ₀ = {GAMMA}, {STEPS}"
            own = partial(trained, make, width, depth, RATES)
            found.append(Part(_name(name, depth), f"{key}, rates {RATES}", 1.0 + depth, own))
    depth = settings.depths[-1]
    own = partial(trained, partial(_one_matrix, depth), 2 * width, depth, RATES_OF_ONE)
    key = f"one matrix, 1/L, {STEPS} steps, rates {RATES_OF_ONE}"
    sizes = f"depth {depth}, width {2 * width}, {count} networks"
    found += [Part("one matrix", f"{key}, {sizes}", 3.0, own)]
    found += [Part("limit", f"{key}, limit", 5.0, solved)]
    for alpha in LINEAR:
        key = f"linear, α = {alpha}, depths {settings.linear}"
        own = partial(_linear, alpha, settings.linear)
        found.append(Part(f"linear {alpha}".replace("/", "∕"), key, 5.0, own))
    return found


def _name(scaling: str, depth: int) -> str:
    return f"{scaling}, depth {depth}"


def _zero(depth: float, alpha: str, lr: float) -> lg.Run:
    return branches.zero_branches(depth, alpha, lr, STEPS, GAMMA)


def _one_matrix(depth: float, lr: float) -> lg.Run:
    net = lg.residual_mlp(depth, "tanh")
    return lg.Run(net, lg.complete_p(), branches.DATA, optimizer=lg.gd(lr), steps=STEPS)


def _linear(alpha: str, depths: tuple[int, ...], report: Report) -> xarray.Dataset:
    return branches.linear_distances(alpha, depths)


def _best(rates: np.ndarray, losses: np.ndarray) -> float:
    """Return log₂ of the best rate, from the losses after training at each rate."""
    losses = np.where(np.isfinite(losses), losses, np.nan)
    curve = LearningRateCurve(rates, losses, 0 * losses, np.inf, "", "train")
    return float(np.log2(curve.optimum))


def best_rate(data: xarray.Dataset) -> tuple[float, float]:
    """Return log₂ of the rate of lowest mean loss after training, and its bootstrap error."""
    rates, last = data["lr"].values, data["loss"].values[..., -1]
    draw = np.random.default_rng(0)
    count = last.shape[1]
    again = [
        _best(rates, last[:, draw.integers(0, count, count)].mean(1)) for _ in range(RESAMPLES)
    ]
    return _best(rates, last.mean(1)), float(np.std(again))


def _drift(settings: Settings, found: Found, scaling: str) -> tuple[float, float]:
    best = [best_rate(found[_name(scaling, depth)]) for depth in settings.depths]
    moves = [(abs(b - best[0][0]), float(np.hypot(e, best[0][1]))) for b, e in best[1:]]
    return max(moves)


def gain(
    settings: Settings, found: Found, scaling: str, shallow: int, deep: int
) -> tuple[float, float]:
    """Return the logarithm of the ratio of early losses at two depths, with its error."""
    logs, errors = [], []
    for depth in (shallow, deep):
        losses = found[_name(scaling, depth)]["loss"].values[SLOW, :, -1]
        logs.append(np.log(losses.mean()))
        errors.append(losses.std(ddof=1) / np.sqrt(len(losses)) / losses.mean())
    return float(logs[0] - logs[1]), float(np.hypot(*errors))


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on the transfer of best rates, on losses by depth, and on orders of limits."""
    made = []
    depths = f"L = {settings.depths[0]} … {settings.depths[-1]}"
    nets = f"{depths}, {settings.networks} networks of width {settings.width}"
    for scaling in SCALINGS:
        value, error = _drift(settings, found, scaling)
        low, high = max(value - WITHIN * error, 0.0), value + WITHIN * error
        says = f"{scaling}: the best rate transfers over the depth"
        words = f"largest drift of the optimum in factors of 2, {nets}"
        made.append(below(says, words, value, low, high, STEP))
    each = [gain(settings, found, "ODE", *pair) for pair in pairwise(settings.depths)]
    across = gain(settings, found, "SDE", settings.depths[-1], settings.depths[0])
    for says, what, (value, error) in (
        ("ODE: the loss falls with every doubling of the depth", "least log ratio", min(each)),
        ("SDE: the deepest networks have the larger loss", "log ratio, to the shallowest", across),
    ):
        low, high = value - WITHIN * error, value + WITHIN * error
        words = f"{what}, of losses after {STEPS} steps of {RATES[SLOW]:.3g}, {nets}"
        made.append(above(says, words, value, low, high))
    endless = found["limit"]
    limit = _best(endless["lr"].values, endless["loss"].values)
    made.append(
        near(
            "one matrix a block, 1/L: log₂ of the best rate, that of infinite width and depth",
            f"L = {settings.depths[-1]}, {settings.networks} networks, N = {2 * settings.width}",
            best_rate(found["one matrix"]),
            limit,
            STEP / 2,
        )
    )
    for alpha, wanted in LINEAR.items():
        data = found[f"linear {alpha}".replace("/", "∕")]
        (one, two), (near_by, far) = data["depth"].values[-2:], data["distance"].values[-2:]
        power = float(np.log(far / near_by) / np.log(two / one))
        made.append(
            near(
                f"linear, infinite width, α = {alpha}: outputs approach a limit as L^p, p",
                f"from L = {one} to {two}, 4 steps",
                (power, 0.0),
                wanted,
                0.1,
            )
        )
    return made


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(12, 3.2), layout="constrained")
    axes = picture.subplots(1, 5)
    for k, scaling in enumerate(SCALINGS):
        for j, depth in enumerate(settings.depths):
            losses = found[_name(scaling, depth)]["loss"].mean("seed").values
            colour = f"C{j}"
            axes[2 * k].plot(losses[SLOW], color=colour, label=f"L = {depth}")
            usable = np.isfinite(losses[:, -1])
            axes[2 * k + 1].plot(np.array(RATES)[usable], losses[usable, -1], "o-", ms=3, c=colour)
        power = "1/L" if scaling == "ODE" else r"1/\sqrt{L}"
        axes[2 * k].set(xlabel="step", ylabel="loss", yscale="log", title=f"{scaling}, ${power}$")
        size_axis(axes[2 * k + 1], RATES[::2], r"rate $\eta_0$")
        axes[2 * k + 1].set(yscale="log")
        axes[2 * k].legend(fontsize=7)
    for j, (alpha, power) in enumerate(LINEAR.items()):
        data = found[f"linear {alpha}".replace("/", "∕")]
        depth, off = data["depth"].values, data["distance"].values
        axes[4].loglog(depth, off, "o", color=f"C{j}", label=rf"$\alpha = {alpha}$")
        axes[4].loglog(depth, off[-1] * (depth / depth[-1]) ** power, ":", color=f"C{j}")
    size_axis(axes[4], settings.linear, "depth $L$")
    axes[4].set(title="linear: distance")
    axes[4].legend(fontsize=7)
    return picture


FIGURE = Figure(
    name="001-M1",
    title="Branches 1/L and 1/√L of four matrices that begin at zero",
    source="Bordelon et al., Depthwise hyperparameter transfer in residual networks, Figure M.1",
    images=(),
    settings=Settings(64, (2, 4, 8, 16), 1792, (16, 32, 64)),
    fast=Settings(32, (2, 4), 16, (16, 32)),
    parts=_parts,
    claims=claims,
    draw=_draw,
    notes=(
        "fully connected, tanh, four samples, γ₀ = 2, where the paper has convolutions, CIFAR-10",
        "the last matrix of each block begins at 1e-6 times its scale, the others as usual",
        "one matrix a block has γ₀ = 1 and begins as usual",
        "early losses are those of the smallest rate; at fewer steps depths differ less",
    ),
)
