"""The exponents of one hidden layer, step by step.

A network f = σ Σ_r â_r φ(ŵ_r·x) of width N with leaky relu φ and standard Gaussian â, ŵ is
trained by gradient descent with σ ∝ N^(q_σ), η̂_a ∝ N^(q̃_a), η̂_w ∝ N^(q̃_w): Golikov, *Towards
a general theory of infinite-width limits of neural classifiers*, §3. Increments
δâ⁽ᵏ⁾ ∝ N^(q_a⁽ᵏ⁾), δŵ⁽ᵏ⁾ ∝ N^(q_w⁽ᵏ⁾) obey

    q_a⁽¹⁾ = q̃_a + q_σ,   q_a⁽ᵏ⁺¹⁾ = max(q_a⁽ᵏ⁾, q_a⁽¹⁾ + max(0, q_w⁽ᵏ⁾)),   same with a ↔ w,

(9)-(10), and the output splits into f_∅ + f_a + f_w + f_aw by (11). A term is a sum over N
neurons. Its order is N·(its summand's mean) or √N·(its summand's size), whichever is larger, which
is expressed by the paper's ϰ ∈ [½, 1].

**The means, by parity.** Given the residuals, which are the same for all neurons, neurons are
independent, and the distribution of each is unchanged by â⁽⁰⁾ → −â⁽⁰⁾. So a summand's mean has
the order of its part that is even in â⁽⁰⁾. The recursion below follows the even and the odd part
of each increment separately: (9)-(10) are the larger of the two, and every ϰ follows at every step.
It holds for generic data (several samples).

**Adaptive optimizers.** Their update is elementwise the gradient over its own size, so that
q_a⁽¹⁾ = q̃_a and q_w⁽¹⁾ = q̃_w are those of η/σ (§4.1). The sign of a gradient has the parity of
the gradient's larger part, with a correction in proportion to the smaller part. So the same
recursion holds with each gradient in units of its size.

**Where this differs from the paper.** App. D.1 has ϰ_∅ = ϰ_aw = ½ whenever both increments
vanish. But δŵ ∝ â⁽⁰⁾ moves the gates φ′ and, one step later, δâ, so that

    ϰ_aw = max(½, 1 + max(q_a, q_w)),   ϰ_∅ = max(½, 1 + 2q_w + max(q_a, q_w))   (k ≥ 2),

which exceed ½ once increments vanish slower than N^(−1/2) and N^(−1/6). At the intermediate
scaling q_σ = −¾ this gives q_f,aw = −½, the value that the paper's §3.2 states and experiments
show, where ϰ_aw = ½ would give −¾.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from largen.parameterizations.classification.orders import (
    HALF,
    ONE,
    ZERO,
    Order,
    below,
    largest,
    product,
)

TERMS = ("∅", "a", "w", "aw")


@dataclass(frozen=True)
class Increments:
    """Orders of the parts of δâ and δŵ that are even and odd in â⁽⁰⁾, after a number of steps."""

    a_even: Order = None
    a_odd: Order = None
    w_even: Order = None
    w_odd: Order = None

    @property
    def a(self) -> Order:
        """The order q_a⁽ᵏ⁾ of δâ."""
        return largest(self.a_even, self.a_odd)

    @property
    def w(self) -> Order:
        """The order q_w⁽ᵏ⁾ of δŵ."""
        return largest(self.w_even, self.w_odd)

    @property
    def gate(self) -> Order:
        """The order of the odd part of the mean of φ′(ŵ·x), by the shift of its jump; at most 0."""
        size = largest(ZERO, self.w)
        return None if self.w_odd is None or size is None else self.w_odd - size

    def step(self, first_a: Fraction, first_w: Fraction, *, adaptive: bool = False) -> Increments:
        """Return the increments one step later, from q_a⁽¹⁾ and q_w⁽¹⁾."""
        a_odd = largest(ZERO, self.a_odd)  # of â = â⁽⁰⁾ + δâ, and â⁽⁰⁾ is odd
        # Δδâ ∝ φ(ŵ·x), where ŵ⁽⁰⁾ is even; Δδŵ ∝ â φ′(ŵ·x)
        a_even, a_more = largest(ZERO, self.w), self.w_odd
        w_even = largest(self.a_even, product(a_odd, self.gate))
        w_more = largest(a_odd, product(self.a_even, self.gate))
        if adaptive:
            # The update has the size of the rate: each part is in units of the whole gradient.
            a_even, a_more = _normalise(a_even, a_more)
            w_even, w_more = _normalise(w_even, w_more)
        return Increments(
            a_even=largest(self.a_even, product(first_a, a_even)),
            a_odd=largest(self.a_odd, product(first_a, a_more)),
            w_even=largest(self.w_even, product(first_w, w_even)),
            w_odd=largest(self.w_odd, product(first_w, w_more)),
        )


def _normalise(even: Order, odd: Order) -> tuple[Order, Order]:
    size = largest(even, odd)
    assert size is not None
    return product(even, -size), product(odd, -size)


def increments(
    first_a: Fraction, first_w: Fraction, steps: int, *, adaptive: bool = False
) -> Increments:
    """Return the increments after a number of steps."""
    now = Increments()
    for _ in range(steps):
        after = now.step(first_a, first_w, adaptive=adaptive)
        if after == now:
            break
        now = after
    return now


def step_of_constant_orders(first_a: Fraction, first_w: Fraction) -> int | None:
    """Return the step from which the increments' orders are constant, or None if they grow.

    By (10) each of the two increments enters the other: in two steps, the orders grow by
    q_a⁽¹⁾ + q_w⁽¹⁾. If that is positive they grow without bound.
    """
    if first_a + first_w > 0:
        return None
    now, step = Increments(), 0
    while (after := now.step(first_a, first_w)) != now:
        now, step = after, step + 1
    return step


def kappas(moved: Increments, *, seen: bool = False) -> dict[str, Order]:
    """Return ϰ_∅, ϰ_a, ϰ_w and ϰ_aw; None for a term that is zero.

    ``seen``: at a training input, whose own gate occurs in δŵ. Only ϰ_∅ depends on it.
    """
    a_even, a_odd, w_even, w_odd = moved.a_even, moved.a_odd, moved.w_even, moved.w_odd
    gate = moved.gate
    means = {
        "∅": _displaced_gates(moved, seen),
        "a": largest(a_even, product(a_odd, gate)),
        "w": largest(w_odd, product(w_even, gate)),
        "aw": largest(
            product(a_even, w_even),
            product(a_odd, w_odd),
            product(a_even, w_odd, gate),
            product(a_odd, w_even, gate),
        ),
    }
    return {
        name: None if size is None else largest(HALF, product(ONE, means[name], -size))
        for name, size in _sizes(moved).items()
    }


def terms(q_sigma: Fraction, moved: Increments, *, seen: bool = False) -> dict[str, Order]:
    """Return q_f,∅, q_f,a, q_f,w and q_f,aw: (15) of the paper; None for a term that is zero."""
    sizes = _sizes(moved)
    return {
        name: product(q_sigma, sizes[name], kappa)
        for name, kappa in kappas(moved, seen=seen).items()
    }


def _sizes(moved: Increments) -> dict[str, Order]:
    """Return the orders of the summands, with ŵ⁽⁰⁾ and â⁽⁰⁾ of order one."""
    return {"∅": ZERO, "a": moved.a, "w": moved.w, "aw": product(moved.a, moved.w)}


def _displaced_gates(moved: Increments, seen: bool) -> Order:
    """Return the order of the odd part of the mean of φ′(ŵ·x) ŵ⁽⁰⁾·x.

    Where ŵ·x = ŵ⁽⁰⁾·x + g changes sign, ŵ⁽⁰⁾·x is itself of order g if g vanishes, so the mean
    changes by g²/2, of which the odd part is the product of g's two parts; the next order has
    the cube of the odd part. At a training input g jumps where ŵ⁽⁰⁾·x = 0, and |g|g appears.
    """
    if not below(moved.w, ZERO):
        return moved.gate
    power = 1 if seen else 2
    return product(moved.w_odd, largest(moved.w_even, product(*([moved.w_odd] * power))))
