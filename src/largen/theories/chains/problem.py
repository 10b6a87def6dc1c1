"""The problem that a run poses in the mean-field limit of a chain of affine maps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from largen.errors import NoTheory
from largen.parameterizations import CanonicalForm, canonical_form
from largen.parameterizations.weight_rules import first_fan_in
from largen.programs import Weight
from largen.programs.receptive_fields import Reading, gather
from largen.runs import Posed, Run
from largen.theories.chains.chain import LINEAR, READING, AffineChain, affine_chain
from largen.theories.chains.constants import MapConstants, check_features_move
from largen.theories.chains.normalized import LayerActivation, NormalizedActivation, couples_samples

# Roles whose weight distribution must be Gaussian: hidden matrices enter through sums over many
# neurons, where only the variance matters.
GAUSSIAN_ROLES = ("input", "output", "bias")


@dataclass(frozen=True, kw_only=True)
class AffineMap(MapConstants):
    """One affine map, with σ over the root of its features per unit of width, and what it reads."""

    reading: Reading


@dataclass(frozen=True)
class Problem:
    """A network with L hidden layers at infinite width."""

    # Activations of the hidden layers, of normalised ones with their normalisation.
    phi: tuple[LayerActivation, ...]
    # F with F Fᵀ = σ² x·x′/D + σ_b² between the receptive fields x, x′ of all positions, training
    # samples before test samples, shape (sample·position, direction): h¹ = F a, with a standard
    # Gaussian at initialisation.
    fields: np.ndarray
    positions: tuple[int, ...]
    field_rate: np.ndarray  # ρ of each direction of a
    # The L affine maps after the first, the read-out last. For a map that ends a residual branch, σ
    # and σ_b include the branch's factor.
    maps: tuple[AffineMap, ...]
    # For each map between hidden layers, the hidden layer that a skip connection adds to its
    # output; −1 for none.
    skips: tuple[int, ...]
    # Whether each hidden layer lies within a residual branch, where recorded gradient kernels are
    # divided by the square of the branch's factor.
    inside: tuple[bool, ...]
    branch: float  # the factor of the residual branches, L^(−α)
    gamma: float  # γ₀
    samples: int  # P, the number of training samples
    outputs: int
    ratios: tuple[Fraction, ...]  # r, the number of neurons of each hidden layer per unit of width
    # Whether random matrices of residual branches bring no noise to the stream, neither forward nor
    # backward, nor do biases at initialisation: the limit of branches L^(−α), 1/2 < α < 1.
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
        """Whether some layer is normalised."""
        return any(isinstance(phi, NormalizedActivation) for phi in self.phi)

    @property
    def coupled(self) -> bool:
        """Whether outputs depend on other samples, by a normalisation over the batch."""
        return any(map(couples_samples, self.phi))

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
        streams = [0]
        for skip in self.skips:
            streams.append(streams[skip] if skip >= 0 else max(streams) + 1)
        return tuple(streams)

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
    """Return the mean-field problem of a run, in float64, and the reason why this limit applies."""
    form = _form(run)
    links = affine_chain(run.program, form.branch)
    check_features_move(run.param, form.d)
    if any(map(couples_samples, links.phi)) and run.batches is not None:
        raise NoTheory(
            f"{READING} of normalisations over the batch takes full batches, got {run.optimizer}: "
            "those of a minibatch need a forward pass of its own. LayerNorm() has minibatches."
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


def _problem(run: Run, links: AffineChain, form: CanonicalForm) -> Problem:
    fields, rate = _fields(run, links, MapConstants.of(form, links.weights[0]))
    samples = len(run.data.x_train)
    factors = [form.branch if skip >= 0 else 1.0 for skip in (*links.skips, -1)]
    return Problem(
        phi=tuple(
            replace(phi, samples=samples) if couples_samples(phi) else phi for phi in links.phi
        ),
        fields=fields,
        positions=tuple(reading.positions for reading in links.readings[:-1]),
        field_rate=rate,
        maps=tuple(
            _affine(form, *each)
            for each in zip(links.weights[1:], links.readings[1:], factors, strict=True)
        ),
        skips=links.skips,
        inside=_inside(links),
        branch=form.branch,
        gamma=form.gamma,
        samples=samples,
        outputs=int(np.prod(run.output_shape, dtype=int)),
        ratios=tuple(weight.width_ratio for weight in links.weights[:-1]),
    )


def _form(run: Run) -> CanonicalForm:
    inputs = run.data.inputs
    return canonical_form(
        run.param, run.net, run.optimizer, inputs, gaussian=GAUSSIAN_ROLES, noise=True
    )


def _inside(links: AffineChain) -> tuple[bool, ...]:
    """Whether each hidden layer lies between the ends of a skip."""
    inside = [False] * len(links.phi)
    for map_, skip in enumerate(links.skips):
        if skip >= 0:
            inside[skip + 1 : map_ + 1] = [True] * (map_ - skip)
    return tuple(inside)


def _affine(form: CanonicalForm, weight: Weight, reading: Reading, factor: float) -> AffineMap:
    constants = MapConstants.of(form, weight)
    return AffineMap(
        std=factor * constants.std / float(weight.patch) ** 0.5,
        rate=constants.rate,
        bias_std=factor * constants.bias_std,
        bias_rate=constants.bias_rate,
        reading=reading,
    )


def _fields(run: Run, links: AffineChain, constants: MapConstants) -> tuple[np.ndarray, np.ndarray]:
    x = run.data.x.astype(np.float64)
    if links.channels is not None:
        x = np.moveaxis(x, 1 + links.channels, -1)
    x = gather(links.readings[0].taps, x.reshape(-1, x.shape[-1]))
    fan_in = first_fan_in(run.data.inputs, links.weights[0])
    columns, rates = [constants.std * x / np.sqrt(fan_in)], [constants.rate]
    if constants.bias_std:
        columns.append(np.full((len(x), 1), constants.bias_std))
        rates.append(constants.bias_rate)
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
