"""Properties of each weight, found by comparing models of several shapes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from functools import cached_property, partial
from math import prod
from typing import Any

from torch import nn

from largen.errors import InvalidInput
from largen.transfer.alignment import Alignment
from largen.transfer.initial import InitialDistribution
from largen.transfer.roles import family
from largen.transfer.shapes import Shapes
from largen.transfer.torch.examples import NotCallable
from largen.transfer.torch.layouts import fan_in_axes, role_of
from largen.transfer.torch.names import join
from largen.transfer.torch.normed import layer_of
from largen.transfer.torch.reading import Reading
from largen.transfer.torch.streams import Sum
from largen.transfer.torch.survey import allocated_bytes, initial_moments, on_meta, part_of

SMALL = 0.01  # share of the target's weights that may be in memory without a note


class Facts(Alignment):
    """Base, wider, deeper and target models by name, built without memory, and their reading."""

    def __init__(self, make_model: Callable[..., nn.Module], sizes: Shapes):
        self.make_model = make_model
        self.reading: Reading | None = None
        self.known: dict[str, InitialDistribution] | None = None
        self.repeated_only = False
        self.models = {name: on_meta(make_model, at) for name, at in sizes.by_name().items()}
        parts = {name: part_of(model) for name, model in self.models.items()}
        super().__init__(parts, sizes, "make_model", lambda at: part_of(on_meta(make_model, at)))

    @cached_property
    def uses(self) -> dict[str, list[str]]:
        """Each weight of the target → all names under which it is used."""
        found: dict[int, list[str]] = {}
        for name, tensor in self.models["target"].named_parameters(remove_duplicate=False):
            if name in self._shapes["target"]:  # a list may hold one module several times
                found.setdefault(id(tensor), []).append(name)
        return {names[0]: names for names in found.values()}

    @property
    def note_on_memory(self) -> str | None:
        """A note if the target's weights were allocated; None if they were not."""
        model = self.models["target"]
        size = allocated_bytes(model)
        whole = sum(p.numel() * p.element_size() for p in model.parameters())
        if size <= SMALL * whole:
            return None
        return (
            f"the target's weights ({size / 1e6:.3g} MB) were allocated to read their shapes, "
            "since make_model reads values of tensors or sets their device; if it leaves the "
            "device to torch.device, none are"
        )

    @property
    def widens(self) -> bool:
        """Whether any weight of the target is wider than the base's."""
        return any(self.ratio(name) != 1.0 for name in self.uses)

    def _grown(self, name: str, after: tuple[int, ...], before: tuple[int, ...]) -> float:
        axes = self.growing(name)
        if not axes:
            return 1.0
        module, leaf = self.holder(name)
        fan_in = fan_in_axes(module, leaf, len(after), self.summed_axes(name))
        chosen = [axis for axis in axes if axis in fan_in] or axes[:1]
        return prod(after[axis] / before[axis] for axis in chosen)

    def roles(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the role of every weight; for a tied weight, its role as an input."""
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
        """Return the modules that use an input weight as a read-out, too."""
        uses = self.uses[name]
        if len(uses) == 1:
            return []
        roles = {use: self._role([use]) for use in uses}
        if "input" not in {family(role) for role in roles.values()}:
            return []
        return [use.rpartition(".")[0] for use, role in roles.items() if family(role) == "output"]

    def distributions(self) -> dict[str, InitialDistribution]:
        """Return the builder's initialisation of each weight of the base model."""
        if self.known is None:
            self.known = self.distributions_by(partial(initial_moments, self.make_model))
        return self.known

    def with_target(self, sizes: Shapes) -> Facts:
        """Return the facts of another target, with what is known of the base and larger models."""
        other = Facts(self.make_model, sizes)
        other.reading, other.known = self.reading, self.known
        return other

    def read(self, example: Any, needed: bool) -> str | None:
        """Record forward passes of the base models; if they fail and are not needed, return why."""
        if self.reading is not None:
            return None
        try:
            self.reading = Reading(self.make_model, self.sizes, example)
        except NotCallable as error:
            forward = type(self.models["base"]).forward
            if not needed or forward is nn.Module.forward:
                return str(error)
            why = str(error).rstrip(".")
            raise InvalidInput(
                f"example: the model could not be called: {why}. Pass example=… what it is "
                "called with (a tensor, a tuple of arguments or a dict of keyword arguments), or "
                "name hints=Hints(attention={…}, branches=[…]), which it would have told."
            ) from None
        return None

    def set_depth(self, strict: bool) -> None:
        """Set the ratio of the depths to that of the numbers of residual sums, if there are any."""
        sizes = self.sizes
        if self.reading is None or sizes.deep is None or self.reading.deep is None:
            return
        key = next(k for k in sizes.base if sizes.deep[k] != sizes.base[k])
        depths = sizes.base[key], sizes.deep[key], sizes.target[key]
        for self.repeated_only in (False, True):
            try:
                counted = self.reading.depth_ratio(self.growing_sums(), *depths)
            except InvalidInput:
                if self.repeated_only and strict:
                    raise
                continue
            if counted != 1.0:
                self.l = counted
            return
        self.repeated_only = False

    def growing_sums(self) -> list[int]:
        """Return the base's residual sums in sequences that grow with the depth.

        Where streams do not grow alike, those in repeated blocks alone count.
        """
        if self.reading is None:
            return []
        stems = [r.path[:-1] for r in self._deeper.repetitions]
        if self.repeated_only:
            own = {self._deeper.parts[block] for block in self._deeper.blocks}
            stems = [f"{block}." for block in own | self._deeper.early_blocks()]
        found = []
        for i, own in enumerate(self.reading.sums):
            names = [self.reading.base.record.nodes[end].module for end in own.walk.ends]
            names += [w for end in own.walk.ends.values() for w in end.weights]
            if not stems or any(name.startswith(stem) for name in names for stem in stems):
                found.append(i)
        return found

    def sum_of_own_making(self, streams: Collection[int] | None = None) -> Sum | None:
        """Return a residual sum whose branch has weights of growing sequences, and none at its end.

        An example is h + relu(layer(h)) in the forward pass of the model itself. ``streams``: those
        in which it may be; any by default.
        """
        stems = tuple(r.path[:-1] for r in self._deeper.repetitions)
        if self.reading is None or not stems:
            return None
        record = self.reading.base.record
        for own in self.reading.sums:
            if streams is not None and own.stream not in streams:
                continue
            inside = (w for node in own.between(record) for w in record.weights(node))
            names = (name for w in inside for name in record.parameters(w))
            if not own.walk.takes_a_factor and any(name.startswith(stems) for name in names):
                return own
        return None

    def not_recorded(self) -> list[str]:
        """Return the base's weights in sequences that grow with depth and that are not recorded."""
        if self.reading is None:
            return []
        stems = tuple(r.path[:-1] for r in self._deeper.repetitions)
        names = dict(self.models["base"].named_parameters())
        return [n for n in names if n.startswith(stems) and n not in self.reading.weights]

    def copies(self, name: str) -> list[str]:
        """Return the parts or weights of the target that correspond to one of the base's."""
        weights = self.uses
        return [
            path
            for path, source in self.names.items()
            if source == name and (path in weights or path not in self._shapes["target"])
        ]

    def matching(self, argument: str, patterns: Collection[str]) -> dict[str, nn.Module]:
        """Return the target's modules that match one of the patterns."""
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
        """Return the weights that one module of the target holds directly, by their first names."""
        first = {use: name for name, uses in self.uses.items() for use in uses}
        module = self.models["target"].get_submodule(path)
        return [first[join(path, leaf)] for leaf, _ in module.named_parameters(recurse=False)]

    def _role(self, uses: list[str]) -> str:
        roles = []
        for use in uses:
            module, leaf = self.holder(use)
            path, ndim = use.rpartition(".")[0], len(self.shape("target", use))
            summed = self.summed_axes(use)
            growing = self.growing(use)
            role = role_of(module, path, leaf, ndim, growing, summed)
            if self.reading is not None and self.names[use] in self.reading.tables:
                # A table in a module of the user's own; tied read-outs have roles of their own.
                own = not isinstance(module, nn.Linear) and set(growing) == {ndim - 1}
                role = "embedding" if own and role in ("norm", "output") else role
            if role == "output" and self.reading is not None:
                # Under a stream of fixed width, growing branches are mean-field networks.
                inner = self.names[use] in self.reading.bottlenecks and self.reading.widens
                role = "shared" if inner else role
            roles.append(role)
        return next((role for role in roles if family(role) == "input"), roles[0])

    def summed_axes(self, name: str) -> set[int] | None:
        """Return the axes that the forward pass sums over; None if it was not recorded."""
        if self.reading is None or self.names[name] not in self.reading.weights:
            return None
        return self.reading.contracted_axes.get(self.names[name], set())

    def holder(self, name: str) -> tuple[nn.Module, str]:
        """Return the module that holds a weight, and the weight's name there."""
        path, _, leaf = name.rpartition(".")
        normed = layer_of(self.models["target"], name)
        return (self.models["target"].get_submodule(path), leaf) if normed is None else normed
