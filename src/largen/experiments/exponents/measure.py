"""Measuring exponents of the width on ensembles of networks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from largen.bibliography import cites
from largen.errors import InvalidInput, instance_of
from largen.experiments.distances import chosen_samples
from largen.experiments.exponents.fit import exponent, exponent_of_sum
from largen.experiments.exponents.predicted import predicted
from largen.experiments.exponents.quantities import GROUPS, SIGNED, TERMS, has_terms, quantities
from largen.experiments.exponents.report import MeasuredExponent, MeasuredExponents
from largen.memory import MEMORY_BUDGET
from largen.networks import train_and_measure
from largen.networks.ensembles import MOST_SEEDS
from largen.parameterizations.classification import classify
from largen.runs import Run
from largen.scalars import integer, random_key, real

FEWEST, NARROWEST = 3, 4


@cites("golikov2020towards")
def measure_exponents(
    run: Run,
    widths: Sequence[int],
    *,
    seeds: int = 16,
    key: Any = 0,
    on: str | None = None,
    memory_budget: float = MEMORY_BUDGET,
    progress: Any = None,
) -> MeasuredExponents:
    """Measure how training scales with the width, and compare with the predicted exponents.

    Networks of several widths are trained, and the exponents q of root mean squares ∝ N^q are
    fitted for

    * the increments δθ of every weight and bias, and those over its initial standard deviation;
    * the movement of features φ(h) at every layer;
    * outputs at initialisation, and their change δf;
    * for one hidden layer of (leaky) relu without biases, the terms f_∅, f_a, f_w and f_aw of
      the outputs: Golikov, *Towards a general theory of infinite-width limits of neural
      classifiers*, (11).

    Predictions are those of :func:`largen.scaling.classify`, and for the terms of
    :func:`largen.scaling.plane_class` at the step where training ends; under adaptive optimizers by
    the same recursion, with gradients in units of their size.

    Parameters
    ----------
    run
        The run to train. A few steps suffice: exponents are stationary after two or three.
    widths
        At least three, over a factor of at least four. From four widths on, the correction of
        relative order 1/N is fitted too.
    seeds
        Number of networks of each width, at least 2.
    key
        ``jax.random.key(seed)`` or an integer; network i starts from ``fold_in(key, i)``.
    on
        ``"test"`` or ``"train"`` samples; test by default if there are any.
    memory_budget, progress
        As in :func:`largen.train`.

    Returns
    -------
    MeasuredExponents
        Prints as a table; ``.deviations``, ``.to_xarray()``, ``.plot(path)``. Intervals of 95 %
        are two standard errors of the fit on each side, which include the scatter over networks
        and possible corrections in the width. A quantity that is zero in every network, or not
        resolved from its scatter over networks at two widths, has no exponent and does
        not deviate; its ``state`` distinguishes the two cases.

    Notes
    -----
    Outputs and terms are sums over neurons, of order N·(mean) or √N·(size). Where the mean over
    networks is resolved, the two are fitted separately and the larger power counts. Even so a
    deviation can mean that the widths are too small: at small rates, a term that tends to a
    small constant is hidden by noise of order N^(−1/2) up to large widths (Golikov, App. H).
    The sizes show this.

    Raises
    ------
    InvalidInput
        If there are too few widths, or over too short a range, or another argument is invalid.
    NumericalFailure
        If a network diverged.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(4, 3))
    >>> data = lg.Dataset(x, np.sign(x[:, 0]))
    >>> run = lg.Run(lg.mlp(1, "relu"), lg.ntk(), data, optimizer=lg.gd(lr=0.5), steps=2)
    >>> report = lg.scaling.measure_exponents(run, [32, 128, 512], seeds=8, key=0)
    >>> report["relative", "0.weight"].predicted
    Fraction(-1, 2)
    >>> abs(report["relative", "0.weight"].estimate.value + 0.5) < 0.1
    True
    """
    instance_of("run", run, Run, "an lg.Run")
    run.check_one_output("lg.scaling.measure_exponents")
    checked = _widths(widths)
    seeds = integer("seeds", seeds, at_least=2, at_most=MOST_SEEDS)
    key = random_key(key)
    tested = len(run.data.x_test) > 0
    on = chosen_samples(on, tested)
    memory_budget = real("memory_budget", memory_budget, above=0)
    classification = classify(run.param, run.net, run.optimizer)

    seen = len(run.data.x_train)
    samples = slice(seen, None) if on == "test" else slice(seen)
    measure = partial(quantities, samples=samples, terms=has_terms(run.net))
    measured = [
        train_and_measure(
            run,
            width,
            measure,
            seeds=seeds,
            key=key,
            memory_budget=memory_budget,
            progress=progress,
        )
        for width in checked
    ]
    sizes = np.array(checked)
    theory = predicted(run, classification, seen=on == "train")
    exponents, columns = [], []
    order = [*run.param.table(run.net), "f at start", "δf", *(f"f_{term}" for term in TERMS)]
    kinds = list(GROUPS)
    for name in sorted(measured[0], key=lambda key: (kinds.index(key[0]), order.index(key[1]))):
        values = [np.asarray(one[name], np.float64).reshape(seeds, -1) for one in measured]
        if name[0] in SIGNED:
            law = exponent_of_sum(sizes, values)
            squares = np.stack([(value**2).mean(1) for value in values])
        else:
            squares = np.stack([value[:, 0] for value in values])
            law = exponent(sizes, squares)
        group, what = name
        zero = not squares.any()
        exponents.append(MeasuredExponent(group, what, law, name in theory, theory.get(name), zero))
        columns.append(squares)
    dataset = _dataset(run, sizes, np.stack(columns), exponents, on)
    return MeasuredExponents(dataset, tuple(exponents), classification)


def _widths(widths: Any) -> list[int]:
    try:
        checked = sorted({integer("widths", width, at_least=1) for width in widths})
    except TypeError:
        raise InvalidInput(f"widths: wanted a list of integers, got {widths!r}.") from None
    if len(checked) < FEWEST or checked[-1] < NARROWEST * checked[0]:
        raise InvalidInput(
            f"widths: wanted at least {FEWEST} different widths over a factor of at least "
            f"{NARROWEST}, got {widths!r}: too short a range for exponents."
        )
    return checked


def _dataset(
    run: Run, widths: np.ndarray, values: np.ndarray, exponents: list[MeasuredExponent], on: str
) -> Any:
    import xarray

    mean = values.mean(2)
    size = np.sqrt(mean)
    spread = values.std(2, ddof=1) / np.sqrt(values.shape[2])
    with np.errstate(divide="ignore", invalid="ignore"):
        size_error = np.where(size > 0, spread / (2 * size), 0.0)
    wanted = [np.nan if e.predicted is None else float(e.predicted) for e in exponents]
    return xarray.Dataset(
        {
            "size": (("quantity", "width"), size),
            "size_error": (("quantity", "width"), size_error),
            "exponent": ("quantity", [e.estimate.value for e in exponents]),
            "exponent_error": ("quantity", [e.estimate.error for e in exponents]),
            "predicted": ("quantity", wanted),
            "state": ("quantity", [e.state for e in exponents]),
            "deviates": ("quantity", [e.deviates for e in exponents]),
        },
        {
            "quantity": [f"{e.group}: {e.name}" for e in exponents],
            "group": ("quantity", [e.group for e in exponents]),
            "name": ("quantity", [e.name for e in exponents]),
            "width": widths,
        },
        {
            "parameterization": str(run.param),
            "optimizer": str(run.optimizer),
            "length": f"t = {run.times[-1]:g}" if run.steps is None else f"{run.steps} steps",
            "net": repr(run.net),
            "on": on,
            "seeds": values.shape[2],
        },
    )
