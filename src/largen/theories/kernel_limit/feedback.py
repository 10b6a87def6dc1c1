"""The kernel limit under pseudo-gradients: rates that fall with the distance from the output."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from largen.errors import NoTheory
from largen.parameterizations import CanonicalForm, gd, pseudo_gradient_of
from largen.programs import Affine, Gain, Program, written_out
from largen.programs.refusals import at
from largen.runs import Posed, Run
from largen.theories.kernel_limit.limit import KernelLimit, Reduced, lowered_for


@dataclass(frozen=True, kw_only=True)
class FeedbackKernelLimit(KernelLimit):
    """The kernel limit under feedback alignment and Hebbian learning: less of lower layers.

    In runs in ``lg.ntk()``, and others with γ = γ₀Nᵈ, 0 ≤ d < ½, features stand still at infinite
    width, and outputs follow the effective tangent kernel of
    :func:`largen.optimizers.feedback_alignment` at initialisation,

        df_μ/dt = (η₀/P) Σ_ν K̃_μν Δ_ν,     K̃ = Σ_l G̃ˡ⁺¹ Φˡ,     G̃ˡ = ⟨gˡ g̃ˡ⟩ = ρᴸ⁺¹⁻ˡ Gˡ,

    since g passes by W(0) and g̃ by matrices whose correlation with W(0) is ρ, one for each affine
    map between layer l and the output (Bordelon and Pehlevan, arXiv 2210.02157). It is the limit of
    gradient descent whose rates fall by a factor ρ from each layer to the one below: at ρ = 0 only
    the read-out learns, as under direct feedback alignment and :func:`largen.optimizers.hebbian`,
    and ρ = 1 is gradient descent.

    Parameters
    ----------
    std, covariance, draws, rtol, key, kernel_rtol, memory_budget, progress
        As in :class:`largen.theories.KernelLimit`.

    Notes
    -----
    The trajectory has the variables of :class:`largen.theories.KernelLimit`, with ``effective_ntk``
    and ``effective_ntk_test`` instead of ``ntk`` and ``ntk_test``.

    Raises
    ------
    InvalidInput
        For an invalid option.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]))
    >>> rule = lg.optimizers.feedback_alignment(0.5, correlation=0.5)
    >>> limit = lg.solve(lg.Run(lg.mlp(1, "relu"), lg.ntk(), data, optimizer=rule, steps=100))
    >>> nngp, ntk = lg.kernel(lg.mlp(1, "relu"), np.eye(3))
    >>> bool(np.allclose(limit.effective_ntk, nngp + 0.5 * (ntk - nngp)))
    True
    """

    name: ClassVar[str] = "kernel, pseudo-gradients"
    papers: ClassVar[tuple[str, ...]] = ("bordelon2022influence", "lee2019wide")
    tangent: ClassVar[str] = "effective_ntk"

    @classmethod
    def pose(cls, run: Run) -> Posed[Reduced]:
        """Return the run's constants of order one, and its network for the kernel recursion.

        Raises
        ------
        NoTheory
            If the kernel limit does not cover the run, the optimizer is neither feedback alignment
            nor Hebbian learning, weights decay, or paths of different numbers of affine maps lead
            to the output.
        NoRule
            For a layer that has no kernel.
        """
        rho = pseudo_gradient_of(run.optimizer).correlation
        if run.optimizer.weight_decay:
            raise NoTheory(
                "weight decay shrinks the weights and not what gradients are replaced by, so that "
                "the effective kernel changes; use weight_decay=0."
            )
        plain = KernelLimit.pose(run.with_changes(optimizer=gd(1.0)))
        form = _with_smaller_rates(plain.problem.form, run.program, rho)
        reason = f"{plain.reason}; rates fall by a factor {rho:g} from each layer to the one below"
        return Posed(run, reason, Reduced(form, lowered_for(run, form), plain.problem.degree))


def _with_smaller_rates(form: CanonicalForm, program: Program, rho: float) -> CanonicalForm:
    """Return constants with rates times ρᵏ, for k affine maps behind a weight."""
    factors: dict[str, float] = {}
    program = written_out(program)
    behind: dict[int, int] = {program.output: 0}
    for place in range(program.output, 0, -1):
        operation, source = program.operations[place], program.sources[place]
        if place not in behind:
            continue
        affine = isinstance(operation, Affine)
        for read in operation.reads:
            if behind.setdefault(read, behind[place] + affine) != behind[place] + affine:
                raise NoTheory(
                    "paths of different numbers of affine maps lead to the output from what "
                    f"{at(source)} reads, such as around a residual branch: the kernel is no sum "
                    "over layers."
                )
        if isinstance(operation, Affine | Gain):
            name, factor = program.weights[operation.weight].name, rho ** behind[place]
            if factors.setdefault(name, factor) != factor:
                raise NoTheory(
                    f"{at(source)} has a rate in common with other layers: write repeated layers "
                    "one by one."
                )

    def factor_of(name: str) -> float:
        return factors.get(name.rsplit(".", 1)[0], 1.0)

    weights = {n: replace(w, rate=w.rate * factor_of(n)) for n, w in form.weights.items()}
    gains = {name: rate * factor_of(name) for name, rate in form.gains.items()}
    return replace(form, weights=weights, gains=gains)
