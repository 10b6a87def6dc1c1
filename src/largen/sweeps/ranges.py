"""Ranges in which constants of the base and its rate are searched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import log
from typing import Any

import numpy as np

from largen.errors import InvalidInput, instance_of
from largen.scalars import real, sequence
from largen.text import shown
from largen.transfer.constants import Constants
from largen.transfer.patterns import by_pattern
from largen.transfer.plan import Plan
from largen.transfer.roles import family

RATE = "rate"
Range = tuple[float, float]
NEAR = 1 / 8  # standard deviation of draws around others, in the logarithm of a range
# Ranges of factors around 1, at least as wide as those of the best draws of a small transformer.
OF_SIZES, OF_RATES = (1 / 8, 8.0), (1 / 4, 4.0)


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """The ranges of a search: the rate, and factors as in :class:`largen.transfer.Constants`.

    Draws are uniform in the logarithm, and independent of one another.

    Attributes
    ----------
    rate
        (smallest, largest) η₀.
    output, attention
        Ranges of the factors of the output and of attention logits; None leaves a factor at 1.
    init, lr
        Ranges of the factors of initial values and of rates, by role or pattern.

    Raises
    ------
    InvalidInput
        If a range is not a pair of increasing numbers > 0.

    Examples
    --------
    >>> ranges = Ranges(rate=(2**-10, 2**-5), init={"hidden": (0.5, 8)})
    >>> list(ranges.by_name)
    ['rate', 'output', 'init of hidden']
    """

    rate: Range
    output: Range | None = OF_SIZES
    attention: Range | None = None
    init: Mapping[str, Range] = field(default_factory=dict)
    lr: Mapping[str, Range] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", _range("rate", self.rate))
        for name in ("output", "attention"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _range(name, getattr(self, name)))
        for name in ("init", "lr"):
            given = instance_of(name, getattr(self, name), Mapping, "a dict of ranges")
            pairs = by_pattern(name, given).items()
            found = {key: _range(f"{name}[{key!r}]", pair) for key, pair in pairs}
            object.__setattr__(self, name, found)

    @classmethod
    def of(cls, plan: Plan, rate: Range) -> Ranges:
        """Return the usual ranges for a plan's roles: factors of 8 for sizes, of 4 for rates.

        Of the output if the plan has a read-out; of attention logits if the plan has a factor of
        them, as with heads that grow (else ``dataclasses.replace(ranges, attention=(0.25, 4))``);
        of initial values and rates for every role of matrices with growing sides.

        Parameters
        ----------
        plan
            A plan from the base to a larger model, made without constants.
        rate
            As in :class:`Ranges`.

        Raises
        ------
        InvalidInput
            If there is no plan, or the rates are not a pair of increasing numbers > 0.

        Examples
        --------
        >>> from torch import nn
        >>> from largen.transfer.torch import scale
        >>> def mlp(width):
        ...     return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 2))
        >>> plan = scale(mlp, {"width": 16}, {"width": 64}, scheme="mup")
        >>> list(Ranges.of(plan, rate=(2**-10, 2**-3)).by_name)
        ['rate', 'output', 'init of input', 'lr of input']
        """
        instance_of("plan", plan, Plan, "a plan, made by scale(…)")
        factors = {m.kind for m in plan.multipliers}
        factors |= {words.partition(" ")[0] for w in plan.weights for words in w.folded}
        matrices = [w.role for w in plan.weights if len(w.shape) > 1]
        roles = dict.fromkeys(r for r in matrices if family(r) in ("input", "hidden"))
        reads_out = "output" in factors or any(family(role) == "output" for role in matrices)
        return cls(
            rate=rate,
            output=OF_SIZES if reads_out else None,
            attention=OF_RATES if "attention" in factors else None,
            init=dict.fromkeys(roles, OF_SIZES),
            lr=dict.fromkeys(roles, OF_RATES),
        )

    @property
    def by_name(self) -> dict[str, Range]:
        """All ranges, by the names that results have: ``"rate"``, ``"init of hidden"``, …."""
        alone = {name: getattr(self, name) for name in (RATE, "output", "attention")}
        found = {name: pair for name, pair in alone.items() if pair is not None}
        for what in ("init", "lr"):
            found |= {f"{what} of {key}": pair for key, pair in getattr(self, what).items()}
        return found

    def draws(self, random: int, plain: int, seed: int) -> np.ndarray:
        """Return settings ``(draw, name)``: rates alone, evenly spaced, then random ones."""
        pairs = np.log(list(self.by_name.values()))
        factors = np.zeros((plain, len(pairs)))
        share = (np.arange(plain) + 0.5) / max(plain, 1)
        factors[:, 0] = pairs[0, 0] + share * (pairs[0, 1] - pairs[0, 0])
        uniform = np.random.default_rng(seed).uniform(size=(random, len(pairs)))
        drawn = pairs[:, 0] + uniform * (pairs[:, 1] - pairs[:, 0])
        return rounded(np.exp(np.concatenate([factors, drawn])))

    def near(self, around: np.ndarray, count: int, seed: int) -> np.ndarray:
        """Return settings around those of ``around (draw, name)`` in turn, within the ranges."""
        low, high = np.log(list(self.by_name.values())).T
        draw = np.random.default_rng([seed, 1])
        centres = np.log(np.resize(around, (count, around.shape[1])))
        logs = centres + draw.normal(size=centres.shape) * NEAR * (high - low)
        return rounded(np.exp(np.clip(logs, low, high)))


def rounded(numbers: np.ndarray) -> np.ndarray:
    """Return numbers with three digits, as they are printed."""
    return np.vectorize(lambda x: float(f"{x:.3g}"), otypes=[float])(numbers)


def constants_named(names: Iterable[str], factors: Iterable[float]) -> Constants:
    """Return the constants among named settings."""
    by_name = {name: float(c) for name, c in zip(names, factors, strict=True) if name != RATE}
    found: dict[str, Any] = {"init": {}, "lr": {}}
    for name, factor in by_name.items():
        what, _, key = name.partition(" of ")
        if key:
            found[what][key] = factor
        else:
            found[what] = factor
    # Factors of 1 are left out: a role that a model lacks is then no error.
    for what in ("init", "lr"):
        found[what] = {key: factor for key, factor in found[what].items() if factor != 1.0}
    return Constants(**found)


def at_end(pair: Range, factor: float) -> bool:
    """Whether a factor is within a tenth of an end of its range, in the logarithm."""
    low, high = log(pair[0]), log(pair[1])
    share = (log(factor) - low) / (high - low)
    return share < 0.1 or share > 0.9


def _range(name: str, pair: Any) -> Range:
    wanted = "a pair of increasing numbers > 0"
    ends = [real(name, end, above=0) for end in sequence(name, pair, wanted)]
    if len(ends) != 2 or ends[0] >= ends[1]:
        raise InvalidInput(f"{name}: wanted {wanted}, got {shown(pair)}.")
    return ends[0], ends[1]
