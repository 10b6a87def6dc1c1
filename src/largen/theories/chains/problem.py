"""The problem that a run poses in the mean-field limit of a chain of affine maps."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from largen.errors import NoTheory
from largen.parameterizations import CanonicalForm, CanonicalWeight, canonical_form
from largen.parameterizations.weight_rules import first_fan_in
from largen.runs import Posed, Run
from largen.theories.chains.chain import LINEAR, Chain, chain
from largen.theories.chains.normalized import LayerActivation, NormalizedActivation
from largen.theories.chains.receptive_fields import Reading, gather

# Roles whose weight distribution must be Gaussian: hidden matrices enter through sums over many
# neurons, where only the variance matters.
GAUSSIAN_ROLES = ("input", "output", "bias")


@dataclass(frozen=True)
class AffineMap:
    """The constants of one affine map, y = σ V x + σ_b b, between hidden layers or to the output.

    Attributes
    ----------
    reading
        The positions that the map reads.
    std
        σ, divided by the root of the number of features that the map sums over per unit of width.
    rate
        ρ, the learning rate of the weights relative to η₀.
    bias_std, bias_rate
        σ_b and ρ of the bias; 0 if there is no bias.
    """

    reading: Reading
    std: float
    rate: float
    bias_std: float = 0.0
    bias_rate: float = 0.0

    @property
    def kernel_rate(self) -> float:
        """ρσ², the prefactor of the weights' contribution to the tangent kernel."""
        return self.rate * self.std**2

    @property
    def bias_kernel_rate(self) -> float:
        """ρσ_b², the prefactor of the bias's contribution to the tangent kernel."""
        return self.bias_rate * self.bias_std**2


@dataclass(frozen=True)
class Problem:
    """A network with L hidden layers at infinite width.

    Attributes
    ----------
    phi
        Activations of the hidden layers, of normalised ones with their normalisation.
    fields
        F with F Fᵀ = σ² x·x′/D + σ_b² between the receptive fields x, x′ of all positions, training
        samples before test samples, shape ``(sample·position, direction)``: h¹ = F a, with a
        standard Gaussian at initialisation.
    positions
        The number of positions of each hidden layer.
    field_rate
        ρ of each direction of a.
    maps
        The L affine maps after the first, the read-out last. For a map that ends a residual branch,
        σ and σ_b include the branch's factor.
    skips
        For each map between hidden layers, the hidden layer that a skip connection adds to its
        output; −1 for none.
    inside
        Whether each hidden layer lies within a residual branch, where recorded gradient kernels are
        divided by the square of the branch's factor.
    branch
        The factor of the residual branches, L^(−α).
    gamma
        γ₀.
    samples
        P, the number of training samples.
    outputs
        C.
    ratios
        r, the number of neurons of each hidden layer per unit of width.
    quiet
        Whether random matrices of residual branches bring no noise to the stream, neither forward
        nor backward, nor do biases at initialisation: the limit of branches L^(−α), 1/2 < α < 1.
    """

    phi: tuple[LayerActivation, ...]
    fields: np.ndarray
    positions: tuple[int, ...]
    field_rate: np.ndarray
    maps: tuple[AffineMap, ...]
    skips: tuple[int, ...]
    inside: tuple[bool, ...]
    branch: float
    gamma: float
    samples: int
    outputs: int
    ratios: tuple[Fraction, ...]
    quiet: bool = False

    @property
    def unequal(self) -> bool:
        """Whether some hidden layer has a width ratio other than 1."""
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
    def normalized(self) -> bool:
        """Whether some layer is normalised over its neurons."""
        return any(isinstance(phi, NormalizedActivation) for phi in self.phi)

    @property
    def into_stream(self) -> tuple[bool, ...]:
        """Whether each matrix between hidden layers ends a residual branch."""
        return tuple(skip >= 0 for skip in self.skips)

    @property
    def from_stream(self) -> tuple[bool, ...]:
        """Whether each matrix between hidden layers begins a residual branch."""
        return tuple(m in self.skips for m in range(len(self.skips)))

    @property
    def streams(self) -> tuple[int, ...]:
        """The residual stream of each hidden layer; layers of one stream share their neurons."""
        found = [0]
        for skip in self.skips:
            found.append(found[skip] if skip >= 0 else max(found) + 1)
        return tuple(found)

    @property
    def total(self) -> int:
        """Number of samples, test samples included."""
        return len(self.fields) // self.positions[0]

    @property
    def output_positions(self) -> int:
        """The largest number of output positions of a hidden matrix."""
        return max(self.positions[1:], default=1)

    @property
    def columns(self) -> int:
        """The largest number of columns that a matrix multiplies at once, test samples included."""
        return self.total * self.output_positions

    @property
    def training_columns(self) -> int:
        """The largest number of training columns in the update of a matrix."""
        return self.samples * self.output_positions

    @property
    def taps(self) -> int:
        """The largest number of taps of a matrix."""
        return max((affine.reading.number for affine in self.maps[:-1]), default=1)


def posed_by(run: Run) -> Posed[Problem]:
    """Return the mean-field problem of a run, in float64, and the reason why this limit applies.

    Raises
    ------
    NoTheory
        If features do not move at order one (d ≠ ½), if the network is not a chain of affine maps,
        activations, linear pooling and residual branches of them, or if a weight's update vanishes
        or diverges with the width.
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


def _affine(reading: Reading, weights: dict[str, CanonicalWeight], factor: float) -> AffineMap:
    weight, bias = weights["weight"], weights.get("bias")
    std = factor * weight.std / float(weight.site.patch) ** 0.5
    if bias is None:
        return AffineMap(reading, std, weight.rate)
    return AffineMap(reading, std, weight.rate, factor * bias.std, bias.rate)


def _fields(
    run: Run, links: Chain, weights: dict[str, CanonicalWeight]
) -> tuple[np.ndarray, np.ndarray]:
    x = run.data.x.astype(np.float64)
    if links.axes:
        x = np.moveaxis(x, 1 + links.axes.channels, -1)
    reading, weight = links.readings[0], weights["weight"]
    x = gather(reading.taps, x.reshape(-1, x.shape[-1]))
    fan_in = first_fan_in(run.data.inputs, weight.site)
    columns = [weight.std * x / np.sqrt(fan_in)]
    rates = [weights["weight"].rate]
    if "bias" in weights:
        columns.append(np.full((len(x), 1), weights["bias"].std))
        rates.append(weights["bias"].rate)
        if len(set(rates)) == 1:
            # With equal rates the problem is invariant under rotations that mix weights and bias.
            columns, rates = [np.concatenate(columns, 1)], rates[:1]
    columns = [_independent(c) for c in columns]
    rate = [np.full(c.shape[1], r) for c, r in zip(columns, rates, strict=True)]
    return np.concatenate(columns, 1), np.concatenate(rate)


def _independent(columns: np.ndarray) -> np.ndarray:
    """Return a matrix whose rows have the same Gram matrix, with linearly independent columns."""
    u, s, _ = np.linalg.svd(columns, full_matrices=False)
    keep = s > 1e-12 * max(s[0], np.finfo(float).tiny)
    return (u * s)[:, keep] if keep.any() else columns[:, :1]
