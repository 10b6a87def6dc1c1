"""An affine map of a model that was read, with the laws of its parameters."""

from __future__ import annotations

from typing import NamedTuple

from largen.reading.laws import Constant, Law
from largen.reading.nodes import Map


class Weight(NamedTuple):
    """An affine map of a model as read.

    Attributes
    ----------
    node
        Its name in the network.
    map
        The map.
    law, bias_law
        The laws of its weight and bias at the first width.
    fan_in
        The number of inputs that each output sums over, at the first width.
    weight_variance, bias_variance
        σ_w² and σ_b² with their powers of the width.
    """

    node: str
    map: Map
    law: Law
    bias_law: Law | None
    fan_in: int
    weight_variance: Constant
    bias_variance: Constant

    @property
    def excess(self) -> float:
        """The excess kurtosis of preactivations for inputs of size one.

        Sums over the width have none, and biases that vanish with the width none in the limit.
        """
        w, (b, power) = self.weight_variance.value, self.bias_variance
        of_weights = self.law.excess * w**2 / self.fan_in if self.map.reads_data else 0.0
        bias_excess = 0.0 if self.bias_law is None else self.bias_law.excess
        stays = self.map.reads_data or not power
        return (of_weights + bias_excess * b**2 * stays) / (w + b) ** 2
