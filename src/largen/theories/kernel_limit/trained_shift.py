r"""The mean over initialisations at finite width, of any network, from networks of small widths.

A network f of width m has the tangent kernel Θ_∞ + δ and the outputs f₀ at initialisation. With
F = F⁰ + F¹ + F², its training at this constant kernel to second order in δ,

    E f_n − f_∞ = E_n[f − F(δ, f₀)] + E_n[F¹(δ, 0) + F²(δ, δ, 0)],

where f₀ is left out of the second term since it is odd in the read-out and Θ even. The second is
due to fluctuations of the kernel at initialisation, and of order 1/n: of fully connected networks
by the moments E δ and E δδ that :mod:`largen.finite_width.sampled_chain` samples at infinite width,
otherwise by further networks at initialisation. The first is due to the movement of the kernel, and
measured in networks of a width m and of m/4. Its samples are of order 1/m for smooth networks,
while those of f − f_∞ are of order m^{−1/2}.

Smooth networks have E_n[f − F] = b/n. With a kink in φ the preactivations of about √n neurons pass
it, and what pushes a neuron is not the same on both sides: for relu, the rates at which neurons
switch on and off differ by what a sample contributes to its own preactivation. The kernel's mean
therefore moves by order n^{−1/2}, and E_n[f − F] = a n^{−1/2} + b/n.
"""

from __future__ import annotations

from math import lcm
from typing import Any, NamedTuple

import jax
import numpy as np

from largen.errors import InvalidInput, NoRule, NoTheory, NumericalFailure
from largen.finite_width import width_fluctuations
from largen.finite_width.training.smooth import is_smooth
from largen.memory import check_fits
from largen.networks import train
from largen.parameterizations import gd, ntk
from largen.programs import Affine
from largen.progress import Report
from largen.runs import Run, Status, Trajectory
from largen.theories.kernel_limit.fluctuating_kernel import ORDERS, by_orders

STARTED = 8  # networks at initialisation for each trained one
FLUCTUATIONS = 8  # independent groups of sampled fluctuations
WIDE = 10**4  # whose fluctuations are small, so that moments at order 1/n have no rounding errors
NARROWER = 4  # the ratio of the widths of trained networks
LARGE_NEXT_ORDER = 0.2


class Shift(NamedTuple):
    """The shift of the mean, (time, row), rows being train, then test samples."""

    kinked: bool
    widths: tuple[int, int]  # of the trained networks, the wider ones first
    # n times the part of fluctuating kernels, and its standard error.
    of_kernels: np.ndarray
    of_kernels_error: np.ndarray
    # E[f − F] at both widths, and standard errors, (width, time, row).
    of_features: np.ndarray
    of_features_error: np.ndarray

    def at(self, width: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the shift at a width, its standard error, and the part of fluctuating kernels."""
        weights = self._weights(width)
        features = np.tensordot(weights, self.of_features, 1)
        variance = np.tensordot(weights**2, self.of_features_error**2, 1)
        of_kernels, error = self.of_kernels / width, self.of_kernels_error / width
        return of_kernels + features, np.sqrt(error**2 + variance), of_kernels

    def _weights(self, width: float) -> np.ndarray:
        """Return the weights of the two widths in the first term at another."""
        m = np.array(self.widths, float)
        if not self.kinked:
            return np.array([m[0] / width, 0.0])
        return np.linalg.solve(np.stack([m**-0.5, 1 / m]), [width**-0.5, 1 / width])

    @property
    def next_order(self) -> float:
        """The share of order 1/m² in the shift of smooth networks of the wider width, if seen."""
        m = np.array(self.widths, float)[:, None, None]
        (wide, narrow), errors = m * self.of_features, m * self.of_features_error
        excess = np.sum((wide - narrow) ** 2) - np.sum(errors**2)
        ratio = m[0, 0, 0] / m[1, 0, 0] - 1
        whole = float(np.linalg.norm(self.of_kernels + wide)) * ratio
        return float(np.sqrt(max(excess, 0.0))) / whole if whole else 0.0


def check(run: Run, what: str, power: Any) -> None:
    """Check that a run's mean at order 1/n can be computed; ``power``: d of γ = γ₀N^d."""
    if power:
        raise NoTheory(
            f"{what}: wanted initial outputs of order one, as in lg.ntk(); those of {run.param} "
            f"vanish as N^-{power}, and corrections are of other powers of the width."
        )
    if not run.optimizer.descends or run.optimizer.weight_decay:
        raise NoTheory(
            f"{what}: wanted gradient descent or gradient flow without weight decay, got "
            f"{run.optimizer}; measure networks: lg.train(run, width=…, seeds=…)."
        )
    if not run.loss.linear_residual or run.output_shape not in ((), (1,)):
        raise NoTheory(
            f'{what}: wanted "mse" with one output, got {run.loss.name!r} with outputs of shape '
            f"{run.output_shape}: lg.training.predict_networks(run, width) has other losses."
        )


def shift_of(
    run: Run, limit: Trajectory, width: int, networks: int, draws: int, key: Any, report: Report
) -> Shift:
    """Return the mean shift, measured in networks of ``width`` and of a quarter of it."""
    y = np.asarray(run.data.y_train, np.float64).reshape(-1)
    kernel = np.concatenate([limit.ntk, limit.ntk_test]).astype(np.float64)
    _check_memory(run, networks)
    keys = jax.random.split(key, 4)
    widths, samples = (width, width // NARROWER), []
    for m, one in zip(widths, keys[:2], strict=True):
        samples.append(features(run, m, networks, kernel, y, one)[1])
        report(len(samples), 3)
    of_kernels = _of_fluctuations(run, kernel, y, draws, keys[2])
    if of_kernels is None:
        of_kernels = _of_started(run, kernel, y, width, STARTED * networks, keys[3])
    report(3, 3)
    return Shift(
        not is_smooth(run.net),
        widths,
        *of_kernels,
        np.stack([each.mean(0) for each in samples]),
        np.stack([each.std(0, ddof=1) for each in samples]) / networks**0.5,
    )


def _check_memory(run: Run, networks: int) -> None:
    rows, times = len(run.data.x), len(run.times)
    check_fits(
        8.0 * networks * rows * ((ORDERS + 2) * times + STARTED * len(run.data.x_train)),
        f"networks: outputs of {networks} networks at {times} times",
        "Take fewer networks, steps or samples.",
    )


def _networks(run: Run, width: int, networks: int, key: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs (network, time, row), and Θ̂ at initialisation (network, row, sample)."""
    nets = train(run, width, networks, key, record=["ntk"], record_at=[0], throw=False)
    if nets.status is not Status.OK:
        raise NumericalFailure(
            f"networks of width {width} diverge. Take a larger network_width, or a lower rate.",
            nets,
        )
    f = np.concatenate([nets.f_train, nets.f_test], 2).reshape(networks, len(run.times), -1)
    blocks = [nets.ntk[:, 0], *([nets.ntk_test[:, 0]] if len(run.data.x_test) else [])]
    tangent = np.concatenate(blocks, 1)
    return f.astype(np.float64), tangent.reshape(tangent.shape[:3]).astype(np.float64)


def features(
    run: Run, width: int, networks: int, kernel: np.ndarray, y: np.ndarray, key: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return initial outputs (network, row) and samples of f − F (network, time, row)."""
    f, tangent = _networks(run, width, networks, key)
    at_rest = by_orders(run, kernel, tangent - kernel, f[:, 0], y).sum(0)
    return f[:, 0], f - at_rest.swapaxes(0, 1)


def _of_fluctuations(
    run: Run, kernel: np.ndarray, y: np.ndarray, draws: int, key: Any
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the mean of n(F¹ + F²) and its error; None for networks without known moments."""
    # Widths of all layers are integers.
    affine = [each.weight for each in run.program.operations if isinstance(each, Affine)]
    ratios = [run.program.weights[index].width_ratio for index in affine]
    width = WIDE * lcm(*(ratio.denominator for ratio in ratios))
    if run.param != ntk() or run.data.x.ndim != 2:
        return None
    groups, still = [], np.zeros((1, len(kernel)))
    each = max(2, draws // FLUCTUATIONS)
    for one in jax.random.split(key, FLUCTUATIONS):
        try:
            found = width_fluctuations(
                run.net, run.data.x.astype(np.float64), width=width, draws=each, key=one
            )
        except (NoRule, NoTheory, InvalidInput):
            return None
        if found.ntk_shift is None or found.ntk_samples is None:
            return None
        P = len(y)
        deviations = width**0.5 * found.ntk_samples[:, :, :P].astype(np.float64)
        shift = width * found.ntk_shift[None, :, :P]
        linear = by_orders(run, kernel, shift, still, y)[1, :, 0]
        bent = by_orders(run, kernel, deviations, np.zeros((each, len(kernel))), y)[2]
        groups.append(linear + bent.mean(1))
    return np.mean(groups, 0), np.std(groups, 0, ddof=1) / FLUCTUATIONS**0.5


def _of_started(
    run: Run, kernel: np.ndarray, y: np.ndarray, width: int, networks: int, key: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of m(F¹ + F²) over networks at initialisation, and its error."""
    started = run.with_changes(optimizer=gd(run.optimizer.lr), steps=1, times=None)
    _, tangent = _networks(started, width, networks, key)
    still = np.zeros((networks, len(kernel)))
    samples = width * by_orders(run, kernel, tangent - kernel, still, y)[1:].sum(0)
    return samples.mean(1), samples.std(1, ddof=1) / networks**0.5
