"""Records of plans' verifications: measured slopes, and what they say of the plan."""

from __future__ import annotations

from dataclasses import dataclass

from largen.errors import one_of
from largen.scalars import real
from largen.text import aligned
from largen.transfer.corrections import Correction

KINDS = ("start", "tensor", "logits", "output")
ALIKE = 0.4  # differences of slopes within which they are taken to be the same
SHOWN = 12  # rows of a table, before the last, and corrections
# Lower end of a wrong slope's interval above which it needs no more networks; slope of the output
# below which a pass needs none.
CERTAIN = 0.25
LOOSE = 0.3  # half-width of the output's interval above which nothing is decided


@dataclass(frozen=True)
class Effect:
    """A measured slope of a verification."""

    # "start": the root mean square of a tensor before training; "tensor": the effect of one update
    # of a weight on the tensor that it acts on first; "logits": of all weights on attention logits;
    # "output": of one weight, or of all, on the model's output.
    kind: str
    where: str  # the weight, or the module; empty for all weights
    # slope, margin: slope of log₂ against log₂ of the size, and the half-width of its interval.
    slope: float
    margin: float
    flag: str = ""  # "grows" or "fades" if the slope is wrong

    def __post_init__(self) -> None:
        one_of("kind", self.kind, KINDS)
        one_of("flag", self.flag, ("", "grows", "fades"))
        real("slope", self.slope)
        real("margin", self.margin, at_least=0)

    @property
    def layer(self) -> str:
        """The module of the weight or tensor; empty for the model."""
        weight = self.kind in ("tensor", "output")
        return self.where.rpartition(".")[0] if weight else self.where.rpartition(" ")[2]

    @property
    def words(self) -> str:
        """The effect as a part of a sentence, without its slope."""
        if self.kind == "start":
            return f"before training, the {self.where or 'output'} grows"
        moved = {"tensor": "its tensor", "output": "the output", "logits": "attention logits"}
        if self.kind == "logits":
            return f"one update moves the attention logits of {self.where or 'the model'}"
        return f"one update of {self.where or 'all weights'} moves {moved[self.kind]}"


@dataclass(frozen=True)
class Verification:
    """The record of a plan's verification along one kind of size."""

    along: str  # "width", "depth" or "experts"
    ratios: tuple[float, ...] = ()  # the sizes relative to the base
    seeds: int = 0  # the number of networks of each size
    # The slopes that decide: those that are flagged, from the input to the output, and the sums
    # over all weights.
    effects: tuple[Effect, ...] = ()
    corrections: tuple[Correction, ...] = ()  # what to change first
    cause: str = ""  # what is known of the model that no power of a setting corrects
    reason: str = ""  # why the plan was not verified; empty if it was

    @property
    def flags(self) -> tuple[Effect, ...]:
        """The effects with wrong slopes."""
        return tuple(e for e in self.effects if e.flag)

    @property
    def passed(self) -> bool:
        """Whether the plan was verified, no slope is wrong, and those of the output are known."""
        return not self.reason and not self.flags and not self.loose

    @property
    def loose(self) -> bool:
        """Whether the interval of an effect on the output is too wide to decide."""
        return max((e.margin for e in self.effects if e.kind == "output"), default=0.0) > LOOSE

    @property
    def open(self) -> bool:
        """Whether more networks may well change the verdict."""
        if not self.flags:
            far = any(abs(e.slope) > CERTAIN for e in self.effects if e.kind == "output")
            return self.loose or far
        return all(abs(e.slope) - e.margin < CERTAIN for e in self.flags)

    @property
    def culprit(self) -> Effect | None:
        """The first effect with a wrong slope.

        If it is on the output and all weights' slopes there are alike, the output has a wrong
        power.
        """
        first = next(iter(self.flags), None)
        if first is None or first.kind != "output":
            return first
        slopes = [e.slope for e in self.flags if e.kind == "output"]
        alike = len(slopes) > 2 and max(slopes) - min(slopes) < ALIKE
        return self.flags[-1] if alike and not self.flags[-1].where else first

    def _power(self, effect: Effect) -> str:
        letter = "l" if self.along == "depth" else "n"
        return f"{letter}^({effect.slope:+.2f} ± {effect.margin:.2f})"

    def __str__(self) -> str:
        if self.reason:
            return f"not verified in {self.along}: {self.reason}"
        sizes = ", ".join(f"{ratio:g}" for ratio in self.ratios)
        head = f"in {self.along} (base × {sizes}, {self.seeds} networks each)"
        if not self.flags:
            totals = "; ".join(f"{e.words} by {self._power(e)}" for e in self.effects)
            first = "not decided" if self.loose else "verified"
            weak = ": wide intervals, pass example= with more samples" if self.loose else ""
            return f"{first} {head}{weak}: {totals}" if totals else f"{first} {head}"
        first = self.culprit or self.flags[0]
        lines = [f"wrong {head}: {first.words} by {self._power(first)}, wanted 0"]
        cells = [["kind", "of", "slope", ""]]
        cells += [
            [e.kind, e.where or "all", f"{e.slope:+.2f} ± {e.margin:.2f}", e.flag]
            for e in (*self.effects[:SHOWN], *self.effects[SHOWN:][-1:])
        ]
        lines += [f"  {line}" for line in aligned(cells)]
        if self.cause:
            return "\n".join([*lines, f"  {self.cause}"])
        lines += [f"  try {c}" for c in self.corrections[:SHOWN]]
        more = len(self.corrections) - SHOWN
        return "\n".join([*lines, f"  and {more} more corrections"] if more > 0 else lines)
