"""Kernels behind infinitely many residual blocks.

Each of L residual blocks x + L^(−α) branch(x) with independent weights adds L^(−2α) times the
kernels of its branch to those of the residual stream. For α = ½ the stream diffuses, and behind a
share τ of the blocks, in the limit L → ∞,

    ∂τ K = K_branch(K),     ∂τ Θ = Θ_branch(K, Θ).

A branch W φ(h) + b has K_branch = σ_w² ⟨φφ⟩ + σ_b² and
Θ_branch = σ_w² (ρ ⟨φφ⟩ + ⟨φ'φ'⟩ Θ) + ρ_b σ_b² (Bordelon, Noci, Li, Hanin and Pehlevan, *Depthwise
hyperparameter transfer in residual networks*, Proposition 2, where Θ comes from a backward pass).
For α > ½ the stream's K does not depend on τ, and with the rates L^(2α−1) of the weights the blocks
together add to Θ the tangent kernel of one branch at Θ = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from jax import lax

from largen.errors import NoTheory
from largen.expectations import as_activation
from largen.expectations.watching import add_requests, current_watch, separate_watch
from largen.kernels.rules.biased_depth import BiasedDepth, with_biases
from largen.kernels.rules.depth_steps import StreamConstants, integrate, usual_steps
from largen.kernels.rules.dispatch import States, rule, wanted
from largen.kernels.rules.distributions import ENTRY, GAUSSIAN, Nature, nature_behind, natures
from largen.kernels.rules.homogeneous_depth import HomogeneousDepth, in_closed_form
from largen.kernels.rules.planning import requirements
from largen.kernels.rules.running import run
from largen.kernels.state import KernelState, Wanted
from largen.programs import (
    BRANCH,
    Attend,
    Function,
    Normalise,
    Operation,
    Program,
    Repeat,
    Source,
    Sum,
)

FEW = 4  # steps where only the size of variances is determined


@dataclass(frozen=True)
class InfiniteDepth(Operation):
    """Infinitely many residual blocks as one operation.

    Attributes
    ----------
    branches
        The branch of the repeated block, or those of the repeated sequence of blocks.
    diffusive
        True for α = ½, False for α > ½.
    """

    branches: tuple[Program, ...]
    diffusive: bool


def infinite_stack(
    copies: Repeat,  # one or more residual blocks in sequence, repeated
    # Returns the constants of a program of their operations.
    constants_of: Callable[[Program], tuple[Any, ...]],
    branch: float,  # the factor of the branches, relative to L^(−α)
    diffusive: bool,  # True for α = ½, False for α > ½
    # Whether the constants are known numbers, from which tables can be computed, and not variables
    # of a traced function.
    constant: bool,
) -> tuple[Operation, Any]:
    """Return the operation of infinitely many copies of residual blocks, and its constants."""
    branches = tuple(_branches(copies.body))
    constants = tuple(map(constants_of, branches))
    if diffusive and constant and len(branches) == 1:
        for known in (in_closed_form, with_biases):
            found = known(copies.reads, branches[0], constants[0], branch**2)
            if found is not None:
                return found
    squares = np.full(len(branches), branch**2 / len(branches))
    numbers = squares, constants
    return InfiniteDepth(copies.reads, branches, diffusive), StreamConstants(numbers, usual_steps())


def _branches(body: Program) -> list[Program]:
    """Return the branches of residual blocks in sequence."""
    found = []
    for start, end in pairwise(body.cuts):
        match body.operations[end]:
            case Sum(reads=(skip, branch), factors=(1.0, factor)) if factor == BRANCH:
                if skip != start:
                    raise _not_averaged(body.sources[end])
                found.append(body.between(start, branch))
                _check(found[-1], body.sources[branch])
            case _:  # elementwise blocks are functions here
                raise _not_averaged(body.sources[end])
    return found


def _check(branch: Program, source: Source) -> None:
    for operation, its in zip(branch.operations, branch.sources, strict=True):
        if isinstance(operation, Normalise) and operation.over == "batch":
            raise NoTheory(
                f"kernels: {its} makes outputs of a sample depend on the whole batch, so that "
                "no kernel is a function of two samples, at infinite depth either. Use LayerNorm "
                "or RMSNorm."
            )
        if isinstance(operation, Attend):
            raise NoTheory(
                f"kernels: infinite depth is not implemented for blocks with attention: {its}."
            )
    start = GAUSSIAN._replace(roots=frozenset({ENTRY}))
    last = natures(branch, start)[-1]
    if ENTRY in last.roots:
        raise _not_averaged(source)
    if last.moved:
        raise NoTheory(
            f"kernels: infinite depth is not implemented for branches that end in trained gains: "
            f"{source}. Put them before the last Dense() of the branch."
        )


def _not_averaged(source: Source) -> NoTheory:
    return NoTheory(
        f"kernels: {source}, one of infinitely many blocks, has no random weights between its "
        "input and its output, so that its copies do not average out. Put a Dense() into it."
    )


@rule.register
def _(
    operation: InfiniteDepth, constants: StreamConstants, states: States, behind: Wanted
) -> KernelState:
    (state,), ((squares, of_branches), steps) = states, constants
    behind = wanted(operation, behind)
    of_branch = Wanted(pairs=behind.pairs)

    def from_branches(state: KernelState) -> Any:
        """Return the sum of the kernels of all branches, with their squared factors."""
        found = [
            jax.tree.map(
                lambda x, n=n: squares[n] * x, _moments(run(branch, its, state, of_branch))
            )
            for n, (branch, its) in enumerate(zip(operation.branches, of_branches, strict=True))
        ]
        return jax.tree.map(lambda *parts: sum(parts), *found)

    if not operation.diffusive:
        if state.ntk is None and current_watch() is None:
            return state
        rest = None if state.ntk is None else state.ntk * 0
        added = from_branches(state._replace(ntk=rest))[-1]
        return state if state.ntk is None else state._replace(ntk=state.ntk + added)

    def slope(moments: Any) -> Any:
        return from_branches(_with_moments(state, moments))

    if current_watch() is not None:
        return _with_moments(state, _by_heun(slope, _moments(state)))
    return _with_moments(state, integrate(lambda _, y: slope(y), _moments(state), steps))


def _moments(state: KernelState) -> tuple[Any, ...]:
    """Return the moments that change with depth; means do not, since branches are centred."""
    first, second = state.first, state.second
    return first.q, second.q, first.within, second.within, state.gap, state.ntk


def _with_moments(state: KernelState, moments: Any) -> KernelState:
    q1, q2, within1, within2, gap, ntk = moments
    first = state.first._replace(q=q1, within=within1)
    second = state.second._replace(q=q2, within=within2)
    return KernelState(first, second, gap, ntk, state.same)


def _by_heun(slope: Any, moments: Any) -> Any:
    """Return the moments behind all blocks to a few digits, by Heun's method.

    This suffices where the expectations that the rules require are recorded, and not the kernels.
    """

    def moved(y: Any, *rates: Any) -> Any:
        return jax.tree.map(lambda y, *f: y + sum(f) / (len(f) * FEW), y, *rates)

    def step(y: Any) -> Any:
        start = slope(y)
        return moved(y, start, slope(moved(y, start)))

    if isinstance(moments[0], np.ndarray):
        for _ in range(FEW):
            moments = step(moments)
        return moments

    def scanned(y: Any, _: None) -> tuple[Any, Any]:
        with separate_watch() as inner:
            y = step(y)
        return y, inner.all

    moments, requests = lax.scan(scanned, moments, length=FEW)
    add_requests(requests)
    return moments


@wanted.register
def _(operation: InfiniteDepth, behind: Wanted) -> Wanted:
    for _ in range(2):  # requirements only grow, and there are two of them
        for branch in operation.branches:
            behind = behind | requirements(branch, Wanted(pairs=behind.pairs))[0]
    return behind


@nature_behind.register
def _(operation: InfiniteDepth, reads: tuple[Nature, ...], source: Source) -> Nature:
    (nature,) = reads
    roots = nature.roots | {operation.branches}
    for _ in range(2):  # further copies do not change the nature
        for branch in operation.branches:
            found = natures(branch, nature._replace(roots=frozenset({ENTRY})))[-1]
            if not found.centred:
                raise NoTheory(
                    f"kernels: the branch of {source} has a mean, and infinitely many blocks add "
                    "it up: the stream has no limit that is Gaussian. End it with a Dense()."
                )
            kinds = (nature.kind, found.kind)
            kind = "gaussian" if kinds == ("gaussian", "gaussian") else "a sum over blocks"
            nature = Nature(kind, nature.centred, nature.alike and found.alike, roots)
    return nature


@nature_behind.register(HomogeneousDepth)
@nature_behind.register(BiasedDepth)
def _(operation: Operation, reads: tuple[Nature, ...], source: Source) -> Nature:
    nature_behind(Function((0,), as_activation("relu")), reads, source)  # may raise
    return reads[0]._replace(roots=reads[0].roots | {operation})
