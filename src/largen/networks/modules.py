"""Finite networks as functions of their parameters: the forward pass and the kernels of a program.

One mechanism gives all kernels. The forward pass returns the input of each affine map (its
*capture*) and adds a *tap*, an array of zeros, to its output. The gradient of Σ_μ f_μ with respect
to the taps holds the backward vector ∂f_μ/∂h of every sample, in one backward pass. Feature
kernels, gradient kernels and the tangent kernel are inner products of the two.

Taps and captures are tuples with an entry for each operation but the data: an array for affine
maps and gains, the tuples of its body with a leading axis of copies for a repetition, and () for
all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.architectures import Layer, tree_of
from largen.errors import InvalidInput
from largen.networks.rules import Features, rule
from largen.networks.rules.affine import Probe, Use, Weights, tangent, tangent_of_gains, use_of
from largen.networks.sizes import Size, Sized, sized
from largen.programs import BRANCH, Affine, Gain, Operation, Path, Program, Repeat, Sum, program_of

Params = Any


class Direct(NamedTuple):
    """Direct feedback: ∂f/∂a of the inputs a of all affine maps but the first.

    ``weights``: a tree shaped as the parameters, whose weights are (fan_in, output).
    """

    weights: Any

    def along(self, weight: int, h: Any, a: Any) -> Any:
        """Return outputs with that derivative, for the input a of a weight, behind the map to h."""
        return a @ self.weights[weight]["weight"]


class Errors(NamedTuple):
    """Hebbian learning: ∂f/∂h is an error times what the next affine map reads.

    ``values``: the errors of outputs, (sample, output), over √N γ.
    """

    values: Any

    def along(self, weight: int, h: Any, a: Any) -> Any:
        """Return outputs with that derivative, for the input a of a weight, behind the map to h."""
        if h is None:
            return 0.0
        return self.values * jnp.sum(h * lax.stop_gradient(a), -1, keepdims=True)


class LayerKernels(NamedTuple):
    """Kernels between two sets of samples, with a site for each affine map."""

    features: Any  # inner products of the inputs of weights, over the fan-in, (site, n1, n2)
    gradients: Any  # inner products of ∂f/∂h, (site, n1, n2, output, output_2)
    tangent: Any  # Σ_θ (rate of θ) ∂f/∂θ ∂f'/∂θ, (n1, n2, output, output_2)


@dataclass(frozen=True)
class Module:
    """A network at a size, as functions of the tree of its parameters."""

    sized: Sized
    names: Any  # of rows of the rule table, a tree shaped as the parameters
    shapes: Any  # the same tree with jax.ShapeDtypeStruct leaves, whose dtype is decided later
    order: tuple[int, ...]  # of each weight of the program among the dictionaries of the tree

    def init(self, normals: Params) -> Params:
        """Return parameters made from Gaussian numbers, drawn at once: one generator to compile."""
        table = self.sized.size.table
        return jax.tree.map(lambda name, normal: table[name].init_std * normal, self.names, normals)

    def forward(
        self, params: Params, x: Any, taps: Any, feedback: Params | None = None
    ) -> tuple[Any, Any]:
        """Return the outputs and the captures; there are no captures if taps is None.

        ``feedback``: parameters in place of whose weights derivatives pass backward, direct
        feedback, or errors.
        """
        if isinstance(feedback, Direct):
            feedback = Direct(self._ordered(feedback.weights))
        if isinstance(feedback, Direct | Errors):
            return _forward(self.sized, self._ordered(params), x, taps, None, feedback)
        back = None if feedback is None else self._ordered(feedback)
        return _forward(self.sized, self._ordered(params), x, taps, back)

    def _ordered(self, params: Params) -> tuple[Any, ...]:
        """Return the parameters of each weight of the program."""
        nodes = jax.tree.leaves(params, is_leaf=lambda node: isinstance(node, dict))
        return tuple(nodes[place] for place in self.order)

    def inputs(self, params: Params, x: Any) -> list[tuple[str, Any]]:
        """Return the name of the weight and the input of every affine map, in order."""
        return self.inputs_in(self.forward(params, x, self.taps(len(x), x.dtype))[1])

    def inputs_in(self, captures: Any) -> list[tuple[str, Any]]:
        """Return the name of the weight and the input of every affine map among captures."""
        found = zip(_weight_names(self.sized), jax.tree.leaves(captures), strict=True)
        return [(name, its) for name, its in found if name]

    def taps(self, samples: int, dtype: Any) -> Any:
        """Return the zeros that are added to the outputs of affine maps."""
        return _taps(self.sized, (samples,), dtype)

    def kernels(self, one: Probe, two: Probe) -> LayerKernels | None:
        """Return the kernels of all affine maps in the order of the program.

        Gradient kernels in residual branches are divided by c², with the factor c of the branch;
        for the last affine map of a branch, the quotient is the gradient kernel with respect to
        the stream behind it.
        """
        return _kernels(self.sized, one, two)


def module_of(net: Layer, size: Size, inputs: Features) -> Module:
    """Return a network at a size, for samples of the shape ``inputs``."""
    at_size = sized(program_of(net, inputs), size, inputs)
    behind = at_size.features[-1]
    if behind[-1] != size.outputs or len(behind) > 2:
        raise InvalidInput(f"net: wanted to end in {size.outputs} outputs, got {net!r}.")
    order: dict[Path, int] = {}

    def leaf(path: Path) -> Any:
        names = {kind: name for kind, name in size.names(path).items() if name in at_size.shapes}
        if names:
            order[path] = len(order)
        return names or ()

    names = tree_of(net, leaf)
    shapes = jax.tree.map(lambda n: jax.ShapeDtypeStruct(at_size.shapes[n], np.float32), names)
    # A weight that no operation reads has no parameters, and any place.
    places = tuple(order.get(weight.path, 0) for weight in at_size.program.weights)
    return Module(at_size, names, shapes, places)


def _forward(
    at_size: Sized,
    weights: tuple[Any, ...],
    x: Any,
    taps: Any,
    feedback: tuple[Any, ...] | None = None,
    directly: Direct | Errors | None = None,
) -> tuple[Any, Any]:
    """Return the output of a program and its captures."""
    program, values, captures, along = at_size.program, [x], [], []
    mapped = None  # the output of the last affine map
    for place, operation in enumerate(program.operations[1:], start=1):
        reads = tuple(values[read] for read in operation.reads)
        tap = None if taps is None else taps[place - 1]
        constants, capture = at_size.size.table.branch, ()
        if isinstance(operation, Repeat):
            body = at_size.bodies[place]
            value, capture = _copies(operation, body, weights, feedback, tap, reads[0])
        elif isinstance(operation, Affine | Gain):
            rules = at_size.size.rules(program.weights[operation.weight])
            constants = Weights(weights[operation.weight], rules)
            back = None if feedback is None else feedback[operation.weight]
            if directly is not None and isinstance(operation, Affine):
                along.append(directly.along(operation.weight, mapped, reads[0]))
                reads = lax.stop_gradient(reads)
            value = _mapped(operation, constants, back, reads)
            if tap is not None:
                value, capture = value + tap, reads[0]
            mapped = value if isinstance(operation, Affine) else mapped
        else:
            value = rule(operation, constants, reads)
        if value.shape[1:] != at_size.features[place]:
            raise InvalidInput(
                f"net: {program.sources[place]} takes features of shape {reads[0].shape[1:]} to "
                f"{value.shape[1:]}, and its signal_behind says {at_size.features[place]}."
            )
        values.append(value)
        captures.append(capture)
    # Sums that vanish, with the derivatives that pass directly.
    return sum((one - lax.stop_gradient(one) for one in along), values[-1]), tuple(captures)


def _mapped(operation: Affine | Gain, weights: Weights, back: Any, reads: Any) -> Any:
    """Return the value of an affine map, whose input has the derivative of a map of ``back``."""
    if back is None or isinstance(operation, Gain):
        return rule(operation, weights, reads)
    along = rule(operation, weights._replace(params=back), reads)
    value = rule(operation, weights, lax.stop_gradient(reads))
    return value + (along - lax.stop_gradient(along))


def _copies(
    operation: Repeat, body: Sized, weights: tuple[Any, ...], feedback: tuple[Any, ...] | None,
    taps: Any, x: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Return the output of all copies, whose parameters have a leading axis, and their captures."""
    inner = tuple(weights[i] for i in operation.weights[0])
    back = None if feedback is None else tuple(feedback[i] for i in operation.weights[0])

    def copy(x, of_copy):
        weights, taps, feedback = of_copy
        return _forward(body, weights, x, taps, feedback)

    return lax.scan(copy, x, (inner, taps, back), length=int(operation.times))


def _taps(at_size: Sized, leading: tuple[int, ...], dtype: Any) -> Any:
    """Return zeros shaped as the outputs of affine maps, behind axes of copies and of samples."""

    def tap(place: int, operation: Operation) -> Any:
        if isinstance(operation, Repeat):
            *copies, samples = leading
            inner = (*copies, int(operation.times), samples)
            return _taps(at_size.bodies[place], inner, dtype)
        if isinstance(operation, Affine | Gain):
            return jnp.zeros((*leading, *at_size.features[place]), dtype)
        return ()

    return tuple(tap(*each) for each in enumerate(at_size.program.operations[1:], start=1))


def _weight_names(at_size: Sized) -> Iterator[str]:
    """Yield the names of the weights of captures, which are empty for gains."""
    for place, operation in enumerate(at_size.program.operations):
        if isinstance(operation, Repeat):
            yield from _weight_names(at_size.bodies[place])
        elif isinstance(operation, Affine):
            yield at_size.size.names(at_size.program.weights[operation.weight].path)["weight"]
        elif isinstance(operation, Gain):
            yield ""


def _kernels(at_size: Sized, one: Probe, two: Probe, level: int = 0) -> LayerKernels | None:
    """Return the kernels of a program inside of ``level`` branches; None without weights.

    The sites of the tangent kernel are weights, which several affine maps may have in common.
    """
    program, parts = at_size.program, list[LayerKernels]()
    uses: dict[int, list[Use]] = {}
    gains: dict[int, list[tuple[Probe, Probe]]] = {}
    for place, inside in enumerate(_levels(program)):
        operation = program.operations[place]
        if not isinstance(operation, Affine | Gain | Repeat):
            continue
        first, second = (Probe(*(part[place - 1] for part in probe)) for probe in (one, two))
        if isinstance(operation, Repeat):
            copies = _kernels_of_copies(at_size.bodies[place], first, second, level + inside)
            parts += [] if copies is None else [copies]
            continue
        if isinstance(operation, Gain):
            gains.setdefault(operation.weight, []).append((first, second))
            continue
        use = use_of(operation, first, second)
        uses.setdefault(operation.weight, []).append(use)
        features = use.inputs / prod(at_size.features[operation.reads[0]])
        gradients = use.backward / at_size.size.table.branch ** (2 * (level + inside))
        parts.append(LayerKernels(features[None], gradients[None], 0.0))
    if not parts:
        return None
    rules = {weight: at_size.size.rules(program.weights[weight]) for weight in (*uses, *gains)}
    tangents = [tangent(of_weight, rules[weight]) for weight, of_weight in uses.items()]
    tangents += [tangent_of_gains(its, rules[weight]) for weight, its in gains.items()]
    features, gradients, of_copies = zip(*parts, strict=True)
    return LayerKernels(
        jnp.concatenate(features), jnp.concatenate(gradients), sum(tangents) + sum(of_copies)
    )


def _kernels_of_copies(body: Sized, one: Probe, two: Probe, level: int) -> LayerKernels | None:
    """Return the kernels of all copies, of probes with a leading axis."""

    def of_copy(probes: tuple[Probe, Probe]) -> Any:
        return _kernels(body, *probes, level)

    def accumulate(total, probes):
        per_copy = of_copy(probes)
        return total + per_copy.tangent, (per_copy.features, per_copy.gradients)

    first = jax.eval_shape(of_copy, jax.tree.map(lambda leaf: leaf[0], (one, two)))
    if first is None:
        return None
    zero = jnp.zeros(first.tangent.shape, first.tangent.dtype)
    total, sites = lax.scan(accumulate, zero, (one, two))
    features, gradients = (each.reshape(-1, *each.shape[2:]) for each in sites)
    return LayerKernels(features, gradients, total)


def _levels(program: Program) -> list[int]:
    """Return how many residual branches each value is inside of, on the way with the fewest."""
    levels = [len(program.operations)] * program.output + [0]
    for place in range(program.output, 0, -1):
        operation = program.operations[place]
        for position, read in enumerate(operation.reads):
            branch = isinstance(operation, Sum) and operation.factors[position] == BRANCH
            levels[read] = min(levels[read], levels[place] + branch)
    return levels
