r"""Linear residual networks of infinite width and depth: closed equations, step by step in time.

The network is linear in its inputs, f = F M(t), so that fields have one row h_i for each
direction i of the inputs, and gradients g_c one for each output. With all times and directions
(outputs) in one index, and D(s) = FᵀΔ(s) for the residuals, fields at the depth τ are

    h = P g + ξ,   g = Q h + ζ,

with ξ from the maps before τ and ζ from those behind τ, independent of each other. For blocks
with branches L^(−α) V h, V = σW one matrix, with noise = σ² d(t)d(s), tangent = ρσ² k(t, s)
(``time_filters``),

    C = noise∘A + [tangent∘H] D,              C̃ = noise∘B + [tangent∘G] Dᵀ
    P' = C + P C̃ P,                           −Q' = C̃ + Q C Q
    Ξ' = N + P Ñ Pᵀ + P C̃ Ξ + (P C̃ Ξ)ᵀ,      −Z' = Ñ + Q N Qᵀ + Q C Z + (Q C Z)ᵀ
    N = noise∘H,   Ñ = noise∘G,   A = (1−PQ)⁻¹P,   B = (1−QP)⁻¹Q
    H = (1−PQ)⁻¹(Ξ + PZPᵀ)(1−PQ)⁻ᵀ,           G = (1−QP)⁻¹(Z + QΞQᵀ)(1−QP)⁻ᵀ

for α = ½: Bordelon et al., Depthwise hyperparameter transfer in residual networks, (90)-(99), with
C as in (54) there and the boundaries P(0), Q(1) of a read-in and a read-out that train. For α > ½
the noise is 0. Several matrices in a block are in a row (``time_filters.in_a_row``) unless α = 1,
where fields within a block learn at order one: at each τ a deep linear network of its own,

    hᵏ = Cᵏgᵏ + ξᵏ,   Cᵏ⁺¹ = noise∘Aᵏ + [tangent∘Hᵏ] D,   ⟨ξᵏξᵏ⟩ = noise∘Hᵏ⁻¹,

and gradients alike. The noise of a single block does not change the stream, A⁰ = 0.

C, P and Q couple to earlier times only. The rows of a time therefore follow from those of earlier
times by linear equations in τ, forwards for h and backwards for g, and give the residuals of that
time. The equations are solved by iteration of their integrals, with polynomials in τ through
Lobatto nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from largen.interrupts import check
from largen.theories.mean_field.engine.descent import ESCAPED
from largen.theories.mean_field.infinite_depth.depth_grid import DepthGrid, lobatto
from largen.theories.mean_field.infinite_depth.linear_network import LinearNetwork
from largen.theories.mean_field.infinite_depth.sites import (
    Row,
    Side,
    Site,
    Stream,
    symmetric,
    transpose,
)
from largen.theories.mean_field.infinite_depth.time_filters import Link

ITERATIONS = 200
CLOSE = 1e-11  # relative tolerance of an iteration
FEWEST_NODES = 8

Pull = Callable[[int, Float[np.ndarray, "sample output"]], Float[np.ndarray, "sample output"]]


class LinearLimit(NamedTuple):
    """The solution of the equations."""

    # f of all samples, (time, sample, output); NaN after it has diverged.
    outputs: Float[np.ndarray, "time sample output"]
    # H(τ) between all samples at recorded times, (record, depth, sample, sample).
    feature_kernel: Float[np.ndarray, "record depth sample sample"]
    # G(τ) between outputs, the same for all samples, (record, depth, output, output).
    gradient_kernel: Float[np.ndarray, "record depth output output"]
    # K between all samples at recorded times, (record, sample, sample, output, output).
    ntk: Float[np.ndarray, "record sample sample output output"]
    grid: DepthGrid
    unsolved: float  # relative change of the last iteration
    # Error of f, of the same shape: its change with the last refinement of the grid.
    error: Float[np.ndarray, "time sample output"] | None = None


def linear_limit(
    # network, pull, record_at: as in solve.
    network: LinearNetwork,
    pull: Pull,
    record_at: Sequence[int] = (),
    *,
    rtol: float = 1e-7,  # wanted error of f, relative to the largest
    most_nodes: int = 40,  # number of nodes at which refinement ends; error has the error reached
) -> LinearLimit:
    """Solve the equations on grids of depth that are refined until f converges."""
    nodes = FEWEST_NODES
    coarse = solve(network, pull, (), nodes).outputs
    while True:
        nodes += 1 + nodes // 3
        fine = solve(network, pull, record_at, nodes)
        error = np.abs(fine.outputs - coarse)
        largest = np.max(np.abs(fine.outputs), initial=0, where=np.isfinite(fine.outputs))
        if np.nanmax(error, initial=0) <= rtol * largest or nodes >= most_nodes:
            return fine._replace(error=error + fine.unsolved * largest)
        coarse = fine.outputs


def solve(network: LinearNetwork, pull: Pull, record_at: Sequence[int], nodes: int) -> LinearLimit:
    """Solve the equations on a grid of so many nodes of depth.

    ``pull``: a function of the time and of f of all samples: Δ over the number of samples in the
    batch; 0 for samples that are not in the batch.
    """
    march = _March(network, nodes)
    times, samples = network.times, len(network.fields)
    outputs = np.full((times, samples, network.outputs), np.nan)
    for t in range(times):
        check()
        with np.errstate(over="ignore", invalid="ignore"):
            outputs[t] = march.step(t)
        if not np.abs(outputs[t]).max() < ESCAPED * (1 + march.largest):
            outputs[t] = np.nan
            break
        march.learn(t, pull(t, outputs[t]))
    return LinearLimit(outputs, *march.kernels(record_at), march.grid, march.unsolved)


class _March:
    """The rows of all times so far."""

    def __init__(self, network: LinearNetwork, nodes: int):
        self.network, self.grid = network, lobatto(nodes)
        shape = nodes, network.times, len(network.start), network.outputs
        self.stream = Site(Stream, *shape)
        self.inner = [Site(Side, *shape) for _ in network.links[1:]] if network.inner else []
        # D(s), for h, and its transpose, for g.
        self.pulls = np.zeros((network.times, len(network.start), network.outputs))
        self.constant = np.zeros((network.times, network.outputs))
        self.largest, self.unsolved, self.reached = 0.0, 0.0, 0

    def step(self, t: int) -> np.ndarray:
        """Return f at a time, and store the rows of that time."""
        rows = self._solve_row(t, 0), self._solve_row(t, 1)
        if self.inner:
            ahead, back = self._through(0, t, rows[0])[2], self._through(1, t, rows[1])[2]
            for site, *pair in zip(self.inner, ahead, reversed(back), strict=True):
                site.keep(t, (pair[0], pair[1]))
        self.stream.keep(t, rows)
        for i, row in enumerate(rows):
            side = self.stream.sides[i]
            before, here = slice(0, t * side.near), slice(t * side.near, (t + 1) * side.near)
            symmetric(side.own, before, here, row.own, row.own_now)
            drift, (noise, now), _ = self._through(i, t, row)
            side.drift[:, here, : drift.shape[2]] = drift
            if not self.network.inner:
                symmetric(side.noise, before, here, noise, now)
        return self._outputs(t)

    def _outputs(self, t: int) -> np.ndarray:
        network = self.network
        size, outputs = len(network.start), network.outputs
        now = self.stream.cross[-1, t * size : (t + 1) * size, t * outputs : (t + 1) * outputs]
        taken = network.read_out.bias_tangent[t, :t] @ self.constant[:t]
        return network.fields @ now / network.gamma + taken / network.gamma

    def learn(self, t: int, residual: np.ndarray) -> None:
        """Store the residuals of a time."""
        self.pulls[t], self.constant[t] = self.network.fields.T @ residual, residual.sum(0)
        self.largest = max(self.largest, float(np.abs(residual).max()))
        self.reached = t + 1

    def _solve_row(self, t: int, i: int) -> Row:
        """Return the row of a time as a function of depth."""
        first, integral = self._boundary(t, i), (self.grid.rise, self.grid.fall)[i]
        row = self._guess(t, i, first)
        size = max(float(np.abs(part).max(initial=0)) for part in first)
        gap = 0.0
        for _ in range(ITERATIONS):
            slopes = self._slopes(t, i, row)
            new = Row(
                *(
                    start + np.tensordot(integral, slope, 1)
                    for start, slope in zip(first, slopes, strict=True)
                )
            )
            size = max(size, *(float(np.abs(part).max(initial=0)) for part in new))
            gap = max(float(np.abs(a - b).max(initial=0)) for a, b in zip(new, row, strict=True))
            row = new
            if not gap > CLOSE * size:
                break
        self.unsolved = max(self.unsolved, gap / size if size else 0.0)
        return row

    def _guess(self, t: int, i: int, first: Row) -> Row:
        """Return the row of the time before, with the ends of this one for what that lacks."""
        row = Row(*(np.repeat(part[None], len(self.grid.nodes), 0) for part in first))
        if t:
            side = self.stream.sides[i]
            here, before = slice((t - 1) * side.near, t * side.near), (t - 1) * side.near
            row.path[:, :, : first.path.shape[1] * (t - 1) // t] = side.path[
                :, here, : first.path.shape[1] * (t - 1) // t
            ]
            row.own[:, :, : t * side.near] = side.own[:, here, : t * side.near]
            row.own_now[:] = side.own[:, here, before : before + side.near]
        return row

    def _boundary(self, t: int, i: int) -> Row:
        """Return the row at the end where its equation starts, without the axis of nodes."""
        network, pulls = self.network, self.pulls[:t]
        size, outputs = len(network.start), network.outputs
        if i == 0:
            path = network.read_in_taken[t, :t, None, None] * network.read_in[:, None] * pulls
            kept = network.read_in_kept[:, t, : t + 1] * network.start[:, None]
            own = np.eye(size)[:, :, None] * kept[:, None]
            path, own = path.transpose(1, 0, 2), own.transpose(0, 2, 1)
        else:
            path = network.read_out.tangent[t, :t, None, None] * pulls
            own = np.eye(outputs)[:, None] * network.read_out.noise[t, : t + 1, None]
            path = path.transpose(2, 0, 1)
        near = len(own)
        return Row(path.reshape(near, -1), own[:, :t].reshape(near, -1), own[:, t])

    def _slopes(self, t: int, i: int, row: Row) -> Row:
        """Return the derivative of a row in depth."""
        path, own, _ = row
        near, far = self.stream.sides[i], self.stream.sides[1 - i]
        a, b = own.shape[2], path.shape[2]
        drift, (noise, noise_now), _ = self._through(i, t, row)
        there = far.drift[:, :b, :a]
        pushed = path @ there
        back = own @ transpose(there)
        mixed = pushed @ transpose(own)
        now = mixed + transpose(mixed)
        if not self.network.inner:
            kicked = path @ far.noise[:, :b, :b]
            back = back + kicked
            now = now + kicked @ transpose(path)
        across = near.path[:, :a, :b]
        along = back @ transpose(across) + pushed @ near.own[:, :a, :a]
        return Row(drift + pushed @ across, noise + along, noise_now + now)

    def _through(self, i: int, t: int, row: Row):
        """Return C_t, noise (N_t, N_tt) of the stream, and the rows within a block."""
        response, kernel, now = self.stream.known(i, t, row)
        links = self.network.links if i == 0 else self.network.links[::-1]
        if not self.inner:
            return *self._drift_and_noise(i, t, links[0], response, kernel, now), []
        rows, sites = [], self.inner if i == 0 else self.inner[::-1]
        drift, noise = self._drift_and_noise(i, t, links[0], 0 * response, kernel, now)
        for site, link in zip(sites, links[1:], strict=True):
            rows.append(Row(drift, *noise))
            drift, noise = self._drift_and_noise(i, t, link, *site.known(i, t, rows[-1]))
        nothing = np.zeros_like(kernel), np.zeros_like(now)
        return drift, nothing, rows

    def _drift_and_noise(self, i: int, t: int, link: Link, response, kernel, now):
        """Return the drift and the noise behind a map."""
        pulls = self.pulls[:t] if i == 0 else transpose(self.pulls[:t])
        (nodes, near, _), far = now.shape, pulls.shape[2]
        tangent = link.tangent[t, :t, None, None] * pulls
        split = kernel.reshape(nodes, near, t, near)
        driven = np.einsum("mrsj,sjc->mrsc", split, tangent)
        noise, noise_now = np.repeat(link.noise[t, :t], near) * kernel, link.noise[t, t] * now
        constant = self.network.constant
        if i == 0 and constant is not None:
            bias = link.bias_tangent[t, :t, None] * np.einsum("j,sjc->sc", constant, pulls)
            driven = driven + constant[:, None, None] * bias
            square = np.multiply.outer(constant, constant)
            more = (square[:, None] * link.bias_noise[t, :t, None]).reshape(near, -1)
            noise, noise_now = noise + more, noise_now + link.bias_noise[t, t] * square
        drift = np.repeat(link.noise[t, :t], far) * response
        return drift + driven.reshape(nodes, near, t * far), (noise, noise_now)

    def kernels(self, record_at: Sequence[int]):
        """Return H and G, and the tangent kernel, at some times; NaN where none was reached."""
        fields, records, nodes = self.network.fields, len(record_at), len(self.grid.nodes)
        samples, outputs = len(fields), self.network.outputs
        features = np.full((records, nodes, samples, samples), np.nan)
        gradients = np.full((records, nodes, outputs, outputs), np.nan)
        tangents = np.full((records, samples, samples, outputs, outputs), np.nan)
        for i, t in enumerate(record_at):
            if t < self.reached:
                h, gradients[i] = self._now(self.stream, t)
                features[i], tangents[i] = fields @ h @ fields.T, self._tangent(t, h, gradients[i])
        return features, gradients, tangents

    def _now(self, site: Site, t: int) -> tuple[np.ndarray, np.ndarray]:
        here = [slice(t * side.near, (t + 1) * side.near) for side in site.sides]
        h, g = (side.kernel[:, s, s] for side, s in zip(site.sides, here, strict=True))
        return h, g

    def _tangent(self, t: int, h: np.ndarray, g: np.ndarray) -> np.ndarray:
        network, fields = self.network, self.network.fields
        places = [(h, g), *(self._now(site, t) for site in self.inner), (h, g)]
        body = 0.0
        for link, (before, _), (_, behind) in zip(network.links, places, places[1:], strict=False):
            moved = link.rate[t] * fields @ before @ fields.T + link.bias_rate[t]
            body = body + np.einsum("m,mij,mcd->ijcd", self.grid.whole, moved, behind)
        ends = (fields * network.read_in) @ fields.T
        out = network.read_out
        last = out.rate[t] * fields @ h[-1] @ fields.T + out.bias_rate[t]
        return body + ends[..., None, None] * g[0] + last[..., None, None] * np.eye(network.outputs)
