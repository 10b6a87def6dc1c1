"""What a run says of a chain of affine maps in the mean-field limit."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from largen.errors import NoTheory
from largen.expectations import ActivationFunction
from largen.parameterizations import CanonicalForm, CanonicalWeight, canonical_form
from largen.parameterizations.weight_rules import first_fan_in
from largen.runs import Posed, Run
from largen.theories.chains.chain import LINEAR, Chain, chain
from largen.theories.chains.receptive_fields import Reading, gathered

# Roles whose single weights count; hidden matrices are sums over neurons.
GAUSSIAN_ROLES = ("input", "output", "bias")


@dataclass(frozen=True)
class Affine:
    """The constants of one affine map, y = σ V x + σ_b b, between hidden layers or to the output.

    Attributes
    ----------
    reading
        The positions that it reads.
    std
        σ, over the root of the number of features that it sums over for each unit of width.
    rate
        ρ.
    bias_std, bias_rate
        σ_b and its ρ; 0 if there is no bias.
    """

    reading: Reading
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
        F with F Fᵀ = σ² x·x′/D + σ_b² of what each position sees, training samples before test
        samples, shape ``(sample·position, direction)``: h¹ = F a, with a standard Gaussian at
        initialisation.
    positions
        The number of positions of each hidden layer.
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
    ratios
        r, how many neurons each hidden layer has per unit of width.
    """

    phi: tuple[ActivationFunction, ...]
    fields: np.ndarray
    positions: tuple[int, ...]
    field_rate: np.ndarray
    maps: tuple[Affine, ...]
    skips: tuple[int, ...]
    inside: tuple[bool, ...]
    branch: float
    gamma: float
    samples: int
    outputs: int
    ratios: tuple[Fraction, ...]

    @property
    def unequal(self) -> bool:
        """Whether hidden layers are not all as wide as the unit of width."""
        return any(ratio != 1 for ratio in self.ratios)

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
    def total(self) -> int:
        """Number of samples, test samples included."""
        return len(self.fields) // self.positions[0]

    @property
    def asked(self) -> int:
        """Most positions behind a matrix."""
        return max(self.positions[1:], default=1)

    @property
    def columns(self) -> int:
        """Most columns on which a matrix is asked at once, test samples included."""
        return self.total * self.asked

    @property
    def training_columns(self) -> int:
        """Most columns from which a matrix learns."""
        return self.samples * self.asked

    @property
    def taps(self) -> int:
        """Most taps of a matrix."""
        return max((affine.reading.number for affine in self.maps[:-1]), default=1)


def posed_by(run: Run) -> Posed[Problem]:
    """Return the problem that a run poses in the mean-field limit, in float64, and why it does.

    Raises
    ------
    NoTheory
        If features do not move (d ≠ ½), the network is not a chain of affine maps, activations,
        linear pooling and residual branches of them, or a weight's update vanishes or diverges
        with the width.
    """
    links = chain(run.net, run.data.inputs)
    form = _form(run)
    if form.d != Fraction(1, 2):
        raise NoTheory(
            f"{run.param} divides the output by N^{form.d} beyond the kernel scaling; features "
            "move at order one, and the mean-field limit applies, for N^(1/2) only. "
            "The kernel limit is the theory of d = 0."
        )
    depth, blocks = len(links.phi), sum(skip >= 0 for skip in links.skips)
    branches = f", {blocks} residual branches times {form.branch:.3g}" if blocks else ""
    most = max(reading.positions for reading in links.readings)
    spatial = f" of up to {most} positions" if most > 1 else ""
    reason = (
        f"γ = γ₀√N, so features move at order one; {depth} hidden layer{'s' * (depth > 1)}"
        f"{spatial}{branches}, coupled by response to their own past"
    )
    return Posed(run, reason, _problem(run, links, form))


def _problem(run: Run, links: Chain, form: CanonicalForm) -> Problem:
    found: dict[tuple[int, ...], dict[str, CanonicalWeight]] = {path: {} for path in links.paths}
    for weight in form.weights.values():
        found[weight.site.path][weight.kind] = weight
    first, *rest = (found[path] for path in links.paths)
    fields, rate = _fields(run, links, first)
    factors = [form.branch if skip >= 0 else 1.0 for skip in (*links.skips, -1)]
    return Problem(
        phi=links.phi,
        fields=fields,
        positions=tuple(reading.positions for reading in links.readings[:-1]),
        field_rate=rate,
        maps=tuple(map(_affine, links.readings[1:], rest, factors)),
        skips=links.skips,
        inside=_inside(links),
        branch=form.branch,
        gamma=form.gamma,
        samples=len(run.data.x_train),
        outputs=int(np.prod(run.output_shape, dtype=int)),
        ratios=tuple(found[path]["weight"].site.width_ratio for path in links.paths[:-1]),
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


def _affine(reading: Reading, weights: dict[str, CanonicalWeight], factor: float) -> Affine:
    weight, bias = weights["weight"], weights.get("bias")
    std = factor * weight.std / float(weight.site.patch) ** 0.5
    if bias is None:
        return Affine(reading, std, weight.rate)
    return Affine(reading, std, weight.rate, factor * bias.std, bias.rate)


def _fields(
    run: Run, links: Chain, weights: dict[str, CanonicalWeight]
) -> tuple[np.ndarray, np.ndarray]:
    x = run.data.x.astype(np.float64)
    if links.axes:
        x = np.moveaxis(x, 1 + links.axes.channels, -1)
    reading, weight = links.readings[0], weights["weight"]
    x = gathered(reading.taps, x.reshape(-1, x.shape[-1]))
    fan_in = first_fan_in(run.data.inputs, weight.site)
    columns = [weight.std * x / np.sqrt(fan_in)]
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
