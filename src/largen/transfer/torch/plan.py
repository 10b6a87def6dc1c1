"""A plan for PyTorch: it builds the target model and makes its optimizer's groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from warnings import warn

import torch
from torch import nn

from largen.errors import InvalidInput, WrongPlan, instance_of, one_of
from largen.scalars import LARGEST_SEED, integer, real
from largen.text import shown
from largen.transfer.plan import Plan, grouped, matched_step, read_json
from largen.transfer.plan_entries import ScaledWeight
from largen.transfer.torch.multipliers import attach, lacking
from largen.transfer.torch.names import parameters
from largen.transfer.torch.process import check_device, fixed_seed

AVERAGING = ("adam", "adamw", "adamax", "nadam", "lion")  # optimizers with an argument betas


@dataclass(frozen=True, repr=False)
class TorchPlan(Plan):
    """The settings of every weight of a PyTorch model; made by :func:`largen.transfer.torch.scale`.

    Attributes
    ----------
    make_model
        The user's builder; not part of the JSON.
    request
        What the plan was made from, by which it is repaired; not part of the JSON, nor of copies.
    """

    make_model: Callable[..., nn.Module] | None = field(default=None, compare=False, repr=False)
    request: Any = field(default=None, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the request, whose example may be a function of the user's."""
        return {**self.__dict__, "request": None}

    def repaired(self) -> TorchPlan:
        """Return the plan with measured powers in place of those that failed its verification.

        Slopes of the effects of single updates (:mod:`largen.transfer.verdicts`), rounded to
        halves, correct initial values, rates, the output's factor and attention logits, again and
        again until no slope is wrong. Slopes have to be known to ±0.2, copies of a block get equal
        powers, and the result is measured again at sizes that were not used. The plan's notes say
        what was changed. A plan without wrong slopes is returned as it is.

        Raises
        ------
        InvalidInput
            If wrong slopes remain, at the sizes used or at others, with what was measured; or if
            the plan was read from text or copied.

        Examples
        --------
        >>> import warnings
        >>> from largen.transfer.torch import scale
        >>> class Distance(nn.Module):
        ...     def __init__(self, width):
        ...         super().__init__()
        ...         self.a, self.b = (nn.Sequential(nn.Linear(6, width), nn.ReLU(),
        ...                                         nn.Linear(width, width)) for _ in range(2))
        ...     def forward(self, x):
        ...         return (self.a(x) - self.b(x.flip(0))).norm(dim=-1)
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     plan = scale(Distance, {"width": 32}, {"width": 256}, scheme="mup")
        >>> plan.verified[0].passed
        False
        >>> print(plan.repaired().multipliers[0].power)
        n⁻¹ᐟ²
        """
        from largen.transfer.torch.verification import repaired

        return repaired(self)

    def build(
        self, *, seed: int | None = None, device: Any = None, make_model: Any = None
    ) -> nn.Module:
        """Return the target model, initialised and with its forward multipliers.

        The builder's own initial values are multiplied by :attr:`ScaledWeight.init`.

        Parameters
        ----------
        seed
            Seed of PyTorch's generator while the model is built, after which the generator's state
            is restored; by default the model is drawn from the generator's current state.
        device
            The model's device; PyTorch's default device if None.
        make_model
            The builder, for a plan that was read from JSON.

        Raises
        ------
        InvalidInput
            If there is no builder, or it returns another model than when the plan was made.
        """
        make: Any = self.make_model if make_model is None else make_model
        if make is None:
            raise InvalidInput(
                "make_model: a plan read from JSON has none; pass build(make_model=…)."
            )
        if not callable(make):
            raise InvalidInput(f"make_model: wanted a function, got {shown(make)}.")
        check_device(device)
        if seed is None:
            return self._built(make, device)
        with fixed_seed(integer("seed", seed, at_least=0, at_most=LARGEST_SEED), gpus=True):
            return self._built(make, device)

    def attach(self, model: nn.Module) -> nn.Module:
        """Put the forward multipliers on a model that was built or loaded by other means.

        Weights are not changed: a checkpoint of a model from :meth:`build` is complete, and a model
        that was trained elsewhere computes the same function up to the multipliers listed in
        :attr:`multipliers`.

        Raises
        ------
        InvalidInput
            If the model is not the plan's target.
        """
        self._check(model)
        attach(model, self.multipliers)
        return model

    def initialise(self, model: nn.Module) -> nn.Module:
        """Multiply the initial values of a model built by other means, and attach the multipliers.

        :meth:`build` does so with the builder's model. For a model that is sharded or built on the
        meta device, allocate its tensors, initialise them as the builder does, and call this once.

        Parameters
        ----------
        model
            The target model with the builder's own initial values, which are changed in place.

        Raises
        ------
        InvalidInput
            If the model is not the plan's target, or a weight is on the meta device.
        """
        tensors = self._check(model)
        for name, tensor in tensors.items():
            if tensor.is_meta:
                raise InvalidInput(
                    f"model: {name} is on the meta device and has no values; call "
                    "model.to_empty(device=…) and initialise the weights as the builder does first."
                )
        with torch.no_grad():
            for name, tensor in tensors.items():
                factor = self[name].init
                if factor != 1.0:
                    tensor.mul_(factor)
        attach(model, self.multipliers)
        return model

    def param_groups(
        self,
        model: nn.Module,
        *,
        lr: Any,
        weight_decay: float | None = None,
        eps: float | None = None,
        moved_by: str | None = None,
        adjust_lr_fn: str | None = None,
        betas: Any = None,
    ) -> list[dict[str, Any]]:
        """Return parameter groups for any ``torch.optim`` optimizer of the plan's kind.

        Parameters
        ----------
        model
            The target model, wrapped or not. Weights that need no gradient are left out.
        lr
            The rate tuned on the base model: a number or a tensor, which is not changed.
        weight_decay, eps
            λ₀ and ε₀, tuned on the base model; PyTorch's defaults if None. Every group states its
            own values, so that the optimizer's defaults do not apply.
        moved_by
            For Muon: ``"muon"`` for the matrices that it updates, ``"adamw"`` for all other
            weights, ``"all"`` for both, distinguished by the groups' ``moved_by``.
        adjust_lr_fn
            The argument of ``torch.optim.Muon``: with ``"match_rms_adamw"`` its step scales with
            another power of the width, for which the groups' rates compensate. The groups contain
            the argument, so that it need not be passed to the optimizer.
        betas
            The coefficients β of running averages, tuned on the base model, such as (0.9, 0.999);
            1 − β is multiplied by the ratio of batch sizes over that of the numbers of samples.
            None leaves the optimizer's own.

        Returns
        -------
        list of dict
            ``params``, ``lr``, ``weight_decay``, ``eps`` if the optimizer has one, ``lr_factor``
            (which :func:`check_scheduler` reads), ``moved_by`` and ``decay`` (which
            :func:`check_optimizer` reads), and ``betas`` if given.

        Raises
        ------
        InvalidInput
            If a weight is not in the plan or has another shape, a rate is negative or not finite,
            the optimizer lacks a setting that is given, or ``moved_by`` is missing for Muon.

        Warns
        -----
        WrongPlan
            If all weights are trained and the model does not carry :attr:`multipliers`.
        """
        tensors = self._check(model)
        bare = lacking(model, self.multipliers)
        if bare and all(p.requires_grad for p in tensors.values()):
            warn(
                f"model: it lacks {len(bare)} of the plan's multipliers, such as {bare[0]}, which "
                "load_state_dict and from_pretrained do not know: call plan.attach(model) first",
                WrongPlan,
                stacklevel=2,
            )
        self._check_settings(betas, adjust_lr_fn, moved_by)
        chosen = {
            name: p
            for name, p in tensors.items()
            if p.requires_grad and moved_by in (None, "all", self[name].moved_by)
        }
        matched = adjust_lr_fn == "match_rms_adamw"

        def step(weight: ScaledWeight) -> float:
            return matched_step(weight) if matched and weight.moved_by == "muon" else 1.0

        groups = []
        for settings, names in grouped(self, chosen, lr, weight_decay, eps, step):
            if matched and settings["moved_by"] == "muon":
                settings |= {"adjust_lr_fn": adjust_lr_fn, "made_up_for": adjust_lr_fn}
            if betas is not None:
                settings["betas"] = self.horizon.betas(betas)
            groups.append({"params": [chosen[name] for name in names], **settings})
        return groups

    def _check_settings(self, betas: Any, adjust_lr_fn: Any, moved_by: Any) -> None:
        """Check settings that only some optimizers have."""
        if adjust_lr_fn is not None:
            one_of("adjust_lr_fn", adjust_lr_fn, ("original", "match_rms_adamw"))
            if self.optimizer != "muon":
                raise InvalidInput(
                    f"adjust_lr_fn: is an option of Muon, and the plan is for {self.optimizer}."
                )
        if betas is not None and self.optimizer not in AVERAGING:
            raise InvalidInput(f"betas: {self.optimizer} has none; wanted one of {AVERAGING}.")
        if moved_by is not None:
            movers = ("muon", "adamw") if self.optimizer == "muon" else (self.optimizer,)
            one_of("moved_by", moved_by, (*movers, "all"))
        if self.optimizer == "muon" and moved_by not in ("muon", "adamw", "all"):
            raise InvalidInput(
                "moved_by: Muon moves matrices only; make two optimizers, one of "
                "param_groups(…, moved_by='muon') and one of param_groups(…, moved_by='adamw')."
            )

    def clip_grad_norm_(self, model: nn.Module, max_norm: float) -> torch.Tensor:
        """Clip gradients by their norm, with the threshold tuned on the base model.

        A factor m that is folded into a weight divides its gradient by m, so that the norm of all
        gradients grows with the model. Here every gradient is multiplied by m in the norm, which
        gives it the size that it would have with the factor in the forward pass.

        Parameters
        ----------
        model
            The target model, after ``backward``.
        max_norm
            The largest norm.

        Returns
        -------
        torch.Tensor
            The norm before clipping.

        Raises
        ------
        InvalidInput
            If the model is not the plan's target, or ``max_norm`` is not positive.
        """
        largest = real("max_norm", max_norm, above=0)
        gradients = {n: p.grad for n, p in self._check(model).items() if p.grad is not None}
        norms = [torch.linalg.vector_norm(g) * self[n].fold for n, g in gradients.items()]
        if not norms:
            return torch.zeros(())
        # The norm of a sharded gradient is computed from all of its shards.
        whole = [getattr(norm, "full_tensor", lambda norm=norm: norm)() for norm in norms]
        total = torch.linalg.vector_norm(torch.stack([norm.to(whole[0]) for norm in whole]))
        factor = torch.clamp(largest / (total + 1e-6), max=1.0)
        for gradient in gradients.values():
            gradient.mul_(factor.to(gradient.device))
        return total

    @classmethod
    def from_json(
        cls, text: str | bytes, make_model: Callable[..., nn.Module] | None = None
    ) -> TorchPlan:
        """Read a plan from :meth:`Plan.to_json`, with its builder if models are to be built.

        Raises
        ------
        DamagedFile, InvalidInput
            As in :func:`largen.transfer.plan_from_json`, and if the builder is not a function.
        """
        if make_model is not None and not callable(make_model):
            raise InvalidInput(f"make_model: wanted a function, got {shown(make_model)}.")
        return cls(**read_json(text), make_model=make_model)

    def _built(self, make: Any, device: Any) -> nn.Module:
        with torch.device(device if device is not None else torch.get_default_device()):
            try:
                model = make(**self.target)
            except TypeError as error:
                raise InvalidInput(
                    f"make_model: could not be called with {dict(self.target)}: {error}."
                ) from error
        return self.initialise(model)

    def _check(self, model: nn.Module) -> dict[str, nn.Parameter]:
        """Return the model's weights by the plan's names; raise if they are not the plan's."""
        instance_of("model", model, nn.Module, "a torch.nn.Module")
        tensors = parameters(model)
        planned = {weight.name: weight.shape for weight in self.weights}
        unknown = sorted(set(tensors) - set(planned))
        missing = sorted(set(planned) - set(tensors))
        for weight in self.weights:
            for other in set(weight.tied) & set(unknown):
                raise InvalidInput(
                    f"model: {other} is tied to {weight.name} in the plan, and is a tensor of its "
                    f"own here (loading with assign=True and to_empty untie). Tie it again: "
                    f"model.{other} = model.{weight.name}."
                )
        if unknown or missing:
            raise InvalidInput(
                f"model: it is not the plan's target. Not in the plan: {unknown[:3] or 'none'}; "
                f"not in the model: {missing[:3] or 'none'}."
            )
        for name, tensor in tensors.items():
            if tuple(tensor.shape) != planned[name]:
                raise InvalidInput(
                    f"model: {name} has the shape {tuple(tensor.shape)}, the plan's target has "
                    f"{planned[name]}."
                )
        return tensors
