"""Self-attention, as a record. Its weights are those of the affine maps before and behind it."""

from __future__ import annotations

from dataclasses import dataclass, field

from largen.architectures.traits import Layer
from largen.errors import InvalidInput
from largen.programs.builder import Builder
from largen.programs.operations import Attend
from largen.programs.signals import Signal
from largen.scalars import real


@dataclass(frozen=True, repr=False)
class SelfAttention(Layer):
    """Dot-product attention of the positions of a sample, ``y_p = Σ_r softmax_r(s x_p·x_r/C) x_r``.

    C is the number of features, so that logits stay of order one as the width grows (scaling
    1/d). It has no weights: values and outputs are mixed by the affine maps behind it, as in
    ``serial(SelfAttention(), Dense(), Dense())``. Queries and keys of equal weights σ_q = σ_k,
    drawn once, have the logits σ_q σ_k x_p·x_r/C in the limit of many features, so that
    s = σ_q σ_k.

    Scaling 1/√d, under which the logits of independent queries and keys stay random, is
    :class:`largen.layers.MultiHeadAttention`.

    Parameters
    ----------
    logit_scale
        s, of order one; with 0 the layer averages over all positions.

    Raises
    ------
    InvalidInput
        If ``logit_scale`` is not a finite number.

    Examples
    --------
    >>> import largen as lg
    >>> lg.serial(lg.LayerNorm(), lg.layers.SelfAttention(logit_scale=2.0), lg.Dense())
    serial(LayerNorm(), SelfAttention(logit_scale=2.0), Dense())
    """

    logit_scale: float = field(default=1.0, kw_only=True)

    def __post_init__(self):
        object.__setattr__(self, "logit_scale", real("logit_scale", self.logit_scale))

    @property
    def keeps_shape(self) -> bool:
        """True: attention changes neither the spatial axes nor the number of features."""
        return True

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the signal unchanged; raise an error if it has no positions."""
        check_positions(self, signal)
        return signal

    def lower(self, program: Builder, value: int) -> int:
        """Append attention with the input itself as queries, keys and values of one head."""
        scale = self.logit_scale
        return program.add(Attend((value,) * 3, concentrated=True, scale=scale, heads=1))


def check_positions(layer: Layer, signal: Signal) -> None:
    """Check that a signal has positions to attend to."""
    if signal.space == ():
        raise InvalidInput(f"net: {layer!r} attends over positions, and its input has none.")
