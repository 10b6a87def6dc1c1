"""The kernel of networks with residual branches at order 1/width.

The stream h ← h + βN(0, S), with S = σ_b² + (σ_w²/n) Σ_i φ(h_iα)φ(h_iβ), has the same neurons in
all layers: given S^1, …, S^ℓ, the h_i are independent of each other, and each is a sum of
independent Gaussians, with covariance Q ← Q + β²S. Averages over neurons are therefore correlated
between all layers of the stream. With ε^ℓ the deviation of S at fixed parameters, J = ∂M/∂Q and
A = 1 + β²J,

    δS^ℓ = J δQ^ℓ + ε^ℓ,   δQ ← δQ + β²δS,   n Cov(ε^j, ε^ℓ) = Cov(s(h^j), s(h^ℓ)) = C^{jℓ},

where h^j and h^ℓ, j ≤ ℓ, have the covariance Q^j with one another. With the response 𝒢^j of Q^ℓ to
ε^j, which is β² at first and is multiplied by A in each later branch,

    V ← A V Aᵀ + β²(AX + XᵀAᵀ) + β⁴C^{ℓℓ}/n,   X = Σ_{j<ℓ} 𝒢^j C^{jℓ}/n,
    m ← m + β²[J m + ½M'':V + Σ_{j<ℓ} Σ_c ∂C^{jℓ}/∂Q^ℓ_c 𝒢^j_c/n].

The last term is the correlation of a neuron's response to earlier fluctuations with its own
contribution to them, and has no counterpart without branches. Behind an affine map of the whole
stream all neurons are independent given its input, and earlier layers enter through V and m alone;
the same holds of the inner layers of branches. Weights with E[w⁴]/E[w²]² = 3 + κ give h a fourth
cumulant, to which a branch adds β⁴κσ_w⁴E[φφφφ]/n; a third of it is added to V where m is updated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from largen.errors import NoTheory
from largen.expectations import ActivationFunction
from largen.finite_width.averages import covariance_along, fourth_averages, pairs_of
from largen.finite_width.checks import check_alive
from largen.finite_width.pairs import pair_derivatives
from largen.finite_width.recursion import on_pairs
from largen.finite_width.sized_network import Branch, HiddenLayer, SizedNetwork


@dataclass(frozen=True)
class _Source:
    """An earlier layer: its Q (P, P), its σ_w², and the present layer's response to it, (M, M)."""

    Q: np.ndarray
    weight: float
    response: np.ndarray


@dataclass(frozen=True)
class Kernel:
    """Kernel K (P, P), its shift m (M,) and its covariance V (M, M) over M pairs of inputs.

    ``Q`` is the fourth cumulant of one neuron due to weights that are not Gaussian, (M, M).
    """

    K: np.ndarray
    m: np.ndarray
    V: np.ndarray
    Q: np.ndarray


@dataclass(frozen=True)
class _Layer:
    """S behind a layer (P, P), J (M, M), Cov(δQ, ε), Cov(ε, ε), and mean and covariance of δS.

    ``fourth`` is the fourth cumulant of what the map behind it writes.
    """

    S: np.ndarray
    J: np.ndarray
    crossed: np.ndarray
    noise: np.ndarray
    m: np.ndarray
    V: np.ndarray
    fourth: np.ndarray


def kernel_through(stream: SizedNetwork, first: np.ndarray, fourth: np.ndarray) -> Kernel:
    """Return the kernel of the outputs at order 1/width.

    ``first``, ``fourth``: kernel (P, P) and fourth cumulants (M, M) of the first preactivations.
    """
    M = len(fourth)
    state = Kernel(first, np.zeros(M), np.zeros((M, M)), fourth)
    sources: list[_Source] = []
    of_stream: ActivationFunction | None = None
    for number, part in enumerate(stream.parts, 1):
        check_alive(state.K, number)
        layer = part.inner[0] if isinstance(part, Branch) else part
        if sources and layer.phi != of_stream:
            raise NoTheory(
                f"lg.finite_width.width_corrections: the activations {of_stream} and {layer.phi} "
                "act on one stream; fluctuations at order 1/width are known for a single one."
            )
        of_stream = layer.phi
        layer_averages = _read(layer, state, sources)
        if isinstance(part, Branch):
            state, sources = _add(part, state, layer_averages, sources)
        else:
            found = layer_averages
            state, sources = Kernel(found.S, found.m, found.V, found.fourth), []
    return state


def _read(layer: HiddenLayer, state: Kernel, sources: list[_Source]) -> _Layer:
    K, w, n = state.K, layer.weight, layer.width
    S, J, hessian, noise, fourth = _averages(layer, K)
    crossed, shift = np.zeros_like(noise), np.zeros(len(noise))
    for source in sources:
        covariance, change = covariance_along(layer.phi, source.Q, K)
        size = w * source.weight / n
        crossed += size * source.response @ covariance
        shift += size * np.einsum("cba,cb->a", change, source.response)
    both = J @ crossed
    return _Layer(
        S=S,
        J=J,
        crossed=crossed,
        noise=noise,
        m=J @ state.m + np.einsum("abc,bc->a", hessian, state.V + state.Q / 3) / 2 + shift,
        V=J @ state.V @ J.T + both + both.T + noise,
        fourth=fourth,
    )


def _averages(layer: HiddenLayer, K: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the kernel behind a layer, its derivatives in pairs of K, its covariance, and Q."""
    pairs, w = pairs_of(len(K)), layer.weight
    rows, columns = (np.array(each) for each in zip(*pairs, strict=True))
    of_value, _ = pair_derivatives(layer.phi, K)
    J, hessian = (w * each for each in on_pairs(of_value, pairs))
    second = of_value.value[rows, columns]
    size, fourth = w**2 / layer.width, fourth_averages(layer.phi, K).values
    noise = size * (fourth - np.outer(second, second))
    return layer.bias + w * of_value.value, J, hessian, noise, layer.excess * size * fourth


def _add(
    branch: Branch, state: Kernel, layer_averages: _Layer, sources: list[_Source]
) -> tuple[Kernel, list[_Source]]:
    """Return the stream behind a branch, and the sources with their responses updated."""
    S, m, V, Q = (getattr(layer_averages, name) for name in ("S", "m", "V", "fourth"))
    through, fresh = np.eye(len(m)), np.zeros_like(V)
    for layer in branch.inner[1:]:
        S, J, hessian, covariance, fourth = _averages(layer, S)
        m = J @ m + np.einsum("abc,bc->a", hessian, V + Q / 3) / 2
        Q = fourth
        V, fresh = J @ V @ J.T + covariance, J @ fresh @ J.T + covariance
        through = J @ through
    b = branch.square
    A, B = np.eye(len(m)) + b * through @ layer_averages.J, b * through
    mixed = A @ layer_averages.crossed @ B.T
    new = Kernel(
        K=state.K + b * S,
        m=state.m + b * m,
        V=A @ state.V @ A.T + mixed + mixed.T + B @ layer_averages.noise @ B.T + b**2 * fresh,
        Q=state.Q + b**2 * Q,
    )
    sources = [_Source(each.Q, each.weight, A @ each.response) for each in sources]
    return new, [*sources, _Source(state.K, branch.inner[0].weight, B)]
