"""Moments of relu, leaky relu and linear networks as sums over collections of paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.bibliography import cites
from largen.errors import InvalidInput, NoTheory
from largen.finite_width.correlators import Pairs, checked_factors, checked_pairs
from largen.finite_width.orthants import slopes_of
from largen.finite_width.sized_network import SizedNetwork, sized_network
from largen.parameterizations import Parameterization
from largen.results import brief, fields_over, in_notebooks, save_result
from largen.scalars import real, sequence

WHAT = "lg.finite_width.path_sum"
MOST_FACTORS = 8  # 379 patterns
MOST_CONTRACTIONS = 6  # 64 subsets
GAUSSIAN = (3.0, 15.0, 105.0)
ROUNDING = 1e-9  # of moments that are given, relative to themselves

# For each subset of the contractions, as the bits of a number, a value for each pattern.
States = dict[int, np.ndarray]


@cites("bahri2022les")
class PathSum(NamedTuple):
    """A moment as a sum over collections of paths; see :func:`path_sum`.

    Attributes
    ----------
    value
        The moment.
    patterns
        The ways in which the m paths of a collection can share neurons of a layer, (pattern,), as
        texts: in ``"01|23"`` paths 0 and 1 pass through a neuron, and 2 and 3 through another one.
    parts
        The part of the value from collections with a pattern in a hidden layer, (layer, pattern);
        in each layer the parts add up to the value.
    """

    value: float
    patterns: np.ndarray
    parts: np.ndarray

    __repr__ = brief
    _repr_html_ = in_notebooks
    to_xarray = fields_over(patterns=("pattern",), parts=("layer", "pattern"))
    save = save_result


def path_sum(
    net: Layer, directions: ArrayLike, contractions: Sequence[tuple[int, int]] = (), *,
    width: int | Sequence[int], moments: Sequence[float] = GAUSSIAN,
    param: Parameterization | None = None,
) -> PathSum:  # fmt: skip
    r"""Return a moment of outputs, Jacobians and tangent kernels at one input, exactly.

    With φ(z) = a₊z₊ + a₋z₋ an output is a sum over paths γ through one neuron of each layer, of
    weights W and slopes d ∈ {a₊, a₋} (Bahri and Hanin, Les Houches lectures, (123)),

        f(x) = Σ_γ x_γ(0) ∏_ℓ d_γ(ℓ) ∏_ℓ W_γ(ℓ),γ(ℓ−1),

    and so is its derivative along v, with v_γ(0) in place of x_γ(0). In the mean of a product of m
    of them, the slopes of all neurons are independent, a₊ or a₋ with probability ½ (Proposition
    5.2), and a collection of m paths counts by its patterns π_ℓ alone, the partitions of the paths
    into those that share a neuron of layer ℓ. With n_ℓ neurons, (n)_k = n(n − 1)⋯(n − k + 1) and
    the moments μ(k) = E w^k of weights at unit variance,

        Σ_{π_0…π_L} V(π_0) ∏_{ℓ=1}^L (n_ℓ)_{|π_ℓ|} ∏_{B∈π_ℓ} E d^|B|
                           · ∏_{ℓ=0}^L (σ_ℓ²/n_ℓ)^{m/2} ∏_{B∈π_ℓ∧π_{ℓ+1}} μ(|B|),

    where the paths of B ∈ π_ℓ ∧ π_{ℓ+1} share a weight, and V(π_0) is the sum of ∏_a v_a,γ_a(0)
    over inputs. A contraction of two derivatives in a weight, with the rate ρ, is a sum over
    matrices in which the two paths share a weight that both lose: ρ μ(|B| − 2) in place of μ(|B|).
    The sums are done layer by layer, with a matrix over patterns for each.

    Parameters
    ----------
    net
        :class:`largen.Dense` without bias and :class:`largen.Activation` in turn, of relu, leaky
        relu, the absolute value or the linear function, with any ``weight_std``.
    directions
        v_a, (m, D) with an even m of at most 8. Factor a is v_a·∇f(x), the derivative at one input
        x ≠ 0 that all factors share; the moment does not depend on which. The factor f(x) is
        v_a = x, as f(x) = x·∇f(x), and a unit vector is an entry of the Jacobian. In linear
        networks v_a·∇f = f(v_a) for any v_a.
    contractions
        Up to 6 pairs of factors, counted from 0, as for :func:`correlator_order`: ``[(0, 1)]`` of
        two factors x is E Θ(x, x), and ``[(0, 1), (2, 3)]`` of four E Θ².
    width
        Neurons of all hidden layers (times their ``width_ratio``), or one number for each.
    moments
        μ(4), μ(6), … up to μ(m) of the weights at unit variance, of a symmetric distribution with a
        density: (3, 15, 105) of Gaussian weights, (9/5, 27/7, 9) of uniform ones. Weights of a few
        values, such as signs with (1, 1, 1), make preactivations exactly 0 with a probability that
        does not vanish with the width, and relu and leaky relu have no slope there: of them the sum
        has moments of outputs (all factors f(x), no contractions) and linear networks only.
    param
        The parameterization, with the rates ρ; :func:`largen.ntk` by default. Other distributions
        than its Gaussian one are known by ``moments`` alone.

    Raises
    ------
    InvalidInput
        For an odd number of factors, too many of them, pairs that are not of two different factors,
        or numbers that are not moments.
    NoTheory
        For other activations, or biases, or derivatives at a kink: moments that only weights of at
        most two absolute values have.
    NoRule
        For layers other than these two.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> net, x = lg.mlp(2, "relu", weight_std=2**0.5), np.ones((4, 1))
    >>> found = lg.finite_width.path_sum(net, x, width=10)  # E f⁴ = 3K² (1 + 5/n)²
    >>> round(found.value, 9), round(3 * 2**2 * (1 + 5 / 10) ** 2, 9)
    (27.0, 27.0)
    >>> found.patterns.tolist(), (found.parts[0] / found.value).round(3).tolist()
    (['0123', '01|23', '02|13', '03|12'], [0.4, 0.2, 0.2, 0.2])
    """
    v = checked_factors("directions", directions, MOST_FACTORS)
    m = len(v)
    pairs = checked_pairs(contractions, m - 1)
    if len(pairs) > MOST_CONTRACTIONS:
        raise InvalidInput(f"contractions: wanted at most {MOST_CONTRACTIONS}, got {len(pairs)}.")
    known = np.zeros(m + 1)
    known[::2] = [1.0, 1.0, *_checked_moments(moments, m)]
    network = sized_network(net, width, WHAT, param, v.shape[1])
    neurons = _neurons(network, m)
    of_outputs = not pairs and np.linalg.matrix_rank(v) < 2
    if not of_outputs and _discrete(known) and _kinked(network):
        raise NoTheory(
            f"{WHAT}: only weights with few values, as signs are, have moments = {tuple(moments)}. "
            "With them preactivations are exactly 0 with a positive probability, where the slope "
            "is not a₊ or a₋ with probability ½: derivatives are not this sum. Moments of outputs "
            "are, f(x) for every factor and no contractions, and those of linear networks."
        )
    table = _patterns(m)
    steps = _steps(table, pairs, known)
    scales = _scales(network, v.shape[1], m)
    with np.errstate(over="ignore", invalid="ignore"):
        forward: list[States] = [{0: _of_inputs(table, v)}]
        for scale, at in zip(scales, neurons, strict=False):
            forward.append(_passed(forward[-1], steps, scale, at))
        end = (table.labels == 0).all(axis=1).astype(float)  # there is one output
        backward: list[States] = [_returned({0: end}, steps, scales[-1], np.ones(len(end)))]
        for scale, at in zip(scales[-2:0:-1], neurons[:0:-1], strict=True):
            backward.append(_returned(backward[-1], steps, scale, at))
        whole = 2 ** len(pairs) - 1
        nothing = np.zeros(len(end))
        parts = np.array(
            [
                sum(
                    (state * after.get(whole ^ used, nothing) for used, state in before.items()),
                    nothing,
                )
                for before, after in zip(forward[1:], reversed(backward), strict=True)
            ]
        )
    if not np.isfinite(parts).all():
        raise InvalidInput(
            "directions: the moment is beyond the largest number; scale them to a mean square of "
            "order one."
        )
    return PathSum(float(parts[0].sum()), np.array([_text(row) for row in table.labels]), parts)


def _checked_moments(moments: Sequence[float], m: int) -> list[float]:
    """Return μ₄ to μ_m, which exist: those of t = w² ≥ 0 make Hankel matrices positive."""
    entries = sequence("moments", moments, "a list of E w⁴, E w⁶, …")
    found, count = [real("moments", entry) for entry in entries], m // 2 - 1
    if len(found) < count:
        raise InvalidInput(
            f"moments: wanted {count} for {m} factors, of E w⁴, E w⁶, …, got {len(found)}."
        )
    chain = [1.0, 1.0, *found]
    log_convex = all(
        high * low >= middle**2 * (1 - ROUNDING)
        for low, middle, high in zip(chain, chain[1:], chain[2:], strict=False)
    )
    if not log_convex or _smallest_of_hankel(chain[: m // 2 + 1]) < -ROUNDING:
        raise InvalidInput(
            f"moments: no weights of unit variance have E w⁴, E w⁶, … = {tuple(found)}: wanted "
            "ratios of one to the next that do not fall, from 1."
        )
    return list(found[:count])


def _smallest_of_hankel(even: Sequence[float]) -> float:
    """Return the smallest eigenvalue of E t^{i+j} and E t^{i+j+1}, scaled to a diagonal of 1.

    Given E tᵏ of t = w², from k = 0. It is 0 for laws of so few values that no density has these
    moments, and below 0 for no law at all.
    """
    found = 1.0
    for shift in (0, 1):
        size = (len(even) - shift + 1) // 2
        matrix = np.array([[even[i + j + shift] for j in range(size)] for i in range(size)])
        scale = np.sqrt(np.diagonal(matrix))
        found = min(found, float(np.linalg.eigvalsh(matrix / np.outer(scale, scale))[0]))
    return found


def _discrete(known: np.ndarray) -> bool:
    """Whether only weights of a few values have these moments, E wᵏ for k = 0, 1, …"""
    return _smallest_of_hankel(known[::2].tolist()) < ROUNDING


def _kinked(network: SizedNetwork) -> bool:
    return any(len(set(slopes_of(layer.phi) or ())) > 1 for layer in network.hidden)


def _neurons(network: SizedNetwork, m: int) -> list[np.ndarray]:
    """Return (n)_|π| ∏ E d^|B| of each hidden layer and pattern."""
    network.check_no_biases(WHAT)
    table, found = _patterns(m), []
    for layer in network.hidden:
        slopes = slopes_of(layer.phi)
        if slopes is None:
            raise NoTheory(
                f"{WHAT}: {layer.phi} is not a₊z₊ + a₋z₋, as relu, leaky relu and the linear "
                "function are."
            )
        powers = np.array([sum(slope**k for slope in slopes) / 2 for k in range(m + 1)])
        places = np.append(1.0, np.cumprod(layer.width - np.arange(float(m))))
        gates = np.prod(np.where(table.first, powers[table.sizes], 1.0), axis=1)
        found.append(gates * places[table.first.sum(axis=1)])
    return found


def _scales(network: SizedNetwork, inputs: int, m: int) -> list[tuple[float, float]]:
    """Return (σ²/n)^{m/2} and ρ of all matrices."""
    maps = [network.first, *network.hidden]
    fans = [inputs, *network.widths]
    return [((of.weight / n) ** (m // 2), of.rates[0]) for of, n in zip(maps, fans, strict=True)]


class _Patterns(NamedTuple):
    """Partitions of m paths into blocks of even sizes."""

    labels: np.ndarray  # the block of each path, (pattern, path)
    sizes: np.ndarray  # the size of this block
    first: np.ndarray  # whether the path is the first of its block
    together: np.ndarray  # whether two paths are in one block, (pattern, path, path)


@lru_cache(maxsize=4)
def _patterns(m: int) -> _Patterns:
    labels = np.array([row for row in _labels(m) if not (np.bincount(row) % 2).any()])
    together = labels[:, :, None] == labels[:, None, :]
    return _Patterns(labels, together.sum(-1), _is_first(together), together)


def _labels(m: int, used: int = 0) -> Iterator[tuple[int, ...]]:
    """Yield all partitions of m paths, as the numbers of their blocks in order of appearance."""
    if not m:
        yield ()
        return
    for label in range(used + 1):
        for rest in _labels(m - 1, max(used, label + 1)):
            yield (label, *rest)


def _is_first(together: np.ndarray) -> np.ndarray:
    return np.logical_not(np.tril(together, -1).any(axis=-1))


def _of_inputs(table: _Patterns, v: np.ndarray) -> np.ndarray:
    """Return V: sums of ∏ v_a over different inputs for different blocks, by Möbius inversion."""
    powers = np.prod(np.where(table.together[..., None], v, 1.0), axis=2).sum(axis=-1)
    coinciding = np.prod(np.where(table.first, powers, 1.0), axis=1)  # blocks may share an input
    finer = (~table.together[:, None] | table.together).all(axis=(2, 3))
    merged = np.einsum("rab,pb->pra", table.together.astype(int), table.first)
    signs = np.cumprod([1.0, 1.0, *(-np.arange(1.0, v.shape[0]))])  # (−1)^{k−1} (k − 1)!
    weights = np.prod(np.where(table.first, signs[merged], 1.0), axis=2)
    return np.where(finer, weights, 0.0) @ coinciding


def _steps(table: _Patterns, pairs: Pairs, moments: np.ndarray) -> dict[int, np.ndarray]:
    """Return ∏ μ over shared weights, (pattern before, pattern behind), for each subset of pairs.

    A matrix is at most once in a path, and has at most one derivative of each.
    """
    shared = table.together[:, None] & table.together
    sizes, first = shared.sum(-1), _is_first(shared)
    found = {}
    for count in range(len(pairs) + 1):
        for chosen in combinations(range(len(pairs)), count):
            ends = [path for one in chosen for path in pairs[one]]
            if len(set(ends)) < len(ends):
                continue
            lost = shared[..., ends].sum(-1)
            # Where a contracted pair shares no weight, the number of lost ones may exceed the size.
            allowed = np.logical_and.reduce(
                [np.ones(sizes.shape[:2], bool), *(shared[:, :, *pairs[one]] for one in chosen)]
            )
            left = np.where(allowed[..., None], sizes - lost, 0)
            each = np.prod(np.where(first, moments[left], 1.0), axis=-1)
            found[sum(1 << one for one in chosen)] = np.where(allowed, each, 0.0)
    return found


def _passed(
    before: States, steps: dict[int, np.ndarray], scale: tuple[float, float], at: np.ndarray
) -> States:
    """Return the sums over paths up to a hidden layer, with its neurons, given the one before."""
    return _advanced(before, steps, scale, lambda state, step: (state @ step) * at)


def _returned(
    behind: States, steps: dict[int, np.ndarray], scale: tuple[float, float], at: np.ndarray
) -> States:
    """Return the sums over paths from a layer on, without its neurons, given the one behind."""
    return _advanced(behind, steps, scale, lambda state, step: step @ (at * state))


def _advanced(
    states: States, steps: dict[int, np.ndarray], scale: tuple[float, float], by: Any
) -> States:
    found: States = {}
    for used, state in states.items():
        for chosen, step in steps.items():
            if not used & chosen:
                more = scale[0] * scale[1] ** chosen.bit_count() * by(state, step)
                found[used | chosen] = found.get(used | chosen, 0.0) + more
    return found


def _text(row: np.ndarray) -> str:
    blocks = ["".join(map(str, np.flatnonzero(row == label))) for label in range(row.max() + 1)]
    return "|".join(blocks)
