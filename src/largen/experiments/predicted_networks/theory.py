r"""Ensembles whose mean and covariance are those of theory at order 1/n, in place of pilots.

In mean-field limits sets of neurons of single layers give c without the limit, with an error that
does not grow with their number N (:mod:`largen.theories.mean_field.deep.estimation.by_layers`). The
networks f_s of width N, to which one set of each layer belongs, have the covariance V/N between all
samples and times: f_∞ + c + √N(f_s − f̄) are pilots of width 1. The sum of V_l over layers would be
larger, since it counts what two layers cause together twice: by 40 % in two hidden layers of 64.

In the kernel limit a network of width m starts at f₀ ~ N(0, S) and follows a constant kernel Θ̂, but
for what the movement of Θ̂ adds. S and Θ̂ fluctuate together, by samples of
:mod:`largen.finite_width.sampled_chain`, and

    f_s = (f⁰ + f¹ + f²)(δΘ_s, f₀_s) + e(f₀_s)/m,    e(f₀) = ē + B f₀,

with orders in δΘ as in :mod:`largen.theories.kernel_limit.fluctuating_kernel`. ē and
B = Cov(e, f₀) K⁻¹ are those of networks of a small width; what is left of e given f₀ is not
correlated with f⁰, which is linear in f₀, and changes the covariance of f by order 1/n² only. The
samples of Θ̂ do not depend on the signs and sizes of its own output: the part F of Cov(Θ̂, f₀f₀)
(:mod:`largen.finite_width.recursion`) is left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from largen.errors import NoTheory
from largen.experiments.predicted_networks.pilots import NextOrder
from largen.experiments.training_corrections import drawn_corrections, problem_of
from largen.finite_width import width_fluctuations
from largen.finite_width.neuron_paths import root
from largen.finite_width.training.smooth import is_smooth
from largen.memory import check_fits
from largen.parameterizations import ntk
from largen.progress import Report
from largen.runs import Run, Theory, Trajectory
from largen.theories import KernelLimit
from largen.theories.kernel_limit import trained_shift
from largen.theories.kernel_limit.fluctuating_kernel import by_orders

NETWORKS, NETWORK_WIDTH = 512, 64  # trained to measure the movement of kernels
SMALLEST = 1e-6  # eigenvalue of K, over the largest, along which e is not regressed on f₀


class Ensemble(NamedTuple):
    """Outputs (draw, step, sample[, output]), and estimates of their mean's deviation."""

    width: int
    f_train: np.ndarray
    f_test: np.ndarray
    shifts: dict[str, np.ndarray]  # by "train" and "test"; empty if outputs have that mean


def check(run: Run, theory: type[Theory], what: str) -> None:
    """Refuse runs whose order 1/n is not known, before anything is computed."""
    if not theory.random_outputs:
        try:
            problem_of(run, "the order 1/n")
        except NoTheory as refused:
            raise NoTheory(
                f'{what}: anchor="pilots" measures the order 1/n of this run, which theory does '
                f"not have: {refused}"
            ) from None
        return
    if theory is not KernelLimit:
        raise NoTheory(
            f'{what}: anchor="theory" has no expansion about the limit {theory.name!r}; '
            'anchor="pilots" measures it.'
        )
    trained_shift.check(run, f'{what}: anchor="theory"', KernelLimit.pose(run).problem.form.d)
    if not is_smooth(run.net):
        raise NoTheory(
            f'{what}: anchor="theory" in the kernel limit takes activations without kinks, whose '
            'mean at finite width is a power series in 1/n; anchor="pilots" measures the others.'
        )
    if run.param != ntk() or run.data.x.ndim != 2:
        raise _unknown(run, what)


def _unknown(run: Run, what: str) -> NoTheory:
    return NoTheory(
        f'{what}: anchor="theory" in the kernel limit takes fully connected networks in lg.ntk(), '
        f'whose kernels are known at order 1/n, got {run.net!r}; anchor="pilots" takes all.'
    )


def of_mean_field(
    run: Run, limit: Trajectory, width: int, replicates: int, key: Any,
    progress: bool | Report | None, what: str,
) -> tuple[Ensemble, NextOrder]:  # fmt: skip
    """Return f_∞ + c + √N(f_s − f̄), and the share of the next order, from sets of N neurons."""
    found = drawn_corrections(run, width, replicates, key, progress, what)
    assert found.drawn is not None
    P, dtype = len(run.data.x_train), run.data.x_train.dtype

    def parts(of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        of = (of if run.output_shape else of[..., 0]).astype(dtype)
        return of[:, :, :P], of[:, :, P:]

    shifts, outputs = map(parts, found.drawn)
    limits = limit.f_train, limit.f_test
    train, test = (
        f + shift.mean(0) + width**0.5 * (each - each.mean(0))
        for f, shift, each in zip(limits, shifts, outputs, strict=True)
    )
    of_mean = {"train": shifts[0], "test": shifts[1]}
    return Ensemble(1, train, test, of_mean), NextOrder(width, found.quadratic_at)


def of_kernels(
    run: Run, limit: Trajectory, width: int, draws: int, key: Any, what: str
) -> tuple[Ensemble, NextOrder]:
    """Return draws of networks of a width in the kernel limit, and the share of the next order."""
    P, x = len(run.data.x_train), run.data.x.astype(np.float64)
    kernel = np.concatenate([limit.ntk, limit.ntk_test]).astype(np.float64)
    y = np.asarray(run.data.y_train, np.float64).reshape(-1)
    keys = jax.random.split(key, 3)
    what_fits = f"pilots: kernels of {len(x)} samples in {draws} draws"
    check_fits(8.0 * 6 * draws * len(x) ** 2, what_fits, "Take fewer pilots or samples.")
    found = width_fluctuations(run.net, x, width=width, draws=draws, key=keys[0])
    if found.kernel_shift is None or found.ntk_shift is None or found.ntk_samples is None:
        raise _unknown(run, what)
    normal = np.asarray(jax.random.normal(keys[1], (-(-draws // 2), len(x))), np.float64)
    normal = np.concatenate([normal, -normal])[:draws]  # f⁰ has the mean of the limit
    S = found.kernel + found.kernel_shift + found.kernel_samples
    f0 = np.einsum("rab,rb->ra", root(S), normal)
    tangent = (found.ntk_shift + found.ntk_samples.astype(np.float64))[:, :, :P]
    with jax.enable_x64(True):
        orders = by_orders(run, kernel, tangent, f0, y)
        start, e = trained_shift.features(run, NETWORK_WIDTH, NETWORKS, kernel, y, keys[2])
    mean = e.mean(0)
    slope = np.einsum("stq,sr->tqr", e - mean, start) / len(e)
    slope = slope @ np.linalg.pinv(found.kernel, rcond=SMALLEST, hermitian=True)
    moved = (mean + np.einsum("tqr,sr->stq", slope, f0)) * (NETWORK_WIDTH / width)
    f = (orders.sum(0).swapaxes(0, 1) + moved).astype(run.data.x_train.dtype)
    f = f.reshape(*f.shape, *run.output_shape)
    with np.errstate(invalid="ignore"):
        first, second = (np.square(each).sum((1, 2)) for each in orders[1:])
        share = np.where(first == 0, 0.0, second / first)
    return Ensemble(width, f[:, :, :P], f[:, :, P:], {}), NextOrder(width, share)
