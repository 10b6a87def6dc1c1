"""The structure of a model's forward pass, from recorded base models of two widths and depths.

Each is called once, with random weights. All names in this module are the base model's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Any

from torch import nn

from largen.errors import InvalidInput
from largen.transfer.shapes import Shapes
from largen.transfer.torch.contractions import read_by_contraction
from largen.transfer.torch.examples import record_call
from largen.transfer.torch.logits import Logits, all_logits, users
from largen.transfer.torch.process import fixed_seed
from largen.transfer.torch.products import Scores, grown_scores
from largen.transfer.torch.recording import Node, Record
from largen.transfer.torch.recording import record as record_of
from largen.transfer.torch.streams import Sum, once_each, residual_sums
from largen.transfer.torch.survey import real
from largen.transfer.torch.trial import Run, Specimen, randomize, run_again, same
from largen.transfer.torch.walks import (
    ACTIVATIONS,
    GATES,
    LINEAR,
    MULTIPLIES,
    PRODUCTS,
    End,
    constant_factor,
    end_at,
    factors_and_bias,
    walk,
)

BRANCH, LOGITS = 1.5, 2.0  # factors by which the check multiplies weights


class Reading:
    """Recorded forward passes of base, wider and deeper models."""

    def __init__(self, make_model: Callable[..., nn.Module], sizes: Shapes, example: Any):
        self.make_model, self.sizes, self.example = make_model, sizes, example
        self.base = self.specimen(sizes.base)

    @cached_property
    def wide(self) -> Specimen:
        """The wider model."""
        return self.specimen(self.sizes.wide)

    @cached_property
    def deep(self) -> Specimen | None:
        """The deeper model, if there is a depth."""
        return None if self.sizes.deep is None else self.specimen(self.sizes.deep)

    def specimen(self, at: Mapping[str, Any]) -> Specimen:
        """Build a model with random weights and record it."""
        model = randomize(real(self.make_model, at, 0))
        _, (args, kwargs) = record_call(model, self.example, at)
        # Models that set up weights or choose a path at their first call are as they will be run.
        with fixed_seed(0):
            record = record_of(model, args, kwargs)
        return Specimen(model, record, args, kwargs)

    @cached_property
    def _sums(self) -> tuple[list[Sum], list[Sum], list[Sum]]:
        sums = residual_sums(self.base.record)
        if self.deep is None:
            return sums, [], []
        return once_each(self.base.record, sums, self.deep.record, residual_sums(self.deep.record))

    @property
    def sums(self) -> list[Sum]:
        """The residual sums of the base model."""
        return self._sums[0]

    @property
    def deep_sums(self) -> list[Sum]:
        """The residual sums of the deeper model."""
        return self._sums[1]

    @property
    def sums_around(self) -> list[Sum]:
        """Sums of the base model whose branches end in those of others, which have the factor."""
        return self._sums[2]

    @cached_property
    def logits(self) -> list[tuple[Logits, Logits]]:
        """The attention logits of the base model, paired with those of the wider model."""
        both = [all_logits(s.record) for s in (self.base, self.wide)]
        if len(both[0]) != len(both[1]):
            raise InvalidInput(
                f"attention: the model makes {len(both[0])} attentions at {self.sizes.base} and "
                f"{len(both[1])} at {self.sizes.wide}; name the queries in Hints(attention={{…}})."
            )
        return list(zip(*both, strict=True))

    @cached_property
    def output_sum(self) -> tuple[Fraction, frozenset[int]]:
        """The power of the width of an output that is a sum over it, and the tensors in it."""
        base, wide = self.base.record, self.wide.record
        return read_by_contraction(base, wide, self.sizes.widening)

    @cached_property
    def scores(self) -> list[Scores]:
        """Products of two signals over an axis that grows, besides logits and the output."""
        if self.sizes.widening == 1.0:
            return []
        known = {p.node for own, _ in self.logits for p in own.products} | self.output_sum[1]
        return grown_scores(self.base.record, self.wide.record, known)

    def depth_ratio(self, growing: list[int], base: int, deep: int, target: int) -> float:
        """Return l, the ratio of target's to base's residual sums, of those that are growing."""
        ratios, layers = set(), set()
        small, large = (_by_stream(own) for own in (self.sums, self.deep_sums))
        if len(small) != len(large):
            small, large = [sum(small)], [sum(large)]
            own = [len(growing)]
        else:
            own = _by_stream([self.sums[i] for i in growing], [s.stream for s in self.sums])
        for before, after, moving in zip(small, large, own, strict=True):
            if after != before and moving:
                more = (after - before) / (deep - base)  # in one more layer
                ratios.add(1 + more / moving * (target - base))
                layers.add(ceil(moving / more))
        if len(ratios) > 1 and layers == {base}:
            return target / base  # streams begin or end inside a layer
        if len(ratios) > 1:
            words = ", ".join(f"{a} sums → {b}" for a, b in zip(small, large, strict=True))
            raise InvalidInput(
                f"branches: residual streams grow unlike from depth {base} to {deep}: {words}. "
                "Let the depth be that of one of them, or name the modules that branches end in."
            )
        return ratios.pop() if ratios else 1.0

    @cached_property
    def reference(self) -> Run:
        """The sums and logits of the base model with unchanged weights."""
        return run_again(self.base, self._sums_and_logits, {})

    @property
    def _sums_and_logits(self) -> list[int]:
        logits = [own for own, _ in self.logits] + [own.base for own in self.scores]
        return [s.node for s in self.sums] + [p.node for own in logits for p in own.products]

    def run(self, multiplied: Mapping[str, Any]) -> Run:
        """Run the base model with some weights multiplied and the reference's sums and logits."""
        return run_again(self.base, self._sums_and_logits, multiplied, self.reference.results)

    @cached_property
    def foldable(self) -> list[bool]:
        """Whether the factor of each residual sum's branch can be folded into the weights found."""
        weights: dict[str, float] = {}
        for own in self.sums:
            if own.walk.takes_a_factor:
                weights |= dict.fromkeys(all_of(own.walk), BRANCH)
        again, found = self.run(weights), []
        whole = same(again.output, self.reference.output)
        for own in self.sums:
            node = self.base.record.nodes[own.node]
            was, now = (run.inputs[own.node] for run in (self.reference, again))
            b, t = node.inputs.index(own.branch), node.inputs.index(own.trunk)
            found.append(
                whole and own.walk.takes_a_factor
                and same(now[b], was[b], BRANCH) and same(now[t], was[t])
            )  # fmt: skip
        return found

    def multiplies_logits(
        self, own: Logits, multiplied: Mapping[str, Any], wanted: float = LOGITS
    ) -> bool:
        """Whether a factor of these weights multiplies one side of every product, nothing else."""
        again = self.run(multiplied)
        for product in own.products:
            was, now = (run.inputs[product.node] for run in (self.reference, again))
            node = self.base.record.nodes[product.node]
            q, k = node.inputs.index(product.queries), node.inputs.index(product.keys)
            pair = [(same(now[i], was[i], wanted), same(now[i], was[i])) for i in (q, k)]
            if not ((pair[0] == (True, False) and pair[1][1]) or (pair[1][0] and pair[0][1])):
                return False
            # A fused kernel reads the values as well.
            if not all(same(now[i], was[i]) for i in range(len(was)) if i not in (q, k)):
                return False
        return all(map(same, self._shown(again), self._shown(self.reference)))

    def cancels(self, own: Logits) -> bool:
        """Whether a common factor of scores has no effect, as of those divided by their sum."""
        nodes = {product.node for product in own.products}
        results = {
            node: LOGITS * value if node in nodes else value
            for node, value in self.reference.results.items()
        }
        again = run_again(self.base, self._sums_and_logits, {}, results)
        return all(map(same, self._shown(again), self._shown(self.reference)))

    def _shown(self, run: Run) -> list[Any]:
        """Return the output and the inputs of sums, whose results are those of the first run."""
        return [*(t for own in self.sums for t in run.inputs[own.node]), run.output]

    @cached_property
    def read_outs(self) -> list[End]:
        """The products with weights that compute the model's output."""
        return outputs_of(self.base.record)

    @cached_property
    def contracted_axes(self) -> dict[str, set[int]]:
        """Each weight that multiplies a signal → its axes that are summed over."""
        return contracted_axes(self.base.record)

    @cached_property
    def tables(self) -> set[str]:
        """Weights whose rows are looked up as embeddings."""
        record = self.base.record
        looked_up = [n.inputs[0] for n in record.nodes if n.op == "embedding"]
        return {record.nodes[i].parameter or "" for i in looked_up} - {""}

    @cached_property
    def weights(self) -> set[str]:
        """The base model's weights on which its output depends, by all of their names."""
        record = self.base.record
        found = set() if record.output is None else set(record.parameters(record.output))
        own = dict(self.base.model.named_parameters(remove_duplicate=False))
        used = {id(own[name]) for name in found}
        return {name for name, tensor in own.items() if id(tensor) in used}

    @cached_property
    def applied_more(self) -> set[str]:
        """Weights that deeper models apply to more signals, such as those of a block used again."""
        if self.deep is None:
            return set()
        few, many = (_applications(specimen.record) for specimen in (self.base, self.deep))
        return {name for name, count in few.items() if many[name] > count}

    @cached_property
    def widens(self) -> bool:
        """Whether the residual streams are wider in the wider model; True if there are none."""
        wide = residual_sums(self.wide.record)
        pairs = list(zip(self.sums, wide, strict=False))
        nodes = [(self.base.record.nodes[a.node], self.wide.record.nodes[b.node]) for a, b in pairs]
        return not nodes or any(a.shape != b.shape for a, b in nodes)

    def _fixed_to_output(self) -> set[int]:
        """Return the tensors from which signals of fixed sizes alone lead to the output."""
        nodes, wide = self.base.record.nodes, self.wide.record.nodes
        found: set[int] = set()
        stack = [self.base.record.output] if len(nodes) == len(wide) else []
        while stack:
            i = stack.pop()
            if i is not None and nodes[i].is_data and nodes[i].shape == wide[i].shape:
                stack += [j for j in nodes[i].inputs if j not in found]
                found.add(i)
        return found

    @cached_property
    def bottlenecks(self) -> set[str]:
        """Weights of products whose results other weights or attention use further.

        A read-out whose result is used inside as well is not one, nor is a product from which a way
        to the output has fixed sizes: with entries of n^(−½), what training changes in front of it
        would change the output by n^½.
        """
        record, found = self.base.record, set()
        fixed = self._fixed_to_output()
        consumers = users(record)
        last = {end.node for end in self.read_outs}
        for node in record.nodes:
            if node.op not in PRODUCTS or not node.is_data or node.index in last:
                continue
            end = end_at(record, node)
            if end.weights and record.output is not None:
                inner = record.before(node.index, record.output) and node.index not in fixed
                if inner and not _routes(record, node, consumers):
                    found.update(end.weights)
        return found - {weight for end in self.read_outs for weight in end.weights}


def all_of(found: Any) -> list[str]:
    """Return the weights and biases to which the start of a walk is proportional."""
    ends = found.ends.values()
    names = [name for end in ends for name in (*end.weights, *end.biases)]
    return list(dict.fromkeys([*names, *sorted(found.biases)]))


def outputs_of(record: Record) -> list[End]:
    """Return the ends of the walk from the output, also through nonlinearities of one signal."""
    found, stack, visited = [], [record.output], set()
    while stack:
        place = stack.pop()
        if place is None or place in visited:
            continue
        visited.add(place)
        for end in walk(record, place).ends.values():
            node = record.nodes[end.node]
            data = list(dict.fromkeys(record.signals(node)))
            rest = (record.nodes[i].value for i in node.inputs if i not in data)
            # A gain that is a single number, such as a temperature, is not a gain of features.
            one = end.kind == "gain" and all(value.numel() == 1 for value in rest)
            if (end.kind == "other" or one) and len(data) == 1:
                stack.append(data[0])
            elif end.kind == "product":
                found.append(end)
    return found


def contracted_axes(record: Record) -> dict[str, set[int]]:
    """Return the axes of weights that are summed over, identified by their strides in memory.

    Those of a computed matrix are those of the parameters of its shape in which it is linear.
    """
    found: dict[str, set[int]] = {}
    first: dict[int, Node] = {}  # storage → the first tensor in it
    for node in record.nodes:
        if node.is_weight:
            first.setdefault(node.value.untyped_storage()._cdata, node)
        if node.op not in PRODUCTS or not node.is_data or "conv" in node.op:
            continue
        for side, i in enumerate(factors_and_bias(node)[0]):
            weight = record.nodes[i]
            if not weight.is_weight:
                continue
            own = first[weight.value.untyped_storage()._cdata]
            axes = _axes_along(weight, -1 if side == 0 else max(-2, -weight.value.ndim), own)
            while (view := _copied(record, own)) is not None:  # such as one with axes exchanged
                own = first[view.value.untyped_storage()._cdata]
                axes = {a for axis in axes for a in _axes_along(view, axis, own)}
            for part in _linear_parts(record, own):
                if part.shape == own.shape:
                    found.setdefault(part.parameter or "", set()).update(axes)
    return found


def _axes_along(weight: Node, axis: int, own: Node) -> set[int]:
    """Return the axes of a tensor in the same memory that one axis of a weight goes along."""
    first, entries = weight.value.stride()[axis], weight.shape[axis]
    within = range(first, first * entries)  # of axes that were joined
    return {
        a
        for a, stride in enumerate(own.value.stride())
        if stride in within and (own.shape[a] > 1 or entries == 1)
    }


def _copied(record: Record, own: Node) -> Node | None:
    """Return the weight of which another one is a copy in memory; None if it is none."""
    if own.op != "clone" or own.parameter is not None:
        return None
    return record.nodes[own.inputs[0]]


def _linear_parts(record: Record, weight: Node) -> Iterator[Node]:
    """Yield the parameters whose sums and products with other weights a weight is."""
    stack = [weight]
    while stack:
        node = stack.pop()
        if node.parameter is not None:
            yield node
        elif node.op in LINEAR or node.op in MULTIPLIES:
            stack += [record.nodes[i] for i in record.weights(node)]


def _routes(record: Record, node: Node, consumers: dict[int, list[int]]) -> bool:
    """Whether a product determines weights of experts, by a softmax, a sigmoid or a selection."""
    stack, visited = [node.index], set()
    while stack:
        for i in consumers.get(stack.pop(), ()):
            user = record.nodes[i]
            if user.op in GATES or user.op in ("topk", "sort", "argmax"):
                return True
            passes = user.op in LINEAR | ACTIVATIONS or constant_factor(record, user) != 1.0
            if i not in visited and passes:
                visited.add(i)
                stack.append(i)
    return False


def _by_stream(sums: list[Sum], streams: list[int] | None = None) -> list[int]:
    own = [each.stream for each in sums]
    return [own.count(stream) for stream in dict.fromkeys(own if streams is None else streams)]


def _applications(record: Record) -> Counter[str]:
    """Return the number of operations on signals that read each weight."""
    return Counter(
        name
        for node in record.nodes
        if node.is_data
        for weight in record.weights(node)
        for name in record.parameters(weight)
    )
