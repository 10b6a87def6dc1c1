"""Figure 1: order and chaos of tanh networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray

import largen as lg
from largen.plots import phase_figure
from papers.claims import Claim
from papers.images import Images
from papers.record import Figure, Found, Part, Report


class Settings(NamedTuple):
    """Number of grid points per axis, for σ_w² from 0.5 to 4 and σ_b² from 0 to 1."""

    points: int

    def diagram(self) -> Any:
        """Return the phase diagram."""
        weight, bias = np.linspace(0.5, 4, self.points), np.linspace(0, 1, self.points)
        return lg.criticality.phase_diagram("tanh", np.sqrt(weight), np.sqrt(bias))


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    def compute(report: Report) -> xarray.Dataset:
        found = settings.diagram()
        inside = np.broadcast_to(found.weight_std[:, None] ** 2 > 1, found.chi_perp.shape)
        edge = found.edge[found.edge[:, 1] <= 1]
        # Frozen correlations of two inputs at the critical point, which the lectures' Theorem 4.1
        # sends to 1 as a power of the depth.
        c, K = 0.5, 1.0
        node, weight = np.polynomial.hermite_e.hermegauss(80)
        one, other = np.meshgrid(node, node, indexing="ij")
        weights = np.outer(weight, weight) / (2 * np.pi)
        for _ in range(3000):
            first, second = np.sqrt(K) * one, np.sqrt(K) * (c * one + np.sqrt(1 - c * c) * other)
            q = np.sum(weights * np.tanh(first) ** 2)
            c, K = np.sum(weights * np.tanh(first) * np.tanh(second)) / q, q
        return xarray.Dataset(
            {
                "chaotic_below_one": float(np.mean(found.chi_perp[~inside] > 1)),
                "ordered": float(np.mean(found.chi_perp < 1)),
                "chaotic": float(np.mean(found.chi_perp > 1)),
                "edge_start": float(edge[np.argmin(edge[:, 1]), 0]),
                "edge_falls": float(np.mean(np.diff(edge[np.argsort(edge[:, 1]), 0]) < 0)),
                "correlation": float(c),
            }
        )

    return [Part("diagram", f"tanh phase diagram {settings}", 1.0, compute)]


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on the two phases and on the critical line between them."""
    data = {name: float(value) for name, value in found["diagram"].items()}

    def exact(says: str, measured: str, value: float, agrees: bool) -> Claim:
        return Claim(says, measured, value, value, value, agrees)

    return [
        exact(
            "an ordered and a chaotic phase",
            "share of the grid with χ_⊥ > 1",
            data["chaotic"],
            data["chaotic"] > 0.05 and data["ordered"] > 0.05,
        ),
        exact(
            "the critical line starts at σ_w = 1 without biases",
            "σ_w of the line at the smallest σ_b",
            data["edge_start"],
            abs(data["edge_start"] - 1) < 0.02,
        ),
        exact(
            "more bias needs a larger σ_w to be critical",
            "share of the line along which σ_w falls with σ_b",
            data["edge_falls"],
            data["edge_falls"] == 0,
        ),
        exact(
            "at σ_w = 1, σ_b = 0 correlations of tanh networks tend to 1 (Theorem 4.1)",
            "correlation behind 3000 layers, from 0.5",
            data["correlation"],
            data["correlation"] > 0.9,
        ),
    ]


FIGURE = Figure(
    name="003-1",
    title="Phase diagram of tanh networks",
    source="Bahri and Hanin, Les Houches lectures on deep learning at large and infinite width, "
    "Figure 1",
    images=(),
    settings=Settings(61),
    fast=Settings(21),
    parts=_parts,
    claims=claims,
    draw=lambda settings, found: phase_figure(settings.diagram()),
)
