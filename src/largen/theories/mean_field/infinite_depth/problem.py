"""The mean-field problem of a residual network of infinite depth, and of finite depths."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from largen.architectures import Layer, Repeat, endless_stack, map_layers
from largen.errors import NoTheory
from largen.parameterizations import canonical_form, temperature_of
from largen.runs import Posed, Run
from largen.theories.chains.problem import GAUSSIAN_ROLES, Problem, posed_by

HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Stack:
    """The position of the residual blocks among the matrices between hidden layers.

    Attributes
    ----------
    before, behind
        Matrices before the stack and behind it.
    unit
        Matrices in one repetition of the stack.
    blocks
        Residual blocks in one repetition of the stack.
    """

    before: int
    behind: int
    unit: int
    blocks: int

    def layers(self, times: int, shares: int) -> list[int]:
        """Return the hidden layers of a network that networks of every depth have.

        Those before the stack, the stream behind each share of the blocks, and those behind it.
        """
        stream = [
            self.before + self.unit * (times * share // shares) for share in range(shares + 1)
        ]
        end = stream[-1]
        return [*range(self.before), *stream, *range(end + 1, end + 1 + self.behind)]


@dataclass(frozen=True)
class EndlessProblem:
    """A residual network of infinite width and depth, with branches L^(−α).

    Attributes
    ----------
    run
        The run.
    alpha
        α.
    stack
        The position of its blocks.
    """

    run: Run
    alpha: Fraction
    stack: Stack

    @property
    def diffusive(self) -> bool:
        """Whether α = ½, so that the stream is a diffusion in depth."""
        return self.alpha == HALF

    @property
    def matrices_per_block(self) -> int:
        """K, for blocks that are all alike."""
        return self.stack.unit // self.stack.blocks

    @property
    def plain(self) -> bool:
        """Whether the network is a fully connected read-in, equal blocks, and a read-out.

        It must also be trained in steps, as equations without random matrices require.
        """
        net = self.finite(1)
        readings = all(affine.reading.plain for affine in net.maps) and max(net.positions) == 1
        alone = self.stack.before == self.stack.behind == 0 and self.stack.blocks == 1
        return readings and alone and not net.unequal and self.run.steps is not None

    @property
    def closed(self) -> bool:
        """Whether there are closed equations."""
        return self.plain and self.finite(1).linear

    @property
    def deterministic(self) -> bool:
        """Whether the stream has no noise, and equations for its neurons are known.

        At α = 1 the inner layers of blocks of several matrices learn, too.
        """
        known = self.matrices_per_block == 1 or self.alpha == 1
        return self.plain and not self.diffusive and known

    @property
    def extrapolated(self) -> bool:
        """Whether networks of finite depth converge to the limit with errors in powers of 1/L.

        For ½ < α < 1 these networks have branches 1/L, with the same limit if blocks have one
        matrix each.
        """
        return self.alpha in (HALF, 1) or self.stack.unit == self.stack.blocks

    def finite(self, times: int) -> Problem:
        """Return the problem of the network with this number of repetitions of the stack.

        For α > ½ its branches are 1/L. Branches L^(−α) with ½ < α < 1 would have the same limit,
        but with errors in powers of L^(1−2α).
        """
        run = self.run if self.diffusive else with_branches_of_one(self.run, self.alpha)
        return posed_by(with_blocks(run, times)).problem


def with_blocks(run: Run, times: int) -> Run:
    """Return the run of a network whose stack ends after this number of repetitions."""

    def ended(layer: Layer, path: tuple[int, ...]) -> Layer:
        endless = isinstance(layer, Repeat) and layer.times == math.inf
        return replace(layer, times=times) if endless else layer

    net = map_layers(run.net, ended)
    times_of_flow = run.recorded or None
    return Run(net, run.param, run.data, run.loss, run.optimizer, run.steps, times_of_flow)


def with_branches_of_one(run: Run, alpha: Fraction) -> Run:
    """Return the run with branches 1/L for L^(−α), and rates that move the stream equally."""
    if alpha == 1:
        return run
    rate = run.param.branch_rate + 2 * (1 - alpha)
    param, times = replace(run.param, branch=Fraction(1), branch_rate=rate), run.recorded or None
    return Run(run.net, param, run.data, run.loss, run.optimizer, run.steps, times)


def endless_problem(run: Run) -> Posed[EndlessProblem]:
    """Return the problem that a run poses at infinite depth, and why it does.

    Raises
    ------
    NoTheory
        If the number of blocks is finite, features do not move, the depth has no limit, or a
        further option of the run has no theory at infinite depth.
    NoRule
        For a layer without a rule in the mean-field limit.
    """
    if endless_stack(run.net) is None:
        raise NoTheory(
            "the network has a number of blocks; infinitely many are written "
            "lg.residual_mlp(math.inf, …) or lg.repeat(block, math.inf)."
        )
    if temperature_of(run.optimizer):
        raise NoTheory(
            f"{run.optimizer} has no implemented limit of infinite depth: its noise would be "
            "another Gaussian matrix in each block at every step."
        )
    inputs, param = run.data.inputs, run.param
    form = canonical_form(
        param, run.net, run.optimizer, inputs, gaussian=GAUSSIAN_ROLES, infinite_depth=True
    )
    if form.d != HALF:
        raise NoTheory(
            f"{param} divides the output by N^{form.d} beyond the kernel scaling; features move at "
            "order one, and the mean-field limit applies, for N^(1/2) only. The kernel limit is "
            "the theory of d = 0."
        )
    alpha = -Fraction(param.table(run.net, run.optimizer, inputs=inputs).branch.depth)
    problem = EndlessProblem(run, alpha, _stack(run))
    if not (problem.closed or problem.deterministic or problem.extrapolated):
        raise NoTheory(
            f"infinite depth with branches L^(−{alpha}) is implemented for blocks of one matrix, "
            "and for linear fully connected networks that are trained by steps. Blocks of several "
            "matrices have the limits of α = 1/2 (lg.depth_mup()) and α = 1 (lg.complete_p())."
        )
    return Posed(run, _reason(problem), problem)


def _stack(run: Run) -> Stack:
    once, twice = (posed_by(with_blocks(run, times)).problem for times in (1, 2))
    starts = [(m, skip) for m, skip in enumerate(once.skips) if skip >= 0]
    before, end = starts[0][1], starts[-1][0]
    return Stack(
        before=before,
        behind=len(once.skips) - 1 - end,
        unit=len(twice.skips) - len(once.skips),
        blocks=len(starts),
    )


def _reason(problem: EndlessProblem) -> str:
    alpha = problem.alpha
    start = f"γ = γ₀√N, so features move at order one; infinitely many blocks times L^(−{alpha})"
    if problem.diffusive:
        return f"{start}: the stream is a diffusion in depth, and blocks are lazy inside"
    if problem.matrices_per_block > 1:
        return f"{start}: the stream is deterministic in depth, and blocks learn inside"
    limit = f", the limit of every α > 1/2, approached as L^{1 - 2 * alpha}"
    return f"{start}: the stream is deterministic in depth, without noise or responses{limit}"
