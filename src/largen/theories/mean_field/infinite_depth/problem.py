"""The mean-field problem of a residual network of infinite depth, and of finite depths."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from largen.architectures import endless_stack, of_depth
from largen.errors import NoTheory
from largen.parameterizations import canonical_form, temperature_of
from largen.runs import Posed, Run
from largen.theories.chains.constants import HALF, check_features_move
from largen.theories.chains.problem import GAUSSIAN_ROLES, Problem, posed_by


@dataclass(frozen=True)
class Stack:
    """The position of the residual blocks among the matrices between hidden layers."""

    # before, behind: matrices before the stack and behind it.
    before: int
    behind: int
    unit: int  # matrices in one repetition of the stack
    blocks: int  # residual blocks in one repetition of the stack

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
    """A residual network of infinite width and depth, with branches L^(−α)."""

    run: Run
    alpha: Fraction  # α
    stack: Stack  # the position of its blocks

    @property
    def diffusive(self) -> bool:
        """Whether α = ½, so that the stream is a diffusion in depth."""
        return self.alpha == HALF

    @property
    def noisy(self) -> bool:
        """Whether Langevin noise moves the weights, and with them the stream at order one."""
        return temperature_of(self.run.optimizer) > 0

    @property
    def matrices_per_block(self) -> int:
        """K, for blocks that are all alike."""
        return self.stack.unit // self.stack.blocks

    @property
    def plain(self) -> bool:
        """Whether the network is a fully connected read-in, equal blocks, and a read-out.

        It must also be trained in steps without noise, and not normalise over the batch, as
        equations without random matrices require.
        """
        net = self.finite(1)
        readings = all(affine.reading.plain for affine in net.maps) and max(net.positions) == 1
        alone = self.stack.before == self.stack.behind == 0 and self.stack.blocks == 1
        steps = self.run.steps is not None and not net.coupled and not self.noisy
        return readings and alone and not net.unequal and steps

    @property
    def has_closed_equations(self) -> bool:
        """Whether there are closed equations."""
        return self.plain and self.finite(1).linear

    @property
    def deterministic(self) -> bool:
        """Whether the stream has no noise, and equations for its neurons are known.

        At α = 1 the inner layers of blocks of several matrices learn, too.
        """
        return self.plain and not self.diffusive and not self.quiet

    @property
    def quiet(self) -> bool:
        """Whether the stream has no noise, and blocks of several matrices are lazy inside.

        For ½ < α < 1 noise of the blocks and their responses in the stream vanish as L^(1−2α), and
        fields inside of blocks move by L^(α−1) only, which changes the stream by L^(2α−2). The
        latter has a small factor: a linear network of 32 to 64 blocks of two matrices approached
        the limit with the powers −0.23, −0.48 and −0.71 for α = 5/8, 3/4 and 7/8.
        """
        return HALF < self.alpha < 1 and self.stack.unit > self.stack.blocks

    def enlarged(self, boost: float) -> EndlessProblem:
        """Return the problem with γ₀ times a factor, for movements that are small anyway."""
        if boost == 1:
            return self
        param = replace(self.run.param, gamma=boost * self.run.param.gamma)
        return replace(self, run=self.run.with_changes(param=param))

    def network(self, times: int) -> Run:
        """Return the run of a network with this number of repetitions, for its fluctuations.

        As in :meth:`finite`, its branches are 1/L for α > ½, unless they would bring noise.
        """
        if self.diffusive or self.quiet:
            return with_blocks(self.run, times)
        return with_blocks(with_branches(self.run, self.alpha, Fraction(1)), times)

    def finite(self, times: int) -> Problem:
        """Return the problem of the network with this number of repetitions of the stack.

        Networks of all these problems have errors in powers of 1/L. For α > ½ their branches are
        1/L: branches L^(−α) with ½ < α < 1 would have the same limit, but with errors in powers of
        L^(1−2α). Lazy blocks of several matrices have branches L^(−1/2) instead, so that fields
        inside of them move by L^(−1/2), and no noise in the stream. Opposite signs of their last
        matrices, which have the same distribution, reverse these moves: powers of them are even.
        """
        if self.quiet:
            run = with_branches(self.run, self.alpha, HALF)
            return replace(posed_by(with_blocks(run, times)).problem, quiet=True)
        return posed_by(self.network(times)).problem


def with_blocks(run: Run, times: int) -> Run:
    """Return the run of a network whose stack ends after this number of repetitions."""
    return run.with_changes(net=of_depth(run.net, times))


def with_branches(run: Run, alpha: Fraction, power: Fraction) -> Run:
    """Return the run with branches L^(−power) for L^(−α), which move the stream equally."""
    if alpha == power:
        return run
    rate = run.param.branch_rate + 2 * (power - alpha)
    return run.with_changes(param=replace(run.param, branch=power, branch_rate=rate))


def endless_problem(run: Run) -> Posed[EndlessProblem]:
    """Return the problem that a run poses at infinite depth, and why it does."""
    if endless_stack(run.net) is None:
        raise NoTheory(
            "the network has a number of blocks; infinitely many are written "
            "lg.residual_mlp(math.inf, …) or lg.repeat(block, math.inf)."
        )
    inputs, param = run.data.inputs, run.param
    form = canonical_form(
        param,
        run.net,
        run.optimizer,
        inputs,
        gaussian=GAUSSIAN_ROLES,
        noise=True,
        infinite_depth=True,
    )
    check_features_move(param, form.d)
    alpha = -Fraction(param.table(run.net, run.optimizer, inputs=inputs).branch.depth)
    problem = EndlessProblem(run, alpha, _stack(run))
    if problem.quiet and problem.noisy:
        raise NoTheory(
            f"{run.optimizer} has no implemented limit of infinite depth for blocks of several "
            f"matrices with branches L^(−{alpha}): it has one for blocks of one matrix, and for "
            "branches L^(−1/2) and 1/L."
        )
    return Posed(run, _reason(problem), problem)


def network_of_layers(net: Problem, shares: np.ndarray) -> Problem:
    """Return a network with a layer of the stream at each share of the blocks."""
    layers = len(shares)
    return replace(
        net,
        phi=(net.phi[0],) * layers,
        positions=(1,) * layers,
        inside=(False,) * layers,
        ratios=(net.ratios[0],) * layers,
    )


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
    if problem.quiet:
        rate = max(1 - 2 * alpha, 2 * alpha - 2)
        return (
            f"{start}: the stream is deterministic in depth, without noise, and blocks are lazy "
            f"inside, the limit of all 1/2 < α < 1, approached as L^{rate}"
        )
    if problem.matrices_per_block > 1:
        return f"{start}: the stream is deterministic in depth, and blocks learn inside"
    limit = f", the limit of every α > 1/2, approached as L^{1 - 2 * alpha}"
    return f"{start}: the stream is deterministic in depth, without noise or responses{limit}"
