"""The options of the theory of networks with attention, and their solution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, ClassVar, Literal

import jax
import numpy as np

from largen.errors import NoTheory, NumericalFailure
from largen.interrupts import interruptible
from largen.memory import MEMORY_BUDGET, check_fits
from largen.progress import Report, reporter
from largen.runs import Posed, Run, Status, Theory, Trajectory
from largen.scalars import random_key
from largen.theories.mean_field.answers import bounded
from largen.theories.mean_field.engine.checkpoint import Checkpoint
from largen.theories.mean_field.engine.movement import Attempt, Units, solve_in_units
from largen.theories.mean_field.engine.replicates import watched
from largen.theories.mean_field.options import WantedKernels, check_shared, wanted_kernels
from largen.theories.mean_field.transformer.answer import trajectory
from largen.theories.mean_field.transformer.dynamics import (
    AttentionProblem,
    bytes_at_start,
    readout_size,
)
from largen.theories.mean_field.transformer.problem import posed_by
from largen.theories.mean_field.transformer.replicates import (
    KINDS,
    SINGLE,
    Mean,
    Settings,
    solve_by_replicates,
    solve_exactly,
    wanted_particles,
)

ROUGHLY_CHANGED = 30.0  # by how much fields may change more than outputs are expected to move


@dataclass(frozen=True, kw_only=True)
class AttentionMeanField(Theory):
    """The mean-field limit of networks with attention: of large keys, or of many heads.

    In runs in ``lg.mean_field(gamma)`` or an equivalent parameterization, logits c q·k/d
    (:class:`largen.QKVAttention`) are averages over the features of a head, and do not fluctuate in
    the limit of infinite width (Bordelon, Chaudhry and Pehlevan, *Infinite limits of multi-head
    transformer dynamics*, arXiv 2405.15712, the limit of infinite key size). With g_q = Nγ₀ ∂f/∂q
    and likewise for other fields, tokens s, t of a sample, and averages over neurons,

        a_st = c ⟨q_s k_t⟩,             o_s = Σ_t σ_st v_t,    σ = softmax(a) over visible t,
        e_st = ⟨g_o,s v_t⟩,             ȧ_st = σ_st (e_st − Σ_u σ_su e_su),
        g_q,s = c Σ_t ȧ_st k_t,         g_k,t = c Σ_s ȧ_st q_s,         g_v,t = Σ_s σ_st g_o,s.

    Queries, keys and values are products of Gaussian matrices with the stream, q = W_q h/√N, and
    their gradients return to it by the transposes; every matrix moves by κ Σ Δ g hᵀ, with
    κ = η₀γ₀/P. At initialisation all a and e are 0: attention is uniform over visible tokens,
    queries and keys do not move in the first step, and weights of attention change from the second
    step on. Normalisations act through ⟨h²⟩.

    Without activations all fields are linear in the Gaussian vectors of their population of
    neurons. The solution consists of the coordinates of fields with respect to these vectors, which
    are orthonormal in the limit, so that averages are scalar products, and a new direction that a
    matrix acts on has a further Gaussian vector as its image, besides the part that follows from
    earlier products of the transpose. There is no sampling; the result is exact to rounding at any
    size of steps.

    The activations of multilayer perceptrons in blocks act on each neuron of a layer,

        h′_s = h_s + W_2 φ(u_s)/√N,     u_s = W_1 norm(h_s)/√N,     g_u,s = φ′(u_s) W_2ᵀ g_h′,s/√N,

    where the fields u, φ(u) and their backward fields are not linear. They are values at a number
    of neurons. A new direction of the stream has an image by W_1 that is random at each neuron, and
    exactly orthonormal to all earlier fields, as it is in the limit. What W_2 makes of φ(u) is
    again linear in Gaussian vectors, so that the stream, queries, keys and values keep their
    coordinates. Averages over the neurons have a sampling error, which is estimated from
    independent replicates. Directions that are smaller than a tolerance are omitted, and their
    effect is part of the error. For ``rtol`` ≥ 0.001 the fields of sampled networks are in single
    precision, unless smaller directions turn out to matter.

    In the limit of infinitely many heads of a fixed size d (the other limit of that paper;
    ``lg.layers.MultiHeadAttention(key_size=d)``), logits remain random and differ from head to
    head. With sums over the d neurons of a head in place of averages,

        a_st = c q_s·k_t/√d,        e_st = g_o,s·v_t,        g_q,s = (c/√d) Σ_t ȧ_st k_t,

    and likewise for g_k; all heads have the same distribution. Queries, keys and values are values
    at the neurons of a number of heads, sampled as the neurons of perceptrons are, and what the map
    behind them sends to the stream is linear in Gaussian vectors again. With c = c'/√d this limit
    approaches that of large keys with a distance of order 1/d.

    A read-out without pooling has an output f_s at each position s. The loss is the mean over S
    positions, and the error signal is that of each position,

        f_s = ⟨w h_s⟩/γ₀,   g_h,s = w Δ_s,   w moves by κ Σ_μ Σ_s Δ_s h_s,   Δ_s = −(1/S) ∂ℓ/∂f_s,

    where the mean over positions has g_h,s = w Δ/S. With the loss ``"cross_entropy"`` these outputs
    are a language model's logits of the next token. Tokens of a finite vocabulary are one-hot
    inputs (:func:`largen.token_inputs`): the read-in is their embedding, a trained vector for each
    token, and the rows of the read-out are the unembedding, with weights of their own. Encodings of
    positions are inputs as well: :func:`largen.with_positions`.

    Covered are a ``Dense`` read-in, residual or plain sequences of ``Dense``, ``Activation``,
    ``QKVAttention``, ``SelfAttention``, ``MultiHeadAttention`` of a ``key_size`` with as many
    values as keys, ``RMSNorm``, ``LayerNorm``, ``GlobalAvgPool`` and ``GlobalSumPool``, and a
    ``Dense`` read-out, with ratios of widths and biases; ``Product``, ``Concatenate`` and other
    graphs of these, such as skips over several blocks or from the inputs, sums with constant
    factors, and gates; gradient descent on full or other batches with momentum, weight decay and
    schedules. The initial values of one weight may vanish with the width where its updates do not;
    the limit is that of a weight that starts from zero, and small ones decide signs (Golikov,
    *Towards a general theory of infinite-width limits of neural classifiers*, Appendices E.3 and
    E.4). All heads of a ``QKVAttention`` have the same logits in the limit, whatever their number.
    Not covered are logits q·k/√d of keys that grow in number with the width, tied embeddings,
    adaptive optimizers, Langevin noise and gradient flow.

    Parameters
    ----------
    rtol
        Target relative error of the whole trajectory of outputs, |error|/|f|, in networks with
        activations or heads of a fixed size. Replicates are added until it is reached. This and the
        next three options are without effect in others, which are solved exactly.
    particles
        The number of neurons of each sampled population, in each replicate; of heads, those of all
        of them together. By default at least 2048, and 64 for every position of a sample, 128 with
        heads; twice as many if these have fewer than twice the directions of the fields.
    replicates
        The number of replicates; by default at least 4, and as many as ``rtol`` requires.
    max_particles
        The largest number of neurons of a population, summed over all replicates. If it does not
        suffice for ``rtol``, a note of the result reports this.
    record
        Kernels to record, as in :func:`largen.train`: ``"feature_kernel"``, ``"gradient_kernel"``,
        ``"ntk"`` (among training samples, and between test and training samples). By default all of
        them among training samples if there is one output, and features otherwise: gradients of
        each output are further directions of all matrices. With an output at each position there
        are features only.
    record_at
        Time indices of the trajectory at which attention weights and kernels are recorded; the
        first and the last by default.
    record_pairs
        Pairs (t, s) of time indices between which Φˡ(t, s) and Gˡ(t, s) are recorded. Fields at a
        time are kept in memory until the last time that is paired with it. ``"all"``: all pairs of
        the times of ``record_at``, or of all times without it;
        :meth:`largen.Trajectory.between_times` returns them as an array.
    memory_budget
        The number of bytes that the directions of all matrices may take, of all replicates that are
        computed at the same time. Their number grows with
        training, at most by samples × positions a step for each side of a matrix. If it outgrows
        the budget, the status is ``"out of memory"``.
    key
        The key of the random numbers of sampled neurons: a JAX key or an integer.
    checkpoint
        A file to which each replicate is written as it finishes, and from which the same call
        resumes. Solutions without sampling, which are quick, do not use it.
    progress
        Whether to show a progress bar; by default in terminals, after two seconds. A function is
        called with the numbers of completed and of all time indices.

    Notes
    -----
    The trajectory has ``f_train``, ``f_test`` and losses, and, in networks with attention,

    * ``attention (record, attention_layer, sample, position, position_2)``, the weights σ_st with
      which a position attends to another in each attention layer, on training samples, and
      ``attention_test`` on test samples; where heads differ, their mean over heads;
    * in networks that are sampled ``f_train_error``, ``f_test_error``, ``attention_error`` and
      ``attention_test_error``, with the same axes: the standard error of the mean over replicates,
      combined with the effect of omitted directions; and ``f_train_margin``, ``f_test_margin``,
      half of the 95 % interval of the outputs, by Student's distribution of the number of
      replicates;
    * ``record_step`` and ``attention_layer``, the time indices, and the attention layers from 1 on.

    All networks have

    * ``feature_kernel`` Φ and ``gradient_kernel`` G, ``(record, layer, sample, sample_2)``, and
      ``ntk``, ``(record, sample, sample_2)``, as in :func:`largen.train` with ``record``: the
      affine maps are counted in the order of the rule table, Φˡ = ⟨x x⟩ of the fields that map
      l + 1 reads, a normalised stream for instance, is the mean over equal positions, and
      Gˡ = N γ₀² Σ_i (∂f/∂hˡ_i)(∂f/∂hˡ_i) behind map l their sum. With several outputs, G and K have
      further axes ``output, output_2``;
    * ``feature_kernel_tokens`` and ``gradient_kernel_tokens``, with axes
      ``(record, layer, sample, position, sample_2, position_2)``, between all pairs of positions,
      ⟨x_μs x_νt⟩, and NaN at those that a layer does not have;
    * on request ``ntk_test (record, test_sample, sample)``, and with ``record_pairs``
      ``feature_kernel_pair``, ``feature_kernel_tokens_pair`` and so on with a leading axis ``pair``
      instead, the first sample at t and the second at s; ``pair_step`` and ``pair_step_2`` are t
      and s;
    * ``feature_kernel_error`` and so on, with the same axes: errors as those of outputs, 0 in
      networks that are not sampled.

    If the fields of a sampled population span more than half of the space of ``particles`` neurons,
    the status is ``"inaccurate"``.

    Raises
    ------
    InvalidInput
        For an invalid option.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> tokens = lg.token_inputs([[0, 1, 1], [1, 0, 1], [1, 1, 0]], vocabulary=2)
    >>> data = lg.Dataset(lg.with_positions(tokens), np.array([1.0, -1.0, 1.0]))
    >>> block = lg.Residual(lg.serial(lg.RMSNorm(), lg.QKVAttention(causal=True), lg.Dense()))
    >>> net = lg.serial(lg.Dense(), block, lg.GlobalAvgPool(), lg.Dense())
    >>> run = lg.Run(net, lg.mean_field(), data, optimizer=lg.gd(0.3), steps=60)
    >>> limit = lg.solve(run, theory=lg.theories.AttentionMeanField())
    >>> bool(limit.loss_train[-1] < 1e-2)
    True
    >>> limit.attention[0, 0, 0].round(2).tolist()
    [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.33, 0.33, 0.33]]
    """

    name: ClassVar[str] = "mean field, branches and attention"
    papers: ClassVar[tuple[str, ...]] = ("bordelon2024transformer",)
    has_positions: ClassVar[bool] = True
    _kinds: ClassVar[tuple[Any, Any, Any]] = KINDS  # of what a checkpoint has
    _only: ClassVar[Any] = None  # the precision of all solutions, if there is one alone

    rtol: float = 3e-3
    particles: int | None = None
    replicates: int | None = None
    max_particles: int = 2**17
    record: str | Sequence[str] | None = None
    record_at: Sequence[int] | None = None
    record_pairs: Sequence[tuple[int, int]] | Literal["all"] = ()
    memory_budget: float = MEMORY_BUDGET
    key: Any = 0
    checkpoint: str | PathLike[str] | None = None
    progress: bool | Report | None = None

    def __post_init__(self):
        check_shared(self, fewest=2)

    @classmethod
    def pose(cls, run: Run) -> Posed[AttentionProblem]:
        """Return the problem that a run poses.

        Raises
        ------
        NoTheory
            If features do not move at order one (d ≠ ½), logits are not averages over neurons, or
            the optimizer is not gradient descent.
        NoRule
            For a layer that is not known here.
        """
        return posed_by(run)

    @interruptible()
    def solve(self, posed: Posed[AttentionProblem], *, throw: bool = True) -> Trajectory:
        """Solve the mean-field limit of a network with attention."""
        run, problem = posed.run, posed.problem
        wanted = self._wanted(run, problem)
        settings = Settings(
            self.rtol,
            self.particles,
            self.replicates,
            self.max_particles,
            run.time_indices("record_at", self.record_at),
            wanted,
            self.memory_budget,
        )
        self._check_memory(problem, run)
        sampled = bool(problem.network.populations.sampled)

        def solved(units: Units, again: bool) -> Attempt[Mean]:
            enlarged = problem.enlarged(units.boost)
            if not sampled:
                with reporter(self.progress, "mean field") as report:
                    found = solve_exactly(enlarged, run, settings, report)
                return Attempt(found, found.f, np.float64, found.stopped is None)
            changes = min(1.0, ROUGHLY_CHANGED * units.expected)
            own = replace(settings, dtype=units.dtype, changes=changes)
            found = self._sampled(Posed(run, posed.reason, enlarged), own, again)
            return Attempt(found, found.f, units.dtype, found.stopped is None)

        particles = self.particles or self._wanted_particles(problem, run)
        found, units = solve_in_units(
            run,
            problem.gamma,
            readout_size(problem, run, particles),
            self.rtol,
            solved,
            single=SINGLE if sampled else np.inf,
            only=self._only,
        )
        found = found.with_errors(units.error(found.f))
        result = trajectory(posed, self.name, found, settings)
        if found.stopped is not None:
            kind = Status.OUT_OF_MEMORY if found.stopped == "memory_budget" else Status.INACCURATE
            result = result.with_status(kind)
            if throw:
                raise NumericalFailure(self._why(found), result)
            return result
        return bounded(run, found.f, result, throw)

    def _check_memory(self, problem: AttentionProblem, run: Run) -> None:
        """Check that there is memory for a solution."""
        needed = bytes_at_start(problem, run, self.particles or wanted_particles(problem, run))
        check_fits(needed, f"net: directions of {len(run.data.x)} samples", "Take fewer samples.")

    def _replicated(self, *of: Any) -> Mean:
        """Return the mean over replicates."""
        return solve_by_replicates(*of)

    def _wanted(self, run: Run, problem: AttentionProblem) -> WantedKernels:
        """Return the kernels that are recorded, and their time indices."""
        record = self.record
        if record is None:
            alone = problem.positions == problem.outputs == 1
            return wanted_kernels(
                run, None if alone else ("feature_kernel",), self.record_at, self.record_pairs
            )
        if run.positions is not None and set(record) - {"feature_kernel"}:
            raise NoTheory(
                "record: gradient kernels and tangent kernels of an output at each position are "
                "not implemented; record='feature_kernel' is."
            )
        return wanted_kernels(run, record, self.record_at, self.record_pairs, others=True)

    def _wanted_particles(self, problem: AttentionProblem, run: Run) -> int:
        """Return the default number of neurons of a sampled population."""
        return wanted_particles(problem, run)

    def _sampled(
        self,
        posed: Posed[AttentionProblem],
        settings: Settings,
        again: bool,  # whether other settings did not suffice: their file is kept
    ) -> Mean:
        """Return the mean over replicates, with what the checkpoint has of them."""
        seed = np.asarray(jax.random.key_data(random_key(self.key)))
        saved = None
        if self.checkpoint is not None and not again:
            batches = posed.run.batches
            steps = posed.run.rates, None if batches is None else np.asarray(batches)
            options = {
                "key": seed,
                "rtol": self.rtol,
                "number of particles": self.particles,
                "choice of record_at": settings.record_at,
                "choice of record or record_pairs": settings.wanted,
                "number of steps, or other rates": steps,
                "precision, by the size of its targets, rates and duration": (
                    str(np.dtype(settings.dtype)),
                    posed.problem.gamma,
                ),
            }
            saved = Checkpoint(self.checkpoint, posed.run, options, self._kinds)
        with watched(self.progress, self.name.split(",")[0], self.checkpoint) as watching:
            what = posed.problem, posed.run, settings, seed
            return self._replicated(*what, *watching, saved)

    def _why(self, found: Mean) -> str:
        """Return why a solution ended before its time, and what to do."""
        if found.stopped == "memory_budget":
            return (
                f"memory_budget: the {found.directions} directions of a matrix outgrow "
                f"{self.memory_budget:.2g} bytes. Take fewer samples or steps, or raise it; "
                "throw=False returns what was computed."
            )
        return (
            f"particles: the fields of {found.how} span half of the space of the neurons. Raise "
            "particles and max_particles, or take fewer samples or steps, or a larger rtol; "
            "throw=False returns what was computed."
        )
