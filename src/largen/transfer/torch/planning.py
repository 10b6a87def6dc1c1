"""A plan for one pair of shapes, from the properties of the models' weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from largen.parameterizations import Parameterization
from largen.transfer.constants import Constants, with_constants
from largen.transfer.experts import NOTE
from largen.transfer.hints import Hints
from largen.transfer.horizon import Horizon
from largen.transfer.initial import InitialDistribution
from largen.transfer.patterns import by_pattern
from largen.transfer.plan_entries import ScaledWeight
from largen.transfer.resolve import FoundWeight, resolve
from largen.transfer.roles import family
from largen.transfer.rules import rule, tied_multiplier
from largen.transfer.schemes import as_built, of_repeated_blocks
from largen.transfer.shapes import Shapes
from largen.transfer.torch.factors import Factors
from largen.transfer.torch.facts import Facts
from largen.transfer.torch.logit_factors import put_on_logits
from largen.transfer.torch.normed import with_norms
from largen.transfer.torch.plan import TorchPlan
from largen.transfer.updates import Update


@dataclass(frozen=True)
class Request:
    """The checked arguments of :func:`largen.transfer.torch.scale`, for any :attr:`sizes`."""

    make_model: Callable[..., nn.Module]
    sizes: Shapes
    scheme: Parameterization
    moved: Update
    length: Horizon
    hints: Hints
    constants: Constants
    fold: bool
    example: Any

    def folded(self) -> Request:
        """Return the same request with all factors in weights where that is exact."""
        return replace(self, fold=True)

    def plan(self, facts: Facts) -> TorchPlan:
        """Return the plan for the shapes of these models."""
        param, moved, length = self.scheme, self.moved, self.length
        factors = Factors(facts, fold=self.fold, logits=self.constants.attention)
        if facts.note_on_memory is not None:
            factors.notes.append(facts.note_on_memory)
        if not as_built(param) or factors.logits != 1.0:
            factors.notes += self._read(facts)
        found_roles = facts.roles(by_pattern("roles", self.hints.roles))
        inside = factors.in_branches(param, self.hints.branches)
        put_on_logits(factors, param, self.hints.attention)
        factors.of_the_user(param, moved, found_roles)
        more = facts.sizes.more(self.hints.experts)
        if more != 1.0:
            factors.notes.append(NOTE)
        distributions = {} if as_built(param) else facts.distributions()

        weights = [
            self._weight(name, role, facts, factors, distributions, inside, more)
            for name, role in found_roles.items()
        ]
        if not as_built(param):
            weights, more_factors = with_norms(weights, facts.models["target"], moved.decay)
            factors.forward += more_factors
        if facts.widens and not as_built(param):
            factors.note_on_roles(weights)
        plan = TorchPlan(
            scheme=str(param),
            optimizer=moved.name,
            decay=moved.decay,
            base=facts.sizes.base,
            target=facts.sizes.target,
            width_ratio=max((w.n for w in weights), default=1.0),
            depth_ratio=facts.l,
            weights=tuple(weights),
            multipliers=tuple(factors.forward),
            inside=tuple(sorted(inside)),
            notes=tuple(factors.notes),
            batch_ratio=length.batch,
            horizon_ratio=length.samples,
            experts_ratio=more,
            make_model=self.make_model,
        )
        tied = {(module, "input") for name in found_roles for module in facts.read_outs(name)}
        return with_constants(plan, self.constants, sorted(tied))

    def _read(self, facts: Facts) -> list[str]:
        """Read the forward pass, and the depth from it; return a note if it cannot be called."""
        find_branches = bool(self.scheme.branch) and self.hints.branches is None
        why = facts.read(self.example, find_branches or self.hints.attention is None)
        facts.set_depth(strict=find_branches)
        if why is None:
            return []
        return [f"the model could not be called ({why}); factors were not found"]

    def _weight(
        self,
        name: str,
        role: str,
        facts: Facts,
        factors: Factors,
        distributions: Mapping[str, InitialDistribution],
        inside: set[str],
        experts: float,  # the ratio of the number of experts to the base's
    ) -> ScaledWeight:
        """Return the row of a weight, and keep the factors of its uses that cannot be folded."""
        param, moved = self.scheme, self.moved
        source, shape, n = facts.names[name], facts.shape("target", name), facts.ratio(name)
        inner = factors.is_in_branch(name, inside)
        if source in factors.repeated:
            param = of_repeated_blocks(param)
        for module in facts.read_outs(name):
            power = tied_multiplier(param, moved) / factors.built_in(name)
            factors.keep(module, "output", "input", power, n)
        copied, stacked = facts.copies_of(name) != source, name in facts.stacked
        # Gradients of a weight that all blocks share add up as well, which gradient descent sees.
        adds_up = int(not copied and not stacked and moved.kind == "proportional")
        if not inner:
            again = copied or (facts.reading is not None and source in facts.reading.applied_more)
            adds_up = 1 + adds_up if again and family(role) in ("vector", "finite") else 0
        found = FoundWeight(
            name=name,
            role=role,
            in_branch=inner,
            base_shape=facts.shape("base", source),
            shape=shape,
            n=n,
            built_n=facts.ratio(facts.builders_width(name)),
            distribution=distributions.get(source, InitialDistribution(0.0)),
            matrix=len(shape) == 2,
            tied=tuple(facts.uses[name][1:]),
            experts=experts if name in facts.mixed and not as_built(param) else 1.0,
            adds_up=adds_up if param.branch else 0,
            factors=1 if as_built(param) else facts.factors_of_fan_in(name),
        )
        leaf = name.rpartition(".")[2]
        keep = not factors.fold and family(role) == "output" and leaf == "weight"
        for use in facts.uses[name] if keep else ():
            module = use.rpartition(".")[0]
            factors.keep(module, "output", "input", rule(param, moved, role).multiplier, n)
        own = tuple(factors.folds.get(name, ()))
        return resolve(param, moved, found, facts.l, own, keep_output=keep)
