"""Which network a posterior with moving features is of, and its constants."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.architectures import Activation, Dense, Layer, serial
from largen.errors import InvalidInput, NoTheory, instance_of
from largen.expectations import ActivationFunction, as_activation
from largen.kernels import nngp_kernel
from largen.parameterizations import (
    CanonicalForm,
    CanonicalWeight,
    Optimizer,
    Parameterization,
    canonical_form,
    gd,
    mean_field,
)
from largen.parameterizations.optimizers import temperature_of
from largen.programs import Affine, Function, dense_chain, program_of
from largen.scalars import MOST_COUNTED, integer

READING = "the posterior with moving features"
LINEAR = as_activation("linear")
_POINTS = np.array([-2.1, -1.3, -0.4, 0.0, 0.7, 1.0, 1.9])
FAR = np.array([-1e6, -1e3, 1e3, 1e6])


@dataclass(frozen=True)
class Equilibrium:
    """A fully-connected network f = σ w·φ(h)/(γ₀N) and its prior."""

    net: Layer
    param: Parameterization
    phis: tuple[ActivationFunction, ...]  # φ of each hidden layer, linear for linear networks
    stds: tuple[float, ...]  # σ of the weights that read each hidden layer, which multiplies φ
    gamma: float  # γ₀
    # in_std, in_bias_std: σ_w and σ_b of the first layer.
    in_std: float
    in_bias_std: float

    @property
    def hidden(self) -> int:
        """Number of hidden layers."""
        return len(self.phis)

    @property
    def phi(self) -> ActivationFunction:
        """φ of the last hidden layer."""
        return self.phis[-1]

    @property
    def out_std(self) -> float:
        """σ of the read-out."""
        return self.stds[-1]

    @property
    def linear(self) -> bool:
        """Whether the network is linear."""
        return all(phi == LINEAR for phi in self.phis)

    @property
    def homogeneous(self) -> bool:
        """Whether φ(ch) = cφ(h) for c > 0 in the last hidden layer."""
        return self.homogeneous_at(-1)

    def homogeneous_at(self, layer: int) -> bool:
        """Whether φ(ch) = cφ(h) for c > 0 in a hidden layer."""
        far, near = (self.features(c * _POINTS, layer) for c in (3, 1))
        return bool(np.allclose(far, 3 * near, 1e-12))

    def features(self, h: np.ndarray, layer: int = -1) -> np.ndarray:
        """Return σφ(h) of a hidden layer."""
        with jax.ensure_compile_time_eval(), jax.enable_x64(True):
            return self.stds[layer] * np.asarray(self.phis[layer](jnp.asarray(h)))

    def columns(self, x: np.ndarray) -> np.ndarray:
        """Return the contribution of each Gaussian weight of a neuron to h, (sample, weight)."""
        weights = self.in_std * x / np.sqrt(x.shape[1])
        if not self.in_bias_std:
            return weights
        return np.concatenate([weights, np.full((len(x), 1), self.in_bias_std)], 1)

    def kernel(self, x: np.ndarray, x2: np.ndarray | None = None) -> np.ndarray:
        """Return the prior's covariance of γ₀√N f."""
        return np.asarray(nngp_kernel(self.net, x, x2, param=self.param), np.float64)

    def variances(self, x: np.ndarray) -> np.ndarray:
        """Return the diagonal of the prior's kernel, computed in blocks."""
        blocks = np.array_split(x, -(-len(x) // 256))
        return np.concatenate([np.diagonal(self.kernel(block)) for block in blocks])


def equilibrium_of(net: Any, param: Any, x: np.ndarray) -> Equilibrium:
    """Read a network."""
    instance_of("net", net, Layer, "a network such as lg.mlp(1)")
    param = instance_of("param", param, Parameterization, "one such as lg.mean_field()")
    if param.canonical_d != Fraction(1, 2):
        raise NoTheory(
            f"param: {param} has d = {param.canonical_d}; features move at order one in the "
            "posterior for d = 1/2, as in lg.mean_field(gamma). lg.posterior has the one of d = 0."
        )
    if x.ndim != 2:
        raise NoTheory(f"{READING} is that of samples without spatial axes, (sample, input).")
    phis, stds, bias_std, gamma = dense_network(net, param, x.shape[1])
    found = Equilibrium(
        net=net,
        param=param,
        phis=phis,
        stds=stds[1:],
        gamma=gamma,
        in_std=stds[0],
        in_bias_std=bias_std,
    )
    _check_growth(found)
    return found


def equilibrium_of_training(
    net: Layer, param: Parameterization, optimizer: Optimizer, x: np.ndarray
) -> Equilibrium:
    """Read a network that an optimizer brings to rest, as one whose weights are N(0, 1) a priori.

    A weight of the standard deviation σ and the rate ρ decays as one of σ√ρ with the rate 1. At the
    temperature T₀ and the decay λ₀ weights are drawn in units of √τ, τ = T₀/λ₀: then
    σ_w²→ τσ_w² in the first layer, and γ₀ → γ₀/√τ.
    """
    given = equilibrium_of(net, param, x)
    form = _form(net, param, optimizer, x.shape[1])
    rates = {(w.site.role, w.kind): w.rate for w in form.weights.values() if w.std}
    tau = (temperature_of(optimizer) or optimizer.weight_decay) / optimizer.weight_decay
    if tau == 1 and all(rate == 1 for rate in rates.values()):
        return given
    if not all(rates.values()):
        raise NoTheory(f"{READING} is that of networks all of whose weights are trained.")
    if given.hidden > 1:
        raise NoTheory(
            f"{READING} of several hidden layers is that of equal rates of all weights, at a "
            "temperature equal to the weight decay."
        )
    bias = given.in_bias_std * np.sqrt(tau * rates.get(("input", "bias"), 1.0))
    first = Dense(
        weight_std=given.in_std * np.sqrt(tau * rates["input", "weight"]), bias_std=float(bias)
    )
    last = Dense(weight_std=given.out_std * np.sqrt(rates["output", "weight"]))
    same = serial(first, Activation(given.phi), last)
    return equilibrium_of(same, mean_field(given.gamma / np.sqrt(tau)), x)


def dense_network(
    net: Layer, param: Parameterization, inputs: int
) -> tuple[tuple[ActivationFunction, ...], tuple[float, ...], float, float]:
    """Return φ of the hidden layers, σ_w of all maps, σ_b of the first, and γ₀."""
    phis = _activations(net, inputs)
    # Only constants of the prior are read, which do not depend on the optimizer.
    form = _form(net, param, gd(1.0), inputs)
    bias_std, stds = 0.0, []
    for weight in form.weights.values():
        role = weight.site.role
        if weight.kind == "weight":
            stds.append(weight.std)
        elif role == "input":
            bias_std = weight.std
        elif weight.std:
            raise NoTheory(
                f"{READING} has no biases behind the first layer; wanted Dense(bias_std=0) there."
            )
        if weight.site.width_ratio != 1 and role != "output":
            raise NoTheory(
                f"{READING} has hidden layers of one width; wanted Dense(width_ratio=1)."
            )
    return phis, tuple(stds), bias_std, form.gamma


def _activations(net: Layer, inputs: int) -> tuple[ActivationFunction, ...]:
    """Return φ of the hidden layers."""
    steps = dense_chain(program_of(net, inputs), READING)
    phis = [step.operation.phi for step in steps if isinstance(step.operation, Function)]
    maps = [isinstance(step.operation, Affine) for step in steps]
    hidden = sum(maps) - 1
    if not (maps[0] and maps[-1] and hidden >= 1):
        raise NoTheory(f"{READING} is that of networks from one Dense() to another.")
    if all(phi == LINEAR for phi in phis):
        return (LINEAR,) * hidden
    if len(phis) != hidden:
        raise NoTheory(f"{READING} has an activation between each two maps, or none at all.")
    return tuple(phis)


def read_out_weights(
    net: Layer, param: Parameterization, optimizer: Optimizer, inputs: int | tuple[int, ...]
) -> list[CanonicalWeight]:
    """Return the weight and the bias of the read-out of any network."""
    weights = _form(net, param, optimizer, inputs).weights.values()
    return [weight for weight in weights if weight.site.last]


def _form(
    net: Layer, param: Parameterization, optimizer: Optimizer, inputs: int | tuple[int, ...]
) -> CanonicalForm:
    roles = ("input", "hidden", "output", "bias")
    options: dict[str, Any] = {"gaussian": roles, "leading_rates": True, "noise": True}
    return canonical_form(param, net, optimizer, inputs, **options)


def _check_growth(found: Equilibrium) -> None:
    """Refuse activations whose tilted distribution does not exist."""
    for layer, phi in enumerate(found.phis):
        with np.errstate(all="ignore"):
            sizes = np.abs(found.features(FAR, layer))
        pairs = ((sizes[0], sizes[1]), (sizes[3], sizes[2]))
        if not np.isfinite(sizes).all() or any(far > 2e3 * max(near, 1.0) for far, near in pairs):
            raise NoTheory(
                f"{READING} does not exist for {phi}: it grows faster than its argument, so that "
                "the tilted distribution of a neuron cannot be normalised."
            )


def width_of(width: Any, at_most: int = MOST_COUNTED) -> int | None:
    """Return a width, or None for the limit."""
    return None if width is None else integer("width", width, at_least=1, at_most=at_most)


def check_noise(noise: np.ndarray, rows: int, positive: bool = False) -> np.ndarray:
    """Return κ of each sample."""
    if positive and not np.all(noise):
        raise InvalidInput("noise: wanted numbers > 0.")
    return np.broadcast_to(noise, rows).astype(np.float64)
