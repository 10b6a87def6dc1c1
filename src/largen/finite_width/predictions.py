"""Regression with networks of finite width: shifts and covariances of predictions.

Predictions of a kernel method are functions of a kernel G, which is K or Θ plus a random deviation
δ with mean m. With A = (G + σ²)⁻¹, κ = G_*A and α = Ay at infinite width, and E = δ_* − κδ, to
second order

    G_*(G + σ²)⁻¹y = κy + Eα − EAδα,
    G_** − G_*(G + σ²)⁻¹G_*ᵀ = Σ + δ_** − δ_*κᵀ − κδ_*ᵀ + κδκᵀ − EAEᵀ,

so that samples of δ from :mod:`largen.finite_width.sampled_chain` give means and covariances to
order 1/width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.arrays import finite_result, floating, known
from largen.bibliography import cites
from largen.errors import InvalidInput, NoTheory, NumericalFailure, one_of
from largen.finite_width.checks import checked_inputs
from largen.finite_width.fluctuations import width_fluctuations
from largen.results import in_notebooks, plot_result, save_result, with_labels
from largen.scalars import real

if TYPE_CHECKING:
    import xarray

KINDS = ("readout", "bayesian", "linearized")
_AT_ONCE = 2**22  # numbers


@cites("bahri2022les", "roberts2022principles")
class WidthPosterior(NamedTuple):
    """Predictions at order 1/width; made by :func:`corrected_posterior`.

    Attributes
    ----------
    mean, mean_shift
        Prediction at infinite width, and the shift of its average at order 1/n, (test,).
    mean_error
        Standard error of the shift, from the number of samples, (test,).
    covariance, covariance_shift
        Posterior covariance at infinite width, and its shift at order 1/n, (test, test).
    width_covariance
        Covariance of predictions over hidden layers, of order 1/n, (test, test): the error bar due
        to the finite width. It is part of ``covariance_shift`` for ``"bayesian"``.
    trusted
        As in :class:`largen.finite_width.WidthCorrections`.
    """

    mean: np.ndarray
    mean_shift: np.ndarray
    mean_error: np.ndarray
    covariance: np.ndarray
    covariance_shift: np.ndarray
    width_covariance: np.ndarray
    trusted: bool

    def __repr__(self) -> str:
        spread = np.sqrt(np.diagonal(self.width_covariance).max())
        return (
            f"WidthPosterior: {len(self.mean)} test inputs; the width shifts predictions by "
            f"{np.abs(self.mean_shift).max():.2g} at most and spreads them by {spread:.2g}; "
            f"{'trusted' if self.trusted else 'not to be trusted'}"
        )

    _repr_html_ = in_notebooks
    save = save_result
    plot = plot_result

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return everything over ``input`` and ``input_2``, the test inputs."""
        import xarray

        axes = ("input", "input_2")
        names = [name for name in self._fields if name != "trusted"]
        values = {name: getattr(self, name) for name in names}
        return xarray.Dataset(
            {name: (axes[: value.ndim], value) for name, value in values.items()},
            attrs={"trusted": int(self.trusted)},
        )


def corrected_posterior(
    net: Layer,
    x_train: ArrayLike,
    y_train: ArrayLike,
    x_test: ArrayLike,
    *,
    width: int | Sequence[int],
    kind: str = "readout",
    noise: float = 0.0,
    draws: int = 4000,
    key: Any = 0,
) -> WidthPosterior:
    """Return mean and covariance of regression by networks of finite width, to order 1/width.

    At infinite width each kind is the regression with the NNGP or the NTK. The equations are in
    :mod:`largen.finite_width.predictions`. Averages are over initialisations of

    ``"readout"``
        networks of which only the last layer is trained: given its hidden layers, a network is a
        Gaussian process with covariance S. ``covariance`` is the mean of its posterior covariance.
    ``"bayesian"``
        the posterior of all weights: as before, but each S is weighted with its evidence p(y|S),
        which adds Cov(δ, ½(αᵀδα − tr Aδ)) to the mean of δ.
    ``"linearized"``
        networks linearised at initialisation, with their initial outputs subtracted, trained to
        convergence: regression with the tangent kernel Θ̂. There is no posterior covariance; all
        variance is due to the finite width.

    Parameters
    ----------
    net
        :class:`largen.Dense` and :class:`largen.Activation` in turn, and residual branches of them
        with smooth activations, in :func:`largen.ntk`.
    x_train, y_train, x_test
        (P, D), (P,) and (T, D).
    width
        Neurons of all hidden layers (times their ``width_ratio``), or one number for each.
    kind
        One of the three above.
    noise
        σ², variance of the targets' noise, or the ridge of the regression.
    draws
        Number of sampled deviations of the kernel.
    key
        A JAX key or an integer.

    Raises
    ------
    InvalidInput
        For arrays that do not fit, an unknown kind, or as
        :func:`largen.finite_width.width_fluctuations` does.
    NoRule, NoTheory
        For other networks.
    NumericalFailure
        If the kernel of the training samples is singular: add noise.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.eye(4)
    >>> result = lg.finite_width.corrected_posterior(
    ...     lg.mlp(2, "tanh"), x[:3], np.array([1.0, 0.0, -1.0]), x[:1] + x[3:], width=100, key=0
    ... )
    >>> bool(abs(result.mean_shift[0]) < 0.1 * abs(result.mean[0]))
    True
    """
    kind = one_of("kind", kind, KINDS)
    train, test = checked_inputs(x_train, "x_train"), checked_inputs(x_test, "x_test")
    known("y_train", y_train)
    y = np.asarray(floating("y_train", y_train, ndim=1), np.float64)
    noise = real("noise", noise, at_least=0.0)
    if train.shape[1] != test.shape[1] or len(y) != len(train):
        raise InvalidInput(
            f"x_test: {len(train)} training inputs of {train.shape[1]} numbers, {len(y)} targets "
            f"and test inputs of {test.shape[1]} numbers do not fit."
        )
    fluctuations = width_fluctuations(
        net, np.concatenate([train, test]), width=width, draws=draws, key=key
    )
    if fluctuations.kernel_shift is None or fluctuations.ntk_shift is None:
        raise NoTheory(
            "lg.finite_width.corrected_posterior: the shift of the mean kernel at order 1/width is "
            "known for Dense() and Activation() in turn, such as lg.mlp(3), and with residual "
            f"branches for activations without kinks, such as tanh; got {net!r}."
        )
    assert fluctuations.ntk is not None  # None with attention, whose inputs have positions
    assert fluctuations.ntk_samples is not None
    if kind == "linearized":
        G, m, deviations = fluctuations.ntk, fluctuations.ntk_shift, fluctuations.ntk_samples
    else:
        G, m, deviations = (
            fluctuations.kernel,
            fluctuations.kernel_shift,
            fluctuations.kernel_samples,
        )
    limit = _Regression(G, y, noise)
    second, spread = _averages(limit, deviations, weighted=kind == "bayesian")
    m = m + second.evidence
    draws, shift = len(deviations), limit.slope(m) - second.mean
    covariance = limit.bilinear(m) - second.covariance
    if kind == "bayesian":
        covariance = covariance + spread
    none = np.zeros_like(spread)
    linear = kind == "linearized"
    result = WidthPosterior(
        mean=limit.kappa @ y,
        mean_shift=shift,
        mean_error=second.std / np.sqrt(draws),
        covariance=none if linear else limit.covariance,
        covariance_shift=none if linear else covariance,
        width_covariance=spread,
        trusted=fluctuations.trusted,
    )
    return finite_result("corrected_posterior", result)


class _Regression:
    """Regression at infinite width: A = (G + σ²)⁻¹, κ and α, and first orders in a change of G."""

    def __init__(self, G: np.ndarray, y: np.ndarray, noise: float) -> None:
        P = self.samples = len(y)
        inner = G[:P, :P] + noise * np.eye(P)
        eigenvalues, vectors = np.linalg.eigh(inner)
        if eigenvalues[0] <= 1e-11 * eigenvalues[-1]:
            raise NumericalFailure(
                "the kernel of the training samples is singular: add noise, or leave repeated "
                "samples out."
            )
        self.A = vectors / eigenvalues @ vectors.T
        self.kappa = G[P:, :P] @ self.A
        self.alpha = self.A @ y
        self.covariance = G[P:, P:] - self.kappa @ G[:P, P:]

    def change(self, of: np.ndarray) -> np.ndarray:
        """Return E = δ_* − κδ, (…, test, train)."""
        P = self.samples
        return of[..., P:, :P] - self.kappa @ of[..., :P, :P]

    def slope(self, of: np.ndarray) -> np.ndarray:
        """Return Eα."""
        return self.change(of) @ self.alpha

    def bilinear(self, of: np.ndarray) -> np.ndarray:
        """Return δ_** − δ_*κᵀ − κδ_*ᵀ + κδκᵀ."""
        P = self.samples
        E = self.change(of)
        return of[P:, P:] - E @ self.kappa.T - self.kappa @ of[:P, P:]


class _Second(NamedTuple):
    """Second-order averages: EAδα, its standard deviation, EAEᵀ, and the terms of the evidence."""

    mean: np.ndarray
    std: np.ndarray
    covariance: np.ndarray
    evidence: np.ndarray | float


def _averages(
    limit: _Regression, deviations: np.ndarray, *, weighted: bool
) -> tuple[_Second, np.ndarray]:
    """Return the second-order averages, and the covariance of Eα."""
    P, draws = limit.samples, len(deviations)
    sums: Any = [0.0] * 4
    evidence: Any = 0.0
    part = max(1, _AT_ONCE // deviations[0].size)
    for first in range(0, draws, part):
        delta = deviations[first : first + part].astype(np.float64)
        E, inner = limit.change(delta), delta[:, :P, :P]
        left = inner @ limit.alpha
        moved, bent = E @ limit.alpha, np.einsum("rtp,rp->rt", E @ limit.A, left)
        new = (bent, bent**2, np.einsum("rtp,rsp->ts", E @ limit.A, E), moved.T @ moved)
        new = [each.sum(axis=0) for each in new[:2]] + list(new[2:])
        sums = [old + each for old, each in zip(sums, new, strict=True)]
        if weighted:
            gain = (left @ limit.alpha - np.einsum("rpq,qp->r", inner, limit.A)) / 2
            evidence = evidence + np.tensordot(gain, delta, 1)
    mean, square, covariance, spread = (each / draws for each in sums)
    std = np.sqrt(np.maximum(square - mean**2, 0))
    return _Second(mean, std, covariance, evidence / draws), spread
