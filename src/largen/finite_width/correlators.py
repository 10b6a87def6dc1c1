"""Correlators of outputs and their derivatives: the power of the width, and linear networks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.bibliography import cites
from largen.errors import InvalidInput, NoTheory
from largen.finite_width.checks import checked_inputs
from largen.finite_width.orthants import slopes_of
from largen.finite_width.sized_network import SizedNetwork, sized_network
from largen.parameterizations import Parameterization
from largen.scalars import MOST_COUNTED, integers, sequence

WHAT = "lg.finite_width.linear_correlator"
MOST_FACTORS = 10  # 945 pairings
MOST_CHOICES = 10**5  # of a layer for each contraction

Pairs = tuple[tuple[int, int], ...]


@cites("dyer2020asymptotics", "bahri2022les")
def correlator_order(contractions: Sequence[tuple[int, int]]) -> int:
    """Return the power of the width that bounds a correlator at initialisation.

    A correlator of m factors is E Σ_μ ∂…f(x_1) ⋯ ∂…f(x_m), with derivatives in parameters that are
    contracted in pairs. In its cluster graph the factors are vertices and contractions are edges.
    With n_e components of even and n_o of odd size, it is of order

        n^(n_e + n_o/2 − m/2)

    in NTK parameterization (Dyer and Gur-Ari, *Asymptotics of wide networks from Feynman diagrams*;
    proved for deep linear networks, and for relu at equal inputs). A factor without contractions
    does not change it. For the variables O_s of :func:`training_hierarchy` it gives
    E O_s = O(n^(−(s − 2)/2)) for even s, and E[O_s f] = O(n^(−(s − 1)/2)) for odd s (Bahri and
    Hanin, Les Houches lectures, (99)).

    Parameters
    ----------
    contractions
        Pairs of different factors, counted from 0; a pair may occur several times.

    Raises
    ------
    InvalidInput
        If a pair is not one of two different factors.

    Examples
    --------
    >>> import largen as lg
    >>> ntk_twice = [(0, 1), (2, 3)]  # E ΘΘ
    >>> change = [(0, 1), (1, 2)]  # E[∇f ∇²f ∇f · f], by which Θ changes
    >>> [lg.finite_width.correlator_order(pairs) for pairs in (ntk_twice, change)]
    [0, -1]
    """
    pairs = checked_pairs(contractions)
    component = {factor: factor for pair in pairs for factor in pair}
    for a, b in pairs:
        old, new = component[a], component[b]
        component = {factor: new if c == old else c for factor, c in component.items()}
    sizes = Counter(component.values()).values()
    # n_e + n_o/2 − m/2 by components: 1 − size/2 or (1 − size)/2.
    return sum(1 - (size + 1) // 2 for size in sizes)


@cites("dyer2020asymptotics", "bahri2022les")
def linear_correlator(
    net: Layer, x: ArrayLike, contractions: Sequence[tuple[int, int]] = (), *,
    width: int | Sequence[int], param: Parameterization | None = None,
) -> float:  # fmt: skip
    """Return the exact correlator of a deep linear network, at several inputs and any width.

    In a product of m outputs every weight matrix occurs m times, and by Wick's theorem in pairs. A
    contraction of two derivatives is such a pair as well, times the rate over the variance ρ. So a
    correlator is a sum over pairings π_1, …, π_{L+1} of the factors, one for each matrix, and over
    the matrix to which each contraction belongs, which then pairs its two factors:

        Σ ρ⋯ρ ∏_{(a,b)∈π_1} K¹(x_a, x_b) ∏_ℓ σ_ℓ^m n_ℓ^(c(π_ℓ, π_{ℓ+1}) − m/2),

    with the number c of cycles that two pairings form together. Here it is computed with one matrix
    over pairings for each layer.

    Parameters
    ----------
    net
        :class:`largen.Dense` without bias and the linear activation in turn.
    x
        The inputs of the factors, (m, D), with an even m of at most 10.
    contractions
        Pairs of factors, counted from 0, as for :func:`correlator_order`.
    width
        Neurons of all hidden layers (times their ``width_ratio``), or one number for each.
    param
        The parameterization, whose rates contract the derivatives; :func:`largen.ntk` by default.

    Returns
    -------
    float
        E of the correlator. Without contractions, E f(x_1) ⋯ f(x_m).

    Raises
    ------
    InvalidInput
        For an odd number of factors, pairs that are not of two different factors, or too many.
    NoTheory
        For other activations, or biases.
    NoRule
        For layers other than these two.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.array([[1.0, 0.0], [0.6, 0.8]])
    >>> net = lg.mlp(2, "linear")
    >>> round(lg.finite_width.linear_correlator(net, x, [(0, 1)], width=5), 9)  # (L + 1) x·x'/D
    0.9
    >>> four = lg.finite_width.linear_correlator(net, np.ones((4, 1)), width=5)
    >>> round(four, 9), round(3 * (1 + 2 / 5) ** 2, 9)
    (5.88, 5.88)
    """
    inputs = checked_factors("x", x, MOST_FACTORS)
    m = len(inputs)
    pairs = checked_pairs(contractions, m - 1)
    network = sized_network(net, width, WHAT, param, inputs.shape[1])
    variances, rates = _matrices(network)
    if len(rates) ** len(pairs) > MOST_CHOICES:
        raise InvalidInput(
            f"contractions: {len(pairs)} contractions in {len(rates)} matrices have more than "
            f"{MOST_CHOICES} terms; take fewer."
        )
    pairings = list(_pairings(tuple(range(m))))
    kernel = network.first_kernel(inputs)
    first = np.array([np.prod([kernel[pair] for pair in pairing]) for pairing in pairings])
    cycles = np.array([[_cycles(one, other) for other in pairings] for one in pairings])
    steps = [
        variance ** (m // 2) * float(n) ** (cycles - m // 2)
        for variance, n in zip(variances, network.widths, strict=True)
    ]
    total = 0.0
    for chosen in product(range(len(rates)), repeat=len(pairs)):
        masks = _allowed(pairs, chosen, len(rates), pairings)
        if masks is None:
            continue
        state = first * masks[0]
        for step, mask in zip(steps, masks[1:], strict=True):
            state = (state @ step) * mask
        total += float(state.sum()) * float(np.prod([rates[matrix] for matrix in chosen]))
    if not np.isfinite(total):
        raise InvalidInput(
            "x: the correlator is beyond the largest number; scale the inputs to a mean square of "
            "order one."
        )
    return total


def _matrices(network: SizedNetwork) -> tuple[list[float], list[float]]:
    """Return the variances of all matrices but the first, and the rates ρ of all."""
    network.check_no_biases(WHAT)
    variances, rates = [], [network.first.rates[0]]
    for layer in network.hidden:
        slopes = slopes_of(layer.phi)
        if slopes is None or slopes[0] != slopes[1]:
            raise NoTheory(f"{WHAT}: {layer.phi} is not linear.")
        variances.append(layer.weight * slopes[0] ** 2)
        rates.append(layer.rates[0])
    return variances, rates


def _allowed(
    pairs: Pairs, chosen: tuple[int, ...], matrices: int, pairings: list[Pairs]
) -> list[np.ndarray] | None:
    """Return the pairings that each matrix allows; None if it is twice in a factor."""
    forced: list[set[tuple[int, int]]] = [set() for _ in range(matrices)]
    for pair, matrix in zip(pairs, chosen, strict=True):
        if any(factor in other for other in forced[matrix] for factor in pair):
            return None
        forced[matrix].add(pair)
    return [np.array([own <= set(pairing) for pairing in pairings], float) for own in forced]


def checked_factors(name: str, value: ArrayLike, most: int) -> np.ndarray:
    """Return an input for each factor of a product, whose number is even and at most ``most``."""
    inputs = checked_inputs(value, name)
    if len(inputs) % 2 or not 2 <= len(inputs) <= most:
        raise InvalidInput(
            f"{name}: wanted an even number of factors from 2 to {most}, got {len(inputs)}; with "
            "an odd number the mean of their product is 0."
        )
    return inputs


def checked_pairs(contractions: Sequence[tuple[int, int]], last: int = MOST_COUNTED) -> Pairs:
    """Return the pairs of factors from 0 to ``last``, each in ascending order."""
    pairs = []
    for pair in sequence("contractions", contractions, "a list of pairs of factors"):
        found = integers("contractions", pair, at_least=0)
        if len(found) != 2 or found[0] == found[1] or max(found) > last:
            raise InvalidInput(
                f"contractions: wanted pairs of two different factors from 0 to {last}, got "
                f"{tuple(found)}."
            )
        pairs.append((min(found), max(found)))
    return tuple(pairs)


def _pairings(items: tuple[int, ...]) -> Iterator[Pairs]:
    if not items:
        yield ()
        return
    for i in range(1, len(items)):
        for rest in _pairings(items[1:i] + items[i + 1 :]):
            yield ((items[0], items[i]), *rest)


def _cycles(one: Pairs, other: Pairs) -> int:
    """Return the number of cycles that the edges of two pairings form."""
    links = [{a: b for pair in pairing for a, b in (pair, pair[::-1])} for pairing in (one, other)]
    left, count = set(links[0]), 0
    while left:
        start = place = left.pop()
        count += 1
        while True:
            partner = links[0][place]
            place = links[1][partner]
            left -= {partner, place}
            if place == start:
                break
    return count
