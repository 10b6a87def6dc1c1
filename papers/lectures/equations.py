"""The notes' mean-field equations, integrated in NumPy without any of largen's theories."""

from __future__ import annotations

import numpy as np
from scipy.integrate import solve_ivp

RTOL, ATOL = 1e-9, 1e-11


def tanh_neurons(
    kernel: np.ndarray, y: np.ndarray, gamma: float, times: np.ndarray, neurons: int
) -> np.ndarray:
    """Return outputs ``(time, sample)`` of (64) for φ = tanh, η₀ = 1 and the mean square error.

    The averages over χ and ξ are taken over pairs of neurons of opposite sign; the fields of each
    neuron, and the outputs by their tangent kernel, are integrated in steps by Heun's method.
    """
    rng = np.random.default_rng(0)
    P = len(y)
    half = rng.standard_normal((neurons // 2, P)) @ np.linalg.cholesky(kernel).T
    readout = rng.standard_normal(neurons // 2)
    # (χ, ξ) and (χ, −ξ): outputs begin at 0 exactly, as in the limit.
    h, z, f = np.concatenate([half, half]), np.concatenate([readout, -readout]), np.zeros(P)

    def rates(h: np.ndarray, z: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, ...]:
        phi, delta = np.tanh(h), y - f
        g = z[:, None] * (1 - phi**2)
        features, gradients = phi.T @ phi / len(z), g.T @ g / len(z)
        tangent = (features + gradients * kernel) @ delta / P
        return gamma / P * (g * delta) @ kernel, gamma / P * phi @ delta, tangent

    found = [f]
    for step in np.diff(times):
        first = rates(h, z, f)
        ahead = (own + step * rate for own, rate in zip((h, z, f), first, strict=True))
        second = rates(*ahead)
        h, z, f = (
            own + step * (one + two) / 2
            for own, one, two in zip((h, z, f), first, second, strict=True)
        )
        found.append(f)
    return np.stack(found)


def deep_linear(
    kernel: np.ndarray,
    y: np.ndarray,
    *,
    layers: int,
    gamma: float,
    lr: float,
    steps: int,
    without_first: bool = False,
) -> np.ndarray:
    """Return outputs ``(step, sample)`` of (65) for linear networks under gradient descent.

    All times and samples are one axis. The equations are causal: an iteration from any start ends
    at their solution after as many passes as there are layers and steps.

    Parameters
    ----------
    kernel, y
        Φ⁰ = x·x/D and the targets.
    layers, gamma, lr, steps
        L, γ₀, η₀ and the number of steps.
    without_first
        Whether A⁽¹⁾ is 0, as printed, instead of A⁽⁰⁾ alone.
    """
    P, times = len(y), steps + 1
    size, kappa = P * times, lr * gamma / P
    earlier = np.kron(np.tril(np.ones((times, times)), -1), np.ones((P, P)))
    one, zero = np.eye(size), np.zeros((size, size))
    H = [np.kron(np.ones((times, times)), kernel)] * (layers + 1)
    G = [np.ones((size, size))] * (layers + 2)
    A, B = [zero] * (layers + 1), [zero] * (layers + 1)
    f = np.zeros(size)
    for _ in range(2 * times + 2 * layers):
        delta = (np.tile(y, times) - f)[None]
        before = f
        for l in range(1, layers + 1):
            C = A[l - 1] + kappa * earlier * H[l - 1] * delta
            D = B[l] + kappa * earlier * G[l + 1] * delta
            left, right = np.linalg.inv(one - C @ D), np.linalg.inv(one - D @ C)
            H[l] = left @ (H[l - 1] + C @ G[l + 1] @ C.T) @ left.T
            G[l] = right @ (G[l + 1] + D @ H[l - 1] @ D.T) @ right.T
            if not (without_first and l == 1):
                A[l] = left @ C
            B[l - 1] = right @ D
        f = (kappa * (earlier * H[layers]) @ delta[0] + A[layers].sum(1)) / gamma
        if np.allclose(f, before, rtol=1e-12, atol=1e-14):
            break
    return f.reshape(times, P)


def linear_kernels(
    kernel: np.ndarray, y: np.ndarray, gamma: float, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return H ``(time, sample, sample)``, G and f of (72), with η₀ = 1."""
    P = len(y)

    def rates(t: float, state: np.ndarray) -> np.ndarray:
        H, G, f = state[: P * P].reshape(P, P), state[P * P], state[P * P + 1 :]
        moves = kernel @ np.outer(y - f, f)
        tangent = (H + G * kernel) @ (y - f) / P
        of_G = 2 * gamma**2 / P * f @ (y - f)
        return np.concatenate([(gamma**2 / P * (moves + moves.T)).ravel(), [of_G], tangent])

    start = np.concatenate([kernel.ravel(), [1.0], np.zeros(P)])
    path = solve_ivp(rates, (0, times[-1]), start, t_eval=times, rtol=RTOL, atol=ATOL).y.T
    return path[:, : P * P].reshape(-1, P, P), path[:, P * P], path[:, P * P + 1 :]


def along_targets(
    y: float, samples: int, gamma: float, times: np.ndarray, *, printed: bool
) -> np.ndarray:
    """Return f_y of (79) with η₀ = 1: as printed √(1 + γ₀²f), or √(1 + γ₀²f²)."""

    def rate(t: float, f: np.ndarray) -> np.ndarray:
        return 2 / samples * np.sqrt(1 + gamma**2 * (f if printed else f**2)) * (y - f)

    return solve_ivp(rate, (0, times[-1]), [0.0], t_eval=times, rtol=RTOL, atol=ATOL).y[0]
