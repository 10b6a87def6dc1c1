"""The problem of a single hidden neuron that a run poses in the mean-field limit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from largen.errors import NoTheory
from largen.expectations import ActivationFunction, as_activation
from largen.parameterizations import Averages, CanonicalForm, canonical_form
from largen.parameterizations.distributions import GAUSSIAN
from largen.programs import BRANCH, Affine, Function, Operation, Program, Repeat, Sum, dense_chain
from largen.runs import Posed, Run
from largen.theories.chains.constants import HALF, check_features_move
from largen.theories.mean_field.one_hidden_layer.adaptive import ratio_of, weights_of
from largen.theories.mean_field.running_averages import averages_of

READING = "the mean-field limit of one hidden layer"
LINEAR = as_activation("linear")


@dataclass(frozen=True)
class Start:
    """The initial distribution of a neuron, if not all of its weights are Gaussian."""

    # The distribution of each of the neuron's weights, inputs before bias.
    distributions: tuple[str, ...]
    # The matrix from these weights to the coordinates a, shape (weight, direction).
    basis: np.ndarray
    readout: str  # the distribution of the neuron's read-out weights


@dataclass(frozen=True)
class Steps:
    """Step sizes r/s of an adaptive optimizer for a, z and the read-out's bias."""

    average: Averages
    directions: np.ndarray
    readout: float
    bias: float


@dataclass(frozen=True)
class OneLayerProblem:
    """One hidden layer at infinite width, in coordinates of its neurons.

    A neuron's preactivations are h_μ = Σ_i F_μi a_i, where a starts as a standard Gaussian
    vector and F Fᵀ = K⁰ = σ_w² x·x′/D + σ_b². Directions of weight space that are orthogonal to all
    samples are omitted: there are at most as many a_i as samples, or as inputs and bias.
    """

    phi: ActivationFunction  # the activation φ
    # train, test: F of training and test samples, shape (sample, direction).
    train: np.ndarray
    test: np.ndarray
    rate: np.ndarray  # ρ of each direction: a moves by η₀γ₀ρ F_μi per unit of Δ_μ z φ'(h_μ)
    out_std: float  # σ_out, so that z ~ N(0, σ_out²) at initialisation
    out_rate: float  # ρσ_out² of the read-out weights
    out_bias_rate: float  # ρσ_b² of the read-out bias; 0 if there is none
    # γ₀ in units of the width of the hidden layer: with rN neurons the network is that of width rN
    # with γ₀/√r, which has the same γ = γ₀√N.
    gamma: float
    outputs: int
    # The initial distribution if weights are not Gaussian; None for Gaussian a and z.
    start: Start | None = None
    # The step sizes of an adaptive optimizer. Rates then convert the gradient to the units of the
    # optimizer, at η₀ = 1, and directions are single weights.
    steps: Steps | None = None
    # σ_b of the read-out bias. Its initial value, σ_b/(γ₀√N) times a standard Gaussian, vanishes in
    # the limit.
    out_bias_std: float = 0.0
    ratio: float = 1.0  # r, the number of neurons per unit of width

    @property
    def directions(self) -> int:
        """Number of coordinates a_i of a neuron."""
        return self.train.shape[1]

    @property
    def readout_size(self) -> float:
        """σ_out rms φ(h) at initialisation, over training samples and Gaussian weights, roughly."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(64)
        h = nodes[:, None] * np.sqrt(np.sum(self.train**2, 1))
        square = weights @ np.asarray(self.phi(h)) ** 2 / weights.sum()
        return float(self.out_std * np.sqrt(np.mean(square)))

    def enlarged(self, boost: float) -> OneLayerProblem:
        """Return the problem with γ₀ times a factor, for movements that are small anyway.

        The steps of an adaptive optimizer, which do not depend on γ₀, become longer by the factor
        for equal gradients.
        """
        found = replace(self, gamma=boost * self.gamma)
        if self.steps is None or boost == 1:
            return found
        steps = replace(
            self.steps,
            directions=boost * self.steps.directions,
            readout=boost * self.steps.readout,
        )
        return replace(found, rate=self.rate / boost, out_rate=self.out_rate / boost, steps=steps)

    @property
    def dimensions(self) -> int:
        """Number of independent variables of a neuron, read-out weights included."""
        inner = self.directions if self.start is None else len(self.start.distributions)
        return inner + self.outputs


REASON = (
    "γ = γ₀√N, so features move at order one; with one hidden layer its neurons are independent, "
    "coupled through the residuals only"
)


def posed_by(run: Run) -> Posed[OneLayerProblem]:
    """Return the problem that a run poses, in float64."""
    phi = _activation(run.program)
    if run.param.canonical_d == HALF and (average := averages_of(run)):
        return Posed(run, REASON, _by_weight(run, phi, average))
    form = _form(run)
    check_features_move(run.param, form.d)
    return Posed(run, REASON, _by_gradient(run, phi, form))


def _form(run: Run) -> CanonicalForm:
    data = run.data
    return canonical_form(run.param, run.net, run.optimizer, data.inputs, gaussian=(), noise=True)


def _by_gradient(run: Run, phi: ActivationFunction, form: CanonicalForm) -> OneLayerProblem:
    """Return the problem of gradient descent or flow, in independent directions."""
    inner, outer = (
        {weight.kind: weight for weight in form.weights.values() if weight.site.role == role}
        for role in ("input", "output")
    )
    columns = _columns(run, {kind: weight.std for kind, weight in inner.items()})
    parts, rates = list(columns.values()), [inner[kind].rate for kind in columns]
    if len({*rates}) == 1:
        # With equal rates the problem is invariant under rotations that mix weights and bias.
        parts, rates = [np.concatenate(parts, 1)], rates[:1]
    found = [_compress(part) for part in parts]
    fields = np.concatenate([columns for columns, _ in found], 1)
    sizes = [columns.shape[1] for columns, _ in found]
    weight, bias = outer["weight"], outer.get("bias")
    ratio = ratio_of(run)
    distributions = [inner[kind].distribution for kind, c in columns.items() for _ in c.T]
    start = None
    if {*distributions, weight.distribution} != {GAUSSIAN}:
        from scipy.linalg import block_diag

        basis = np.asarray(block_diag(*(basis for _, basis in found)))
        start = Start(tuple(distributions), basis, weight.distribution)
    return OneLayerProblem(
        phi=phi,
        train=fields[: len(run.data.x_train)],
        test=fields[len(run.data.x_train) :],
        rate=np.repeat(rates, sizes),
        out_std=weight.std,
        out_rate=weight.rate * weight.std**2,
        out_bias_rate=0.0 if bias is None else bias.rate * bias.std**2,
        gamma=form.gamma / np.sqrt(ratio),
        outputs=_outputs(run),
        start=start,
        out_bias_std=0.0 if bias is None else bias.std,
        ratio=ratio,
    )


def _by_weight(run: Run, phi: ActivationFunction, average: Averages) -> OneLayerProblem:
    """Return the problem of an adaptive optimizer, in single weights."""
    weights, ratio = weights_of(run), ratio_of(run)
    gamma = run.param.gamma / np.sqrt(ratio)
    inner = {kind: w for (role, kind), w in weights.items() if role == "input"}
    out, bias = weights["output", "weight"], weights.get(("output", "bias"))
    columns = _columns(run, {kind: weight.std for kind, weight in inner.items()})
    fields = np.concatenate(list(columns.values()), 1)

    def each(field: str) -> np.ndarray:
        parts = [np.full(c.shape[1], getattr(inner[k], field)) for k, c in columns.items()]
        return np.concatenate(parts)

    distributions = tuple(each("distribution").tolist())
    start = Start(distributions, np.eye(len(distributions)), out.distribution)
    gaussian = {*distributions, out.distribution} == {GAUSSIAN}
    return OneLayerProblem(
        phi=phi,
        train=fields[: len(run.data.x_train)],
        test=fields[len(run.data.x_train) :],
        # The steps of ``dynamics`` contain γ₀ Δ z for the read-in and γ₀ Δ φ for the read-out. The
        # gradient has z/(γ₀N) = (σ_out/(γ₀N)) ẑ, whose factor σ_out/(γ₀N) is already in the unit.
        rate=each("unit") / (gamma * out.std),
        out_std=out.std,
        out_rate=out.unit / gamma,
        out_bias_rate=0.0 if bias is None else bias.unit,
        gamma=gamma,
        outputs=_outputs(run),
        start=None if gaussian else start,
        steps=Steps(
            average, each("step"), out.std * out.step, 0.0 if bias is None else bias.std * bias.step
        ),
        ratio=ratio,
    )


def _columns(run: Run, std: dict[str, float]) -> dict[str, np.ndarray]:
    """Return the contribution of each weight of a neuron to h, by kind: ``(sample, weight)``."""
    x = run.data.x.astype(np.float64)
    columns = {"weight": std["weight"] * x / np.sqrt(x.shape[1])}
    if "bias" in std:
        columns["bias"] = np.full((len(x), 1), std["bias"])
    return columns


def _outputs(run: Run) -> int:
    return int(np.prod(run.output_shape, dtype=int))


def _branches(operation: Operation) -> bool:
    """Whether an operation is a repetition, or the end of a residual block."""
    return isinstance(operation, Repeat) or (
        isinstance(operation, Sum) and BRANCH in operation.factors
    )


def _activation(program: Program) -> ActivationFunction:
    """Return φ of a network with one hidden layer."""
    if any(map(_branches, program.operations)):
        raise NoTheory("this is the theory of one hidden layer, without residual branches")
    steps = dense_chain(program, READING)
    match [step.operation for step in steps]:
        case [Affine(), Affine()]:
            return LINEAR
        case [Affine(), Function(phi=phi), Affine()]:
            return phi
    if sum(isinstance(step.operation, Affine) for step in steps) > 2:
        raise NoTheory("this is the theory of one hidden layer, such as that of lg.mlp(1, …)")
    layers = ", ".join(str(step.source) for step in steps)
    raise NoTheory(
        f"{READING} is implemented for Dense, Activation, Dense; this network has {layers}"
    )


def _compress(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return independent columns with the same Gram matrix of rows, and the rotation to these."""
    u, s, v = np.linalg.svd(columns, full_matrices=False)
    keep = s > 1e-12 * max(s[0], np.finfo(float).tiny)
    keep[0] = True
    return (u * s)[:, keep], v[keep].T
