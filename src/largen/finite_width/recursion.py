"""Cumulants of kernels at order 1/width, layer by layer.

Given a layer, the neurons behind it are independent Gaussians of covariance S, so that S is a
Markov chain (Roberts, Yaida and Hanin, chapters 4 and 8; Bahri and Hanin, Les Houches lectures,
section 4),

    S ← σ_b² + (σ_w²/n) Σ_j φ(z_jα)φ(z_jβ),   z_j ~ N(0, S),

and cumulants at order 1/n follow from its expansion about K ← M(K). In absolute units, which
include the factor 1/n so that widths may differ, with J = ∂M/∂S, s = σ_w²φφ and
h = σ_w²(ρφφ + φ'φ'H), where ρ is the rate of the layer's weights, 1 in :func:`largen.ntk`:

    V ← J V Jᵀ + Cov(s, s)/n,        m ← J m + ½ M'':V,
    T ← JJJ·T + Σ₃ M''(VJ)(VJ) + (1/n) Σ₃ J V ∂Cov(s, s) + κ₃(s)/n²,
    D ← (J_S V + J_H D) Jᵀ + Cov(h, s)/n,
    A ← J_S V J_Sᵀ + J_S Dᵀ J_H + J_H D J_Sᵀ + J_H A J_H + Cov(h, h)/n,
    F_{αγβδ} ← σ_w⁴[E[φ_γφ'_αφ'_βφ_δ] H_αβ/n + Σ_μν E[∂_μ(φ_γφ'_α)] E[∂_ν(φ'_βφ_δ)] F_{αμβν}],
    B_{αβγδ} ← σ_w⁴[E[φ'_αφ'_βφ'_γφ'_δ] H_αβ H_γδ/n + E[φ'_αφ'_γ] E[φ'_βφ'_δ] B_{αβγδ}],
    m_H ← J_S m + J_H m_H + ½∂²_S N:V + Σ_c ∂_c(σ_w²E[φ'_αφ'_β]) [D_c + F_{αγβδ} + F_{αδβγ}].

Weights with E[w⁴]/E[w²]² = 3 + κ add to the fourth cumulant of a preactivation, to Cov(Ĥ, zz) and
to Cov(Ĥ, Ĥ) of one neuron, where Ĥ has squares of the weights,

    Q = κσ_w⁴E[φφφφ]/n,   R = κσ_w⁴E[φ'_αφ'_βφ_γφ_δ]H_αβ/n,   U = κσ_w⁴E[φ'φ'φ'φ']H_αβ H_γδ/n,

and change shifts: V + Q/3 is in the place of V, as Q/3 has the symmetry that makes Σ₃V a cumulant,
and R is added to D_c + F + F. What is between two neurons does not depend on κ. Both
sources take κ = 0 here; the lectures' sum over paths, (123), has all moments of the weights.
The first preactivations are sums over D inputs, with Q = κσ_w⁴Σ_i x_iα x_iβ x_iγ x_iδ/D² and
R = U = 0: this expansion is in 1/D, whatever the width.

A, B, D, F belong to the tangent kernel Ĥ of a layer's preactivations: A = Cov(H̄, H̄) and
D = Cov(H̄, S) of its diagonal mean, B = E[Ĥ_km Ĥ_km] and F = E[Ĥ_km z_k z_m] for k ≠ m.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np

from largen.finite_width.averages import fourth_averages, pairs_of, third_averages
from largen.finite_width.pairs import PairDerivatives, pair_derivatives
from largen.finite_width.sized_network import HiddenLayer
from largen.progress import Report


@dataclass(frozen=True)
class Cumulants:
    """Cumulants of one layer's kernels, over M = P(P + 1)/2 pairs as in the upper triangle."""

    # K, m, V, T: kernel (P, P), its shift (M,), its covariance (M, M), its third cumulant (M, M, M)
    # or None.
    K: np.ndarray
    m: np.ndarray
    V: np.ndarray
    T: np.ndarray | None
    # H, m_H, A, D: NTK (P, P), its shift (M,), covariance (M, M), covariance with S (M, M).
    H: np.ndarray
    m_H: np.ndarray
    A: np.ndarray
    D: np.ndarray
    # B, F: (P, P, P, P) each: B[α, β, γ, δ], F[α, γ, β, δ].
    B: np.ndarray
    F: np.ndarray
    # Q, R, U: what weights add that are not Gaussian, (M, M) each.
    Q: np.ndarray
    R: np.ndarray
    U: np.ndarray


def start(kernel: np.ndarray, tangent: np.ndarray, fourth: np.ndarray, third: bool) -> Cumulants:
    """Return the cumulants of the first preactivations, whose kernel and NTK do not fluctuate.

    ``fourth``: their fourth cumulants, (M, M).
    """
    P = len(kernel)
    M = P * (P + 1) // 2
    none = np.zeros((P,) * 4)
    zero, square = np.zeros(M), np.zeros((M, M))
    T = np.zeros((M,) * 3) if third else None
    of_tangent = square, square, none, none
    of_weights = fourth, square, square
    return Cumulants(kernel, zero, square, T, tangent, zero, *of_tangent, *of_weights)


def through(layer: HiddenLayer, before: Cumulants, report: Report) -> Cumulants:
    """Return the cumulants behind a hidden layer; ``report`` is called with (done, total)."""
    K, H = before.K, before.H
    P = len(K)
    pairs = pairs_of(P)
    rows, columns = (np.array(each) for each in zip(*pairs, strict=True))
    w, n, (rate, of_bias) = layer.weight, layer.width, layer.rates
    of_value, of_slope = pair_derivatives(layer.phi, K)
    J, hessian = (w * each for each in on_pairs(of_value, pairs))
    J_p, hessian_p = (w * each for each in on_pairs(of_slope, pairs))
    tangent, slopes = H[rows, columns], of_slope.value[rows, columns]
    J_S, J_H = rate * J + tangent[:, None] * J_p, w * slopes
    hessian_N = rate * hessian + tangent[:, None, None] * hessian_p
    parts = comb(P, min(P, 4)) + (before.T is not None)
    fourth = fourth_averages(layer.phi, K, lambda done: report(done, parts))
    second = of_value.value[rows, columns]
    ss = fourth.values - np.outer(second, second)
    st = fourth.mixed - np.outer(second, slopes)
    tt = fourth.slopes - np.outer(slopes, slopes)
    hs = rate * ss + tangent[:, None] * st.T
    hh = rate * (hs + st * tangent) + tangent[:, None] * tt * tangent
    noise = w**2 / n
    V, D, A = before.V, before.D, before.A
    mixed = J_S @ D.T * J_H
    new_V = J @ V @ J.T + noise * ss
    F, B = before.F, before.B
    bend = _bend(of_value, of_slope)
    new_F = w**2 * np.einsum("acm,bdn,ambn->acbd", bend, bend, F, optimize=True)
    new_F = new_F + noise * fourth.crossed * H[:, None, :, None]
    p = of_slope.value
    new_B = w**2 * p[:, None, :, None] * p[None, :, None, :] * B
    index = np.zeros((P, P), int)
    index[rows, columns] = index[columns, rows] = np.arange(len(pairs))
    four = fourth.slopes[index[:, :, None, None], index]
    new_B = new_B + noise * four * H[:, :, None, None] * H
    exchanged = F[rows[:, None], rows, columns[:, None], columns]
    exchanged = exchanged + F[rows[:, None], columns, columns[:, None], rows]
    of_one = V + before.Q / 3
    shift_H = (
        J_S @ before.m
        + J_H * before.m_H
        + np.einsum("abc,bc->a", hessian_N, of_one) / 2
        + np.sum(J_p * (D + exchanged + before.R), axis=1)
    )
    T = None if before.T is None else _third(layer, before, J, hessian)
    report(parts, parts)
    return Cumulants(
        K=layer.bias + w * of_value.value,
        m=J @ before.m + np.einsum("abc,bc->a", hessian, of_one) / 2,
        V=new_V,
        T=T,
        H=of_bias * layer.bias + rate * w * of_value.value + w * p * H,
        m_H=shift_H,
        A=J_S @ V @ J_S.T + mixed + mixed.T + J_H[:, None] * A * J_H + noise * hh,
        D=(J_S @ V + J_H[:, None] * D) @ J.T + noise * hs,
        B=new_B,
        F=new_F,
        Q=layer.excess * noise * fourth.values,
        R=layer.excess * noise * tangent[:, None] * fourth.mixed.T,
        U=layer.excess * noise * tangent[:, None] * fourth.slopes * tangent,
    )


def _third(layer: HiddenLayer, before: Cumulants, J, hessian) -> np.ndarray:
    assert before.T is not None
    w, n, V = layer.weight, layer.width, before.V
    averages = third_averages(layer.phi, before.K)
    VJ = V @ J.T
    T = np.einsum("ai,bj,ck,ijk->abc", J, J, J, before.T, optimize=True)
    bent = np.einsum("aij,ib,jc->abc", hessian, VJ, VJ, optimize=True)
    noise = np.einsum("ia,ibc->abc", VJ, averages.change) * w**2 / n
    for each in (bent, noise):
        T = T + each + each.transpose(1, 0, 2) + each.transpose(1, 2, 0)
    return T + w**3 * averages.central / n**2


def on_pairs(derivatives: PairDerivatives, pairs: list[tuple[int, int]]):
    """Return first and second derivatives in the entries of S, (M, M) and (M, M, M)."""
    M = len(pairs)
    index = {pair: n for n, pair in enumerate(pairs)}
    J, hessian = np.zeros((M, M)), np.zeros((M, M, M))
    for a, (i, j) in enumerate(pairs):
        if i == j:
            J[a, a], hessian[a, a, a] = derivatives.first[i], derivatives.second[i]
            continue
        own, other = index[i, i], index[j, j]
        J[a, [a, own, other]] = derivatives.c[i, j], derivatives.q1[i, j], derivatives.q1[j, i]
        hessian[a, a, a] = derivatives.cc[i, j]
        hessian[a, own, own], hessian[a, other, other] = (
            derivatives.q1q1[i, j],
            derivatives.q1q1[j, i],
        )
        hessian[a, own, other] = hessian[a, other, own] = derivatives.q1q2[i, j]
        hessian[a, own, a] = hessian[a, a, own] = derivatives.q1c[i, j]
        hessian[a, other, a] = hessian[a, a, other] = derivatives.q1c[j, i]
    return J, hessian


def _bend(of_value: PairDerivatives, of_slope: PairDerivatives) -> np.ndarray:
    """Return E[∂_μ(φ'_α φ_γ)], (α, γ, μ)."""
    P = len(of_value.value)
    bend = np.zeros((P,) * 3)
    for a in range(P):
        for c in range(P):
            if a == c:
                bend[a, a, a] = of_value.first[a]
            else:
                bend[a, c, c] = of_slope.value[a, c]
                bend[a, c, a] = 2 * of_value.q1[a, c]
    return bend
