r"""Attention at order 1/width: the kernel behind heads, its mean and its fluctuations.

Let Φ be the average over features of their products that a layer of attention reads. Given Φ, the
queries, keys and values of all heads are independent Gaussians, with the covariances K_Q, K_K and
K_V that affine maps make of Φ. What the heads write is again an average over independent terms,
and Φ ↦ S a step of the Markov chain of :mod:`largen.finite_width.recursion`:

- H heads of a fixed size d, with the logits L = c q·k/√d (Hron, Bahri, Sohl-Dickstein and Novak
  2020, *Infinite attention*), A = softmax(L), and d_v values each,

      S = (1/H) Σ_h X_h,   X = (1/d_v) Σ_j (A v_j)(A v_j)ᵀ,   M(Φ) = E[A K_V Aᵀ],
      δS = M'[δΦ] + (X − M)/√H,   m ← M'[m] + ½E M''[δΦ, δΦ].

  Heads have the features (1 + sG/2 − s²G²/8)q, with G = δK K⁺, in place of q if their kernel is
  K + sδK, to second order in s; M' and M'' are averages of derivatives by s over heads.
- Logits c q·k/d of a number H of heads at every width. They vanish in the limit, where A = A₀ is
  uniform. Their first order is L/√d with a Gaussian L = c R_Q Z R_Kᵀ for each head, R Rᵀ = K; in
  the mean over heads it is as large as that of one head with n_Q = Hd queries. With
  f(s) = A(sL) K_V A(sL)ᵀ,

      δS = A₀ δK_V A₀ᵀ + (A₀vvᵀA₀ᵀ − A₀K_V A₀ᵀ)/√n_V + f'/√n_Q,   m ← A₀ m_V A₀ᵀ + E f''/2d.

- Attention of features with themselves writes A x with A = softmax(cΦ), so that
  S = A(Φ) Φ A(Φ)ᵀ has no noise of its own.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.finite_width.layered_network import Heads
from largen.kernels.rules.heads import attend, features_of_head, root_of, softmax_over

_RANK = 1e-6  # the smallest eigenvalue of a kernel, over the largest, along which it fluctuates


class HeadsAt(NamedTuple):
    """Attention at infinite width, over N samples and positions."""

    Phi: Any  # (N, N)
    kernels: Any  # K_Q, K_K and K_V; none of features with themselves
    roots: Any
    inverses: Any
    mean: Any  # M, (N, N)
    slope: Any  # M' by the pairs α ≤ β of Φ, (M, N, N), of random logits
    S: Any  # covariance behind the affine map, without σ_b²
    root_S: Any  # of S + σ_b²
    Z: None = None  # of the backward pass, which is not known

    @property
    def root_Q(self) -> Any:
        """Of the path before attention, of which only the averages are read."""
        return self.Phi


def limit_of(heads: Heads, Phi: np.ndarray, samples: int) -> HeadsAt:
    """Return attention at infinite width, with the heads that kernels are averaged over."""
    kernels = [each.weighed(Phi) + each.bias for each in heads.maps]
    inverses = [np.linalg.pinv(K, rcond=_RANK, hermitian=True) for K in kernels]
    with jax.enable_x64(True):
        roots = [np.asarray(root_of(jnp.asarray(K, np.float64))) for K in kernels]
        at = HeadsAt(Phi, kernels, roots, inverses, None, None, None, None)
        average = _over_heads if heads.random else _at_limit_of_logits
        mean, slope = average(heads, samples, jax.tree.map(jnp.asarray, at))
        at = at._replace(mean=np.asarray(mean), slope=None if slope is None else np.asarray(slope))
    S = heads.map.weighed(at.mean)
    values, vectors = np.linalg.eigh(S + heads.map.bias)
    return at._replace(S=S, root_S=vectors * np.sqrt(np.maximum(values, 0)))


def spread(heads: Heads, at: HeadsAt) -> float:
    """Return a quarter of the variance of logits that vanish, about the next order over a shift."""
    if heads.random or not heads.maps:
        return 0.0
    largest = at.kernels[0].diagonal().max() * at.kernels[1].diagonal().max()
    return float(heads.attention.scale**2 * largest / (4 * heads.sizes[0]))


def _at_limit_of_logits(heads: Heads, samples: int, at: HeadsAt) -> tuple[Any, None]:
    """Return M of logits that do not fluctuate in the limit."""
    logits = _limit_of_logits(heads, samples, at.Phi)
    values = at.kernels[2] if heads.maps else at.Phi
    return _written(heads, samples, logits, values), None


@partial(jax.jit, static_argnums=(0, 1))
def _over_heads(heads: Heads, samples: int, at: HeadsAt) -> tuple[Any, Any]:
    """Return M and M' of random logits, over the same heads as in ``largen.kernel``."""
    N, pairs = len(at.Phi), -(-heads.attention.draws // 2)
    rows, columns = np.triu_indices(N)
    basis, place = np.zeros((len(rows), N, N)), np.arange(len(rows))
    basis[place, rows, columns] = basis[place, columns, rows] = 1
    keys = jax.random.split(jax.random.key(np.uint32(heads.seed)), pairs)

    def add(total: Any, key: Any) -> tuple[Any, None]:
        q, k = features_of_head(at.roots[:2], heads.sizes[0], key, samples)
        for sign in (1, -1):

            def along(change: Any, q: Any = sign * q) -> Any:
                return jax.jvp(_of_changed(heads, samples, at, q, k, change), (0.0,), (1.0,))

            means, slopes = jax.vmap(along)(basis)
            total = jax.tree.map(jnp.add, total, (means[0], slopes))
        return total, None

    zero = jnp.zeros_like(at.Phi), jnp.zeros_like(basis)
    total, _ = lax.scan(add, zero, keys)
    return jax.tree.map(lambda each: each / (2 * pairs), total)


def response(heads: Heads, at: HeadsAt, change: tuple[Any, Any], key: Any, samples: int) -> Any:
    """Return both orders of S for those of Φ, (draw, N, N) each; means of the second are shifts."""
    of_draw = _of_random if heads.random else _of_vanishing if heads.maps else _of_own
    keys = jax.random.split(key, len(change[0]))
    first, second = jax.vmap(lambda *each: of_draw(heads, samples, at, *each))(*change, keys)
    if at.slope is not None:
        rows, columns = np.triu_indices(len(at.Phi))
        of_mean = [jnp.einsum("rp,pab->rab", each[:, rows, columns], at.slope) for each in change]
        first, second = first + of_mean[0], second + of_mean[1]
    return heads.map.weighed(first), heads.map.weighed(second)


def _of_random(heads: Heads, samples: int, at: HeadsAt, change: Any, _: Any, key: Any) -> Any:
    """Return noise and ½M'' of one head with random logits."""
    of_head, of_values = jax.random.split(key)
    q, k = features_of_head(at.roots[:2], heads.sizes[0], of_head, samples)
    f = _of_changed(heads, samples, at, q, k, change)
    bend = jax.jvp(lambda s: jax.jvp(f, (s,), (1.0,))[1], (0.0,), (1.0,))[1]
    noise = _noise(heads, samples, at, _logits(heads, q, k), heads.sizes[1], of_values)
    return noise / np.sqrt(heads.number), bend / 2


def _of_vanishing(
    heads: Heads, samples: int, at: HeadsAt, change: Any, second: Any, key: Any
) -> Any:
    """Return both orders of independent logits c q·k/d."""
    of_logits, of_values = jax.random.split(key)
    Z = jax.random.normal(of_logits, at.Phi.shape, at.Phi.dtype)
    still = _limit_of_logits(heads, samples, at.Phi)
    left, right = (root.reshape(samples, -1, len(Z)) for root in at.roots[:2])
    logits = heads.attention.scale * jnp.einsum("npi,ij,nuj->npu", left, Z, right)

    def f(s: Any) -> Any:
        return _written(heads, samples, s * logits, at.kernels[2])

    slope, bend = jax.jvp(lambda s: jax.jvp(f, (s,), (1.0,))[1], (0.0,), (1.0,))
    noise = _noise(heads, samples, at, still, 1, of_values) / np.sqrt(heads.width)
    own, shift = (
        _written(heads, samples, still, heads.maps[2].weighed(each)) for each in (change, second)
    )
    size = heads.sizes[0]
    return own + noise + slope / np.sqrt(heads.number * size), shift + bend / (2 * size)


def _of_own(heads: Heads, samples: int, at: HeadsAt, change: Any, second: Any, _: Any) -> Any:
    """Return both orders of attention of features with themselves."""

    def f(Phi: Any) -> Any:
        return _written(heads, samples, _limit_of_logits(heads, samples, Phi), Phi)

    def slope(Phi: Any) -> Any:
        return jax.jvp(f, (Phi,), (change,))[1]

    first, bend = jax.jvp(slope, (at.Phi,), (change,))
    return first, jax.jvp(f, (at.Phi,), (second,))[1] + bend / 2


def _of_changed(heads: Heads, samples: int, at: HeadsAt, q: Any, k: Any, change: Any) -> Any:
    """Return s ↦ A K_V Aᵀ of a head with random logits, with Φ + s·change in the place of Φ."""

    def moved(features: Any, which: int, s: Any) -> Any:
        G = heads.maps[which].weighed(change) @ at.inverses[which]
        flat = features.reshape(len(G), -1)
        first = G @ flat
        return (flat + s / 2 * first - s**2 / 8 * (G @ first)).reshape(features.shape)

    def f(s: Any) -> Any:
        values = at.kernels[2] + s * heads.maps[2].weighed(change)
        return _written(heads, samples, _logits(heads, moved(q, 0, s), moved(k, 1, s)), values)

    return f


def _logits(heads: Heads, q: Any, k: Any) -> Any:
    return heads.attention.scale * jnp.einsum("npi,nui->npu", q, k) / heads.sizes[0] ** 0.5


def _limit_of_logits(heads: Heads, samples: int, Phi: Any) -> Any:
    """Return logits c q·k/d in the limit, (sample, position, position)."""
    within = jnp.einsum("npnu->npu", _table(Phi, samples))
    return jnp.zeros_like(within) if heads.maps else heads.attention.scale * within


def _table(of_pairs: Any, samples: int) -> Any:
    return of_pairs.reshape((samples, len(of_pairs) // samples) * 2)


def _written(heads: Heads, samples: int, logits: Any, values: Any) -> Any:
    """Return A K_V Aᵀ, (N, N)."""
    A = softmax_over(logits, None, heads.attention.causal)
    return attend(A, _table(values, samples), A).reshape(values.shape)


def _noise(heads: Heads, samples: int, at: HeadsAt, logits: Any, values: int, key: Any) -> Any:
    """Return the average of (A v)(A v)ᵀ − M over some values of a head."""
    v = at.roots[2] @ jax.random.normal(key, (len(at.Phi), values), at.Phi.dtype)
    A = softmax_over(logits, None, heads.attention.causal)
    y = jnp.einsum("npu,nuj->npj", A, v.reshape(samples, -1, values)).reshape(v.shape)
    return y @ y.T / values - at.mean
