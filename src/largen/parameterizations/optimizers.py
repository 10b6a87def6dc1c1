"""Optimizers as records: the rate in units that a parameterization scales to any size.

A parameterization depends on how the optimizer's update scales with the gradient: in proportion to
it (gradient descent, momentum, gradient flow), or not at all (Adam, RMSProp).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from largen.bibliography import cites
from largen.parameterizations.averages import Moments, Velocity
from largen.parameterizations.stepping import (
    Optimizer,
    Order,
    Schedule,
    Stepped,
    check_below_one,
)
from largen.parameterizations.updates import Scales
from largen.scalars import integer, real


@dataclass(frozen=True)
class GradientDescent(Stepped):
    """Gradient descent, full-batch or stochastic, with heavy-ball momentum; see :func:`gd`."""

    momentum: float = 0.0

    kind = "proportional"

    def __post_init__(self):
        super().__post_init__()
        check_below_one("momentum", self.momentum)

    @property
    def averages(self) -> Velocity:
        """The velocity."""
        return Velocity(self.momentum)

    @property
    def words(self) -> str:
        """The optimizer as a noun, in titles."""
        return "momentum" if self.momentum else "gradient descent"


@dataclass(frozen=True)
class Langevin(Stepped):
    """Gradient descent with Gaussian noise, full-batch or stochastic; see :func:`langevin`."""

    temperature: float = 0.0

    kind = "proportional"
    averages = Velocity()  # its noise is added separately
    words = "Langevin dynamics"

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "temperature", real("temperature", self.temperature, at_least=0))


def temperature_of(optimizer: Optimizer) -> float:
    """Return the temperature T₀ of an optimizer; 0 if it has no noise."""
    return optimizer.temperature


@dataclass(frozen=True)
class _Adaptive(Stepped, base=True):
    eps: float = 1e-8

    kind = "normalised"

    def __post_init__(self):
        super().__post_init__()
        real("eps", self.eps, at_least=0)


@dataclass(frozen=True)
class Adam(_Adaptive):
    """Adam with decoupled weight decay; see :func:`adam`."""

    beta1: float = 0.9
    beta2: float = 0.999

    def __post_init__(self):
        super().__post_init__()
        check_below_one("beta1", self.beta1)
        check_below_one("beta2", self.beta2)

    words = "adam"

    @property
    def averages(self) -> Moments:
        """The averages m and v."""
        return Moments(self.beta1, self.beta2, corrected=True, eps=self.eps)

    def transformation(self, scales: Scales) -> Any:
        """Return the update of weights as an optax transformation of their gradients."""
        import optax

        moved = optax.scale_by_adam(self.beta1, self.beta2, self.eps)
        return optax.chain(scales.units, moved, scales.decay, scales.rate)


@dataclass(frozen=True)
class RMSProp(_Adaptive):
    """RMSProp with decoupled weight decay; see :func:`rmsprop`."""

    beta: float = 0.99

    def __post_init__(self):
        super().__post_init__()
        check_below_one("beta", self.beta)

    words = "rmsprop"

    @property
    def averages(self) -> Moments:
        """The average v; m is the gradient."""
        return Moments(0.0, self.beta, corrected=False, eps=self.eps)

    def transformation(self, scales: Scales) -> Any:
        """Return the update of weights as an optax transformation of their gradients."""
        import optax

        moved = optax.scale_by_rms(self.beta, self.eps, eps_in_sqrt=False)
        return optax.chain(scales.units, moved, scales.decay, scales.rate)


@dataclass(frozen=True)
class GradientFlow(Optimizer):
    """Gradient flow, dθ/dt = −η∇; see :func:`gradient_flow`."""

    kind = "proportional"
    averages = Velocity()
    continuous = True
    words = "gradient flow"


def gd(
    lr: float, *, momentum: float = 0.0, weight_decay: float = 0.0, schedule: Schedule | None = None
) -> GradientDescent:
    """Full-batch gradient descent, θ ← θ + v with v ← βv − η(∇ + λθ).

    Parameters
    ----------
    lr
        η₀; the raw rate η of each weight is η₀ times its rule's ``lr``.
    momentum
        β, 0 ≤ β < 1 (heavy ball).
    weight_decay
        λ₀, coupled to the gradient; the raw λ of each weight is λ₀ times its rule's.
    schedule
        The factor of η₀ in each step: a function of the step 0, 1, … (such as an optax schedule
        with peak 1), or a sequence with a factor for each step. Each gradient enters the velocity
        with the rate of its own step. The time of a trajectory is the sum of its rates.

    Raises
    ------
    InvalidInput
        If a number is out of its range.

    Examples
    --------
    >>> import largen as lg
    >>> print(lg.gd(lr=0.5, momentum=0.9))
    GradientDescent(lr=0.5, momentum=0.9)
    >>> lg.gd(lr=0.5, schedule=lambda step: 0.5 ** (step // 2)).rates(5).tolist()
    [0.5, 0.5, 0.25, 0.25, 0.125]
    """
    return GradientDescent(lr, weight_decay, momentum=momentum, schedule=schedule)


def sgd(
    lr: float,
    batch_size: int,
    *,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    seed: int = 0,
    order: Order | None = None,
    schedule: Schedule | None = None,
) -> GradientDescent:
    """Minibatch gradient descent, with samples in a given order or in one drawn from ``seed``.

    Each epoch goes once through a new permutation, or through the given order; samples that do not
    fill a last batch are not used in that epoch. Networks of every width, and the theories, are
    trained on the same order.

    Parameters
    ----------
    lr, momentum, weight_decay, schedule
        As in :func:`gd`.
    batch_size
        The number of samples in a step; the gradient is their mean.
    seed
        The seed of the permutations.
    order
        The indices of the training samples, in the order in which they are used. It may have any
        length, and starts again at its end.

    Raises
    ------
    InvalidInput
        If a number is out of its range, or the order is shorter than a batch.

    Examples
    --------
    >>> import largen as lg
    >>> print(lg.sgd(lr=0.1, batch_size=16))
    GradientDescent(lr=0.1, batch_size=16)
    >>> print(lg.sgd(lr=0.1, batch_size=2, order=[0, 2, 1, 3]))
    GradientDescent(lr=0.1, batch_size=2, order=4 samples)
    """
    integer("batch_size", batch_size, at_least=1)
    return GradientDescent(
        lr, weight_decay, batch_size, seed, order=order, schedule=schedule, momentum=momentum
    )


def langevin(
    lr: float,
    temperature: float,
    *,
    weight_decay: float = 0.0,
    batch_size: int | None = None,
    seed: int = 0,
    order: Order | None = None,
    schedule: Schedule | None = None,
) -> Langevin:
    """Langevin dynamics in steps, θ ← θ − η(∇ + λθ) + √(2ηT) ξ with ξ standard Gaussian.

    The raw temperature is T = T₀/γ², the same for all weights, and the raw rate η = η₀ρs²γ² of a
    weight with initial standard deviation s: its noise is √(2η₀ρT₀) in units of s, at every width
    (ρ = 1 in :func:`ntk` and :func:`mean_field`). With small steps, the weights converge to the
    Gibbs distribution with density exp(−[γ²L + Σ λ₀(θ/s)²/2ρ]/T₀) with the loss L. For λ₀ = T₀ and
    ρ = 1 it is the Bayesian posterior whose prior is the initial distribution; the loss ``mse``
    then corresponds to observations with noise of variance P T₀/γ².

    Parameters
    ----------
    lr, weight_decay, schedule
        As in :func:`gd`.
    temperature
        T₀; with 0 this is :func:`gd`.
    batch_size, seed, order
        As in :func:`sgd`; full batch by default. The noise is drawn from the key of the training
        or of the solver.

    Raises
    ------
    InvalidInput
        If a number is out of its range.

    Examples
    --------
    >>> import largen as lg
    >>> print(lg.optimizers.langevin(lr=0.1, temperature=0.01, weight_decay=0.01))
    Langevin(lr=0.1, weight_decay=0.01, temperature=0.01)
    """
    return Langevin(lr, weight_decay, batch_size, seed, temperature, order=order, schedule=schedule)


def adam(
    lr: float,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    batch_size: int | None = None,
    seed: int = 0,
    order: Order | None = None,
    schedule: Schedule | None = None,
) -> Adam:
    """Adam, with weight decay decoupled from the gradient (AdamW).

    Parameters
    ----------
    lr
        η₀; the parameterization scales it for an update whose size is the rate's.
    beta1, beta2
        Decay rates of the running averages of the gradient and of its square.
    eps
        ε₀; the parameterization scales it with the size of the gradient.
    weight_decay
        λ₀; every step shrinks each weight by η₀λ₀ of itself.
    batch_size, seed, order
        As in :func:`sgd`; full batch by default.
    schedule
        As in :func:`gd`.

    Raises
    ------
    InvalidInput
        If a number is out of its range.

    Examples
    --------
    >>> import largen as lg
    >>> print(lg.adam(lr=1e-3))
    Adam(lr=0.001)
    """
    return Adam(
        lr, weight_decay, batch_size, seed, eps, beta1, beta2, order=order, schedule=schedule
    )


@cites("golikov2020towards")
def rmsprop(
    lr: float,
    *,
    beta: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    batch_size: int | None = None,
    seed: int = 0,
    order: Order | None = None,
    schedule: Schedule | None = None,
) -> RMSProp:
    """RMSProp: θ ← θ − η∇/(√v + ε) with v ← βv + (1 − β)∇² and v = 0 initially, elementwise.

    The first step is η/√(1 − β) for every weight. Golikov's (21) omits the factor 1 − β in v: his η
    is the one here divided by √(1 − β).

    Parameters
    ----------
    lr
        η₀, scaled by the parameterization as for :func:`adam`.
    beta
        β, the decay rate of the running average of the squared gradient.
    eps, weight_decay, batch_size, seed, order, schedule
        As in :func:`adam`.

    Raises
    ------
    InvalidInput
        If a number is out of its range.

    Examples
    --------
    >>> import largen as lg
    >>> print(lg.optimizers.rmsprop(lr=2e-4))
    RMSProp(lr=0.0002)
    """
    return RMSProp(lr, weight_decay, batch_size, seed, eps, beta, order=order, schedule=schedule)


def gradient_flow(lr: float = 1.0, *, weight_decay: float = 0.0) -> GradientFlow:
    """Gradient flow, dθ/dt = −η(∇ + λθ): gradient descent in the limit of small steps.

    Parameters
    ----------
    lr
        η₀; only its product with the time matters.
    weight_decay
        λ₀, as in :func:`gd`.

    Raises
    ------
    InvalidInput
        If a number is out of its range.

    Examples
    --------
    >>> import largen as lg
    >>> print(lg.gradient_flow())
    GradientFlow(lr=1.0)
    """
    return GradientFlow(lr, weight_decay)
