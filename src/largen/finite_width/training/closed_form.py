r"""Gradient flow to order 1/n in closed form: O₃ and O₄ in the eigenbasis of the network's kernel.

With df/dt = −Θ R and R = f − y on training samples (t in units of η₀/P), and J_c = ρ∇f_c,

    O₃(a, b; c) = D_{J_c} Θ(a, b),   O₄(a, b; c, d) = D_{J_d}[D_{J_c} Θ(a, b)],

where the outer derivative acts on J_c as well: dΘ/dt = −O₃R, dO₃/dt = −O₄R, and dO₄/dt = O(n⁻²).
In the eigenbasis (λ_i, e_i) of Θ₀, with r = e·R(0) and E_s(t) = (1 − e^{−st})/s,

    Θ¹_im(t) = −Σ_j o3_imj r_j E_{λj}(t) + Σ_jk o4_imjk (r_j r_k/λ_k)[E_{λj}(t) − E_{λj+λk}(t)],
    R_i(t) = e^{−λi t} r_i − ∫₀ᵗ e^{−λi(t−s)} Σ_m Θ¹_im(s) e^{−λm s} r_m ds,

and at test points f¹_x(t) = −∫₀ᵗ [S_x(u) − Σ_i (Θ₀e_i)_x E_{λi}(t−u) S_i(u)] du with
S_a = Σ_m Θ¹_am e^{−λm u} r_m. The source is Bahri and Hanin, Les Houches lectures, (102) to (104);
(104) is printed with e^{−Θ₀t} outside and e^{−Θ₀t'}Θ¹e^{−Θ₀t'} within the integral. The sign of
the first exponent is wrong, so that (104) is not correct at order 1/n.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.finite_width.training.exponentials import convolve, risen
from largen.networks.network import FiniteNetwork
from largen.networks.tangent import kernels, probe
from largen.progress import Report
from largen.runs import Run

MOST_SAMPLES = 24  # whose fourth powers are held, and whose squares are derivatives to take
LARGEST_CONDITION = 1e6


class Tensors(NamedTuple):
    """Derivatives of a network's kernel at initialisation; rows a are train, then test samples."""

    outputs: np.ndarray  # f(0), (row,)
    kernel: np.ndarray  # Θ₀, (row, sample)
    # third, fourth: O₃ (row, sample, sample) and O₄ (row, sample, sample, sample): the two
    # arguments of the kernel, then the directions in their order.
    third: np.ndarray
    fourth: np.ndarray


class ToFirstOrder(NamedTuple):
    """Outputs and kernels by orders: at constant kernel, the terms of O₃, the terms of O₄."""

    outputs: np.ndarray  # (time, order, row)
    kernels: np.ndarray  # (time, order, row, sample)


def check(run: Run, what: str) -> None:
    """Check that the closed form applies."""
    instead = 'method="expansion" covers it'
    if not (run.optimizer.descends and run.optimizer.continuous):
        raise NoTheory(
            f"{what}: the closed form is of gradient flow, not {run.optimizer}; {instead}."
        )
    if not run.loss.squared or run.output_shape not in ((), (1,)):
        raise NoTheory(f'{what}: the closed form is of "mse" with one output; {instead}.')
    if len(run.data.x_train) > MOST_SAMPLES:
        raise InvalidInput(
            f"run: the closed form takes P² derivatives of the kernel; wanted at most "
            f"{MOST_SAMPLES} training samples, got {len(run.data.x_train)}; {instead}."
        )


def tensors(network: FiniteNetwork, params: Any, x: Any, samples: int, report: Report) -> Tensors:
    """Return kernel and derivatives, rows training then test inputs, by P² nested derivatives."""
    rows = []
    f, kernel = kernel_of(network, params, x, samples)
    for c in range(samples):
        rows.append(jax.tree.map(np.asarray, derivatives(network, params, x, samples, c)))
        report(c + 1, samples)
    third, fourth = (np.stack(part, axis=2) for part in zip(*rows, strict=True))
    return Tensors(np.asarray(f), np.asarray(kernel), third, fourth)


def _tangent(network: FiniteNetwork, params, x, samples: int):
    training = probe(network, params, x[:samples])
    whole = training if len(x) == samples else probe(network, params, x)
    tangent = kernels(network, whole, training).tangent
    return tangent.reshape(tangent.shape[:2])


@partial(jax.jit, static_argnums=(0, 3))
def kernel_of(network: FiniteNetwork, params, x, samples: int):
    """Return f(0), (row,), and Θ₀, (row, sample)."""
    x = jnp.asarray(x)
    return network.outputs_of(params, x).reshape(-1), _tangent(network, params, x, samples)


@partial(jax.jit, static_argnums=(0, 3))
def derivatives(network: FiniteNetwork, params, x, samples: int, c):
    """Return O₃(·, ·; c), (row, sample), and O₄(·, ·; c, d), (row, sample, d)."""
    x = jnp.asarray(x)
    rates = network.per_leaf(network.table, "lr")

    def direction(params, index):
        slope = jax.grad(lambda p: network.outputs_of(p, x[index][None]).reshape(()))(params)
        return jax.tree.map(lambda r, g: r * g, rates, slope)

    def third(params):
        along = direction(params, c)
        return jax.jvp(lambda p: _tangent(network, p, x, samples), (params,), (along,))[1]

    def fourth(d):
        return jax.jvp(third, (params,), (direction(params, d),))[1]

    return third(params), jnp.moveaxis(lax.map(fourth, jnp.arange(samples)), 0, -1)


def to_first_order(at_start: Tensors, y: np.ndarray, times: np.ndarray) -> ToFirstOrder:
    """Return outputs and kernels by their orders, at times in units of η₀/P."""
    P = len(y)
    rates, basis = np.linalg.eigh((at_start.kernel[:P] + at_start.kernel[:P].T) / 2)
    if rates[0] * LARGEST_CONDITION < rates[-1]:
        raise NumericalFailure(
            "the closed form divides by eigenvalues of the kernel, which range from "
            f"{rates[0]:.2g} to {rates[-1]:.2g}: leave out samples that are alike, or take "
            'method="expansion".'
        )
    r = basis.T @ (at_start.outputs[:P] - y)
    kernel = at_start.kernel @ basis  # (row, i)
    third = np.einsum("abc,bm,cj->amj", at_start.third, basis, basis)
    fourth = np.einsum("abcd,bm,cj,dk->amjk", at_start.fourth, basis, basis, basis, optimize=True)
    t = np.asarray(times, np.float64)[:, None]
    lam = rates[None]
    pairs = rates[:, None] + rates
    # Θ¹ at all times: (time, row, m), by orders.
    grown = risen(lam, t)
    both = (grown[:, :, None] - risen(pairs[None], t[:, :, None])) / rates
    slow = -np.einsum("amj,j,tj->tam", third, r, grown)
    fast = np.einsum("amjk,j,k,tjk->tam", fourth, r, r, both, optimize=True)
    moved = np.stack([slow, fast], 1) @ basis.T
    constant = np.broadcast_to(at_start.kernel, (len(t), 1, *at_start.kernel.shape))
    lazy = at_start.outputs - np.einsum("ai,ti,i->ta", kernel, grown, r)
    driven = (
        of_third(third * r[:, None] * r, rates),
        of_fourth(fourth * r[:, None, None] * r[:, None] * r, rates),
    )
    parts = [response(source, rates, basis, kernel, t) for source in driven]
    return ToFirstOrder(np.stack([lazy, *parts], 1), np.concatenate([constant, moved], 1))


def of_third(product: np.ndarray, rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return S_a(u) for o3_amj r_m r_j, as amplitudes (row, term) and exponents (term,)."""
    each = -product / rates  # (row, m, j)
    single = each.sum(2)
    return (
        np.concatenate([single, -each.reshape(len(each), -1)], 1),
        np.concatenate([rates, (rates[:, None] + rates).ravel()]),
    )


def of_fourth(product: np.ndarray, rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return S_a(u) for o4_amjk r_m r_j r_k in the same form."""
    each = product / rates  # (row, m, j, k)
    pair, sums = each / rates[:, None], each / (rates[:, None] + rates)
    single = (pair - sums).sum((2, 3))
    two = rates[:, None] + rates
    return (
        np.concatenate(
            [single, -pair.sum(3).reshape(len(each), -1), sums.reshape(len(each), -1)], 1
        ),
        np.concatenate([rates, two.ravel(), (two[:, :, None] + rates).ravel()]),
    )


def response(
    source: tuple[np.ndarray, np.ndarray],  # amplitudes and exponents of S
    # rates, basis: λ_i and e_i.
    rates: np.ndarray,
    basis: np.ndarray,
    kernel: np.ndarray,  # Θ₀ e_i, (row, i)
    t: np.ndarray,  # (time, 1)
) -> np.ndarray:
    """Return the response of the outputs to a source S, (time, row)."""
    amplitudes, exponents = source
    P = len(rates)
    inner = basis.T @ amplitudes[:P]  # (i, term)
    particular = np.stack(
        [convolve(rate, exponents, t) @ part for rate, part in zip(rates, inner, strict=True)], 1
    )  # (time, i)
    grown = risen(exponents, t)  # (time, term)
    train = -particular @ basis.T
    # ∫ E_λ(t − u) S(u) du = [∫ S − ∫ e^{−λ(t−u)} S(u) du]/λ.
    passed = (grown @ inner.T - particular) / rates
    test = -grown @ amplitudes[P:].T + passed @ kernel[P:].T
    return np.concatenate([train, test], 1)
