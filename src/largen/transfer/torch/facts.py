"""What models of several shapes, laid side by side, tell about each weight."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Any

from torch import nn

from largen.errors import InvalidInput
from largen.transfer.alignment import Alignment
from largen.transfer.initial import InitialLaw
from largen.transfer.roles import family
from largen.transfer.shapes import Shapes
from largen.transfer.torch.branches import Branch, NotResidual, join, residual_branches
from largen.transfer.torch.layouts import fan_in_axes, role_of
from largen.transfer.torch.survey import initial_moments, on_meta, part_of


class Facts(Alignment):
    """Base, wider, deeper and target models of PyTorch.

    Attributes
    ----------
    models
        By name, without memory.
    """

    def __init__(self, make_model: Callable[..., nn.Module], sizes: Shapes):
        self.make_model = make_model
        self.models = {name: on_meta(make_model, at) for name, at in sizes.by_name().items()}
        parts = {name: part_of(model) for name, model in self.models.items()}
        super().__init__(parts, sizes, "make_model")

    @cached_property
    def uses(self) -> dict[str, list[str]]:
        """Every weight of the target, with all the names under which it is used."""
        found: dict[int, list[str]] = {}
        for name, tensor in self.models["target"].named_parameters(remove_duplicate=False):
            found.setdefault(id(tensor), []).append(name)
        return {names[0]: names for names in found.values()}

    @property
    def widens(self) -> bool:
        """Whether any weight of the target is wider than the base's."""
        return any(self.ratio(name) != 1.0 for name in self.uses)

    def ratio(self, name: str) -> float:
        """Return n of a weight: how much its fan-in grew, or its fan-out if the fan-in is fixed."""
        axes = self.growing(name)
        if not axes:
            return 1.0
        module, leaf = self._holder(name)
        fan_in = fan_in_axes(module, leaf, len(self.shape("target", name)))
        chosen = next((axis for axis in axes if axis in fan_in), axes[0])
        before, after = self.shape("tall", name), self.shape("target", name)
        return after[chosen] / before[chosen]

    def roles(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the role of every weight; of a tied one that it plays as an input.

        Raises
        ------
        InvalidInput
            If a role is not known or cannot be found, or a pattern fits no weight.
        """
        for pattern, role in given.items():
            family(role)
            if not any(fnmatchcase(name, pattern) for name in self._shapes["target"]):
                raise InvalidInput(f"roles: {pattern!r} fits no weight of the model.")
        found = {}
        for name, uses in self.uses.items():
            named = [role for p, role in given.items() if fnmatchcase(name, p)]
            found[name] = named[-1] if named else self._role(uses)
        return found

    def read_outs(self, name: str) -> list[str]:
        """Return the modules in which a weight that is an input is used as a read-out, too."""
        uses = self.uses[name]
        if len(uses) == 1:
            return []
        roles = {use: self._role([use]) for use in uses}
        if "input" not in {family(role) for role in roles.values()}:
            return []
        return [use.rpartition(".")[0] for use, role in roles.items() if family(role) == "output"]

    def laws(self) -> dict[str, InitialLaw]:
        """Return how the builder initialises each weight of the base model."""
        return self.laws_by(partial(initial_moments, self.make_model))

    def branches(self) -> dict[str, Branch]:
        """Return every residual branch that repeats with the depth, by where it ends.

        The sums are looked for in the repeated blocks, and if there are none, in the module that
        runs through the blocks.

        Raises
        ------
        NotResidual
            If there are none, or a forward pass cannot be traced.
        """
        target = self.models["target"]
        found, owners = {}, {}
        for block in self.blocks:
            source = self.names[block]
            if source not in owners:
                try:
                    owners[source] = residual_branches(self.models["base"].get_submodule(source))
                except NotResidual as error:
                    owners[source] = error
            own = owners[source]
            if isinstance(own, NotResidual):
                owner = self._owner(block)
                if owner not in owners:
                    try:
                        owners[owner] = residual_branches(target.get_submodule(owner))
                    except NotResidual:
                        raise own from None  # a block says more than what holds it
                placed = [branch.below(owner) for branch in owners[owner]]
                placed = [branch for branch in placed if block in branch.members]
                if not placed:
                    raise own
            else:
                placed = [branch.below(block) for branch in own]
            found |= {branch.end: branch for branch in placed}
        return found

    def _owner(self, block: str) -> str:
        """Return the module whose forward pass calls a block of a sequence."""
        path = block
        while path:
            path = path.rpartition(".")[0]
            if not isinstance(self.models["target"].get_submodule(path), nn.ModuleList):
                return path
        return path

    def matching(self, argument: str, patterns: Collection[str]) -> dict[str, nn.Module]:
        """Return the target's modules that fit one of the patterns.

        Raises
        ------
        InvalidInput
            If a pattern fits no module.
        """
        modules = dict(self.models["target"].named_modules())
        for pattern in patterns:
            if not any(fnmatchcase(path, pattern) for path in modules):
                raise InvalidInput(f"{argument}: {pattern!r} fits no module of the model.")
        return {
            path: module
            for path, module in modules.items()
            if any(fnmatchcase(path, pattern) for pattern in patterns)
        }

    def weights_of(self, path: str) -> list[str]:
        """Return the weights that one module of the target holds itself, by their first names."""
        first = {use: name for name, uses in self.uses.items() for use in uses}
        module = self.models["target"].get_submodule(path)
        return [first[join(path, leaf)] for leaf, _ in module.named_parameters(recurse=False)]

    def _role(self, uses: list[str]) -> str:
        roles = []
        for use in uses:
            module, leaf = self._holder(use)
            path, ndim = use.rpartition(".")[0], len(self.shape("target", use))
            roles.append(role_of(module, path, leaf, ndim, self.growing(use)))
        return next((role for role in roles if family(role) == "input"), roles[0])

    def _holder(self, name: str) -> tuple[nn.Module, str]:
        path, _, leaf = name.rpartition(".")
        return self.models["target"].get_submodule(path), leaf


def patterns(argument: str, value: Any) -> Collection[str]:
    """Check a collection of patterns at the door; a single string is one pattern.

    Raises
    ------
    InvalidInput
        If it is none.
    """
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Collection) or not all(isinstance(p, str) for p in value):
        raise InvalidInput(f"{argument}: wanted patterns of names, got {value!r}.")
    return value
