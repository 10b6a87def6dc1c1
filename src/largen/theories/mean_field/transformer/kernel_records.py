"""Kernels between samples, positions and times, which are recorded during training.

The affine maps of a network are counted in the order of its rule table. Φˡ belongs to what map
l + 1 reads, and Gˡ to the backward fields behind map l, as in networks of finite width. Between
columns (sample, position) and averaged over neurons,

    Φˡ_μs,νt = ⟨x_μs x_νt⟩,        Gˡ_μs,νt = r ⟨g_μs g_νt⟩,        g = Nγ₀ ∂f/∂h,
    K_μν = Σ_l Σ_st (ρσ² Φˡ⁻¹_μs,νt + ρ_b σ_b²) Gˡ_μs,νt + ρσ² Φᴸ_μν + ρ_b σ_b²,

with r neurons of a layer per unit of width, and Φ⁰ of the inputs, divided by their number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from largen.runs.records import OF_FEEDBACK
from largen.theories.chains.constants import MapConstants
from largen.theories.mean_field.options import WantedKernels
from largen.theories.mean_field.transformer.populations import averages, grown

Backward = Callable[[np.ndarray], Any]


class ObservedMap:
    """An affine map, and the fields around it in the last passes, while they are observed.

    ``ratio``: the number of neurons behind it per unit of width. ``observed``: whether fields are
    kept. ``features``: the fields that it read, (sample, position, coordinate), each times the root
    of its share in the neurons; None if they were not observed. ``gradients``: the backward fields
    behind it, likewise.

    ``exact``: whether backward fields are those of gradients, whatever the rule of learning;
    ``errors``: Σ_c of the weights of outputs, from which the last backward pass began, times their
    errors, (sample, position, 1).
    """

    exact, errors = False, np.zeros((0, 0, 1))

    def __init__(self, constants: MapConstants, ratio: float):
        self.constants, self.ratio = constants, ratio
        self.observe(False)

    def observe(self, whether: bool) -> None:
        """Set whether fields are kept, and forget earlier ones."""
        self.observed = whether
        self.features: Any = None
        self.gradients: Any = None

    def reads(self, x: Sequence[np.ndarray], roots: Sequence[float] = (1.0,)) -> None:
        """Note the fields that the map reads, and the roots of their shares in the neurons."""
        if self.observed:
            self.features = [root * each for root, each in zip(roots, x, strict=True)]

    def receives(self, g: np.ndarray) -> np.ndarray:
        """Note the backward fields behind the map, and return them."""
        if self.observed:
            self.gradients = g
        return g


class ObservedFields(NamedTuple):
    """The fields around all affine maps at a time."""

    # The fields that each map reads, (sample, position, coordinate).
    features: list[list[np.ndarray]]
    # The backward fields behind each map but the last, (sample, position, output, coordinate); none
    # if they are not wanted.
    gradients: list[np.ndarray]
    # The pseudo-gradients behind each map but the last, likewise.
    pseudo: list[np.ndarray]


class KernelRecords:
    """Kernels of training samples at the wanted times."""

    def __init__(
        self,
        wanted: WantedKernels,  # the kernels, their times, and pairs of times
        maps: list[ObservedMap],  # the affine maps of the network
        samples: int,
        outputs: int,
        scalar: bool,  # whether the single output has no axis
    ):
        self.wanted, self._maps, self._samples = wanted, maps, samples
        self._outputs, self._scalar = outputs, scalar
        self._kept: dict[int, ObservedFields] = {}
        self._found: dict[Any, dict[str, np.ndarray]] = {}
        self._unknown: dict[str, np.ndarray] = {}

    @contextmanager
    def observation(self, t: int) -> Iterator[None]:
        """Observe the fields of a time index if they are needed; the first ones tell all shapes."""
        recorded = self.wanted.recorded
        observed = bool(self.wanted.names) and t in {0} | recorded.single | recorded.paired
        for each in self._maps if observed else ():
            each.observe(True)
        try:
            yield
        finally:
            for each in self._maps if observed else ():
                each.observe(False)

    def meet(
        self, t: int, backward: Backward, scale: float, by_rule: Backward | None = None
    ) -> None:
        """Record the kernels of a time index after its forward pass.

        Fields are kept as long as a later time needs them.

        ``backward``: the backward pass from weights γ₀Δ/P of outputs, (sample, position, output).
        ``scale``: the size of weights of a step. With others, the same relative size of directions
        that are omitted would be another one.
        ``by_rule``: the backward pass of the rule of learning, for pseudo-gradients.
        """
        recorded = self.wanted.recorded
        if not self._maps[0].observed:
            return
        features = [[x[: self._rows] for x in each.features] for each in self._maps]
        if not self._unknown:
            self._unknown = self._of_nothing(features)
        if t not in recorded.single | recorded.paired:
            return
        now = ObservedFields(
            features,
            self._gradients(backward, scale) if self._with_gradients else [],
            self._gradients(by_rule, scale) if by_rule and self._with_pseudo else [],
        )
        if t in recorded.single:
            self._found[t] = self._named(now, now, single=True)
        self._kept[t] = now
        for pair in map(tuple, recorded.pairs.tolist()):
            if t == max(pair):
                one, two = (self._kept[each] for each in pair)
                self._found[pair] = self._named(one, two)
        for past in self._kept.keys() - recorded.waiting(t + 1):
            del self._kept[past]

    def variables(self) -> dict[str, np.ndarray]:
        """Return all kernels by name, with a leading axis of records or pairs.

        They are NaN at times that were not reached.
        """
        recorded, found = self.wanted.recorded, {}
        keys = {"": recorded.alone.tolist(), "_pair": [*map(tuple, recorded.pairs.tolist())]}
        for ending, times in keys.items():
            for name, unknown in self._unknown.items() if times else ():
                # ⟨g(t) g̃(s)⟩ is not that of the opposite pair, which kernels between times imply.
                if not ending or name.startswith(("feature", "gradient")):
                    each = [self._found.get(time, {}).get(name, unknown) for time in times]
                    found[name + ending] = np.stack(each)
        return found

    @property
    def _rows(self) -> int | None:
        """The number of samples whose fields are needed; None for all of them."""
        return None if self.wanted.test else self._samples

    @property
    def _with_gradients(self) -> bool:
        return bool(set(self.wanted.names) - {"feature_kernel"})

    @property
    def _with_pseudo(self) -> bool:
        return bool(set(self.wanted.names) & set(OF_FEEDBACK))

    def _gradients(self, backward: Backward, scale: float) -> list[np.ndarray]:
        """Return the backward fields of each output, (sample, position, output, coordinate)."""
        samples = len(self._maps[0].features[0][: self._rows])
        by_output = []
        for one in np.eye(self._outputs):
            backward(np.tile(scale * one, (samples, 1, 1)))
            by_output.append([each.gradients / scale for each in self._maps[:-1]])
        found = []
        for fields in zip(*by_output, strict=True):
            wide = max(x.shape[-1] for x in fields)
            found.append(np.stack([grown(x, (*x.shape[:2], wide)) for x in fields], 2))
        return found

    def _of_nothing(self, features: list[list[np.ndarray]]) -> dict[str, np.ndarray]:
        """Return NaN for each kernel, with its shape."""
        features = [[np.zeros((*x[0].shape[:-1], 1))] for x in features]
        gradients = [x[0][:, :, None].repeat(self._outputs, 2) for x in features[:-1]]
        pseudo = gradients if self._with_pseudo else []
        one = ObservedFields(features, gradients if self._with_gradients else [], pseudo)
        found = self._named(one, one, single=True)
        return {name: np.full_like(x, np.nan) for name, x in found.items()}

    def _named(
        self, one: ObservedFields, two: ObservedFields, single: bool = False
    ) -> dict[str, np.ndarray]:
        """Return kernels between the fields of two times, by name; of a single one all kernels."""
        p, names = self._samples, self.wanted.names
        phi = [
            reduce(operator.add, (_gram(a, b[:p]) for a, b in zip(*parts, strict=True)))
            for parts in zip(one.features, two.features, strict=True)
        ]
        g = self._products(one.gradients, two.gradients)
        found: dict[str, np.ndarray] = {}
        if "feature_kernel" in names:
            found |= _by_position("feature_kernel", [each[:p] for each in phi[1:]], mean=True)
        if "gradient_kernel" in names and g:
            found |= _by_position("gradient_kernel", [each[:p] for each in g], mean=False)
        if single:
            found |= self._of_one_time(one, phi, g)
        alone = self._scalar and self._with_gradients
        return {name: _without_output(name, x) if alone else x for name, x in found.items()}

    def _of_one_time(
        self, now: ObservedFields, phi: list[np.ndarray], g: list[np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Return the kernels that are of single times: tangent kernels and pseudo-gradients."""
        p, names = self._samples, self.wanted.names
        mixed = self._products(now.gradients, now.pseudo)
        found: dict[str, np.ndarray] = {}
        if "ntk" in names:
            kernel = self._tangent(phi, g)
            found["ntk"] = kernel[:p]
            if self.wanted.test:
                found["ntk_test"] = kernel[p:]
        if "pseudo_gradient_kernel" in names and mixed:
            found |= _by_position("pseudo_gradient_kernel", [x[:p] for x in mixed], mean=False)
        if "effective_ntk" in names:
            found["effective_ntk"] = self._tangent(phi, mixed)[:p]
        if "alignment" in names:
            products = (g, mixed, self._products(now.pseudo, now.pseudo))
            found["alignment"] = _cosines(*(_of_samples(each, p) for each in products))
        return found

    def _products(self, one: Sequence[np.ndarray], two: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return r⟨g g'⟩ of backward fields behind all maps but the last."""
        pairs = zip(self._maps, one, two, strict=False)
        return [behind.ratio * _gram(a, b[: self._samples]) for behind, a, b in pairs]

    def _tangent(self, phi: list[np.ndarray], g: list[np.ndarray]) -> np.ndarray:
        """Return K, (sample, sample, output, output)."""
        of = [each.constants for each in self._maps]
        read = [c.kernel_rate * x + c.bias_kernel_rate for c, x in zip(of, phi, strict=True)]
        found = read[-1][:, 0, :, 0, None, None] * np.eye(self._outputs)
        for x, each in zip(read, g, strict=False):
            found = found + np.einsum("msnt,msntcd->mncd", x, each)
        return found


def _without_output(name: str, kernel: np.ndarray) -> np.ndarray:
    """Return a kernel without the axes of a single output, if it has any."""
    if name.startswith("feature"):
        return kernel
    return kernel[..., 0] if name == "alignment" else kernel[..., 0, 0]


def _of_samples(kernels: Sequence[np.ndarray], samples: int) -> np.ndarray:
    """Return the products of a sample's fields with themselves, (layer, sample, output)."""
    return np.stack([np.einsum("msmscc->mc", each[:samples]) for each in kernels])


def _cosines(one: np.ndarray, both: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the cosine of two vectors by their three products, 0 if a vector vanishes."""
    size = np.sqrt(one * other)
    return np.divide(both, size, out=np.zeros_like(both), where=size != 0)


def _gram(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Return ⟨x y⟩ of fields, with the axes of outputs last if there are some."""
    flat = (x.reshape(-1, x.shape[-1]) for x in (one, two))
    found = averages(*flat).reshape(*one.shape[:-1], *two.shape[:-1])
    return found if one.ndim == 3 else np.moveaxis(found, 2, 4)


def _by_position(name: str, kernels: list[np.ndarray], mean: bool) -> dict[str, np.ndarray]:
    """Return kernels of all layers, summed or averaged over equal positions, and of positions.

    Those of positions are NaN where a layer has fewer of them.
    """
    traced = [np.einsum("msns...->mn...", x) / (x.shape[1] if mean else 1) for x in kernels]
    most = max(x.shape[1] for x in kernels)
    found = {name: np.stack(traced)}
    if most > 1:
        shape = kernels[0].shape
        full = np.full((len(kernels), shape[0], most, shape[2], most, *shape[4:]), np.nan)
        for layer, x in zip(full, kernels, strict=True):
            layer[:, : x.shape[1], :, : x.shape[3]] = x
        found[f"{name}_tokens"] = full
    return found
