"""The setups of Golikov's figures: reference network, scalings, data, optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from largen.architectures import mlp
from largen.parameterizations import (
    Parameterization,
    gd,
    plane_scheme,
    rmsprop,
    sgd,
)
from largen.parameterizations.classification.plane import NAMED
from largen.parameterizations.given_at_width import from_reference
from largen.runs import Dataset, Run
from papers.images import Images

SOURCE = (
    "Golikov, Towards a general theory of infinite-width limits of neural classifiers, Figure {}"
)
REFERENCE_WIDTH = 128
# The input weights enter through sums over many inputs: their distribution does not matter.
DISTRIBUTION = {"hidden": "uniform", "output": "uniform"}
ROLES = ("input", "hidden", "output")
LIMITS = ("mean field", "NTK", "intermediate")


@dataclass(frozen=True)
class Setup:
    """A reference network and its training.

    Attributes
    ----------
    images
        Name of the set of images, of which ``classes`` are the labels used (None: all).
    train, test
        The largest numbers of training and test images.
    hidden_layers
        The number of hidden layers, H + 1 in the paper.
    optimizer
        ``"gd"`` or ``"rmsprop"`` (β = 0.99).
    rate
        The raw rate of every weight at the reference width.
    batch
        The number of samples in a step; None for all.
    steps
        Number of steps.
    """

    images: str = "cifar10"
    classes: tuple[int, ...] | None = (0, 1)
    train: int = 1000
    test: int = 400
    hidden_layers: int = 1
    optimizer: str = "gd"
    rate: float = 0.02
    batch: int | None = None
    steps: int = 50

    @property
    def binary(self) -> bool:
        """Whether there is one output, with the loss of two classes."""
        return self.classes is not None and len(self.classes) == 2


@dataclass(frozen=True)
class Ladder:
    """The numbers of networks.

    Attributes
    ----------
    widths, seeds
        The widths, and the number of networks at each.
    curves
        The number of networks at the reference width with their test loss at every step.
    particles, draws
        The number of sample neurons of the mean-field limit in each replicate, and of draws of
        the NTK limit's initial function.
    far, few
        A width at which the default scaling diverges, and the number of networks there.
    """

    widths: tuple[int, ...] = (128, 256, 512, 1024, 2048)
    seeds: int = 5
    curves: int = 32
    particles: int = 1024
    draws: int = 64
    far: int = 32768
    few: int = 2


def run_of(setup: Setup, images: Mapping[str, Images], name: str) -> Run:
    """Return the run of a setup in one of the named scalings."""
    data, inputs = _data(setup, images[setup.images])
    return Run(
        mlp(setup.hidden_layers, "leaky_relu", weight_std=3**-0.5),
        _scaled(setup, name, inputs),
        data,
        loss="logistic" if setup.binary else "cross_entropy",
        optimizer=_optimizer(setup),
        steps=setup.steps,
    )


def _optimizer(setup: Setup) -> Any:
    if setup.optimizer == "rmsprop":
        return rmsprop(setup.rate, beta=0.99, batch_size=setup.batch)
    return gd(setup.rate) if setup.batch is None else sgd(setup.rate, setup.batch)


def _scaled(setup: Setup, name: str, inputs: int) -> Parameterization:
    powers, distribution = plane_scheme(*NAMED[name], name=name), dict(DISTRIBUTION)
    if setup.optimizer == "rmsprop":
        distribution["input"] = "uniform"
        if name == "default":  # raw rates do not depend on the width
            constant = {role: getattr(powers, role) for role in ROLES}
            constant = {r: replace(e, adaptive_rate=Fraction(0)) for r, e in constant.items()}
            powers = replace(powers, **constant)
    return from_reference(
        width=REFERENCE_WIDTH,
        scaling=powers,
        init_std={"input": (3 * inputs) ** -0.5},
        lr=dict.fromkeys(ROLES, 1.0),
        distribution=distribution,
    )


@cache
def _data(setup: Setup, images: Images) -> tuple[Dataset, int]:
    """Return the data set, and the number of pixels.

    Gradient descent from Gaussian weights is invariant under rotations of the inputs, so that
    images are represented in a basis of their span, with fewer coordinates than pixels. RMSProp
    is not invariant.
    """
    x, y, z, t = images.choose(setup.classes, setup.train, setup.test)
    pixels = x.shape[1]
    if setup.optimizer == "gd":
        together = np.concatenate([x, z])
        if len(together) < pixels:
            together = np.asarray(np.linalg.qr(together.T, mode="r")).T
        x, z = together[: len(x)], together[len(x) :]
    if setup.binary:
        y, t = 1.0 - 2.0 * y, 1.0 - 2.0 * t
        y, t = y.astype(np.float32), t.astype(np.float32)
    return Dataset(x.astype(np.float32), y, z.astype(np.float32), t), pixels
