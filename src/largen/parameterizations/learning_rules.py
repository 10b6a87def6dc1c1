"""Rules of learning whose backward pass is not that of the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from largen.bibliography import cites
from largen.errors import InvalidInput, NoTheory
from largen.parameterizations.averages import Velocity
from largen.parameterizations.stepping import (
    Optimizer,
    Order,
    Schedule,
    Stepped,
    check_below_one,
)
from largen.parameterizations.updates import Backward
from largen.scalars import flag, real


@dataclass(frozen=True)
class PseudoGradient(Stepped, base=True):
    """Base of the rules by which weights follow pseudo-gradients g̃ in place of g.

    ``correlation``: ρ, of g̃ with the gradients of networks that move little.
    """

    momentum: float = 0.0

    kind = "proportional"
    correlation = 0.0

    def __post_init__(self):
        super().__post_init__()
        check_below_one("momentum", self.momentum)

    @property
    def averages(self) -> Velocity:
        """The velocity."""
        return Velocity(self.momentum)


@dataclass(frozen=True)
class Hebbian(PseudoGradient):
    """Error-modulated Hebbian learning, full-batch or stochastic; see :func:`hebbian`."""

    backward = "errors"
    of_dense_layers = "Hebbian learning"


@dataclass(frozen=True)
class FeedbackAlignment(PseudoGradient):
    """Feedback alignment, full-batch or stochastic; see :func:`feedback_alignment`."""

    correlation: float = 0.0
    direct: bool = False

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= real("correlation", self.correlation) <= 1:
            raise InvalidInput(f"correlation: wanted 0 ≤ ρ ≤ 1, got {self.correlation!r}.")
        object.__setattr__(self, "correlation", float(self.correlation))
        if flag("direct", self.direct) and self.correlation:
            raise InvalidInput(
                "correlation: direct feedback does not pass by matrices that initial weights could "
                f"be correlated with, got {self.correlation!r}."
            )

    @property
    def backward(self) -> Backward:
        """What passes backward in place of gradients."""
        return "direct feedback" if self.direct else "feedback"

    @property
    def of_dense_layers(self) -> str | None:
        """The rule in words if it is one of dense layers alone, which follow one another."""
        return "direct feedback alignment" if self.direct else None


def pseudo_gradient_of(optimizer: Optimizer) -> Any:
    """Return a rule of pseudo-gradients, whose limits refuse other optimizers.

    Raises
    ------
    NoTheory
        If the optimizer is another one.
    """
    if optimizer.backward == "gradients":
        raise NoTheory(
            "this is the limit of lg.optimizers.feedback_alignment and lg.optimizers.hebbian, got "
            f"{optimizer}."
        )
    optimizer.says("kind")
    return optimizer


@cites("lillicrap2016random", "nokland2016direct", "bordelon2022influence")
def feedback_alignment(
    lr: float,
    correlation: float = 0.0,
    *,
    direct: bool = False,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    batch_size: int | None = None,
    seed: int = 0,
    order: Order | None = None,
    schedule: Schedule | None = None,
) -> FeedbackAlignment:
    """Feedback alignment: the backward pass takes fixed random weights in place of transposed ones.

    With preactivations hˡ⁺¹ = Wˡφ(hˡ)/√N and f = w·φ(hᴸ)/(γ√N), weights follow the pseudo-gradient
    in which gˡ = √N γ ∂f/∂hˡ is replaced by

        g̃ᴸ = φ'(hᴸ) b,     g̃ˡ = φ'(hˡ) Bˡᵀg̃ˡ⁺¹/√N,
        Bˡ = ρWˡ(0) + √(1 − ρ²) W̃ˡ,     b = ρw(0) + √(1 − ρ²) w̃,

    with independent W̃ˡ, w̃ of the distribution of the initial weights, so that Wˡ moves along
    Σ_μ Δ_μ g̃ˡ⁺¹_μ φ(hˡ_μ)ᵀ. ρ = 0 is feedback alignment (Lillicrap et al., *Random synaptic
    feedback weights support error backpropagation for deep learning*, 2016), and 0 < ρ ≤ 1 is the
    ρ-FA of Bordelon and Pehlevan (*The influence of learning rule on representation dynamics in
    wide neural networks*, arXiv 2210.02157). B does not change in training: with ρ = 1 the first
    step is that of gradient descent, and so is all training in the kernel limit; elsewhere it is
    backpropagation through the initial weights. In other networks every affine map behind the first
    has such a matrix B of the shape of its weight. The read-out moves as under :func:`gd`.

    Direct feedback alignment (Nøkland, *Direct feedback alignment provides learning in deep neural
    networks*, 2016) sends the errors of the outputs to every hidden layer at once, in fully
    connected networks,

        g̃ˡ = φ'(hˡ) z̃ˡ,

    with independent Gaussian vectors z̃ˡ (a vector for each output) of the variance of w(0).

    Parameters
    ----------
    lr, momentum, weight_decay, schedule
        As in :func:`gd`; B does not decay.
    correlation
        ρ, 0 ≤ ρ ≤ 1, the correlation of B with the initial weights.
    direct
        Whether feedback is direct.
    batch_size, seed, order
        As in :func:`sgd`; full batch by default. W̃ and z̃ are drawn from the key of the training or
        of the solver.

    Raises
    ------
    InvalidInput
        If a number is out of its range, or direct feedback has a correlation.

    Examples
    --------
    >>> import largen as lg
    >>> print(lg.optimizers.feedback_alignment(lr=0.5))
    FeedbackAlignment(lr=0.5)
    >>> print(lg.optimizers.feedback_alignment(lr=0.5, correlation=0.5, momentum=0.9))
    FeedbackAlignment(lr=0.5, momentum=0.9, correlation=0.5)
    """
    return FeedbackAlignment(
        lr,
        weight_decay,
        batch_size,
        seed,
        momentum,
        correlation,
        direct,
        order=order,
        schedule=schedule,
    )


@cites("bordelon2022influence")
def hebbian(
    lr: float,
    *,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    batch_size: int | None = None,
    seed: int = 0,
    order: Order | None = None,
    schedule: Schedule | None = None,
) -> Hebbian:
    """Error-modulated Hebbian learning: weights move by the activities that they join.

    With the preactivations and outputs of :func:`feedback_alignment`, and Δ = −∂ℓ/∂f of a sample,
    gˡ = √N γ ∂f/∂hˡ is replaced by

        g̃ˡ_μ = Δ_μ φ(hˡ_μ),

    so that the weights Wˡ between two layers move along Σ_μ Δ_μ² φ(hˡ⁺¹_μ) φ(hˡ_μ)ᵀ (Bordelon and
    Pehlevan, *The influence of learning rule on representation dynamics in wide neural networks*,
    arXiv 2210.02157): nothing passes backward but the error. Of several outputs Δ_μ² is the sum of
    their squares. The read-out moves as under :func:`gd`, along Σ_μ Δ_μ φ(hᴸ_μ), and is the only
    layer whose movement depends on the sign of Δ. Here φ(hˡ) is what the next map reads. Networks
    are fully connected, their layers written one by one.

    Parameters
    ----------
    lr, momentum, weight_decay, schedule
        As in :func:`gd`.
    batch_size, seed, order
        As in :func:`sgd`; full batch by default.

    Raises
    ------
    InvalidInput
        If a number is out of its range.

    Examples
    --------
    >>> import largen as lg
    >>> print(lg.optimizers.hebbian(lr=0.5))
    Hebbian(lr=0.5)
    """
    return Hebbian(lr, weight_decay, batch_size, seed, momentum, order=order, schedule=schedule)
