"""The options of the theory of infinitely deep networks, and their solution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from os import PathLike
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import jax
import numpy as np

from largen.errors import InvalidInput, one_of
from largen.interrupts import interruptible
from largen.memory import MEMORY_BUDGET
from largen.progress import Report, reporter
from largen.runs import Posed, Run, Theory, Trajectory
from largen.runs.theory import set_fields
from largen.scalars import integers, random_key
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.answers import bounded
from largen.theories.mean_field.deep.answer import trajectory
from largen.theories.mean_field.deep.estimation.averages import Estimate
from largen.theories.mean_field.deep.estimation.replicates import Replication
from largen.theories.mean_field.deep.method import choose_method, records_of
from largen.theories.mean_field.deep.restarts.checkpoint import SweepCheckpoint
from largen.theories.mean_field.deep.sampled import SINGLE, sampled, settings_for
from largen.theories.mean_field.deep.sweep.initial_kernels import readout_size
from largen.theories.mean_field.deep.sweep.layer_widths import unit_for
from largen.theories.mean_field.deep.sweep.state import Kept
from largen.theories.mean_field.engine.ensembles import measure_fluctuations, narrow_width
from largen.theories.mean_field.engine.movement import Attempt, Units, solve_in_units
from largen.theories.mean_field.infinite_depth.extrapolation import Depths, replicate
from largen.theories.mean_field.infinite_depth.problem import (
    EndlessProblem,
    endless_problem,
    network_of_layers,
)
from largen.theories.mean_field.options import Sampling, WantedKernels, check_shared, wanted_kernels

Method = Literal["auto", "closed", "deterministic", "sweep"]
METHODS: tuple[Method, ...] = get_args(Method)
CLOSED_RTOL = 1e-7  # tolerance of closed equations, where a smaller one costs little
FEW, MANY = (2, 4, 8), (2, 4, 8, 16)  # repetitions of the stack, for rtol above and below
FINE = 5e-3
DEEP = 16  # repetitions of the stack in networks whose fluctuations are measured


class Answer(NamedTuple):
    """A solution, and the network whose layers its kernels have."""

    estimate: Estimate
    net: Problem
    shares: np.ndarray  # of the blocks that are before each layer
    stopped: str | None  # why memory did not suffice


@dataclass(frozen=True, kw_only=True)
class InfiniteDepth(Theory):
    """The mean-field limit of residual networks of infinite width and depth.

    Branches L^(−α) with α ≥ 1/2 have a limit L → ∞ (Bordelon, Noci, Li, Hanin and Pehlevan,
    *Depthwise hyperparameter transfer in residual networks*, (60)-(75), corrected: C_g is where
    δg/δr has C_h, and the response B at equal times stays). For α = 1/2, with τ the share of
    blocks,

        dh(τ, t) = du(τ, t) + dτ Σ_{s<t} C_h(τ; t, s) g(τ, s),     ⟨du du⟩ = Φ(τ; t, s) dτ,

    and the gradient alike, backwards, with dr and G. A network of L blocks is the Euler-Maruyama
    scheme of these equations, with noise and responses, and differs from their solution by powers
    of 1/L. The causal sweep of :class:`DeepMeanField` solves networks of several depths that are
    driven by the same Brownian motion, and each replicate is extrapolated to 1/L = 0.

    For α > 1/2 noise and responses vanish as L^(1−2α), and with one matrix a block neurons follow

        ∂_τ h(τ, t) = κ Σ_{s<t} Δ(s) Φ(τ; t, s) g(τ, s)

    and a similar equation for g, solved on a few nodes of depth. For α = 1 the inner layers of
    blocks of several matrices learn, too: at each node they have neurons with noise and responses
    of their own, whose noise does not enter the stream. For 1/2 < α < 1 they have the kernels of
    initialisation, given the stream, and move it by the tangent kernel of a block. Branches may
    read the normalised stream, h̃ = (h − ⟨h⟩)/σ (:class:`~largen.LayerNorm`,
    :class:`~largen.RMSNorm`): φ(h̃) and the gradient through h̃ then contain averages over neurons,
    at each depth and time. Linear networks have closed equations for all α, a Riccati system in
    depth.

    Parameters
    ----------
    method
        ``"closed"``: the equations of linear networks. ``"deterministic"``: neurons of α > 1/2.
        ``"sweep"``: networks of several depths, extrapolated; α = 1/2, gradient flow and
        convolutions have no other, nor have batch normalisation and Langevin noise, whose matrices
        are stored. For 1/2 < α < 1 these networks have the same limit and smaller errors: branches
        1/L, or, if blocks have several matrices, branches L^(−1/2) without noise in the stream.
        ``"auto"`` takes the first that applies; the first two are of fully connected networks of a
        read-in, equal blocks and a read-out, under gradient descent, the second not for several
        matrices with 1/2 < α < 1.
    rtol
        Wanted error of the whole trajectory of outputs, relative: |error|/|f|. More replicates
        are spent until the sampling error is that small.
    depths
        How often the stack of blocks is repeated in the networks that are solved, each twice as
        often as the one before it; by default (2, 4, 8), and 16 as well for an ``rtol`` below
        5e-3. The extrapolation error falls by a factor of 2 to 4 with each further depth.
    particles
        N, the number of neurons of a layer in each network; by default as in
        :class:`DeepMeanField`, for deterministic neurons 2048, or 8192 for an ``rtol`` below 1e-3.
    replicates
        Number of replicates; by default at least 4, and as many as ``rtol`` needs.
    max_particles
        Largest number of neurons of a layer in all replicates together.
    memory_budget
        Bytes that the deepest network may take.
    record
        Kernels to keep, as in :func:`largen.train`: ``"feature_kernel"``, ``"gradient_kernel"``,
        ``"ntk"``.
    record_at
        Time indices of the trajectory at which kernels are kept; the first and the last by
        default.
    record_pairs
        Pairs (t, s) of time indices between which Φ(t, s) and G(t, s) are kept. ``"all"``: all
        pairs of the times of ``record_at``, or of all times without it;
        :meth:`largen.Trajectory.between_times` returns them as an array.
    sample_neurons
        The number of neurons whose h and g are recorded, on training samples; with
        ``method="sweep"`` those of the deepest network.
    fluctuations
        Whether to measure the fluctuations of networks of finite width, as in
        :class:`DeepMeanField`, on networks that repeat the stack of blocks 16 times.
    checkpoint
        A file that stores finished replicates, as in :class:`DeepMeanField`.
    key
        Random key of the matrices: a JAX key or an integer.
    progress
        Whether to show a bar; by default in terminals, after two seconds.

    Notes
    -----
    The trajectory is that of :class:`DeepMeanField`. Kernels are those of the stream, and the axis
    ``layer`` has the shares τ of all blocks behind which they are: those that the shallowest
    network has, (0, 1/2, 1) by default, quarters for closed equations, and 0, the nodes of depth
    and 1 for deterministic neurons. Layers before and behind the stack count as 0 and 1.
    ``f_train_error`` combines the standard error of the mean of replicates, the error of neglected
    directions, and half of the change by the last term of the extrapolation. For deterministic
    neurons it combines the standard error over sets of neurons with the change of f with one node
    of depth less; for blocks of several matrices, whose neurons are drawn anew at each node, the
    sampling error is subtracted from this change. ``f_train_margin`` and ``f_test_margin`` are half
    of the 95 % interval, by Student's distribution of the number of replicates or sets.

    Raises
    ------
    InvalidInput
        For an invalid option.

    Examples
    --------
    >>> import largen as lg, math, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> net = lg.residual_mlp(math.inf, "tanh")
    >>> run = lg.Run(net, lg.depth_mup(), data, optimizer=lg.gd(0.3), steps=3)
    >>> limit = lg.solve(run, theory=lg.theories.InfiniteDepth(rtol=5e-2, particles=256))
    >>> limit.theory, limit.layer.tolist()
    ('mean field, infinite depth', [0.0, 0.5, 1.0])
    """

    name: ClassVar[str] = "mean field, infinite depth"
    papers: ClassVar[tuple[str, ...]] = ("bordelon2023depthwise",)

    method: Method = "auto"
    rtol: float = 1e-2
    depths: Sequence[int] | None = None
    particles: int | None = None
    replicates: int | None = None
    max_particles: int = 2**17
    memory_budget: float = MEMORY_BUDGET
    record: str | Sequence[str] | None = None
    record_at: Sequence[int] | None = None
    record_pairs: Sequence[tuple[int, int]] | Literal["all"] = ()
    sample_neurons: int = 0
    fluctuations: bool = False
    checkpoint: str | PathLike[str] | None = None
    key: Any = 0
    progress: bool | Report | None = None

    # Values of the options that mean-field theories share.
    sampling: ClassVar[Sampling] = "variance_reduced"

    def __post_init__(self):
        one_of("method", self.method, METHODS)
        check_shared(self, fewest=1)
        set_fields(self, depths=None if self.depths is None else _doubling(self.depths))

    @classmethod
    def pose(cls, run: Run) -> Posed[EndlessProblem]:
        """Return the problem that a run poses.

        Raises
        ------
        NoTheory
            If the number of blocks is finite, features do not move (d ≠ ½), the depth has no
            limit (α < ½, Adam), or a further option of the run has no theory at infinite depth.
        NoRule
            For a layer without a rule in the mean-field limit.
        """
        return endless_problem(run)

    @interruptible()
    def solve(self, posed: Posed[EndlessProblem], *, throw: bool = True) -> Trajectory:
        """Solve the mean-field limit of an infinitely deep network."""
        run, endless = posed.run, posed.problem
        record = records_of(endless.finite(1), self.record, self.sample_neurons)
        wanted = wanted_kernels(run, record, self.record_at, self.record_pairs)
        method, once = self._method(endless), endless.finite(1)

        def solved(units: Units, again: bool) -> Attempt[Answer]:
            enlarged, stopped, dtype = endless.enlarged(units.boost), None, units.dtype
            if method == "sweep":
                times = self.depths or (FEW if self.rtol >= FINE else MANY)
                depths = Depths.of(enlarged, times)
                net, shares = depths.recorded_network, depths.shares
                estimate, stopped = self._extrapolate(enlarged, depths, wanted, dtype, again)
            elif method == "closed":
                from largen.theories.mean_field.infinite_depth.exact import solve_linear

                rtol, dtype = min(self.rtol, CLOSED_RTOL), np.float64
                estimate, shares = solve_linear(enlarged, wanted, rtol, self.memory_budget)
                net = network_of_layers(once, shares)
            else:
                estimate, shares = self._deterministic(enlarged, wanted, dtype)
                net = network_of_layers(once, shares)
            found = Answer(estimate, net, shares, stopped)
            return Attempt(found, estimate.f, dtype, stopped is None)

        (estimate, net, shares, stopped), units = solve_in_units(
            run,
            once.gamma,
            readout_size(once),
            self.rtol,
            solved,
            single=np.inf if method == "closed" else SINGLE,
        )
        estimate = estimate.with_errors(units.error(estimate.f))
        told = Posed(run, posed.reason, net)
        spread = None
        if self.fluctuations and stopped is None and np.isfinite(estimate.f).all():
            width = unit_for(endless.finite(1), narrow_width(endless.finite(1).total))
            deep = endless.network(DEEP)
            spread = measure_fluctuations(deep, width, self.key, self.progress)
        # z is the derivative in depth of a field with noise, or of g.
        estimate.sample_neurons.pop("neuron_z", None)
        result = trajectory(told, self.name, estimate, spread, wanted, self.rtol, shares)
        return bounded(run, estimate.f, result, throw, stopped=stopped)

    def _method(self, endless: EndlessProblem) -> Method:
        """Return the method, ``"auto"`` resolved."""
        applies: dict[Method, bool] = {
            "closed": endless.has_closed_equations
            and not (self.record_pairs or self.sample_neurons),
            "deterministic": endless.deterministic and not self.record_pairs,
            "sweep": True,
        }
        if self.method == "auto":
            if applies["closed"]:
                from largen.theories.mean_field.infinite_depth.exact import closed_bytes

                if closed_bytes(endless) <= self.memory_budget:
                    return "closed"
            return "deterministic" if applies["deterministic"] else "sweep"
        if not applies[self.method]:
            pairs = "; 'sweep' alone has record_pairs" if self.record_pairs else ""
            pairs += "; closed equations have no neurons to sample" if self.sample_neurons else ""
            raise InvalidInput(
                f"method: {self.method!r} does not apply to {endless.run.net!r} with branches "
                f"L^(−{endless.alpha}){pairs}. Take 'auto'."
            )
        return self.method

    def _deterministic(
        self, endless: EndlessProblem, wanted: WantedKernels, dtype: Any
    ) -> tuple[Estimate, np.ndarray]:
        """Return the solution by deterministic neurons."""
        from largen.theories.mean_field.infinite_depth.exact import deterministic

        seed = np.asarray(jax.random.key_data(random_key(self.key)))
        with reporter(self.progress, "mean field, infinite depth") as report:
            return deterministic(
                endless,
                wanted,
                rtol=self.rtol,
                particles=self.particles or (2048 if self.rtol >= 1e-3 else 8192),
                replicates=self.replicates,
                most=self.max_particles,
                sample_neurons=self.sample_neurons,
                dtype=np.dtype(dtype).type,
                key=int(seed[-1]),
                tell=lambda done: report(int(100 * done), 100),
            )

    def _extrapolate(
        self,
        endless: EndlessProblem,
        depths: Depths,
        wanted: WantedKernels,
        dtype: Any,  # the precision of the neurons
        again: bool,  # whether other settings did not suffice: their file is kept
    ) -> tuple[Estimate, str | None]:
        """Return means over replicates, and the reason if they end early for lack of memory."""
        run, deepest = endless.run, depths.deepest
        # Langevin noise needs stored matrices, which would bring noise to a stream that has none.
        method: Any = "dense" if endless.noisy else "sweep"
        if not (deepest.quiet or endless.noisy):
            method = choose_method("auto", deepest, len(run.times) - 1, self.particles, True)
        kept = Kept(wanted.test, self.sample_neurons)
        settings = settings_for(self, deepest, method, kept, dtype)

        def how(saved: SweepCheckpoint | None) -> Replication:
            one = partial(replicate, depths, run, wanted.recorded, saved=saved)
            return Replication(one, depths.recorded_network)

        found, stopped = sampled(
            self, deepest, run, wanted.recorded, settings, {"depths": depths.times}, how, again
        )
        times = ", ".join(map(str, depths.times))
        words = f"the stack of blocks repeated {times} times and extrapolated; {found.how}"
        return found._replace(how=words), stopped


def _doubling(depths: Any) -> tuple[int, ...]:
    """Check that each number of repetitions is twice the one before it."""
    found = tuple(integers("depths", depths, at_least=1))
    if len(found) < 2 or any(b != 2 * a for a, b in pairwise(found)):
        raise InvalidInput(
            "depths: wanted at least two numbers, each twice the one before it, e.g. (4, 8, 16), "
            f"got {found}."
        )
    return found
