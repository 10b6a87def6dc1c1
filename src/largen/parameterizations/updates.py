"""What optimizers say of their update, which all rooms ask them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from largen.errors import NoRule
from largen.parameterizations.averages import Averages, Velocity

Kind = Literal["proportional", "normalised", "orthogonal"]
KINDS = ("proportional", "normalised", "orthogonal")
Backward = Literal["gradients", "feedback", "direct feedback", "errors"]

# What optimizers say of their update, in words.
SAID_IN_WORDS = {
    "kind": "how its update scales with the gradient, `kind`: 'proportional', 'normalised' or "
    "'orthogonal'",
    "averages": "what its update averages over time, `averages`: a Velocity, or Averages of single "
    "weights",
    "transformation": "its update, `transformation` or `averages`",
}


class Scales(NamedTuple):
    """The scales of every weight in the rule table, as optax transformations.

    Attributes
    ----------
    units
        ∇/eps, the gradient in units in which it is of order one.
    decay
        Adds λ₀·(rule's weight_decay)·θ.
    rate
        Multiplies by −η₀·(rule's lr), with η₀ of the step.
    """

    units: Any
    decay: Any
    rate: Any


class Update:
    """What an optimizer says of its update; base of all optimizers.

    It holds for the optimizer's own class: in classes that derive from it, it is unsaid again,
    since their updates are others. Classes from which optimizers derive without being one have the
    argument ``base=True``.

    Attributes
    ----------
    kind
        How the update scales with the gradient: ``"proportional"`` to it, ``"normalised"`` if the
        size of every entry is that of the rate, ``"orthogonal"`` if the singular values of a
        matrix are.
    averages
        What the update averages over time: a :class:`~largen.parameterizations.Velocity`, or
        :class:`~largen.parameterizations.Averages` of single weights; None if it is neither.
    backward
        What passes backward: gradients, or what takes their place.
    continuous
        Whether it is a flow, without steps.
    temperature
        T₀ of the noise that is added to every step.
    of_dense_layers
        The rule of learning in words if it is one of dense layers alone, which follow one another.
    """

    # Without types that fields and properties of optimizers would have to repeat.
    kind: Any = None  # a Kind
    averages: Any = None  # a Velocity or Averages
    backward: Any = "gradients"  # a Backward
    continuous: Any = False
    temperature: Any = 0.0
    of_dense_layers: Any = None
    batch_size: Any = None
    schedule: Any = None
    words: Any = None  # the optimizer as a noun, in titles; its class's name by default
    _is_base: ClassVar[bool] = True

    def __init_subclass__(cls, base: bool = False, **options: Any):
        super().__init_subclass__(**options)
        cls._is_base = base
        if cls._derives_from() is not None:
            for name in (*SAID_IN_WORDS, "words"):
                if name not in vars(cls):
                    setattr(cls, name, vars(Update)[name])

    @classmethod
    def _derives_from(cls) -> type[Update] | None:
        """Return the optimizer from which a class derives, if it is more than a base."""
        bases = (base for base in cls.__mro__[1:] if issubclass(base, Update))
        return next((base for base in bases if not base._is_base), None)

    @property
    def adaptive(self) -> bool:
        """Whether the size of the update is independent of the gradient's."""
        return self.says("kind") != "proportional"

    @property
    def follows_gradients(self) -> bool:
        """Whether the update is a velocity along gradients, with noise or without."""
        linear = self.kind == "proportional" and isinstance(self.averages, Velocity)
        return linear and self.backward == "gradients"

    @property
    def descends(self) -> bool:
        """Whether the update is a velocity along gradients, without noise."""
        return self.follows_gradients and not self.temperature

    @property
    def descends_in_steps(self) -> bool:
        """Whether it is gradient descent, with or without momentum and batches, and no flow."""
        return self.descends and not self.continuous

    def transformation(self, scales: Scales) -> Any:
        """Return the update of weights as an optax transformation of their gradients.

        Parameters
        ----------
        scales
            The rule table's scales, as transformations that it is composed of.

        Raises
        ------
        NoRule
            If the optimizer says neither this nor what it averages.
        """
        import optax

        if isinstance(self.averages, Averages):
            moved = _of_averages(self.averages)
            return optax.chain(scales.units, moved, scales.decay, scales.rate)
        if not isinstance(self.averages, Velocity):
            raise self._unsaid("transformation")
        beta = self.averages.momentum
        velocity = [optax.trace(beta)] if beta else []
        return optax.chain(scales.decay, scales.rate, *velocity)

    def says(self, name: str) -> Any:
        """Return what the optimizer says of its update.

        Raises
        ------
        NoRule
            If it does not say it; what an optimizer from which it derives says does not hold.
        """
        said = getattr(self, name)
        if said is None:
            raise self._unsaid(name)
        return said

    def _unsaid(self, name: str) -> NoRule:
        """Return the error of an optimizer that does not say something."""
        called, base = type(self).__name__, self._derives_from()
        derives = ""
        if base is not None:
            derives = f" What {base.__name__} says does not hold for a class that derives from it."
        return NoRule(
            "training",
            self,
            said=f"optimizer: {called} does not say {SAID_IN_WORDS[name]}.{derives} "
            "See 'How to add an optimizer' in CONTRIBUTING.md.",
        )


def momentum_of(optimizer: Update) -> float:
    """Return β of the velocity v ← βv − η∇; 0 for an update that has none."""
    averages = optimizer.says("averages")
    return averages.momentum if isinstance(averages, Velocity) else 0.0


def _of_averages(averages: Averages) -> Any:
    """Return the transformation of gradients to the updates of single weights."""
    import optax

    def init(params: Any) -> tuple[Any, Any]:
        memory = tuple(jax.tree.map(jnp.zeros_like, params) for _ in range(averages.memories))
        return jnp.zeros([], jnp.int32), memory

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count = state[0] + 1
        moved, memory = averages.of_trees(updates, state[1], averages.corrections(count))
        return moved, (count, memory)

    return optax.GradientTransformation(init, update)
