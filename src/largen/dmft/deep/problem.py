"""What a run says of a fully connected or residual network in the mean-field limit."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from largen.dmft.deep.chain import LINEAR, Chain, chain
from largen.errors import NoTheory
from largen.expectations import ActivationFunction
from largen.parameterizations import CanonicalForm, CanonicalWeight, canonical_form
from largen.runs import Run

# Roles whose single weights count; hidden matrices are sums over neurons.
GAUSSIAN_ROLES = ("input", "output", "bias")


@dataclass(frozen=True)
class Affine:
    """The constants of one affine map, y = σ V x + σ_b b, between hidden layers or to the output.

    Attributes
    ----------
    std
        σ.
    rate
        ρ.
    bias_std, bias_rate
        σ_b and its ρ; 0 if there is no bias.
    """

    std: float
    rate: float
    bias_std: float = 0.0
    bias_rate: float = 0.0

    @property
    def kernel_rate(self) -> float:
        """ρσ², what the map's weights contribute to the tangent kernel."""
        return self.rate * self.std**2

    @property
    def bias_kernel_rate(self) -> float:
        """ρσ_b², what its bias contributes."""
        return self.bias_rate * self.bias_std**2


@dataclass(frozen=True)
class Problem:
    """A network with L hidden layers at infinite width.

    Attributes
    ----------
    phi
        Activations of the hidden layers.
    fields
        F with F Fᵀ = σ² x·x′/D + σ_b², training samples before test samples, shape
        ``(sample, direction)``: h¹ = F a, with a standard Gaussian at initialisation.
    field_rate
        ρ of each direction of a.
    maps
        The L affine maps behind the first, the read-out last; those that end a residual branch
        have its factor in their σ and σ_b.
    skips
        For each hidden map, which hidden layer is added to what it returns; −1 for none.
    inside
        Whether each hidden layer lies within a residual branch, where records divide gradient
        kernels by the square of the branch's factor.
    branch
        That factor, L^(−α).
    gamma
        γ₀.
    samples
        P, the number of training samples.
    outputs
        C.
    """

    phi: tuple[ActivationFunction, ...]
    fields: np.ndarray
    field_rate: np.ndarray
    maps: tuple[Affine, ...]
    skips: tuple[int, ...]
    inside: tuple[bool, ...]
    branch: float
    gamma: float
    samples: int
    outputs: int

    @property
    def hidden_layers(self) -> int:
        """L."""
        return len(self.phi)

    @property
    def linear(self) -> bool:
        """Whether the network is linear in its input."""
        return all(phi == LINEAR for phi in self.phi)

    @property
    def streams(self) -> tuple[int, ...]:
        """Which neurons each hidden layer consists of: those of the layer that it adds to."""
        found = [0]
        for skip in self.skips:
            found.append(found[skip] if skip >= 0 else max(found) + 1)
        return tuple(found)

    @property
    def columns(self) -> int:
        """Number of samples, test samples included."""
        return len(self.fields)


def covers(run: Run) -> str:
    """Return why the mean-field limit of a deep network is the limit of a run.

    Raises
    ------
    NoTheory
        If features do not move (d ≠ ½), the network is not a chain of affine maps, activations
        and residual branches of them, or a weight's update vanishes or diverges with the width.
    """
    links = chain(run.net)
    form = _form(run)
    if form.d != Fraction(1, 2):
        raise NoTheory(
            f"{run.param} divides the output by N^{form.d} beyond the kernel scaling; features "
            "move at order one, and the mean-field limit applies, for N^(1/2) only. "
            "The kernel limit is the theory of d = 0."
        )
    depth, blocks = len(links.phi), sum(skip >= 0 for skip in links.skips)
    branches = f", {blocks} residual branches times {form.branch:.3g}" if blocks else ""
    return (
        f"γ = γ₀√N, so features move at order one; {depth} hidden layer{'s' * (depth > 1)}"
        f"{branches}, coupled by response to their own past"
    )


def problem(run: Run) -> Problem:
    """Return the problem that a run poses, in float64."""
    links = chain(run.net)
    form = _form(run)
    found: dict[tuple[int, ...], dict[str, CanonicalWeight]] = {path: {} for path in links.paths}
    for weight in form.weights.values():
        found[weight.site.path][weight.kind] = weight
    first, *rest = (found[path] for path in links.paths)
    fields, rate = _fields(run, first)
    factors = [form.branch if skip >= 0 else 1.0 for skip in (*links.skips, -1)]
    return Problem(
        phi=links.phi,
        fields=fields,
        field_rate=rate,
        maps=tuple(_affine(w, factor) for w, factor in zip(rest, factors, strict=True)),
        skips=links.skips,
        inside=_inside(links),
        branch=form.branch,
        gamma=form.gamma,
        samples=len(run.data.x_train),
        outputs=int(np.prod(run.output_shape, dtype=int)),
    )


def _form(run: Run) -> CanonicalForm:
    inputs = run.data.inputs
    return canonical_form(
        run.param, run.net, run.optimizer, inputs, gaussian=GAUSSIAN_ROLES, noise=True
    )


def _inside(links: Chain) -> tuple[bool, ...]:
    """Whether each hidden layer lies between the ends of a skip."""
    inside = [False] * len(links.phi)
    for map_, skip in enumerate(links.skips):
        if skip >= 0:
            inside[skip + 1 : map_ + 1] = [True] * (map_ - skip)
    return tuple(inside)


def _affine(weights: dict[str, CanonicalWeight], factor: float) -> Affine:
    weight, bias = weights["weight"], weights.get("bias")
    if bias is None:
        return Affine(factor * weight.std, weight.rate)
    return Affine(factor * weight.std, weight.rate, factor * bias.std, bias.rate)


def _fields(run: Run, weights: dict[str, CanonicalWeight]) -> tuple[np.ndarray, np.ndarray]:
    x = run.data.x.astype(np.float64)
    columns = [weights["weight"].std * x / np.sqrt(run.data.inputs)]
    rates = [weights["weight"].rate]
    if "bias" in weights:
        columns.append(np.full((len(x), 1), weights["bias"].std))
        rates.append(weights["bias"].rate)
        if len(set(rates)) == 1:
            # Any rotation of weights and bias together leaves the problem as it is.
            columns, rates = [np.concatenate(columns, 1)], rates[:1]
    columns = [_independent(c) for c in columns]
    rate = [np.full(c.shape[1], r) for c, r in zip(columns, rates, strict=True)]
    return np.concatenate(columns, 1), np.concatenate(rate)


def _independent(columns: np.ndarray) -> np.ndarray:
    """Return a matrix with the same Gram matrix of its rows, and independent columns."""
    u, s, _ = np.linalg.svd(columns, full_matrices=False)
    keep = s > 1e-12 * max(s[0], np.finfo(float).tiny)
    return (u * s)[:, keep] if keep.any() else columns[:, :1]
