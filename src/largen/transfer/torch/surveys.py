"""Networks of several sizes, by plans of these sizes, and surveys of the effects in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from largen.errors import LargenError
from largen.transfer.copies import equal_copies
from largen.transfer.corrections import Correction
from largen.transfer.repair import with_corrections
from largen.transfer.shapes import shapes
from largen.transfer.torch.effects import Pass, as_in_training, forward, measured
from largen.transfer.torch.examples import BATCH, Inputs, given
from largen.transfer.torch.facts import Facts
from largen.transfer.torch.names import modules, parameters
from largen.transfer.torch.normed import STEPS as ITERATIONS
from largen.transfer.torch.normed import has_spectral_norm
from largen.transfer.torch.plan import TorchPlan
from largen.transfer.torch.planning import Request
from largen.transfer.torch.process import fixed_seed
from largen.transfer.verdicts import (
    Layout,
    fitted,
    in_the_bases_names,
    in_the_first_copy,
    with_sums,
)
from largen.transfer.verifying import (
    SEEDS,
    STEPS,
    NotVerified,
    Slopes,
    check_number_of_weights,
    hints_at,
    ratios_of,
    sizes_along,
    words_of,
)

EXACT = 1e-3  # relative distance below which logits are twice what they were
SAMPLES = 8  # of generated inputs
MOST_OPERATIONS = 1e9  # multiplications of the base's forward pass: then some ten seconds in all


@dataclass(eq=False)
class Specimens:
    """Networks of several sizes, by plans with corrections."""

    request: Request
    along: str  # "width" or "depth"
    # facts, plans: by size, from the base.
    facts: list[Facts]
    plans: list[TorchPlan] = field(default_factory=list)
    ratios: tuple[float, ...] = ()  # the sizes relative to the base
    inputs: list[Inputs] = field(default_factory=list)  # by size, the arguments of the forward pass
    # By size, the parts of the networks without corrections.
    layouts: list[Layout] = field(default_factory=list)
    first: int = 0  # the first network's seed
    # Parts and weights of the plan's target → the names by which corrections call them.
    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, request: Request, facts: Facts, along: str, steps: Sequence[int] = STEPS
    ) -> Specimens:
        """Return a specimens for the models of a plan."""
        sizes = facts.sizes
        delta = {**sizes.wide, **({} if sizes.deep is None else sizes.deep)}
        delta |= {k: v for k, v in sizes.wide.items() if v != sizes.base[k]}
        by_size = []
        for at in sizes_along(sizes, along, steps):
            try:
                other = facts.with_target(
                    shapes(sizes.base, at, request.hints.depth, delta, request.hints.experts)
                )
            except Exception as error:
                raise NotVerified(f"no model of {at}: {words_of(error)}") from None
            by_size.append(other)
        count = sum(p.numel() for p in by_size[-1].models["target"].parameters())
        check_number_of_weights(count, by_size[-1].sizes.target)
        specimens = cls(request.folded(), along, by_size, names=names_of(facts, along))
        try:
            folded = specimens.request
            specimens.plans = [
                replace(folded, hints=hints_at(folded.hints, sizes, own.sizes.target)).plan(own)
                for own in by_size
            ]
        except LargenError as error:
            at = by_size[-1].sizes.target
            raise NotVerified(f"no plan for {at}: {words_of(error)}") from None
        specimens.ratios = tuple(ratios_of(request.hints, plan)[along] for plan in specimens.plans)
        grows = along != "width" or any(facts.growing(name) for name in facts.uses)
        if len(set(specimens.ratios)) < 2 or not grows:
            raise NotVerified("no weight of the model grows")
        specimens.inputs = _inputs(request.example, by_size)
        return specimens

    @property
    def kind(self) -> str:
        """How the optimizer's step scales."""
        return self.request.moved.kind

    @property
    def copies(self) -> Mapping[str, str]:
        """Weights of equal blocks → a name that their copies share."""
        return equal_copies(self.plans[0].weights) if self.along == "width" else {}

    def plan(self, size: int, corrections: Sequence[Correction]) -> TorchPlan:
        """Return the corrected plan of one size."""
        names = names_of(self.facts[size], self.along)
        return with_corrections(self.plans[size], self.request.hints, corrections, names)

    @cached_property
    def scores(self) -> dict[int, int | None]:
        """The products of two signals whose terms grow → the axis of the result that grows.

        By their numbers in the order of the calls. Products of two weights count if their results
        have a fixed size.
        """
        if self.along != "width":
            return {}
        base, largest = (self._pass((), at=i) for i in (0, -1))
        small, large = base.scores.found, largest.scores.found
        if len(small) != len(large) or not small:
            return {}
        tensors = [score.tensor for score in small]
        read = torch.autograd.grad(base.output.mean(), tensors, allow_unused=True)
        found = {}
        for i, (one, other) in enumerate(zip(small, large, strict=True)):
            needed = one.needed and read[i] is not None
            if needed and one.terms < other.terms and one.entries == other.entries:
                sizes = enumerate(zip(one.tensor.shape, other.tensor.shape, strict=True))
                found[i] = next((axis for axis, (a, b) in sizes if a != b), None)
        return found

    def survey(
        self, corrections: Sequence[Correction] = (), inputs: bool = False, seeds: int = SEEDS
    ) -> Slopes:
        """Measure the effects in all networks, if asked on modules' inputs, too."""
        rows, layouts = [], []
        for i, (args, kwargs) in enumerate(self.inputs):
            plan, row = self.plan(i, corrections), []
            for seed in range(self.first, self.first + seeds):
                model = plan.build(seed=seed, device="cpu")
                with fixed_seed(seed):
                    call = partial(model, *args, **kwargs)
                    settle(model, call)
                    numbers, layout = measured(model, plan, call, self.along, inputs, self.scores)
                numbers = in_the_bases_names(numbers, self.facts[i].names)
                # A factor of the output hides which weights act on it first.
                if corrections:
                    plain = self.layouts[i]
                    layout = replace(layout, final=plain.final, last=plain.last)
                if seed == self.first:
                    layouts.append(layout)
                row.append(with_sums(numbers, layout, names_of(self.facts[i], self.along)))
                if layout.operations > MOST_OPERATIONS and i == 0:
                    raise NotVerified(
                        f"the base needs {layout.operations:.1g} multiplications, more than "
                        f"{MOST_OPERATIONS:.1g}; pass a smaller example="
                    )
            rows.append(row)
        if not corrections:
            self.layouts = layouts
        return Slopes(fitted(self.ratios, rows), layouts[0], layouts[-1], rows)

    def size(
        self,
        place: str,
        corrections: Sequence[Correction],
        doubled: Collection[str] = (),
        at: int = -1,
    ) -> float:
        """Return a tensor's root mean square in one network, some weights doubled."""
        side, path = place.split(" of ")
        passed = self._pass(corrections, doubled, at=at)
        tensors = passed.inputs if side == "input" else passed.outputs
        z = tensors[in_the_first_copy(path, tensors, self.facts[at].names)]
        return float(z.detach().double().square().mean().sqrt())

    def logit_settings(
        self, survey: Slopes, place: str, corrections: Sequence[Correction]
    ) -> list[tuple[str, str]]:
        """Return what multiplies attention logits: PyTorch's key factor, or queries or keys."""
        path, _, number = place.rpartition("#")
        model = self.plan(-1, ()).build(seed=0, device="cpu")
        if isinstance(modules(model).get(path), nn.MultiheadAttention):
            return [("attention", path)]
        logits = self._pass(corrections).logits_at(int(number)).detach()
        for module in reversed(survey.layout.modules):
            names = [w for w, holder in survey.layout.holders.items() if holder == module]
            if not any(("logits", place, w) in survey.fits for w in names):
                continue
            again = self._pass(corrections, module=module).logits_at(int(number)).detach()
            if (again - 2 * logits).abs().max() < EXACT * logits.abs().max():
                return [(what, w) for w in names for what in ("init", "lr")]
        return []

    def _pass(
        self,
        corrections: Sequence[Correction],
        doubled: Collection[str] = (),
        module: str | None = None,
        at: int = -1,
    ) -> Pass:
        """Call a network with some weights, or the output of a module, doubled."""
        args, kwargs = self.inputs[at]
        model = self.plan(at, corrections).build(seed=0, device="cpu")
        with torch.no_grad():
            for name, weight in parameters(model).items():
                if name in doubled:
                    weight.mul_(2.0)
        if module is not None:
            modules(model)[module].register_forward_hook(_double, prepend=True)
        settle(model, partial(model, *args, **kwargs))
        with as_in_training(model), fixed_seed(0):
            return forward(model, args, kwargs)


def settle(model: nn.Module, call: Callable[[], Any]) -> None:
    """Find the largest singular values of spectral_norm, which evaluation takes as they are."""
    if has_spectral_norm(model):
        model.train()
        with torch.no_grad():
            for _ in range(ITERATIONS):
                call()


def _double(module: nn.Module, args: tuple, output: Any) -> Any:
    return 2 * output if isinstance(output, Tensor) else output


def names_of(facts: Facts, along: str) -> Mapping[str, str]:
    """Return the target's parts and weights → the base's names, in depth without block numbers."""
    if along == "width":
        return facts.names
    return {
        name: facts.copies_of(name) if name in facts.uses else own
        for name, own in facts.names.items()
    }


def _inputs(example: Any, facts: Sequence[Facts]) -> list[Inputs]:
    """Return the arguments of every size's forward pass: the user's, or generated ones."""
    if example is not None:
        with fixed_seed(0):
            return [given(example, own.sizes.target) for own in facts]
    reading = facts[0].reading
    assert reading is not None
    with fixed_seed(0):
        args = tuple(map(_more_samples, reading.base.args))
        kwargs = {name: _more_samples(value) for name, value in reading.base.kwargs.items()}
    return [(args, kwargs)] * len(facts)


def _more_samples(value: Any) -> Any:
    """Return a generated input with more samples, drawn from the same range."""
    if not isinstance(value, Tensor) or not value.ndim or value.shape[0] != BATCH:
        return value
    shape = (SAMPLES, *value.shape[1:])
    if value.is_floating_point():
        return torch.randn(shape).to(value) if value.std() > 0 else value[:1].expand(shape).clone()
    low, high = int(value.min()), int(value.max())
    return torch.randint(low, high + 1, shape).to(value.dtype)
