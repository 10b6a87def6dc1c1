"""The response functions A and B, which the sweep never forms.

The fields of the neurons come from a sweep that keeps all directions, the averages of their
linearisation from ``neuron_responses.py``, and A and B of all layers from
``response_iteration.py``.

Where φ' jumps, the linearisation contains delta functions, which averages over neurons do not see.
Kinks are therefore rounded, φ(h) → E φ(h + δξ) with a standard Gaussian ξ, throughout the limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from largen.bibliography import cites
from largen.errors import InvalidInput, NoRule, NoTheory, instance_of
from largen.expectations import ActivationFunction
from largen.expectations.nodes import jumps, kinks_of
from largen.interrupts import interruptible
from largen.memory import check_fits
from largen.progress import Report, reporter
from largen.results import brief, in_notebooks, plot_result, save_result, with_labels
from largen.runs import Posed, Run
from largen.scalars import integer, random_key, real
from largen.theories.chains.problem import Problem, posed_by
from largen.theories.mean_field.deep.neuron_responses import RoundedKinks
from largen.theories.mean_field.deep.response_iteration import Sites, memory
from largen.theories.mean_field.deep.solution import DeepMeanField
from largen.theories.mean_field.engine.statistics import mean_and_error

MOST_PARTICLES, MOST_REPLICATES, WIDEST = 10**6, 1000, 10.0

if TYPE_CHECKING:
    import xarray

# Time indices × samples × outputs × layers of a residual stream: the size of the matrices.
LARGEST = 1024
FINE = 1e-6  # tolerance at which the sweep keeps all directions and runs in double precision
# The number of passes that most replicates need, and the steps in which their progress is told.
PASSES, STEPS = 4, 100


@cites("bordelon2022self", "pehlevan2023lecture")
class ResponseFunctions(NamedTuple):
    """Response functions of a mean-field limit; made by :func:`response_functions`.

    With several outputs the last axis of all variables is ``output``: that of r in A, that of g in
    B.

    Attributes
    ----------
    A
        A^l_μν(t, s) = ⟨∂φ(h^l_μ(t))/∂r^l_ν(s)⟩ for l = 1 … L, s < t,
        ``(layer, step, sample, step_2, sample_2[, output])``; steps are time indices.
    B
        B^l_μν(t, s) = ⟨∂g^(l+1)_μ(t)/∂u^(l+1)_ν(s)⟩ for l = 1 … L − 1, s ≤ t, same axes.
    A_error, B_error
        Standard errors from independent replicates. They do not include a shift of order
        1/particles, nor that by rounded kinks.
    f_train, f_train_error
        The outputs that follow from Φ and A, Σ(K/γ₀)(ρσ²Φᴸ + ρ_b σ_b²)Δ + (σ²/γ₀)ΣAᴸ, with K = κ
        without momentum and decay, ``(step, sample[, output])``.
    """

    A: np.ndarray
    B: np.ndarray
    A_error: np.ndarray
    B_error: np.ndarray
    f_train: np.ndarray
    f_train_error: np.ndarray

    __repr__ = brief
    _repr_html_ = in_notebooks
    save = save_result
    plot = plot_result

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return all variables with named axes; layers count from 1."""
        import xarray

        out = ("output",) * (self.f_train.ndim - 2)
        axes = ("layer", "step", "sample", "step_2", "sample_2", *out)
        behind, of_f = ("layer_below_last", *axes[1:]), ("step", "sample", *out)
        return xarray.Dataset(
            {
                "A": (axes, self.A),
                "A_error": (axes, self.A_error),
                "B": (behind, self.B),
                "B_error": (behind, self.B_error),
                "f_train": (of_f, self.f_train),
                "f_train_error": (of_f, self.f_train_error),
            },
            {"layer": np.arange(1, len(self.A) + 1), behind[0]: np.arange(1, len(self.B) + 1)},
        )


@interruptible()
def response_functions(
    run: Run,
    *,
    particles: int = 1024,
    replicates: int = 4,
    bend: float = 0.1,
    key: Any = 0,
    progress: bool | Report | None = None,
) -> ResponseFunctions:
    r"""Return the response functions of the mean-field limit of a fully connected network.

    A^l_μν(t, s) = ⟨∂φ(h^l_μ(t))/∂r^l_ν(s)⟩ and B^l_μν(t, s) = ⟨∂g^(l+1)_μ(t)/∂u^(l+1)_ν(s)⟩
    (Bordelon and Pehlevan, *Self-consistent dynamical field theory*, whose A and B are these over
    γ₀; Pehlevan and Bordelon's lecture notes, (65), with A⁰ = Bᴸ = 0 and B at equal times). u and
    r are the Gaussian fields in h and z, multiplied by the standard deviations σ of the maps, and
    g = Nγ₀∂f/∂h. In a residual stream h adds up all u below it, and g all r above it (Bordelon et
    al., Depthwise hyperparameter transfer in residual networks, (40), whose A and B are these times
    σ/(η₀γ₀)); with branches L^(−1/2), A and B have a limit of infinite depth. The solution of the
    limit does not need them; this function computes them for inspection, for (steps + 1) · samples
    · outputs, times the number of layers of the longest residual stream, ≤ 1024.

    Parameters
    ----------
    run
        A run of gradient descent, with momentum, weight decay, minibatches and several outputs or
        without.
    particles
        The number of neurons of a layer in each replicate.
    replicates
        The number of replicates, at least 2; the error is estimated from their standard deviation.
    bend
        δ, the width over which kinks of activations such as relu are rounded, φ(h) → E φ(h + δξ)
        with a standard Gaussian ξ: at a kink the response is carried by the few neurons that cross
        it. The rounding shifts A and B in proportion to δ², as long as δ is below the moves of h
        in a step, and their standard errors grow as δ^(−1/2). Without effect on smooth activations.
    key
        The random key of the random matrices.
    progress
        Whether to show a progress bar, or a function of (done, total); see :func:`largen.train`.

    Raises
    ------
    NoTheory
        If the run has no mean-field limit, or one whose responses are not computed:
        normalised layers, convolutions, ratios of widths, infinite depth, gradient flow, Langevin
        noise, activations that jump.
    InvalidInput
        If the number of time indices times samples is too large.
    OutOfMemory
        If the neurons at all time indices do not fit into memory.
    NumericalFailure
        If the limit diverges.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> run = lg.Run(lg.mlp(2, "linear"), lg.mean_field(), data, optimizer=lg.gd(0.5), steps=2)
    >>> found = lg.theories.response_functions(run, particles=64, replicates=2)
    >>> found.B[0][1, :, 1].round(3).tolist()  # at equal times: ⟨φ''z⟩ and what D brings
    [[0.0, 0.0], [0.0, 0.0]]
    >>> found.A[0][1, :, 0].round(3).tolist()  # κ Δ(0)Φ⁰ of one step
    [[0.125, 0.0], [0.0, -0.125]]
    """
    instance_of("run", run, Run, "an lg.Run")
    posed = _rounded(_check_covered(run), _width(bend))
    problem, times = posed.problem, len(run.times)
    longest = int(np.bincount(problem.streams).max())
    size, outputs = times * problem.samples, problem.outputs
    if size * outputs * longest > LARGEST:
        stream = f" × {longest} layers of a residual stream" * (longest > 1)
        raise InvalidInput(
            f"run: has {times} time indices × {problem.samples} samples × {outputs} outputs"
            f"{stream}; response functions are matrices over all of them, and at most {LARGEST} "
            "are taken."
        )
    particles = integer("particles", particles, at_least=1, at_most=MOST_PARTICLES)
    replicates = integer("replicates", replicates, at_least=2, at_most=MOST_REPLICATES)
    layers = problem.hidden_layers
    check_fits(
        8.0 * layers * size * outputs * (10 * particles + (6 + 2 * replicates) * size),
        f"particles: {particles} neurons a layer at {times} time indices",
        "Take fewer.",
    )
    keys = jax.random.split(random_key(key), replicates)
    with reporter(progress, "response functions") as report:

        def tell(replicate: int, passes: float) -> None:
            done = replicate + min(passes / PASSES, 1)
            report(round(STEPS * done), STEPS * replicates)

        found = [
            _replicate(posed, particles, each, partial(tell, i)) for i, each in enumerate(keys)
        ]
    (a, a_error), (b, b_error), (f, f_error) = (
        mean_and_error(np.stack(parts)) for parts in zip(*found, strict=True)
    )
    return ResponseFunctions(a, b, a_error, b_error, f, f_error)


def _check_covered(run: Run) -> Posed[Problem]:
    """Check that response functions are available for a run."""
    run.check_one_output("lg.theories.response_functions")
    try:
        posed = posed_by(run)
    except NoRule as unknown:
        raise NoTheory(
            f"response functions are not computed for networks with {unknown.layer}; "
            "lg.solve(run, record_pairs=[(t, s)]) records kernels between times."
        ) from None
    problem, how = posed.problem, run.optimizer
    missing = {
        "hidden layers of unequal widths": problem.unequal,
        "normalised layers": problem.normalized,
        "convolutions": not all(affine.reading.plain for affine in problem.maps),
        f"{how}, only for gradient descent without noise": not how.descends_in_steps,
    }
    for what, there in missing.items():
        if there:
            raise NoTheory(f"response functions are not computed for {what}.")
    return posed


def _width(bend: Any) -> float:
    width = real("bend", bend, above=0)
    if width > WIDEST:
        raise InvalidInput(f"bend: wanted a number ≤ {WIDEST:g}, got {width:g}.")
    return width


def _rounded(posed: Posed[Problem], bend: float) -> Posed[Problem]:
    """Return the problem with activations whose kinks are rounded."""

    def rounded(phi: ActivationFunction) -> ActivationFunction:
        discontinuous, height = jumps(phi)
        if discontinuous:
            raise NoTheory(
                f"response functions are not computed for {phi}, which jumps; functions with "
                "kinks have them."
            )
        at = np.abs(height) > 1e-5
        if not at.any():
            return phi
        kinks = np.asarray(kinks_of(phi))[at]
        return RoundedKinks(phi, tuple(kinks), tuple(height[at]), bend).as_activation()

    phi: Any = posed.problem.phi
    known = {each: rounded(each) for each in dict.fromkeys(phi)}
    problem = replace(posed.problem, phi=tuple(known[each] for each in phi))
    return Posed(posed.run, posed.reason, problem)


def _replicate(
    posed: Posed[Problem], particles: int, key: Any, tell: Callable[[float], object]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrices A and B of each layer, and f computed from them, for one replicate.

    ``tell``: called with the number of passes up and down the layers so far, ∞ at the end.
    """
    run, problem = posed.run, posed.problem
    limit = DeepMeanField(
        method="sweep",
        rtol=FINE,
        particles=particles,
        max_particles=particles,
        sample_neurons=particles,
        replicates=1,
        record_at=range(len(run.times)),
        key=key,
        progress=False,
    ).solve(posed)
    sites, (past, share) = Sites(problem, limit), memory(run, problem, limit)
    for passes in sites.passes(past, share):
        tell(passes)
    tell(math.inf)
    shape = len(run.times), problem.samples
    out = run.output_shape
    both = *shape, *shape, *out
    a = sites.a.reshape(-1, *both)
    b = sites.b[:-1].reshape(-1, *shape, problem.outputs, *shape)
    f = sites.outputs(past, share) / problem.gamma
    return a, np.moveaxis(b, 3, -1).reshape(-1, *both), f.reshape(*shape, *out)
