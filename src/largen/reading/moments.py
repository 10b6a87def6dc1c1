"""Second moments of the outputs of single modules, in draws and in a reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import sem

from largen.criticality import propagate
from largen.errors import LargenError
from largen.reading.check import MOST_Z, z_of_intercept
from largen.reading.nodes import Map, Nodes, law_of

if TYPE_CHECKING:
    from largen.reading.model import Model

Moments = Mapping[str, np.ndarray]  # by the module's path, (seed, sample) each

FEW = 0.1  # excess kurtosis of a read-in from which on moments behind it are not Gaussian ones


def uniform_biases(net: Model, x: np.ndarray, width: int) -> str:
    """Return the modules whose biases vanish with the width and are not Gaussian, but felt at one.

    The excess kurtosis of a preactivation of variance K is that of its bias times (σ_b²/K)².
    """
    try:
        found = propagate(net.at(width), x)
    except LargenError:
        return ""
    variance = dict(zip(found.layers, found.variance.min(1), strict=True))
    parameters = net.family.at(width)
    felt = []
    for weight in net.weights:
        law = None if weight.map.bias is None else law_of(weight.map.bias, parameters)
        if law is None or not weight.bias_variance.power or not net.nodes.felt(weight.node):
            continue
        share = weight.map.variances(parameters)[1] / variance.get(weight.node, np.inf)
        if abs(law.excess) * share**2 > FEW:
            felt.append(weight.node)
    return ", ".join(felt)


def first_difference(
    net: Model, x: np.ndarray, widths: tuple[int, ...], drawn: list[Moments]
) -> str:
    """Return the first module whose second moments differ from the reading; "" if none does."""
    if net.unread or any(abs(weight.excess) > FEW for weight in net.not_gaussian):
        return ""
    read = [net.nodes_at(width) for width in widths]
    for path in drawn[0]:
        if not _comparable(net, path):
            continue
        gaps, errors = [], []
        for (nodes, parameters), moments in zip(read, drawn, strict=True):
            upto = _ending(nodes, path)
            variances = {name: each.variances(parameters) for name, each in upto.maps.items()}
            try:
                expected = propagate(upto.graph(variances), x).variance[-1]
            except LargenError:
                break
            gaps.append(moments[path].mean(0) - expected)
            # An output without fluctuations, as that of a normalisation, has rounding of its size.
            errors.append(np.maximum(sem(moments[path]), 1e-4 * np.abs(expected)))
        else:
            z = z_of_intercept(np.asarray(widths), np.stack(gaps)[..., None],
                               np.stack(errors)[..., None])  # fmt: skip
            if np.abs(z).max() > MOST_Z:
                return path
    return ""


def _ending(nodes: Nodes, path: str) -> Nodes:
    """Return the nodes up to one, whose channels are the outputs and have no number."""
    upto = nodes.until(path)
    if "concatenate" not in upto.does.values():  # where ratios of numbers of channels are weights
        for name, each in upto.maps.items():
            upto.does[name] = replace(each, ratio=Fraction(1))
    return upto


def _comparable(net: Model, path: str) -> bool:
    """Whether the output of a module is the value of a node."""
    does = net.nodes.does.get(path)
    if net.family.of_nodes:
        return does is not None
    if does is None or f"{path}#2" in net.nodes.does:
        return False
    if not isinstance(does, Map):
        return True
    parameters = net.family.at(net.widths[0])
    mean = 0.0 if does.bias is None else law_of(does.bias, parameters).mean
    return (does.weight_factor, does.bias_factor, mean) == (1.0, 1.0, 0.0)
