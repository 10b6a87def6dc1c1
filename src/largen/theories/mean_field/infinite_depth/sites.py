r"""Fields of a linear network at one place: h = Pg + ξ, g = Qh + ζ, row after row in time.

P and Q couple to earlier times only, ξ and ζ are independent of each other. With L = (1−PQ)⁻¹ and
L̃ = (1−QP)⁻¹,

    A = LP = PL̃,   B = L̃Q = QL,   h = L(ξ + Pζ),   g = L̃(ζ + Qξ),

so that all quantities of a time t follow from its rows P_t and Ξ_t and from earlier times s < t:

    A_t = P_t L̃,   L_t = P_t B,   H_t = P_t Xᵀ + Ξ_t Lᵀ,   X_t = ⟨h_t gᵀ⟩ = P_t G + Ξ_t Bᵀ,
    H_tt = P_t G P_tᵀ + P_t B Ξ_tᵀ + (P_t B Ξ_tᵀ)ᵀ + Ξ_tt,

and the same for g with P, A, L, H and Q, B, L̃, G exchanged, and X with its transpose.

Arrays have an axis of nodes in front; times and components (directions, or outputs) share an axis.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float


class Row(NamedTuple):
    """The rows P_t and Ξ_t of a time to earlier times, and Ξ_tt; or their derivatives in τ."""

    path: Float[np.ndarray, "node now then"]
    own: Float[np.ndarray, "node now then"]
    own_now: Float[np.ndarray, "node now now"]


class Known(NamedTuple):
    """The rows A_t and H_t of a time to earlier times, and H_tt."""

    response: Float[np.ndarray, "node now then"]
    kernel: Float[np.ndarray, "node now then"]
    kernel_now: Float[np.ndarray, "node now now"]


class Side:
    """The matrices of h at all times, P, A, L and H; or those of g, Q, B, L̃ and G."""

    def __init__(self, nodes: int, times: int, near: int, far: int):
        across, along = (nodes, times * near, times * far), (nodes, times * near, times * near)
        self.near = near
        self.path, self.response = np.zeros(across), np.zeros(across)
        self.lag, self.kernel = np.zeros(along), np.zeros(along)


class Stream(Side):
    """One side of the stream, with Ξ, its noise N and its drift C."""

    def __init__(self, nodes: int, times: int, near: int, far: int):
        super().__init__(nodes, times, near, far)
        self.own, self.noise = np.zeros_like(self.kernel), np.zeros_like(self.kernel)
        self.drift = np.zeros_like(self.path)


S = TypeVar("S", bound=Side)


class Site(Generic[S]):
    """Both sides of a place, and X = ⟨h gᵀ⟩."""

    def __init__(self, kind: type[S], nodes: int, times: int, directions: int, outputs: int):
        self.sides = (
            kind(nodes, times, directions, outputs),
            kind(nodes, times, outputs, directions),
        )
        self.cross = np.zeros((nodes, times * directions, times * outputs))

    def known(self, i: int, t: int, row: Row) -> Known:
        """Return the rows A_t and H_t that follow from a row of a side."""
        path, own, own_now = row
        far, cross = self.sides[1 - i], self.cross_of(i, t)
        then = own.shape[2], path.shape[2]
        lag = self.sides[i].lag[:, : then[0], : then[0]]
        response = path @ far.lag[:, : then[1], : then[1]]
        kernel = path @ transpose(cross) + own @ transpose(lag)
        mixed = path @ far.response[:, : then[1], : then[0]] @ transpose(own)
        squared = path @ far.kernel[:, : then[1], : then[1]] @ transpose(path)
        return Known(response, kernel, squared + mixed + transpose(mixed) + own_now)

    def cross_of(self, i: int, t: int) -> Float[np.ndarray, "node near far"]:
        """Return X of earlier times for the side of h, its transpose for that of g."""
        a, b = (t * side.near for side in self.sides)
        cross = self.cross[:, :a, :b]
        return transpose(cross) if i else cross

    def keep(self, t: int, rows: tuple[Row, Row]) -> None:
        """Store the rows of a time."""
        known = self.known(0, t, rows[0]), self.known(1, t, rows[1])
        before = [slice(0, t * side.near) for side in self.sides]
        here = [slice(t * side.near, (t + 1) * side.near) for side in self.sides]
        (forward, backward), lag = rows, self.sides[0].lag[:, before[0], before[0]]
        # ⟨h_t g_tᵀ⟩ = P_t⟨g g_tᵀ⟩ + ⟨ξ_t hᵀ⟩Q_tᵀ; the right side has earlier times only.
        now = forward.path @ transpose(known[1].kernel)
        now = now + forward.own @ transpose(lag) @ transpose(backward.path)
        lags, crosses = [], []
        for i, row in enumerate(rows):
            far, there = self.sides[1 - i], before[1 - i]
            response = far.response[:, there, before[i]]
            lags.append(row.path @ response)
            crosses.append(row.path @ far.kernel[:, there, there] + row.own @ transpose(response))
        for i, side in enumerate(self.sides):
            side.path[:, here[i], before[1 - i]] = rows[i].path
            side.response[:, here[i], before[1 - i]] = known[i].response
            side.lag[:, here[i], before[i]], side.lag[:, here[i], here[i]] = (
                lags[i],
                np.eye(side.near),
            )
            symmetric(side.kernel, before[i], here[i], known[i].kernel, known[i].kernel_now)
        self.cross[:, here[0], before[1]] = crosses[0]
        self.cross[:, before[0], here[1]] = transpose(crosses[1])
        self.cross[:, here[0], here[1]] = now


def symmetric(whole: np.ndarray, before: slice, here: slice, row, now) -> None:
    """Write a row of a symmetric matrix."""
    whole[:, here, before], whole[:, before, here], whole[:, here, here] = row, transpose(row), now


def transpose(x: np.ndarray) -> np.ndarray:
    """Return transposes."""
    return np.swapaxes(x, -1, -2)
