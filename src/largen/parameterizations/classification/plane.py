"""The class of a scaling (q_σ, q̃_a, q̃_w) of one hidden layer, and the terms of its limit.

Golikov, *Towards a general theory of infinite-width limits of neural classifiers*: a scaling is
non-trivial if the outputs stay of order one,

    q_f⁽ᵏ⁾ = 0 for all k ≥ 1,                                                           (13)

and differ from those at initialisation,

    max(q_f,a, q_f,w, q_f,aw) = 0,  or  q_f,∅ = 0 and q_w ≥ 0.                          (14)

App. E.5 prints q⁽²ᵐ⁾ = m(q_a⁽²⁾ + q_w⁽²⁾) for increments that enter each other; correctly, both
grow by q_a⁽¹⁾ + q_w⁽¹⁾ in every second step.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from largen.bibliography import cites
from largen.parameterizations.classification.one_hidden_layer import (
    TERMS,
    Increments,
    increments,
    kappas,
    step_of_constant_orders,
    terms,
)
from largen.parameterizations.classification.orders import HALF, ONE, ZERO, Order, below, largest
from largen.parameterizations.classification.orders import show as power
from largen.text import aligned

Kind = Literal[
    "NTK",
    "intermediate",
    "mean field",
    "output layer only",
    "input layer only",
    "both layers, output weights from zero",
    "both layers, input weights from zero",
    "divergent",
    "vanishing",
    "stuck at initialisation",
]

# The scalings that the paper plots: (q_σ, q̃_a, q̃_w).
NAMED = {
    "NTK": (-HALF, ZERO, ZERO),
    "intermediate": (Fraction(-3, 4), HALF, HALF),
    "mean field": (-ONE, ONE, ONE),
    "default": (-HALF, ONE, ZERO),
}

_LIMITS = {
    "NTK": "a constant kernel, from a random function",
    "intermediate": "a constant kernel, from zero",
    "mean field": "a measure of the weights that moves in steps, from zero",
    "output layer only": "a constant kernel, that of the output weights, from zero",
    "input layer only": "a moving kernel, that of the input weights, from zero",
    "both layers, output weights from zero": "a moving measure of the weights, with â⁽⁰⁾ → 0",
    "both layers, input weights from zero": "a moving measure of the weights, with ŵ⁽⁰⁾ → 0",
}


@cites("golikov2020towards")
@dataclass(frozen=True)
class ScalingClass:
    """The limit of a scaling of one hidden layer; returned by :func:`largen.scaling.plane_class`.

    Attributes
    ----------
    q_sigma, rate_a, rate_w
        The exponents q_σ, q̃_a and q̃_w of the scaling.
    kind
        The class of the limit.
    case
        The section of the paper that treats it, by the signs of q_a⁽¹⁾ and q_w⁽¹⁾.
    name
        The paper's name of this point: NTK, intermediate, mean field or default.
    violated
        The condition that fails, for a trivial scaling; empty for the others.
    """

    q_sigma: Fraction
    rate_a: Fraction
    rate_w: Fraction
    kind: Kind
    case: str
    name: str | None
    violated: str

    @property
    def nontrivial(self) -> bool:
        """Whether the limit is finite, does not vanish and differs from the initialisation."""
        return not self.violated

    @property
    def limit(self) -> str | None:
        """A description of the limit; None for a trivial scaling."""
        return _LIMITS.get(self.kind)

    @property
    def constant_from(self) -> int | None:
        """The step from which all exponents are constant; None if they grow with every step."""
        return step_of_constant_orders(*self._first)

    @property
    def kept(self) -> tuple[str, ...]:
        """The terms of the decomposition (11) that are of order one at late steps."""
        if self.constant_from is None:
            return ()
        late = self.terms(self.constant_from)
        return tuple(name for name in TERMS if late[name] == 0)

    @property
    def features_move(self) -> bool:
        """Whether δŵ does not vanish, so that gates and the kernel move: q_w⁽ᵏ⁾ ≥ 0."""
        late = 2 if self.constant_from is None else self.constant_from
        return not below(self._moved(late).w, ZERO)

    def increments(self, step: int) -> dict[str, Order]:
        """Return {"a": q_a⁽ᵏ⁾, "w": q_w⁽ᵏ⁾} after k steps, by (9) and (10)."""
        moved = self._moved(step)
        return {"a": moved.a, "w": moved.w}

    def kappas(self, step: int, *, seen: bool = False) -> dict[str, Order]:
        """Return ϰ of each term of (11) after k steps.

        ``seen=True`` is for the output at a training input: there ϰ_∅ can be larger.
        """
        return kappas(self._moved(step), seen=seen)

    def terms(self, step: int, *, seen: bool = False) -> dict[str, Order]:
        """Return q_f of each term of (11) after k steps, by (15); None for a term that is zero.

        After a step at which an exponent is positive, they are upper bounds only: diverging outputs
        may make the residuals vanish (App. E.5).
        """
        return terms(self.q_sigma, self._moved(step), seen=seen)

    def outputs(self, step: int, *, seen: bool = False) -> Order:
        """Return q_f⁽ᵏ⁾, the largest of the terms (12); q_f⁽⁰⁾ = q_σ + ½."""
        return largest(*self.terms(step, seen=seen).values())

    def __str__(self) -> str:
        named = f", the {self.name} scaling" if self.name and self.name != self.kind else ""
        verdict = f"violates {self.violated}" if self.violated else f"limit: {self.limit}"
        last = 3 if self.constant_from is None else max(self.constant_from, 1)
        steps = range(1, last + 1)
        heads = [f"k = {k}" for k in steps]
        heads[-1] = f"k ≥ {last}" if self.constant_from is not None else heads[-1]
        rows = [["", *heads]]
        for label, values in (
            *((f"δ{n}", [self.increments(k)[n] for k in steps]) for n in ("a", "w")),
            *((f"f_{n}", [self.terms(k)[n] for k in steps]) for n in TERMS),
        ):
            rows.append([label, *map(power, values)])
        return "\n".join(
            [
                f"q_σ = {self.q_sigma}, q̃_a = {self.rate_a}, q̃_w = {self.rate_w}: "
                f"{self.kind} ({self.case}{named})",
                verdict,
                *aligned(rows, ruled=False),
            ]
        )

    @property
    def _first(self) -> tuple[Fraction, Fraction]:
        """The orders q_a⁽¹⁾ and q_w⁽¹⁾ of the first increments, by (9)."""
        return self.rate_a + self.q_sigma, self.rate_w + self.q_sigma

    def _moved(self, step: int) -> Increments:
        return increments(*self._first, step)


def classify_scaling(q_sigma: Fraction, rate_a: Fraction, rate_w: Fraction) -> ScalingClass:
    """Return the class of a scaling from its exact exponents."""
    first_a, first_w = rate_a + q_sigma, rate_w + q_sigma
    point = (q_sigma, rate_a, rate_w)
    name = next((name for name, at in NAMED.items() if at == point), None)
    kind, violated = _verdict(q_sigma, first_a, first_w)
    return ScalingClass(*point, kind, _case(first_a, first_w), name, violated)


def _case(first_a: Fraction, first_w: Fraction) -> str:
    if first_a + first_w > 0:
        return "App. E.5"
    if first_a > 0:
        return "App. E.3"
    if first_w > 0:
        return "App. E.4"
    if first_a == 0:
        return "§3.1.1" if first_w == 0 else "App. E.1"
    return "App. E.2" if first_w == 0 else "§3.1"


def _verdict(q_sigma: Fraction, first_a: Fraction, first_w: Fraction) -> tuple[Kind, str]:
    late = step_of_constant_orders(first_a, first_w)
    if q_sigma > -HALF:
        return "divergent", f"(13) from the start: q_f⁽⁰⁾ = q_σ + 1/2 = {q_sigma + HALF} > 0"
    if late is None:
        return "divergent", (
            f"(13): q_a⁽¹⁾ + q_w⁽¹⁾ = {first_a + first_w} > 0, so increments grow in order with "
            "every step"
        )
    moved = increments(first_a, first_w, late)
    parts = terms(q_sigma, moved)
    for name in TERMS:
        if not below(parts[name], ZERO) and parts[name] != 0:
            return "divergent", f"(13): q_f,{name} = {parts[name]} > 0"
    trained = largest(parts["a"], parts["w"], parts["aw"])
    outputs = largest(parts["∅"], trained)
    if below(outputs, ZERO):
        return "vanishing", f"(13): q_f⁽ᵏ⁾ = {outputs} < 0 for all k ≥ 1"
    if below(trained, ZERO) and below(moved.w, ZERO):
        return "stuck at initialisation", (
            f"(14): max(q_f,a, q_f,w, q_f,aw) = {trained} < 0 and q_w = {moved.w} < 0"
        )
    return _nontrivial(q_sigma, first_a, first_w), ""


def _nontrivial(q_sigma: Fraction, first_a: Fraction, first_w: Fraction) -> Kind:
    both = first_a + first_w == 0
    if first_a > 0:
        return "both layers, output weights from zero" if both else "output layer only"
    if first_w > 0:
        return "both layers, input weights from zero" if both else "input layer only"
    if both:
        return "mean field"
    if first_a == 0:
        return "output layer only"
    if first_w == 0:
        return "input layer only"
    return "NTK" if q_sigma == -HALF else "intermediate"
