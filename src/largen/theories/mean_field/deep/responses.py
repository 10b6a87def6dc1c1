"""The response functions A and B, which the sweep never forms.

Every neuron of layer l obeys, over times and samples, the same two equations

    h = u + C g,   z = r + D φ(h),   g = φ'(h) z,
    C(t, s) = σ²A^(l−1)(t, s) + κ_s [ρσ²Φ^(l−1)(t, s) + ρ_b σ_b²] Δ(s),   s < t,
    D(t, s) = σ²B^l(t, s) + κ_s ρσ²G^(l+1)(t, s) Δ(s),                    B for s ≤ t too

(u and r are the Gaussian fields with the maps' σ). Linearised about one neuron, with
M = φ''z + φ'Dφ' as a matrix over times and samples,

    ∂φ(h)/∂r = φ' (1 − C M)⁻¹ C φ',   ∂g/∂u = M (1 − C M)⁻¹,

so that A and B are averages of these over the neurons of a sweep. A and B of one layer determine
those of the next, from A⁰ = 0 and Bᴸ = 0. Since CM is nilpotent by causality, the iteration up and
down the layers ends after finitely many passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.bibliography import cites
from largen.errors import InvalidInput, NoRule, NoTheory, NumericalFailure, instance_of
from largen.expectations import ActivationFunction
from largen.interrupts import check, interruptible
from largen.memory import check_fits
from largen.parameterizations import GradientDescent
from largen.results import brief, in_notebooks, plot_result, save_result, with_labels
from largen.runs import Posed, Run, Trajectory
from largen.scalars import integer, random_key
from largen.theories.chains.problem import Problem, posed_by
from largen.theories.mean_field.deep.solution import DeepMeanField
from largen.theories.mean_field.deep.sweep.smoothness import smooth_throughout
from largen.theories.mean_field.engine.statistics import mean_and_error

MOST_PARTICLES, MOST_REPLICATES = 10**6, 1000

if TYPE_CHECKING:
    import xarray

LARGEST = 1024  # time indices × samples
CHUNK = 2**27  # bytes of the matrices of the neurons that are treated at the same time
FINE = 1e-6  # tolerance at which the sweep keeps all directions and runs in double precision
SETTLED = 1e-10


@cites("bordelon2022self", "pehlevan2023lecture")
class ResponseFunctions(NamedTuple):
    """Response functions of a mean-field limit; made by :func:`response_functions`.

    Attributes
    ----------
    A
        A^l_μν(t, s) = ⟨∂φ(h^l_μ(t))/∂r^l_ν(s)⟩ for l = 1 … L, s < t,
        ``(layer, step, sample, step_2, sample_2)``; steps are time indices.
    B
        B^l_μν(t, s) = ⟨∂g^(l+1)_μ(t)/∂u^(l+1)_ν(s)⟩ for l = 1 … L − 1, s ≤ t, same axes.
    A_error, B_error
        Standard errors from independent replicates. They do not include a shift of order
        1/particles.
    f_train, f_train_error
        The outputs that follow from Φ and A, (κ/γ₀)Σ(ρσ²Φᴸ + ρ_b σ_b²)Δ + (σ²/γ₀)ΣAᴸ,
        ``(step, sample)``.
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

        axes = ("layer", "step", "sample", "step_2", "sample_2")
        behind = ("layer_below_last", *axes[1:])
        return xarray.Dataset(
            {
                "A": (axes, self.A),
                "A_error": (axes, self.A_error),
                "B": (behind, self.B),
                "B_error": (behind, self.B_error),
                "f_train": (axes[1:3], self.f_train),
                "f_train_error": (axes[1:3], self.f_train_error),
            },
            {"layer": np.arange(1, len(self.A) + 1), behind[0]: np.arange(1, len(self.B) + 1)},
        )


@interruptible()
def response_functions(
    run: Run, *, particles: int = 1024, replicates: int = 4, key: Any = 0
) -> ResponseFunctions:
    r"""Return the response functions of the mean-field limit of a fully connected network.

    A^l_μν(t, s) = ⟨∂φ(h^l_μ(t))/∂r^l_ν(s)⟩ and B^l_μν(t, s) = ⟨∂g^(l+1)_μ(t)/∂u^(l+1)_ν(s)⟩
    (Bordelon and Pehlevan, *Self-consistent dynamical field theory*, whose A and B are these over
    γ₀; Pehlevan and Bordelon's lecture notes, (65), with A⁰ = Bᴸ = 0 and B at equal times). u and
    r are the Gaussian fields in h and z, multiplied by the standard deviations σ of the maps.
    The solution of the limit does not need A and B; this function computes them for inspection, for
    (steps + 1) · samples ≤ 1024.

    Parameters
    ----------
    run
        A run of full-batch gradient descent with one output and smooth activations.
    particles
        The number of neurons of a layer in each replicate.
    replicates
        The number of replicates, at least 2; the error is estimated from their standard deviation.
    key
        The random key of the random matrices.

    Raises
    ------
    NoTheory
        If the run has no mean-field limit, or one whose responses are not computed: residual
        networks, convolutions, ratios of widths, momentum, decay, minibatches, several outputs,
        activations with a kink (the derivative of g has a delta function there).
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
    posed = _check_covered(run)
    times, samples = len(run.times), posed.problem.samples
    if times * samples > LARGEST:
        raise InvalidInput(
            f"run: has {times} time indices × {samples} samples; response functions are "
            f"matrices over both, and at most {LARGEST} are taken."
        )
    particles = integer("particles", particles, at_least=1, at_most=MOST_PARTICLES)
    replicates = integer("replicates", replicates, at_least=2, at_most=MOST_REPLICATES)
    size, layers = times * posed.problem.samples, posed.problem.hidden_layers
    check_fits(
        8.0 * layers * size * (10 * particles + (6 + 2 * replicates) * size),
        f"particles: {particles} neurons a layer at {times} time indices",
        "Take fewer.",
    )
    keys = jax.random.split(random_key(key), replicates)
    found = [_replicate(posed, particles, each) for each in keys]
    one = (times, samples)
    shapes = ((-1, *one, *one), (-1, *one, *one), one)
    (a, a_error), (b, b_error), (f, f_error) = (
        mean_and_error(np.stack([replicate[i].reshape(shape) for replicate in found]))
        for i, shape in enumerate(shapes)
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
    problem = posed.problem
    how = run.optimizer
    plain = isinstance(how, GradientDescent) and not (how.momentum or how.weight_decay)
    missing = {
        "hidden layers of unequal widths": problem.unequal,
        "residual branches": any(skip >= 0 for skip in problem.skips),
        "normalised layers": problem.normalized,
        "convolutions": not all(affine.reading.plain for affine in problem.maps),
        "optimizers but plain gradient descent on the full batch": not plain
        or run.batches is not None,
        "several outputs": problem.outputs > 1,
        "activations with a kink": not smooth_throughout(problem),
    }
    for what, there in missing.items():
        if there:
            raise NoTheory(f"response functions are not computed for {what}.")
    return posed


def _replicate(
    posed: Posed[Problem], particles: int, key: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrices A and B of each layer, and f computed from them, for one replicate."""
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
    neurons = [_linearise(*one) for one in zip(problem.phi, *_fields(limit), strict=True)]
    with jax.enable_x64(True):
        f, y = (jnp.asarray(each, jnp.float64) for each in (limit.f_train, run.data.y_train))
        delta = np.ravel([np.asarray(run.loss.residual(each, y)) for each in f])
    kappa = np.append(run.rates, 0.0) * problem.gamma / problem.samples
    times, p, layers = len(kappa), problem.samples, len(neurons)
    # Causality is imposed exactly: A vanishes unless s < t, and B unless s ≤ t.
    before, until = (np.kron(np.tril(np.ones((times, times)), k), np.ones((p, p))) for k in (-1, 0))
    past = before * np.repeat(kappa, p) * delta
    rows = problem.fields[:p]
    first = np.tile(rows * problem.field_rate @ rows.T, (times, times))
    features = [np.einsum("nt,ns->ts", one.value, one.value) / particles for one in neurons]
    gradients = [np.einsum("nt,ns->ts", one.g, one.g) / particles for one in neurons]

    size = times * p
    a, b = np.zeros((layers, size, size)), np.zeros((layers, size, size))

    def coefficients(l: int) -> tuple[np.ndarray, np.ndarray]:
        """Return C and D of hidden layer l, counted from 0."""
        c = past * first
        if l:
            into = problem.maps[l - 1]
            c = into.std**2 * a[l - 1] + past * (
                into.kernel_rate * features[l - 1] + into.bias_kernel_rate
            )
        out = problem.maps[l]
        above = gradients[l + 1] if l + 1 < layers else 1.0
        return c, out.std**2 * b[l] + past * out.kernel_rate * above

    while True:
        last_a, last_b = a.copy(), b.copy()
        for l in (*range(layers), *reversed(range(1, layers))):
            forward, backward = _averages(neurons[l], *coefficients(l))
            a[l] = before * forward
            if l:
                b[l - 1] = until * backward
        change = max(np.abs(a - last_a).max(), np.abs(b - last_b).max())
        if not np.isfinite(change):
            raise NumericalFailure("response functions diverge; lower the learning rate.")
        if change <= SETTLED * max(1.0, np.abs(a).max(), np.abs(b).max()):
            break
    last = problem.maps[-1]
    moved = (past * (last.kernel_rate * features[-1] + last.bias_kernel_rate)).sum(1)
    return a, b[:-1], (moved + last.std**2 * a[-1].sum(1)) / problem.gamma


class _Neurons(NamedTuple):
    """φ, φ', φ''z and g of neurons, each ``(neuron, step × sample)``."""

    value: np.ndarray
    slope: np.ndarray
    curved: np.ndarray
    g: np.ndarray


def _linearise(phi: ActivationFunction, h: np.ndarray, g: np.ndarray, z: np.ndarray) -> _Neurons:
    with jax.enable_x64(True):
        at = jnp.asarray(h, jnp.float64)
        slope, bend = jax.jvp(phi.derivative, (at,), (jnp.ones_like(at),))
        value, slope, bend = (np.asarray(x) for x in (phi(at), slope, bend))
    return _Neurons(value, slope, bend * z, g.astype(np.float64))


def _fields(limit: Trajectory) -> Iterator[np.ndarray]:
    """Yield h, g and z of all neurons, ``(layer, neuron, step × sample)``; one output."""
    for name in ("neuron_h", "neuron_g", "neuron_z"):
        times, layers, neurons, p = limit.neuron_h.shape  # type: ignore[attr-defined]
        fields = getattr(limit, name).reshape(times, layers, neurons, p)
        yield fields.transpose(1, 2, 0, 3).reshape(layers, neurons, times * p)


def _averages(one: _Neurons, c: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ⟨φ'(1 − CM)⁻¹Cφ'⟩ and ⟨M(1 − CM)⁻¹⟩ over neurons."""
    size, count = len(c), len(one.g)
    forward, backward = np.zeros((2, size, size))
    at_once = max(1, CHUNK // (8 * size**2))
    for begin in range(0, count, at_once):
        check()
        slope, curved = (x[begin : begin + at_once] for x in (one.slope, one.curved))
        m = slope[:, :, None] * d * slope[:, None, :]
        m[:, range(size), range(size)] += curved
        inverse = np.linalg.inv(np.eye(size) - c @ m)
        forward += (slope[:, :, None] * (inverse @ c) * slope[:, None, :]).sum(0)
        backward += (m @ inverse).sum(0)
    return forward / count, backward / count
