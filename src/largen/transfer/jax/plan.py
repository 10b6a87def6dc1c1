"""A plan for JAX: it initialises the target's parameters and makes their optax transformation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from largen.errors import InvalidInput, instance_of
from largen.scalars import random_key, real
from largen.text import shown
from largen.transfer.jax.trees import map_named, map_weights, weights_of
from largen.transfer.plan import Plan, grouped, matched_step, read_json
from largen.transfer.schedules import Schedule, check_factor

if TYPE_CHECKING:
    import optax

NOT_IN_OPTAX = ("shampoo",)


@dataclass(frozen=True, repr=False)
class JaxPlan(Plan):
    """The settings of every weight of a pytree; made by :func:`largen.transfer.jax.scale`.

    Attributes
    ----------
    make_parameters
        The user's function that returns the parameters; not part of the JSON.
    """

    make_parameters: Callable[..., Any] | None = field(default=None, compare=False, repr=False)

    def init(self, key: Any) -> Any:
        """Return the target's parameters: the user's own initial values, rescaled.

        Parameters
        ----------
        key
            A JAX key or an integer seed, passed on to the user's function.

        Raises
        ------
        InvalidInput
            If the plan was read from JSON without a function, or the function returns other
            parameters than when the plan was made.
        """
        if self.make_parameters is None:
            raise InvalidInput("make_parameters: a plan read from JSON has none; pass it there.")
        parameters = self.make_parameters(random_key(key), **self.target)
        self.check(parameters)
        return map_weights(
            lambda name, leaf: leaf if self[name].init == 1.0 else leaf * self[name].init,
            parameters,
        )

    def factor(self, name: str) -> float:
        """Return the factor that logits of a tied read-out get in the forward pass."""
        instance_of("name", name, str, "the name of a weight")
        found = [m.factor for m in self.multipliers if m.module == name]
        if name not in self._by_name or (not found and not self[name].tied):
            raise InvalidInput(f"name: {name!r} was not named in tied=….")
        return found[0] if found else 1.0

    def optax(
        self,
        *,
        lr: Any,
        weight_decay: float | None = None,
        eps: float | None = None,
        schedule: Schedule | None = None,
        matrix_lr: Any = None,
        **options: Any,
    ) -> optax.GradientTransformation:
        """Return an optax transformation with its own rate, decay and ε for every weight.

        The result is ``optax.partition`` over groups of weights with equal settings.

        Parameters
        ----------
        lr
            η₀, tuned on the base model.
        weight_decay, eps
            λ₀ and ε₀, tuned on the base model; PyTorch's defaults if None.
        schedule
            s(t), which multiplies every rate, such as :func:`largen.transfer.warmup_cosine`.
        matrix_lr
            Muon's rate for the matrices; ``lr`` by default.
        **options
            Options of the optimizer, such as ``momentum``, ``nesterov``, ``b1`` and ``b2``. With
            Muon's ``consistent_rms`` steps scale with another power of the width, for which the
            rates compensate. ``b1`` and ``b2`` are those tuned on the base model: 1 − β is
            multiplied by the ratio of batch sizes over that of the numbers of samples.

        Raises
        ------
        InvalidInput
            If a rate is a schedule, the schedule returns absolute rates instead of factors, or
            optax does not have the optimizer.
        """
        import optax

        from largen.transfer.jax.updates import transformation

        if self.optimizer in NOT_IN_OPTAX:
            raise InvalidInput(
                f"optimizer: optax has no {self.optimizer}; the plan's settings(weight, lr) are "
                "what one of your own takes for each of its weights."
            )
        for argument, given in (("lr", lr), ("matrix_lr", matrix_lr)):
            if callable(given):
                raise InvalidInput(
                    f"{argument}: wanted a number, got a schedule. Pass the number and "
                    "schedule=… as a factor that multiplies every group's rate, such as "
                    "largen.transfer.warmup_cosine(steps, warmup=…)."
                )
        if schedule is not None and lr != 1.0:  # at 1, absolute rates and factors are the same
            check_factor(schedule)
        for beta in options.keys() & {"b1", "b2"}:
            (options[beta],) = self.horizon.betas([options[beta]])
        transforms, labels = {}, {}
        muon = [w.name for w in self.weights if w.moved_by == "muon"]
        others = [w.name for w in self.weights if w.moved_by != "muon"]
        own_lr = lr if matrix_lr is None else matrix_lr
        step = (lambda weight: 1.0) if options.get("consistent_rms") is None else matched_step
        groups = [
            *grouped(self, dict.fromkeys(others), lr, weight_decay, eps),
            *grouped(self, dict.fromkeys(muon), own_lr, weight_decay, eps, step),
        ]
        for i, (settings, names) in enumerate(groups):
            transforms[str(i)] = transformation(
                self.update, settings, schedule, options, lambda name: self[name].fan_in
            )
            labels |= dict.fromkeys(names, str(i))
        transforms["none"] = optax.set_to_zero()  # for leaves other than weights, such as integers

        def label(parameters: Any) -> Any:
            return map_named(lambda name, _: labels.get(name, "none"), parameters)

        return optax.partition(transforms, label)

    def clip_by_global_norm(self, max_norm: float) -> optax.GradientTransformation:
        """Return a transformation that clips gradients by their norm, at the base's threshold.

        A gradient with respect to a weight that contains a folded factor enters the norm with the
        size that it would have with the factor in the forward pass: see
        :meth:`largen.transfer.torch.TorchPlan.clip_grad_norm_`. Chain the transformation in front
        of :meth:`optax`.
        """
        import optax

        largest = real("max_norm", max_norm, above=0)

        def clip(updates: Any, parameters: Any = None) -> Any:
            squares = [
                jnp.sum(jnp.square(leaf * self[name].fold))
                for name, leaf in weights_of(updates).items()
            ]
            factor = jnp.minimum(1.0, largest / (jnp.sqrt(sum(squares)) + 1e-6))
            return map_weights(lambda name, leaf: leaf * factor, updates)

        return optax.stateless(clip)

    def check(self, parameters: Any) -> None:
        """Raise if parameters are not those of the plan's target."""
        shapes = {name: tuple(leaf.shape) for name, leaf in weights_of(parameters).items()}
        planned = {weight.name: weight.shape for weight in self.weights}
        odd = sorted(n for n in {*shapes, *planned} if shapes.get(n) != planned.get(n))
        if odd:
            raise InvalidInput(
                f"parameters: they are not the plan's target's: {odd[0]} has the shape "
                f"{shapes.get(odd[0])}, the plan has {planned.get(odd[0])}."
            )

    @classmethod
    def from_json(
        cls, text: str | bytes, make_parameters: Callable[..., Any] | None = None
    ) -> JaxPlan:
        """Read a plan from :meth:`Plan.to_json`.

        Raises
        ------
        DamagedFile, InvalidInput
            As in :func:`largen.transfer.plan_from_json`, and if the builder is not a function.
        """
        if make_parameters is not None and not callable(make_parameters):
            raise InvalidInput(f"make_parameters: wanted a function, got {shown(make_parameters)}.")
        return cls(**read_json(text), make_parameters=make_parameters)
