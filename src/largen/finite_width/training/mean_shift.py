r"""The mean over initialisations of a network's training, to order 1/n, for one hidden layer.

f = n^{−1/2} Σ f_i and Θ = (1/n) Σ θ_i are sums over independent neurons, O₃ = n^{−3/2} Σ o3_i and
O₄ = n⁻² Σ o4_i, where f_i, θ_i, o3_i, o4_i are those of a network of one neuron. f and O₃ are odd
in the read-out, Θ and O₄ even. The mean shift therefore depends on averages over neurons alone:

    n(E f − f_∞) = ½ Cov(θ, θ):D²F + [terms of O₃ and O₄],   F(Θ) at f(0) = 0, with
    E[O₃ R_m R_j] → −E[o3 f_j] y_m − E[o3 f_m] y_j,
    E[O₄ R_m R_j R_k] → −E[o4](y_m y_j y_k + K_mj y_k + K_mk y_j + K_jk y_m).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.errors import NoTheory
from largen.finite_width.training.closed_form import (
    derivatives,
    kernel_of,
    of_fourth,
    of_third,
    response,
)
from largen.finite_width.training.exponentials import convolve, risen
from largen.interrupts import check as check_interrupts
from largen.networks.network import FiniteNetwork
from largen.parameterizations.distributions import from_normal
from largen.programs import Affine, Function, program_of
from largen.programs.rewriting import unrolled
from largen.runs import Run

NODES = 12  # of a panel of time
FASTEST = 3.0  # λ times the length of a panel
MOST_AT_ONCE = 512  # neurons


class Averages(NamedTuple):
    """Averages over neurons; rows are train, then test samples."""

    kernel: Any  # E θ, (row, sample)
    pairs: Any  # E θ_ab θ_cd, (row, sample, sample, sample), c a training sample
    third: Any  # E o3_abc f_d, (row, sample, sample, sample)
    fourth: Any  # E o4_abcd, with the same axes


class Shift(NamedTuple):
    """n times the shift of the mean at finite width."""

    # Shift of f due to fluctuations of the kernel at initialisation, (time, row).
    of_kernels: np.ndarray
    of_features: np.ndarray  # shift of f due to O₃ and O₄, (time, row)
    kernels: np.ndarray  # n(E Θ(t) − Θ_∞), (time, row, sample)


def check(run: Run, what: str) -> None:
    """Check that a network is a sum over independent neurons, as in NTK parameterization."""
    match unrolled(program_of(run.net, run.data.inputs)).operations[1:]:
        case (Affine(dense=True), Function(), Affine(dense=True)):
            pass
        case _:
            raise NoTheory(
                f'{what}: wanted one hidden layer, such as lg.mlp(1, "tanh"), whose neurons are '
                f"independent, got {run.net!r}. For deeper networks average "
                "lg.training.predict_training over initialisations."
            )
    one, four = (run.param.table(run.net, width=n, inputs=run.data.inputs) for n in (1, 4))
    for row in one.rows:
        now, then = row.rule, four[row.name]
        read_out = row.site.name == one.rows[-1].site.name and row.kind == "weight"
        factor = 0.5 if read_out else 1.0
        alike = np.isclose(
            [then.multiplier, then.init_std, then.lr],
            [factor * now.multiplier, now.init_std, now.lr],
        )
        if not alike.all():
            raise NoTheory(
                f"{what}: wanted the scaling of lg.ntk(), a read-out of 1/√n and rates of order "
                f"one, got {run.param}."
            )


def averages(
    network: FiniteNetwork, x: Any, samples: int, normals: np.ndarray, memory_budget: float
) -> Averages:
    """Return averages over neurons of the network of width 1, at training then test inputs.

    ``normals``: (neuron, parameter), a power of two of neurons, which may use ``memory_budget``
    bytes.
    """
    total = None
    one = 8.0 * len(x) * samples**3 * 8
    fitting = 1 << max(0, int(np.log2(max(memory_budget / one, 1))))
    together = min(MOST_AT_ONCE, fitting, len(normals))
    for begin in range(0, len(normals), together):
        chosen = normals[begin : begin + together]
        part = jax.tree.map(np.asarray, _sums(network, x, samples, chosen))
        check_interrupts()
        total = part if total is None else jax.tree.map(np.add, total, part)
    return jax.tree.map(lambda s: s / len(normals), total)


@partial(jax.jit, static_argnums=(0, 2))
def _sums(network: FiniteNetwork, x, samples: int, normals) -> Averages:
    leaves, tree = jax.tree.flatten(network.module.shapes)
    names = jax.tree.leaves(network.module.names)
    ends = np.cumsum([leaf.size for leaf in leaves])

    def site(numbers) -> Averages:
        parts = jnp.split(numbers, ends[:-1])
        drawn = [
            from_normal(network.table.distribution(name), part.reshape(leaf.shape))
            for name, part, leaf in zip(names, parts, leaves, strict=True)
        ]
        params = network.module.init(tree.unflatten(drawn))
        f, kernel = kernel_of(network, params, x, samples)
        third, fourth = jax.vmap(lambda c: derivatives(network, params, x, samples, c), out_axes=2)(
            jnp.arange(samples)
        )
        return Averages(
            kernel,
            jnp.einsum("ab,cd->abcd", kernel, kernel[:samples]),
            jnp.einsum("abc,d->abcd", third, f[:samples]),
            fourth,
        )

    return jax.tree.map(lambda s: s.sum(0), jax.vmap(site)(normals))


def shift_of(
    at_start: Averages, kernel: np.ndarray, prior: np.ndarray, y: np.ndarray, times: np.ndarray
) -> Shift:
    """Return the mean shift in units of η₀/P, at times that start at 0.

    ``kernel``: Θ_∞, (row, sample); ``prior``: K, the outputs' covariance on training samples.
    """
    P = len(y)
    rates, basis = np.linalg.eigh(kernel[:P])
    target, K = basis.T @ y, basis.T @ prior @ basis
    along = kernel @ basis
    # Cov(θ_aj, θ_jk) in the eigenbasis, j summed over training samples by the loop's closure.
    centred = at_start.pairs - np.einsum("ab,cd->abcd", at_start.kernel, kernel[:P])
    centred = centred - np.einsum("ab,cd->abcd", kernel, at_start.kernel[:P] - kernel[:P])
    turned = np.einsum("abcd,bj,cl,dk->ajlk", centred, basis, basis, basis, optimize=True)
    covariance = np.einsum("ajjk->ajk", turned)
    weights = covariance * target  # −C r with r = −y

    def source(u):
        both = convolve(rates[:, None], rates, u[:, None, None])  # (u, j, k)
        return np.einsum("ajk,ujk->ua", weights, both)

    t = np.asarray(times, np.float64)
    of_kernels = _responses(source, rates, basis, along, t)
    third = np.einsum("abcd,bm,cj,dk->amjk", at_start.third, basis, basis, basis, optimize=True)
    fourth = np.einsum("abcd,bm,cj,dk->amjk", at_start.fourth, basis, basis, basis, optimize=True)
    own_j, own_m = np.einsum("amjj->amj", third), np.einsum("amjm->amj", third)
    product3 = -(own_j * target[:, None] + own_m * target)
    m, j, k = np.ix_(target, target, target)
    moments = -(m * j * k + K[:, :, None] * k + K[:, None, :] * j + K[None] * m)
    product4 = fourth * moments
    of_features = sum(
        response(part, rates, basis, along, t[:, None])
        for part in (of_third(product3, rates), of_fourth(product4, rates))
    )
    grown = risen(rates, t[:, None])
    both = (grown[:, :, None] - risen(rates[:, None] + rates, t[:, None, None])) / rates
    moved = -np.einsum("amj,tj->tam", own_j, grown)
    moved += np.einsum("amjk,jk,tjk->tam", fourth, np.outer(target, target) + K, both)
    return Shift(of_kernels, np.asarray(of_features), moved @ basis.T)


def _responses(source, rates, basis, along, times) -> np.ndarray:
    """Return the response of the outputs to a source, (time, row), by quadrature in time."""
    P = len(rates)
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    inner, whole, now = np.zeros(P), np.zeros(len(along)), 0.0
    out: list[np.ndarray] = []
    for end in times:
        panels = max(1, int(np.ceil((end - now) * rates[-1] / FASTEST)))
        for last in np.linspace(now, end, panels + 1)[1:] if end > now else ():
            h = last - now
            u = now + (nodes + 1) * h / 2
            values = source(u) * (weights * h / 2)[:, None]
            decay = np.exp(-rates * (last - u)[:, None])
            inner = np.exp(-rates * h) * inner + (decay * (values[:, :P] @ basis)).sum(0)
            whole = whole + values.sum(0)
            now = last
        passed = (whole[:P] @ basis - inner) / rates
        out.append(np.concatenate([-inner @ basis.T, -whole[P:] + along[P:] @ passed]))
    return np.array(out)
