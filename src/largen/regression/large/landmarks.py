"""Gaussian processes of many samples by a kernel of low rank, K ≈ K_nm K_mm⁻¹ K_mn (Nyström)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve

from largen.architectures import Layer, layers_of
from largen.arrays import as_array, known
from largen.bibliography import cites
from largen.errors import InvalidInput, one_of
from largen.interrupts import interruptible
from largen.kernels.checks import check_network
from largen.kernels.masked import Masked, diagonal_of, kernel_of, masked
from largen.kernels.nngp_ntk import nngp_kernel, ntk_kernel
from largen.memory import check_fits
from largen.parameterizations import Parameterization
from largen.regression import Prediction
from largen.regression.checks import check_lazy, new_inputs, training_inputs, training_targets
from largen.regression.large.preconditioners import inverse_root
from largen.scalars import integer, random_key, real
from largen.text import shown

KINDS = {"nngp": nngp_kernel, "ntk-gp": ntk_kernel}
_ROWS = 4096


@cites("lee2018deep", "lee2019wide", "bahri2022les")
@dataclass(frozen=True, eq=False, repr=False)
class LowRankPosterior:
    """A Gaussian process in the landmark approximation; made by :func:`low_rank_posterior`.

    Attributes
    ----------
    net, param, kind, noise
        The network, the parameterization and the kind of kernel, and σ_n².
    landmarks
        The m samples, (landmark, input) or (landmark, *space, channel).
    mask
        Which positions of the landmarks are present, (landmark, *space), or None if all are.
    rank
        The numerical rank of K_mm, at most m.
    residual
        Mean of the diagonal of K − Q over the training samples: 0 if the landmarks determine the
        function exactly.
    """

    net: Layer
    param: Parameterization | None
    kind: str
    noise: float
    landmarks: np.ndarray
    mask: np.ndarray | None
    rank: int
    residual: float
    root: np.ndarray  # K_mm⁻¹ = root rootᵀ
    system: Any  # Cholesky factor of σ_n² + Σ_i v_i v_iᵀ with v = rootᵀ k_m(x)
    weights: np.ndarray
    scalar: bool

    @interruptible()
    def predict(self, x_test: ArrayLike, *, mask: ArrayLike | None = None) -> Prediction:
        """Return mean and variance of the outputs at test samples, without the targets' noise.

        A new target has the variance ``variance + noise``.

        Parameters
        ----------
        x_test
            (test_sample, input) or (test_sample, *space, channel).
        mask
            Which positions of each sample are present, (test_sample, *space); all by default.

        Raises
        ------
        InvalidInput
            As :func:`largen.nngp_kernel`.
        """
        rows = np.asarray(new_inputs(x_test, self.landmarks), np.float64)
        new = masked("mask", mask, rows)
        means, variances = [], []
        for block in _blocks(len(rows)):
            features, own = self._features(new.rows(block))
            means.append(features @ self.weights)
            unseen = np.maximum(own - np.sum(features**2, axis=1), 0)
            seen = self.noise * np.sum(features * cho_solve(self.system, features.T).T, axis=1)
            variances.append(unseen + seen)
        mean = np.concatenate([np.zeros((0, self.weights.shape[1])), *means])
        variance = np.concatenate([np.zeros(0), *variances])
        return Prediction(mean[:, 0] if self.scalar else mean, variance)

    def _features(self, new: Masked) -> tuple[np.ndarray, np.ndarray]:
        landmarks = Masked(self.landmarks, self.mask)
        return _features(self.net, self.param, self.kind, landmarks, self.root, new)

    def __repr__(self) -> str:
        return (
            f"LowRankPosterior({self.kind!r}, {len(self.landmarks)} landmarks of rank "
            f"{self.rank}, {self.net!r})"
        )


@interruptible()
def low_rank_posterior(
    net: Layer,
    x: ArrayLike,
    y: ArrayLike,
    *,
    noise: float,
    landmarks: Any = 1000,
    kind: str = "nngp",
    mask: ArrayLike | None = None,
    param: Parameterization | None = None,
    key: Any = 0,
) -> LowRankPosterior:
    """Condition the Gaussian process of an infinitely wide network on many samples, at low rank.

    With m landmarks among the P samples the kernel is replaced by Q = K_nm K_mm⁻¹ K_mn, at a cost
    of P·m² instead of P³ and memory of 4096·m + m² numbers: the Nyström approximation, with the
    exact variance K** of test samples (the deterministic training conditional of Quiñonero-Candela
    and Rasmussen 2005):

        mean Q*(Q + σ_n²)⁻¹y,   variance K** − Q*(Q + σ_n²)⁻¹Q*ᵀ.

    It is exact if all samples are landmarks. ``residual`` measures the error of Q.

    Parameters
    ----------
    net
        The architecture.
    x, y
        Training samples, (sample, input) or (sample, *space, channel), and targets, (sample,) or
        (sample, output).
    noise
        σ_n² > 0, a variance, added to the diagonal as it is.
    landmarks
        Number of landmarks, drawn from the samples without replacement; or their indices.
    kind
        ``"nngp"``, or ``"ntk-gp"`` as in :func:`largen.posterior`.
    mask, param
        As in :func:`largen.posterior`.
    key
        A JAX key or an integer, for the draw of landmarks.

    Raises
    ------
    InvalidInput
        For wrong shapes, also of a mask, NaN, landmarks that do not exist, or a noise that is
        not positive; for networks with dropout.
    OutOfMemory
        If kernels of the landmarks do not fit into memory.
    NumericalFailure
        If the kernel misses the accuracy of :func:`largen.kernel`.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.linspace(-2, 2, 300)[:, None]
    >>> net = lg.mlp(1, "erf", bias_std=1.0)
    >>> given = lg.regression.large.low_rank_posterior(
    ...     net, x, np.sin(x[:, 0]), noise=1e-4, landmarks=20
    ... )
    >>> bool(np.abs(given.predict(x).mean - np.sin(x[:, 0])).max() < 0.02)
    True
    """
    one_of("kind", kind, KINDS)
    check_network(net, param)
    check_lazy(param)
    _check_repeatable(net)
    variance = real("noise", noise, above=0)
    rows = training_inputs(x).astype(np.float64)
    targets = training_targets(y, len(rows))
    given = masked("mask", mask, rows)
    positions = _positions(landmarks, len(rows), key)
    check_fits(
        8.0 * len(positions) * (5 * len(positions) + 3 * min(_ROWS, len(rows))),
        f"landmarks: kernels of {len(positions)} of them",
        "Take fewer.",
    )
    chosen = given.rows(positions)
    matrix = np.asarray(kernel_of(KINDS[kind], net, chosen, param=param))
    root = inverse_root(matrix)
    columns = targets.reshape(len(rows), -1)
    gram = variance * np.eye(root.shape[1])
    pushed, missed = np.zeros((root.shape[1], columns.shape[1])), 0.0
    for block in _blocks(len(rows)):
        features, variances = _features(net, param, kind, chosen, root, given.rows(block))
        gram += features.T @ features
        pushed += features.T @ columns[block]
        missed += float(np.sum(np.maximum(variances - np.sum(features**2, axis=1), 0)))
    system = cho_factor(gram)
    return LowRankPosterior(
        net, param, kind, variance, *chosen, root.shape[1], missed / len(rows), root, system,
        cho_solve(system, pushed), targets.ndim == 1,
    )  # fmt: skip


def _check_repeatable(net: Layer) -> None:
    """Refuse networks of which the kernel of a sample with itself is not that of equal samples."""
    for layer in layers_of(net):
        if layer.random:
            raise InvalidInput(
                f"net: {layer!r} draws a mask for each sample, whose variance the kernel of a "
                "sample with itself has and its kernels with landmarks have not; leave it out, or "
                "take lg.posterior."
            )


def _features(net, param, kind, landmarks, root, new) -> tuple[np.ndarray, np.ndarray]:
    """Return v with Q = v vᵀ, (sample, mode), and the diagonal of K."""
    prior = partial(kernel_of, KINDS[kind], net, param=param)
    return np.asarray(prior(new, landmarks)) @ root, diagonal_of(prior, new)


def _blocks(samples: int) -> list[np.ndarray]:
    return np.array_split(np.arange(samples), -(-samples // _ROWS)) if samples else []


def _positions(landmarks: Any, samples: int, key: Any) -> np.ndarray:
    if isinstance(landmarks, str) or not hasattr(landmarks, "__len__"):
        count = min(integer("landmarks", landmarks, at_least=1), samples)
        order = jax.random.permutation(random_key(key), samples)
        return np.asarray(order)[:count]
    known("landmarks", landmarks)
    positions = np.asarray(as_array("landmarks", landmarks))
    if positions.ndim != 1 or positions.dtype.kind not in "iu" or not len(positions):
        raise InvalidInput(f"landmarks: wanted a number or positions, got {shown(landmarks)}.")
    if positions.min() < 0 or positions.max() >= samples:
        raise InvalidInput(f"landmarks: wanted positions from 0 to {samples - 1}.")
    return positions
