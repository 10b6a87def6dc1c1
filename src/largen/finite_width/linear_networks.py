"""Deep linear networks at one input: moments of any order, and the density of an output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jax.typing import ArrayLike
from scipy.special import digamma, loggamma, polygamma

from largen.architectures import Layer
from largen.arrays import floating
from largen.bibliography import cites
from largen.errors import NoTheory
from largen.finite_width.checks import one_input
from largen.finite_width.orthants import slopes_of
from largen.finite_width.sized_network import sized_network
from largen.scalars import real

# Along the line of inversion: the tail e^{−π|t|/2} of Γ ends at 25, and the step 0.04 repeats the
# density after 157 units of log f², where it is below 1e-16 of itself.
_LINE = np.arange(0.02, 26.0, 0.04)
_LEFTMOST = -0.25  # real part of the line; the first pole is at −½
_STIRLING = 64.0  # arguments from which on Γ(a + s)/Γ(a) comes from its series


@cites("zavatone2021exact", "bahri2022les")
@dataclass(frozen=True, repr=False)
class LinearOutput:
    """The distribution of one output of a deep linear network; made by
    :func:`linear_network_output`.

    Attributes
    ----------
    variance
        K = E f².
    widths
        Numbers of neurons of the hidden layers.
    """

    variance: float
    widths: tuple[int, ...]

    def moment(self, order: float) -> float:
        """Return E|f|^order for any order above −1.

        With s = order/2 (Bahri and Hanin, Les Houches lectures, (56), for s = 1 and 2),

            E|f|^{2s} = (2K)^s Γ(s + ½)/Γ(½) · ∏_ℓ (2/n_ℓ)^s Γ(n_ℓ/2 + s)/Γ(n_ℓ/2).
        """
        s = real("order", order, above=-1.0) / 2
        log = np.real(self._log_moment(np.array([s], np.complex128)))[0]
        with np.errstate(over="ignore"):
            return float(np.exp(log + s * np.log(self.variance)))

    def density(self, f: ArrayLike) -> np.ndarray:
        """Return the probability density of f, which is a Meijer function,

            p(f) = |f|·(c/N)·G^{L+1,0}_{0,L+1}(c f² | −½, n₁/2 − 1, …, n_L/2 − 1),

        with c = ∏(n_ℓ/2)/(2K) and N = √π ∏ Γ(n_ℓ/2) (Zavatone-Veth and Pehlevan 2021). It is
        computed as an inverse Mellin transform along the line through the saddle point, with a
        relative error of about 1e-12 for any widths and far into the tails. At f = 0 the density is
        infinite if a hidden layer has a single neuron.
        """
        points = np.asarray(floating("f", f), np.float64)
        y = np.log(np.maximum(points.ravel() ** 2 / self.variance, 1e-290))
        c = self._saddle(y)
        at_line = self._log_moment(c[:, None] + 1j * _LINE)
        # log of e^{−cy} M(c), and the integrand relative to it.
        scale = np.real(self._log_moment(c + 0j))
        phase = np.real(np.exp(at_line - scale[:, None] - 1j * y[:, None] * _LINE))
        step = _LINE[1] - _LINE[0]
        of_log = np.exp(scale - c * y) * phase.sum(axis=1) * step / np.pi
        # p(f) df is half of the probability of log f², for either sign of f.
        density = of_log * np.exp(-y / 2) / np.sqrt(self.variance)
        return density.reshape(points.shape)

    @property
    def log_kernel(self) -> tuple[float, float]:
        """Mean and variance of log S/K for the output's variance S given the last hidden layer.

        They are Σ [ψ(n/2) + log(2/n)] and Σ ψ'(n/2). At L, n → ∞ with t = Σ 1/n_ℓ fixed, log S/K
        becomes Gaussian with mean −t and variance 2t.
        """
        n = np.array(self.widths, np.float64)
        mean = np.sum(digamma(n / 2) + np.log(2 / n))
        return float(mean), float(np.sum(polygamma(1, n / 2)))

    def _log_moment(self, s: np.ndarray) -> np.ndarray:
        """Return log E (f²/K)^s."""
        total = s * np.log(2) + _log_ratio(0.5, s)
        for n, times in Counter(self.widths).items():
            total = total + times * (s * np.log(2 / n) + _log_ratio(n / 2, s))
        return total

    def _saddle(self, y: np.ndarray) -> np.ndarray:
        """Return c with d log M/dc = y, at least −¼; M is log-convex, so bisection finds it."""
        halves = np.array([0.5, *(n / 2 for n in self.widths)])
        shift = np.log(2) + np.sum(np.log(2 / np.array(self.widths, np.float64)))
        low, high = np.full(y.shape, _LEFTMOST), np.full(y.shape, 1.0)

        def slope(c: np.ndarray) -> np.ndarray:
            return shift + digamma(halves[:, None] + c).sum(axis=0)

        while np.any(slope(high) < y):
            high = np.where(slope(high) < y, 2 * high, high)
        for _ in range(60):
            middle = (low + high) / 2
            below = slope(middle) < y
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return low

    def __repr__(self) -> str:
        mean, variance = self.log_kernel
        return (
            f"LinearOutput: variance {self.variance:.4g}, {len(self.widths)} hidden layers\n"
            f"  log S/K has mean {mean:.3g} and variance {variance:.3g}"
        )


def linear_network_output(net: Layer, x: ArrayLike, *, width: int | Sequence[int]) -> LinearOutput:
    """Return the exact distribution of an output of a deep linear network at one input.

    f²/K is χ²₁ ∏ χ²_{n_ℓ}/n_ℓ, a product of independent factors (Bahri and Hanin, Les Houches
    lectures, section 5).

    Parameters
    ----------
    net
        :class:`largen.Dense` without bias and the linear activation in turn, in :func:`largen.ntk`.
    x
        One input, (1, D), that is not 0.
    width
        Neurons of all hidden layers (times their ``width_ratio``), or one number for each.

    Raises
    ------
    InvalidInput
        For more than one input, or one that is 0.
    NoTheory
        For other activations, or biases.
    NoRule
        For layers other than these two.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> result = lg.finite_width.linear_network_output(
    ...     lg.mlp(3, "linear"), np.ones((1, 2)), width=(4, 5, 3)
    ... )
    >>> round(result.moment(4), 9), round(3 * (1 + 2 / 4) * (1 + 2 / 5) * (1 + 2 / 3), 9)
    (10.5, 10.5)
    >>> result.density(np.array([0.5, 2.0, 4.0])).round(5)
    array([0.34338, 0.03406, 0.00322])
    """
    what = "lg.finite_width.linear_network_output"
    network = sized_network(net, width, what)
    inputs = one_input(x)
    network.check_no_biases(what)
    K = float(network.first_kernel(inputs)[0, 0])
    for layer in network.hidden:
        slopes = slopes_of(layer.phi)
        if slopes is None or abs(slopes[0]) != abs(slopes[1]):
            raise NoTheory(f"{what}: {layer.phi} is not linear.")
        K *= layer.weight * slopes[0] ** 2
    return LinearOutput(K, network.widths)


def _log_ratio(a: float, s: np.ndarray) -> np.ndarray:
    """Return log Γ(a + s)/Γ(a) for complex s, without cancellation at large a."""
    if a < _STIRLING:
        return loggamma(a + s) - loggamma(a)
    far = np.abs(s) > a
    near = np.where(far, 0, s)
    b = a + near
    x = near / a
    # (b − ½) log b − b and the same at a, their difference written with log(1 + s/a).
    # NumPy's log(1 + x) of complex x loses digits.
    size = np.log1p(2 * np.real(x) + np.abs(x) ** 2) / 2
    main = (b - 0.5) * (size + 1j * np.angle(1 + x)) + near * np.log(a) - near
    tail = (1 / b - 1 / a) / 12 - (1 / b**3 - 1 / a**3) / 360 + (1 / b**5 - 1 / a**5) / 1260
    return np.where(far, loggamma(a + s) - loggamma(a), main + tail)
