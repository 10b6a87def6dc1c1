"""Placement of the factors of read-outs and branches: in weights or hooks.

Those of attention logits are placed in :mod:`largen.transfer.torch.logit_factors`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import log

from largen.errors import InvalidInput
from largen.parameterizations import Parameterization, Power
from largen.transfer.patterns import patterns
from largen.transfer.plan_entries import ForwardMultiplier, ScaledWeight
from largen.transfer.resolve import Folded
from largen.transfer.roles import family
from largen.transfer.rules import (
    branch_multiplier,
    ratios,
    tied_multiplier,
    value,
)
from largen.transfer.schemes import as_built, of_repeated_blocks
from largen.transfer.torch.contractions import contracted_summands
from largen.transfer.torch.facts import Facts
from largen.transfer.torch.places import (
    added_to,
    module_of,
    refuse_branch,
    refuse_tied,
    tables_of,
)
from largen.transfer.torch.reading import Reading, all_of
from largen.transfer.torch.streams import Sum
from largen.transfer.torch.walks import End, concatenated, walk
from largen.transfer.torch.widths import module_at, own_factors
from largen.transfer.updates import Update


@dataclass
class Factors:
    """The factors of one plan."""

    facts: Facts  # the properties of the models' weights
    fold: bool  # whether factors are folded into weights where that is exact
    logits: float = 1.0  # the factor of all attention logits, the same at every size
    # The factors folded into each weight.
    folds: dict[str, list[Folded]] = field(default_factory=dict)
    # The factors that stay in the forward pass.
    forward: list[ForwardMultiplier] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # assumptions, in sentences
    # Names of the base model's weights inside branches, if these were found.
    in_branch: set[str] | None = None
    # Names of the base model's weights in branches of a block that is applied again and again.
    repeated: set[str] = field(default_factory=set)
    # Factors of the user's model in front of read-outs, by weight.
    built: dict[str, Power] = field(default_factory=dict)

    def keep(self, module: str, kind: str, where: str, factor: Power, n: float = 1.0) -> None:
        """Keep a factor in the forward pass."""
        number = value(factor, n, self.facts.l)
        if number != 1.0:
            text = ratios(factor)
            self.forward.append(ForwardMultiplier(module, kind, where, number, text))

    def put(self, module: str, kind: str, factor: Power, foldable: bool = True) -> None:
        """Fold a factor of a module's output into its weights, or keep it in the forward pass."""
        if self.fold and foldable:
            for name in self.facts.weights_of(module):
                self.folds.setdefault(name, []).append(Folded(kind, factor))
        else:
            self.keep(module, kind, "output", factor)

    def in_branches(self, param: Parameterization, named: object = None) -> set[str]:
        """Put l^(−α) on every residual branch; return the paths of all modules inside a branch."""
        factor, facts = branch_multiplier(param), self.facts
        if not param.branch or (facts.sizes.deep is None and named is None):
            return set()
        if named is not None:
            ends = facts.matching("branches", patterns("branches", named))
            for path, module in ends.items():
                held = list(module.named_parameters(recurse=False))
                self.put(path, "branch", factor, foldable=bool(held))
            return set(facts.blocks)
        if facts.reading is None or not facts.growing_sums():
            if facts.l == 1.0:
                self.notes.append("no residual sums were found; the depth does not change")
                return set()
            made = facts.sum_of_own_making()
            if facts.reading is not None and made is not None:
                refuse_branch(facts.reading, made)
            raise InvalidInput(
                "branches: the forward pass adds nothing to what it was computed from, so that "
                "there are no residual sums. Name the modules that residual branches end in, such "
                "as hints=Hints(branches=['blocks.*.mlp.fc2']), or use a scheme without powers of "
                "depth, such as 'mup'."
            )
        if unused := facts.not_recorded():
            self.notes.append(
                f"{unused[0]} and {len(unused) - 1} more weights of repeated blocks have no part "
                "in the recorded forward pass, so that no branches were found there: pass "
                "example=… that uses them if training does"
            )
        growing = facts.growing_sums()
        counted = [facts.reading.sums[i] for i in growing]
        made = facts.sum_of_own_making({own.stream for own in counted})
        if made is not None and made not in counted and facts.l != 1.0:
            refuse_branch(facts.reading, made)
        for i in growing:
            self._on_branch(facts.reading, i, param)
        if 2 * sum(facts.reading.sums[i].post_norm for i in growing) > len(growing):
            self.notes.append(
                "norms on the trunk (post-norm) rescale it at every block, so that l^(−α) "
                "makes later branches weaker than the scheme means; pre-norm is what it is "
                "derived for"
            )
        return self._inside(facts.reading, growing)

    def is_in_branch(self, name: str, inside: set[str]) -> bool:
        """Whether a weight of the target is in a residual branch."""
        if self.in_branch is not None:
            return self.facts.names[name] in self.in_branch
        return any(name == path or name.startswith(f"{path}.") for path in inside)

    def _on_branch(self, reading: Reading, i: int, param: Parameterization) -> None:
        """Put l^(−α), divided by the branch's own power of l, on the branch of one residual sum."""
        own, facts = reading.sums[i], self.facts
        weights = all_of(own.walk)
        # Norms on the trunk take the size of the sum of equal branches from it.
        if not own.post_norm and reading.applied_more.intersection(weights):
            record, param = reading.base.record, of_repeated_blocks(param)
            for node in own.between(record):
                self.repeated.update(n for j in record.weights(node) for n in record.parameters(j))
        factor = branch_multiplier(param) / self._built_in_depth(reading, own)
        modules = [module_at(reading.base.record, end, views=False) for end in own.walk.ends]
        if self.fold and reading.foldable[i]:
            self.fold_all(weights, "branch", factor)
        elif reading.foldable[i] and all(modules):
            for module in dict.fromkeys(m for m in modules if m):
                self.keep_all(module, "branch", "output", factor)
        else:
            module = module_of(reading.base.record, own.branch)
            if module is not None:
                self.keep_all(module, "branch", "output", factor)
            elif reading.foldable[i]:
                self.fold_all(weights, "branch", factor)
            elif facts.l != 1.0:
                refuse_branch(reading, own)

    def _built_in_depth(self, reading: Reading, own: Sum) -> Power:
        """Return the power of l of the constant that multiplies a branch in the user's model."""
        sums, deep = reading.sums, reading.deep_sums
        if reading.deep is None or len(deep) == len(sums):
            return Power()
        same = [each for each in deep if each.stream == own.stream]
        place = [each for each in sums if each.stream == own.stream].index(own)
        if place >= len(same) or not own.walk.factor or same[place].walk.factor == own.walk.factor:
            return Power()
        ratio = abs(same[place].walk.factor / own.walk.factor)
        count = sum(each.stream == own.stream for each in sums)
        power = log(ratio) / log(len(same) / count)
        return Power(depth=Fraction(round(4 * power), 4))

    def _inside(self, reading: Reading, growing: list[int]) -> set[str]:
        """Return the modules inside branches, and store the names of the weights there."""
        record = reading.base.record
        places: set[int] = set()
        names: set[str] = set()
        for own in [*(reading.sums[i] for i in growing), *reading.sums_around]:
            for node in own.between(record):
                places.add(node.index)
                for j in record.weights(node):
                    names.update(record.parameters(j))
        self.in_branch = names
        outside = {c.path for c in record.calls if not set(c.outputs[:1]) <= places}
        inner = {c.path for c in record.calls if c.outputs} - outside
        modules = dict(self.facts.models["target"].named_modules())
        return {path for path, own in self.facts.names.items() if own in inner and path in modules}

    def fold_all(self, weights: Iterable[str], kind: str, factor: Power) -> None:
        """Fold a factor into all weights of the target that correspond to these of the base."""
        for own in weights:
            for name in self.facts.copies(own):
                folded = self.folds.setdefault(name, [])
                if not any(f.kind == kind for f in folded):
                    folded.append(Folded(kind, factor))

    def keep_all(self, module: str, kind: str, where: str, factor: Power, n: float = 1.0) -> None:
        """Keep a factor in all modules of the target that correspond to this one of the base."""
        for path in self.facts.copies(module):
            if not any(m.module == path and m.kind == kind for m in self.forward):
                self.keep(path, kind, where, factor, n)

    def ratio_of(self, own: str) -> float:
        """Return n of the target's weight that corresponds to one of the base's; 1 if none does."""
        names = self.facts.copies(own)
        return self.facts.ratio(names[0]) if names else 1.0

    def of_the_user(self, param: Parameterization, moved: Update, roles: Mapping[str, str]) -> None:
        """Compensate for powers of n in the user's forward pass, and scale functional read-outs."""
        facts = self.facts
        if as_built(param) or facts.reading is None or not facts.widens:
            return
        of_sums, summed = facts.reading.output_sum
        if summed:
            sizes = facts.sizes
            n = max(sizes.target[key] / size for key, size in sizes.base.items())
            factor = tied_multiplier(param, moved) * Power(width=1 - of_sums)
            self.keep("", "output", "output", factor, n)
        else:
            self._on_summands(tied_multiplier(param, moved), facts.reading)
        for own in own_factors(facts.reading, summed):
            power = Power(width=-own.power)
            if own.kind == "module":
                n = next((r for r in map(self.ratio_of, own.weights) if r != 1.0), 1.0)
                self.keep_all(own.module, "built", "output", power, n)
                self.fold_all(own.written, "built", Power(width=own.power))
            elif own.kind == "product":
                self.fold_all(own.weights, "built", power)
            else:
                for weight in own.weights:
                    for name in facts.copies(weight):
                        self.built[name] = Power(width=own.power)
                        if family(roles[name]) == "output":
                            self.folds.setdefault(name, []).append(Folded("built", power))
        self._functional_read_out(param, moved, roles, facts.reading)

    def _on_summands(self, tied: Power, reading: Reading) -> None:
        """Multiply parts of the output that are sums of products over the width."""
        multiplied = set[str]()
        for own in contracted_summands(reading):
            factor = (tied * Power(width=1 - own.power)) ** Fraction(1, 2)
            if factor != Power() and not multiplied.intersection(own.weights):
                multiplied.update(own.weights)
                self.fold_all(own.weights, "output", factor)
                self.fold_all(own.readers, "built", factor**-1)

    def built_in(self, name: str) -> Power:
        """Return the factor of the user's model in front of the read-out by one weight."""
        return self.built.get(name, Power())

    def _functional_read_out(
        self, param: Parameterization, moved: Update, roles: Mapping[str, str], reading: Reading
    ) -> None:
        """Put the factor of a functional read-out by an embedding's weight on its input.

        The weight may map a fixed number of features, as the second factor of an embedding does, or
        be part of a concatenation, with layers of fixed sizes behind it.
        """
        record = reading.base.record
        tables = tables_of(record)
        both_ways = {weight for weight, axes in reading.contracted_axes.items() if len(axes) > 1}
        for end in self._read_outs(reading):
            node = record.nodes[end.node]
            parts = () if end.weights else concatenated(record, node)
            tied = [
                name
                for weight in (*sorted(set(end.weights) & (tables | both_ways)), *parts)
                for name in self.facts.copies(weight)
                if family(roles[name]) == "input" and self.facts.growing(name)
                and not self.facts.read_outs(name)
            ]  # fmt: skip
            if not tied:
                continue
            power = tied_multiplier(param, moved) / self.built_in(tied[0])
            n = self.facts.ratio(tied[0])
            module = module_of(record, record.signals(node)[0])
            if module is not None:
                self.keep(module, "output", "output", power, n)
            elif (biases := added_to(record, end)) is not None:
                self.keep("", "output", "output", power, n)
                whole = Power(1 / value(power, n, self.facts.l))
                self.fold_all(biases, "output", whole)
            else:
                refuse_tied(tied[0], node.module, tied[0] in tables)

    def _read_outs(self, reading: Reading) -> list[End]:
        """Return the products that read out, with those in front of layers of fixed sizes."""
        record, ends = reading.base.record, list(reading.read_outs)
        for end in ends:
            names = [name for weight in end.weights for name in self.facts.copies(weight)]
            if names and not any(self.facts.growing(name) for name in names):
                features = record.signals(record.nodes[end.node])[0]
                before = walk(record, features).ends.values()
                ends += [e for e in before if e.kind == "product" and e not in ends]
        return ends

    def note_on_roles(self, weights: Iterable[ScaledWeight]) -> None:
        """Add a note on the roles assumed for matrices with a fixed number of outputs."""
        weights = list(weights)
        shared = [w.name for w in weights if w.role == "shared"]
        if shared:
            self.notes.append(
                f"{shared[0]} and {len(shared) - 1} more map growing features to a fixed number "
                "of them inside the model (keys and values of a fixed number of heads, say): "
                "'shared', so that what they make starts at order one; as 'output' they would "
                "start at n^(−½). If every signal passes through one of them (the latent of an "
                "autoencoder), updates in front of it move it by n^(½), and "
                f"hints=Hints(roles={{'{shared[0]}': 'output'}}) keeps it at order one"
            )
        outputs = [w for w in weights if family(w.role) == "output"]
        if not outputs and not any(m.kind == "output" for m in self.forward):
            self.notes.append("no read-out was found: the output is taken to be features")
