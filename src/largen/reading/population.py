"""Kernels of a model by its own forward pass, run at populations of representative neurons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from largen.errors import InvalidInput, NumericalFailure, one_of
from largen.progress import Report, check_progress, reporter
from largen.reading.rates import checked
from largen.runs import KernelEstimate
from largen.scalars import integer, real

if TYPE_CHECKING:
    from largen.reading.model import Model

MOST_REPLICATES = 10_000
METHODS = ("population", "recursion")


@dataclass(frozen=True, kw_only=True)
class Population:
    """How many representative neurons a model is run at, ``method=`` of its kernels.

    The user's own forward pass is run with S neurons in the place of the width. The outputs of a
    random matrix W of many neurons are drawn from their law, y ~ N(0, σ_w² x·x'/S + σ_b²) for all
    samples and positions, given its outputs before if it is used again, and everything else runs as
    it is. With u̇ the derivative of u along a random direction of all parameters,

        Θ = E[ẏ ẏ'] = σ_w² (E[u u'] + E[u̇ u̇']) + σ_b²,

    at the read-out y of u, which assumes that the read-out's weights are used nowhere else (Yang
    2020, *Tensor Programs II*). So a function needs no rule to be read: maxima, softmax,
    statistics of the batch and depthwise convolutions have kernels as well.

    Attributes
    ----------
    neurons
        S, rounded down to a width of the model times a power of two.
    replicates
        Number of independent populations.
    key
        Where random numbers begin.
    progress
        Whether to show a progress bar, or a function of (done, total); see :func:`largen.train`.

    Raises
    ------
    InvalidInput
        For fewer than 64 neurons or 2 replicates.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> from torch import nn
    >>> make = lambda n: nn.Sequential(nn.Linear(3, n), nn.Softplus(), nn.Linear(n, 2))
    >>> net = lg.read(make, np.eye(3))
    >>> found = net.kernel(np.eye(3), method=lg.reading.Population(neurons=512, replicates=8))
    >>> bool(np.all(abs(found.nngp - net.kernel(np.eye(3)).nngp) < 4 * found.nngp_error))
    True
    """

    neurons: int = 2048
    replicates: int = 32
    key: int = 0
    progress: bool | Report | None = None

    def __post_init__(self) -> None:
        check_progress(self.progress)
        for name, least, most in (
            ("neurons", 64, 2**20), ("replicates", 2, MOST_REPLICATES), ("key", 0, 2**31),
        ):  # fmt: skip
            number = integer(name, getattr(self, name), at_least=least, at_most=most)
            object.__setattr__(self, name, number)


def population_of(method: Any, unread: bool) -> Population | None:
    """Return the population that an argument ``method`` asks for; None for the recursion.

    ``unread``: whether there is no network of operations for the recursion, the default.
    """
    if method is None:
        return Population() if unread else None
    if isinstance(method, Population):
        return method
    if not isinstance(method, str):
        raise InvalidInput(
            'method: wanted None, "recursion", "population" or a Population, got '
            f"{type(method).__name__}."
        )
    return Population() if one_of("method", method, METHODS) == "population" else None


def sampled(
    net: Model, how: Population, x1: np.ndarray, x2: np.ndarray | None, width: int | None,
    rates: Any, rtol: float | None, throw: bool,
) -> KernelEstimate:  # fmt: skip
    """Return the kernels of a model by populations."""
    if not net.widths:
        raise InvalidInput(
            "method: the model was read from one module; lg.read(make, x) with a function of the "
            "width has modules of many neurons."
        )
    rtol = None if rtol is None else real("rtol", rtol, above=0)
    of = None
    if rates is not None:
        of = checked(rates, net.nodes, net.family.frozen, gains=False)
    count = len(x1)
    x = x1 if x2 is None else np.concatenate([x1, x2])
    with reporter(how.progress, "net.kernel, by populations of neurons") as report:
        found = net.sampler.kernels(
            x, width=width, neurons=how.neurons, replicates=how.replicates, key=how.key, rates=of,
            report=report,
        )  # fmt: skip
    worst = max(
        float(error.max() / max(np.abs(kernel).max(), 1e-300))
        for kernel, error in ((found.nngp, found.nngp_error), (found.ntk, found.ntk_error))
    )
    if x2 is not None:
        found = KernelEstimate(*(each[:count, count:] for each in found))
    if rtol is not None and worst > rtol and throw:
        raise NumericalFailure(
            f"net.kernel: populations of {how.neurons} neurons have an error of {worst:.2g}, above "
            f"rtol = {rtol:g}; wanted more neurons and replicates, such as "
            f"method=lg.reading.Population(neurons={4 * how.neurons}, "
            f"replicates={4 * how.replicates}).",
            found,
        )
    return found
