"""Effects of one update of every weight of one network in JAX, from a forward and a few backwards.

See :mod:`largen.transfer.verdicts`. In the jaxpr of the user's function, the output of an operation
that first combines a weight with data is the tensor that the weight acts on first; what a softmax
exponentiates are logits. A scan over stacked weights is followed step by step, and a weight's first
tensor is that of the first step. Weights inside other loops have effects on the output alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from largen.errors import InvalidInput
from largen.text import shown
from largen.traces.primitives import VIEWS
from largen.traces.walk import OWN_JVP, PLAIN_CALLS, Walk, called, evaluated, written_out
from largen.transfer.jax.scores import Score, Trace, along_itself, along_numbers, trace
from largen.transfer.jax.trees import is_weight, map_named, weights_of
from largen.transfer.plan import Plan
from largen.transfer.verdicts import Key, Layout, change_by_update

ON_OUTPUT, ON_TENSOR, ON_LOGITS = range(1, 4)  # seeds of the directions
MOST_STEPS = 8  # of a scan over stacked blocks that is followed step by step
# Operations behind which a value is the same one, up to its arrangement and a constant.
KEEPING = VIEWS | {
    "add",
    "add_any",
    "sub",
    "neg",
    "mul",
    "div",
    "convert_element_type",
    "broadcast_in_dim",
    "copy",
}
OF_MAXIMA = KEEPING | {"max", "stop_gradient", "select_n"}


@dataclass(eq=False)
class Value:
    """A value of a forward pass."""

    array: Any
    weights: frozenset[str] = frozenset()  # if it is computed from weights and constants alone
    data: bool = False  # whether the inputs enter
    users: int = 0  # the number of operations that take it
    first: tuple[str, ...] = ()  # weights whose first tensor it is
    before: list[Value] = field(default_factory=list)  # of which it is an arrangement
    maximum_of: Value | None = None
    shifted: Value | None = None  # which it is without its maximum
    trained: bool = False  # whether weights enter
    trace: Trace = field(default_factory=Trace)  # of products of two signals


@dataclass(eq=False)
class Pass:
    """The tensors of one forward pass."""

    tensors: dict[str, Any] = field(default_factory=dict)  # weight → what it acts on first
    inputs: dict[str, Any] = field(default_factory=dict)  # weight → what it acts with
    # The same tensors, as functions of their weights alone, for derivatives.
    own: dict[tuple[str, ...], Any] = field(default_factory=dict)
    logits: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, Score] = field(default_factory=dict)  # other products of two signals
    output: Any = None
    last: frozenset[str] = frozenset()  # weights that act on the output first
    # Embeddings that are the read-out as well → the factor of their logits.
    tied: Mapping[str, float] = field(default_factory=dict)

    def run(self, closed: Any, arguments: list[Value]) -> list[Value]:
        """Return the outputs of a jaxpr."""
        return Walk(self._apply, Value, _inside).run(closed, arguments)

    def _apply(self, equation: Any, values: list[Value]) -> list[Value]:
        name, data = equation.primitive.name, any(v.data for v in values)
        for value in values:
            value.users += 1
        weights = frozenset[str]().union(*(v.weights for v in values))
        outputs = evaluated(equation, [v.array for v in values])
        if name == "dot_general" and data and self.tied:
            outputs = [self._factor_of_logits(values) * array for array in outputs]
        trained = any(v.trained for v in values)
        made = [
            Value(array, frozenset() if data else weights, data, trained=trained)
            for array in outputs
        ]
        if not made:
            return made
        output = made[0]
        self._note_scores(equation, values, output)
        if not data:
            return made
        if name in KEEPING:
            output.before = [v for v in values if v.data]
        self._note_logits(name, values, output)
        new = tuple(sorted(weights - set(self.tensors)))
        if new and jnp.issubdtype(output.array.dtype, jnp.floating):
            self._note_first(equation, values, output, new)
        return made

    def _note_scores(self, equation: Any, values: Sequence[Value], output: Value) -> None:
        """Note a product of two signals, and follow it."""
        output.trace, new = trace(equation, values, output.array)
        if new and output.trace.score is not None:
            behind = next(reversed(self.tensors), "")
            self.scores[f"{behind}#{len(self.scores)} of products"] = output.trace.score

    def logits_at(self, place: str) -> Any:
        """Return the logits of a softmax, or another product of two signals."""
        return self.logits[place] if place in self.logits else self.scores[place].array

    def _factor_of_logits(self, values: list[Value]) -> float:
        """Return the factor of a product with embeddings that have acted on the tokens before."""
        again = {n for v in values if not v.data for n in v.weights if n in self.tensors}
        return prod(self.tied.get(name, 1.0) for name in again)

    def _note_first(
        self, equation: Any, values: list[Value], output: Value, new: tuple[str, ...]
    ) -> None:
        """Note the tensor that some weights act on first."""
        output.first = new
        alone = [jax.lax.stop_gradient(v.array) if v.data else v.array for v in values]
        self.own[new] = evaluated(equation, alone)[0]
        acts_with = next(v.array for v in values if v.data)
        for weight in new:
            self.tensors[weight], self.inputs[weight] = output.array, acts_with

    def _note_logits(self, name: str, values: Sequence[Value], output: Value) -> None:
        if name == "reduce_max":
            output.maximum_of = values[0]
        elif name == "sub" and values[1].maximum_of is values[0]:
            output.shifted = values[0]
        elif name == "exp" and values[0].shifted is not None:
            behind = next(reversed(self.tensors), "")
            score = values[0].shifted.trace.score
            if score is not None:
                score.needed = False
            if behind:
                self.logits[f"{behind}#{len(self.logits)}"] = values[0].shifted.array
        elif name in OF_MAXIMA:
            found = [v.maximum_of for v in values if v.maximum_of is not None]
            output.maximum_of = found[0] if found else None


def _inside(equation: Any, values: list[Value]) -> Any:
    """Return the jaxpr of a call, and the steps of a short scan over weights."""
    name, options = equation.primitive.name, equation.params
    if name == "scan" and options["length"] <= MOST_STEPS:
        stacked = values[options["num_consts"] + options["num_carry"] :]
        if any(v.weights and not v.data for v in stacked):
            return written_out(equation)
    return called(equation) if name in PLAIN_CALLS | OWN_JVP else None


def acting_last(output: Value) -> Iterator[str]:
    """Yield the weights whose first tensor is the output, up to its arrangement and sums."""
    behind = [output]
    while behind:
        value = behind.pop()
        yield from value.first
        behind += [v for v in value.before if v.users == 1]


def passed(
    apply: Callable[[Any, Any], Any], parameters: Any, inputs: Any, tied: Mapping[str, float]
) -> Callable[..., Pass]:
    """Return a function of the weights by name that goes through the forward pass.

    ``tied``: embeddings that are the read-out as well → the factor of their logits.
    """
    names = list(weights_of(parameters))

    def flat(values: Sequence[Any], x: Any) -> Any:
        by_name = dict(zip(names, values, strict=True))
        tree = map_named(lambda name, leaf: by_name.get(name, leaf), parameters)
        return output_of(apply(tree, x))

    closed = jax.make_jaxpr(flat)([*weights_of(parameters).values()], inputs)

    def forward(weights: Mapping[str, Any], x: Any) -> Pass:
        found = Pass(tied=tied)
        given = [Value(weights[name], frozenset({name}), trained=True) for name in names]
        leaves = [Value(leaf, data=True) for leaf in jax.tree.leaves(x)]
        (output,) = found.run(closed, [*given, *leaves])
        if output.trace.score is not None:
            output.trace.score.needed = False  # a sum that is the output is judged as the output
        found.output, found.last = output.array, frozenset(acting_last(output))
        return found

    return forward


def output_of(outputs: Any) -> Any:
    """Return the first array of real numbers among the outputs."""
    for leaf in jax.tree.leaves(outputs):
        if is_weight(leaf):
            return leaf
    raise InvalidInput(f"apply: wanted an array of real numbers, got {shown(outputs)}.")


class Measurement:
    """The effects of single updates in networks of one shape, compiled once.

    ``single``: whether effects of weights on the tensors that they act on first are measured;
    ``tied``: embeddings that are the read-out as well → the factor of their logits; ``scores``: the
    products of two signals whose terms grow → the axis of the result that grows.
    """

    def __init__(
        self,
        apply: Callable[[Any, Any], Any],
        parameters: Any,
        inputs: Any,
        single: bool,
        tied: Mapping[str, float] | None = None,
        scores: Mapping[str, int | None] | None = None,
    ):
        self.inputs, self.single, self.scores = inputs, single, scores or {}
        self.forward = passed(apply, parameters, inputs, tied or {})
        self.order: list[str] = []
        self.last: frozenset[str] = frozenset()
        self.input_sizes: dict[str, int] = {}
        self.uses: dict[str, float] = {}
        self.vectors = frozenset(n for n, w in weights_of(parameters).items() if w.ndim < 2)
        self.compiled = jax.jit(self._effects)

    @property
    def layout(self) -> Layout:
        """The parts of the model, each weight being one, in the order of their first use."""
        matrices = [name for name in self.order if name not in self.vectors]
        return Layout(
            modules=tuple(matrices),
            holders={name: name for name in self.order},
            final=self.last,
            last=self.last,
            vectors=self.vectors,
            inputs=self.input_sizes,
        )

    def __call__(self, parameters: Any, plan: Plan) -> dict[Key, float]:
        """Return the effects in one network; ``plan``: with its rates and factor of the output."""
        sizes, gradients = self.compiled(dict(weights_of(parameters)), self.inputs)
        of_output = prod(m.factor for m in plan.multipliers if not m.module)
        found = {
            ("start", place, ""): float(size) * (of_output if place == "output" else 1.0)
            for place, size in sizes.items()
        }
        found |= {("uses", "", name): ratio for name, ratio in self.uses.items()}
        for (kind, place), sums in gradients.items():
            factor = of_output if kind == "output" else 1.0
            for name, (absolute, square) in sums.items():
                if float(absolute) > 0:
                    found[kind, place, name] = change_by_update(
                        plan, name, factor * float(absolute), factor**2 * float(square)
                    )
        return found

    def _effects(self, weights: Mapping[str, Any], x: Any) -> tuple[dict, dict]:
        def scalars(weights: Mapping[str, Any]) -> tuple[dict, dict]:
            found = self.forward(weights, x)
            self.order = [*found.tensors, *(n for n in weights if n not in found.tensors)]
            self.last = found.last
            self.input_sizes = {name: z.size for name, z in found.inputs.items()}
            self.uses = {
                name: z.size / (weights[name].shape or (1,))[-1]
                for name, z in found.tensors.items()
            }
            several = {("output", ""): along_numbers(found.output, ON_OUTPUT)}
            # Each is a function of its own weights alone, so that one backward pass is enough.
            own = [
                along_numbers(z, ON_TENSOR)
                for names, z in found.own.items()
                if not self.last & set(names)
            ]
            if own and self.single:
                several["tensor", ""] = sum(own, jnp.zeros(()))
            several |= {
                ("logits", at): along_numbers(z, ON_LOGITS) for at, z in found.logits.items()
            }
            several |= {
                ("logits", at): along_itself(found.scores[at].array, axis, ON_LOGITS)
                for at, axis in self.scores.items()
            }
            sizes = {"output": _rms(found.output)}
            for name, z in found.tensors.items():
                if name not in self.vectors:
                    sizes[f"input of {name}"] = _rms(found.inputs[name])
                    sizes[f"output of {name}"] = _rms(z)
            return several, sizes

        several, backward, sizes = jax.vjp(scalars, dict(weights), has_aux=True)
        gradients = {}
        for key in several:
            (slopes,) = backward({k: jnp.ones_like(s) * (k == key) for k, s in several.items()})
            gradients[key] = {
                name: (jnp.abs(g).sum(), jnp.square(g).sum()) for name, g in slopes.items()
            }
        return sizes, gradients


def _rms(z: Any) -> Any:
    z = jnp.asarray(z, jnp.float32)
    return jnp.sqrt(jnp.square(z).mean())


def scores_of(apply: Callable[[Any, Any], Any], parameters: Any, inputs: Any) -> dict[str, Score]:
    """Return the products of two signals, with the shapes of their arrays alone."""
    forward, found = passed(apply, parameters, inputs, {}), {}

    def run(weights: Any, x: Any) -> Any:
        whole = forward(weights, x)
        found.update(whole.scores)
        return whole.output

    jax.eval_shape(run, dict(weights_of(parameters)), inputs)
    return found
