"""Theorem 5.1 of the Les Houches lectures: relu networks at one input, by sums over paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import xarray

import largen as lg
from papers.claims import Claim
from papers.images import Images
from papers.record import Figure, Found, Part, Report
from papers.verdicts import equals, intervals, mean_of, numbers, pair_of, ratio_of_moments

WIDTHS, INPUTS = (12, 10, 14), 4
SIGMA = 2**0.5
RATIOS, LARGE = (0.1, 0.4), 1000  # L/n at which growth is compared, and the width there
_AT_ONCE = 20_000


class Settings(NamedTuple):
    """Networks whose Jacobians are drawn."""

    draws: int


def _jacobians(draws: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, for relu networks, ∂z/∂x₁, the output's sign, and the fraction of active neurons."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(INPUTS)
    found = []
    for _ in range(-(-draws // _AT_ONCE)):
        z = np.broadcast_to(x[:, None], (_AT_ONCE, INPUTS, 1))
        J = np.broadcast_to(np.eye(INPUTS)[:, :1], (_AT_ONCE, INPUTS, 1))
        active = []
        for before, n in zip((INPUTS, *WIDTHS), (*WIDTHS, 1), strict=True):
            W = SIGMA / np.sqrt(before) * rng.standard_normal((_AT_ONCE, n, before))
            z, J = W @ z, W @ J
            if n > 1:
                on = z > 0
                z, J = z * on, J * on
                active.append(on.mean(axis=(1, 2)))
        found.append((J[:, 0, 0], z[:, 0, 0] > 0, np.mean(active, axis=0)))
    first, second, third = (np.concatenate(each) for each in zip(*found, strict=True))
    return first, second, third


def _change(t: float) -> float:
    """Return E ΔΘ/E Θ of a step at rate 1/KL, without its sign."""
    layers = round(t * LARGE)
    net = lg.mlp(layers, "relu", weight_std=SIGMA)
    found = lg.finite_width.homogeneous_moments(net, np.ones((1, 1)), width=LARGE)
    return 2 * found.ntk_change / (found.ntk * found.kernel * layers)


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    def drawn(report: Report) -> xarray.Dataset:
        J, on, active = _jacobians(settings.draws)
        net = lg.mlp(len(WIDTHS), "relu", weight_std=SIGMA)
        tangent = lg.finite_width.sample_tangent_kernels(
            net, np.ones((1, INPUTS)), width=WIDTHS, draws=settings.draws // 4, key=0
        ).ntk[:, 0, 0]
        return numbers(
            active=mean_of(active),
            second=mean_of(INPUTS * J**2 / 2),
            ratio=ratio_of_moments(J**2),
            fourth=mean_of(INPUTS**2 * (on * J) ** 4),
            tangent=mean_of(tangent / (2 * (len(WIDTHS) + 1))),
        )

    def growth(report: Report) -> xarray.Dataset:
        first, last = (_change(t) for t in RATIOS)
        return numbers(change=(last / first, 0.0))

    return [
        Part("drawn", f"relu Jacobians {settings} {WIDTHS}", 5.0, drawn),
        Part("growth", f"relu changes of NTK {RATIOS} {LARGE}", 3.0, growth),
    ]


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims that moments of drawn networks are those of the theorem."""
    drawn, growth = found["drawn"], found["growth"]
    inverse = sum(1 / n for n in WIDTHS)
    product = float(np.prod([1 + 5 / n for n in WIDTHS]))
    where = f"of {settings.draws} networks of widths {WIDTHS}"
    t, last = RATIOS
    printed = last / t * np.exp(25 * (last - t))
    limits = [lg.finite_width.homogeneous_limits("relu", each).ntk_change for each in RATIOS]
    return [
        equals(
            "half of all neurons are active, Proposition 5.2", f"share {where}",
            pair_of(drawn, "active"), 0.5, 0.01,
        ),
        equals(
            "E (∂z/∂x)² is 2/n₀, eq. (124)", f"n₀/2 times it {where}", pair_of(drawn, "second"),
            1.0, 0.05,
        ),
        equals(
            "(∂z/∂x)² is log-normal with β = 5 Σ1/n: E J⁴/(E J²)² is e^β, Theorem 5.1",
            f"E J⁴/(E J²)² {where}", pair_of(drawn, "ratio"), float(np.exp(5 * inverse)), 0.2,
        ),
        equals(
            "(∂z/∂x)² is χ²₁ times what becomes log-normal: E J⁴/(E J²)² is 3 ∏(1 + 5/n)",
            f"E J⁴/(E J²)² {where}", pair_of(drawn, "ratio"), 3 * product, 0.2,
        ),
        equals(
            "E (∂σ(z)/∂x)⁴ is 12/n₀² ∏(1 + 5/n), section 5.5.2", f"n₀² times it {where}",
            pair_of(drawn, "fourth"), 12 * product, 0.2,
        ),
        equals(
            "E (∂σ(z)/∂x)⁴ is 6/n₀² ∏(1 + 5/n)", f"n₀² times it {where}",
            pair_of(drawn, "fourth"), 6 * product, 0.2,
        ),
        equals(
            "E Θ grows as L: it is (L + 1) K", f"E Θ/(L + 1)K {where}", pair_of(drawn, "tangent"),
            1.0, 0.05,
        ),
        equals(
            f"E ΔΘ/E Θ grows as (L/n) exp(5β), from L/n = {t} to {last}, Theorem 5.1",
            "ratio of the two at n = 1000", pair_of(growth, "change"), float(printed), 0.2,
        ),
        equals(
            f"E ΔΘ/E Θ grows as e^β[½ − I(6β/5)], from L/n = {t} to {last}",
            "ratio of the two at n = 1000", pair_of(growth, "change"), limits[1] / limits[0], 0.05,
        ),
    ]  # fmt: skip


FIGURE = Figure(
    name="003-5.1",
    title="Jacobians and tangent kernels of relu networks at one input",
    source="Bahri and Hanin, Les Houches lectures on deep learning at large and infinite width, "
    "Theorem 5.1, Proposition 5.2 and section 5.5",
    images=(),
    settings=Settings(1_000_000),
    fast=Settings(200_000),
    parts=_parts,
    claims=claims,
    draw=lambda settings, found: intervals(claims(settings, found)),
    notes=("what Theorem 5.1 says of E Θ² is held against networks in 003-2",),
)
