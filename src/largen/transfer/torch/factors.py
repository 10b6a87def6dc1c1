"""Where the factors of read-outs, attention logits and branches go: into weights, or hooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from largen.errors import InvalidInput
from largen.parameterizations import Parameterization, Power
from largen.transfer.plan import ForwardMultiplier
from largen.transfer.resolve import Folded
from largen.transfer.rules import attention_multiplier, branch_multiplier, ratios, value
from largen.transfer.schemes import as_built
from largen.transfer.torch.attention import Attention, find_attention
from largen.transfer.torch.branches import NotResidual
from largen.transfer.torch.facts import Facts, patterns
from largen.transfer.torch.layouts import is_norm


@dataclass
class Factors:
    """The factors of one plan.

    Attributes
    ----------
    facts
        Of the models.
    fold
        Whether factors are folded into weights where that is exact.
    folds
        What is folded, by weight.
    forward
        What stays in the forward pass.
    notes
        What was assumed.
    """

    facts: Facts
    fold: bool
    folds: dict[str, list[Folded]] = field(default_factory=dict)
    forward: list[ForwardMultiplier] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def keep(self, module: str, kind: str, where: str, factor: Power, n: float = 1.0) -> None:
        """Leave a factor to the forward pass."""
        number = value(factor, n, self.facts.l)
        if number != 1.0:
            text = ratios(factor)
            self.forward.append(ForwardMultiplier(module, kind, where, number, text))

    def put(self, module: str, kind: str, factor: Power, foldable: bool = True) -> None:
        """Fold a factor of a module's output into its weights, or leave it to the forward pass."""
        if self.fold and foldable:
            for name in self.facts.weights_of(module):
                self.folds.setdefault(name, []).append(Folded(kind, factor))
        else:
            self.keep(module, kind, "output", factor)

    def in_branches(self, param: Parameterization, named: object = None) -> set[str]:
        """Put l^(−α) on every residual branch; return the paths of all that is inside of one.

        Raises
        ------
        InvalidInput
            If the scheme has a power of depth, the depth changes, and branches cannot be found.
        """
        factor, facts = branch_multiplier(param), self.facts
        if not param.branch or (not facts.blocks and named is None):
            return set()
        if named is not None:
            ends = facts.matching("branches", patterns("branches", named))
            for path, module in ends.items():
                held = list(module.named_parameters(recurse=False))
                self.put(path, "branch", factor, foldable=bool(held))
            return set(facts.blocks)
        try:
            branches = facts.branches()
        except NotResidual as error:
            if facts.l == 1.0:
                self.notes.append(f"branches were not found ({error}); the depth does not change")
                return set()
            raise InvalidInput(
                f"branches: {error}. Name the modules that residual branches end in, such as "
                "branches=['blocks.*.mlp.fc2'], write the block with largen.transfer.torch."
                "Residual, or use a scheme without powers of depth, such as 'mup'."
            ) from None
        for branch in branches.values():
            self.put(branch.end, "branch", factor, foldable=branch.affine)
        inside = {member for branch in branches.values() for member in branch.members}
        self._norms_on_the_trunk(inside)
        return inside

    def on_attention(self, param: Parameterization, named: Mapping[str, float] | None) -> None:
        """Put the attention logits' factor on queries.

        Raises
        ------
        InvalidInput
            If a head's dimension cannot be found, or a pattern fits no module.
        """
        facts = self.facts
        if as_built(param) or not facts.widens:
            return
        if named is None:
            places, notes = find_attention(facts)
            self.notes.extend(notes)
        else:
            places = [
                Attention(path, "output", float(ratio))
                for pattern, ratio in named.items()
                for path in facts.matching("attention", [pattern])
            ]
        for place in places:
            power = attention_multiplier(param, place.built)
            if place.head_ratio == 1.0 or power == Power():
                continue
            held = facts.weights_of(place.module)
            n = facts.ratio(held[0]) if held else 1.0
            if n != place.head_ratio:  # not a power of this weight's own n
                power = Power(place.head_ratio ** float(power.width))
            if place.where == "output":
                self._on_queries(place.module, power, bool(held), n)
            else:
                self.keep(place.module, "attention", place.where, power, n)

    def _on_queries(self, module: str, power: Power, held: bool, n: float) -> None:
        if self.fold and held:
            self.put(module, "attention", power)
        else:
            self.keep(module, "attention", "output", power, n)

    def _norms_on_the_trunk(self, inside: set[str]) -> None:
        target = self.facts.models["target"]
        for block in self.facts.blocks:
            for path, module in target.get_submodule(block).named_modules(prefix=block):
                within = any(path == m or path.startswith(f"{m}.") for m in inside)
                if is_norm(module) and not within:
                    self.notes.append(
                        "norms on the trunk (post-norm) rescale it at every block, so that l^(−α) "
                        "makes later branches weaker than the scheme means; pre-norm is what it "
                        "is derived for"
                    )
                    return
