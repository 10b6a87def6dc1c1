"""Constants of affine maps at finite width, in any parameterization."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from largen.architectures import Layer
from largen.errors import InvalidInput, NoTheory, instance_of
from largen.parameterizations import Parameterization, ntk
from largen.parameterizations.distributions import GAUSSIAN
from largen.programs import Weight
from largen.scalars import integer


@dataclass(frozen=True)
class Constants:
    """Constants of an affine map: preactivations have the variance σ_b² + σ_w² × mean square."""

    # weight, bias: σ_w² and σ_b².
    weight: float
    bias: float
    # ρ of the weights and of the bias, which contribute ρσ_w² × mean square and ρσ_b² to the
    # tangent kernel; 1 in ntk.
    rates: tuple[float, float] = (1.0, 1.0)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        """Return σ_b² + σ_w² x·x'/D."""
        return self.bias + self.weight * (x @ x.T) / x.shape[1]

    def tangent(self, x: np.ndarray) -> np.ndarray:
        """Return the tangent kernel of this map alone."""
        of_weights, of_bias = self.rates
        return of_bias * self.bias + of_weights * self.weight * (x @ x.T) / x.shape[1]


class ConstantsOf:
    """The constants of all affine maps of a network of one width in a parameterization.

    With a rule (multiplier m, standard deviation s, rate r) for weights of fan-in n, σ_w² = (ms)²n
    and ρ = r/s², the same at the biases with n = 1: what :func:`largen.networks.empirical_ntk` has
    at this width, powers of the width included.
    """

    def __init__(
        self,
        net: Layer,
        width: int | Sequence[int],  # N, or in ntk a number for each hidden layer
        param: Parameterization | None,  # the parameterization; None for ntk
        inputs: int | tuple[int, ...],  # features, or the shape of a sample
        what: str,
    ) -> None:
        if not net.gaussian:
            raise NoTheory(
                f"{what}: finite widths depend on the fourth moments of weights, and this model "
                "has some that are not Gaussian. net.corrections and net.fluctuations know "
                "them; net.at(width) is the network with Gaussian ones of the same variance."
            )
        self._table, self.branch = None, 1.0
        if param is None:
            return
        instance_of("param", param, Parameterization, "a Parameterization such as lg.mup()")
        if not isinstance(width, (int, np.integer)):
            if param == ntk():
                return
            raise InvalidInput(
                f"width: {param} has powers of a single width, got {width!r}. Give layers another "
                "width_ratio, or take lg.ntk()."
            )
        n = integer("width", width, at_least=1)
        self._table = param.table(net, width=n, inputs=inputs)
        self.branch = self._table.branch
        for row in self._table.rows:
            if row.distribution != GAUSSIAN:
                raise NoTheory(
                    f"{what}: {row.name} starts with the {row.distribution} distribution; the "
                    "order 1/width depends on it, and is known for Gaussian weights."
                )

    def __call__(self, weight: Weight, fan_in: int) -> Constants:
        """Return the constants of the affine map with a weight."""
        if self._table is None:
            return Constants(weight.weight_std**2, weight.bias_std**2)
        of_weights = self._table[f"{weight.name}.weight"]
        of_bias = self._table.get(f"{weight.name}.bias")
        square = (of_weights.multiplier * of_weights.init_std) ** 2 * fan_in
        rate = of_weights.lr / of_weights.init_std**2
        if of_bias is None:
            return Constants(square, 0.0, (rate, 0.0))
        bias = (of_bias.multiplier * of_bias.init_std) ** 2
        return Constants(square, bias, (rate, of_bias.lr / of_bias.init_std**2))
