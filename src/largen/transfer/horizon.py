"""Rules for another batch size and another number of training samples (the horizon).

**The limit that is kept.** Let B be the batch size, D the number of training samples (or tokens),
K = D/B the number of steps, ḡ the mean gradient and σ/√B the noise of a batch's gradient. Where
noise dominates, σ/√B ≫ |ḡ|, a normalised optimizer moves along √B ḡ/σ + ξ with noise ξ of variance
1. With the fraction t ∈ [0, 1] of the training as time, decoupled decay λ and dW a Wiener process,

    dθ = −(ηD/(√B σ)) ḡ dt − (ηλD/B) θ dt + (η√(D/B)) dW,

and for an update proportional to the gradient

    dθ = −(ηD/B) (ḡ + λθ) dt + (ησ√D/B) dW.

**Batch size.** At fixed D all coefficients are kept by η ∝ √B for normalised updates, the
square-root rule of Malladi et al. 2022 (arXiv 2205.10287), and by η ∝ B for proportional ones, the
linear rule. ε is added to √v ≈ σ/√B, and scales as B^(−½). Averages of gradients are to extend over
the same number of samples, 1 − β ∝ B.

**Horizon.** At fixed B, η ∝ D^(−½) keeps the noise and the decay, while the drift grows as √D: a
longer training follows the mean gradient further at the same noise. Averages are to extend over the
same fraction of the training, 1 − β ∝ 1/D.

Complete(d)P (Mlodozeniec et al. 2025, arXiv 2512.22382), as public implementations of it have its
table, has the same factors for AdamW: √(B/D) for the rate and the decay, B/D for 1 − β. It differs
in ε, √(D/B): the size of √v is that of a batch's noise, which the horizon does not change, and a
test with an ε of that size confirms 1/√B. Best rates that were measured fall more slowly than the
noise requires: as D^(−0.32) for Muon on spheres, as for AdamW before (Ren et al. 2026,
arXiv 2603.28743). To use such a power, multiply the rate by the remaining factor.

**Weight decay.** Decay forgets over a fixed fraction of the training: the time scale 1/(ηλ), in
steps, is kept in proportion to K (Wang and Aitchison 2024, arXiv 2405.13698).

==================  =============  =============
entry               normalised     proportional
==================  =============  =============
rate                √(B/D)         B/√D
decoupled decay     √(B/D)         1/√D
coupled decay       1/√D           1/√D
independent decay   B/D            B/D
ε                   1/√B           –
1 − β               B/D            B/D
==================  =============  =============

Coupled decay is added to the gradient, so that λ enters as ηλD/(√B σ) under a normalised update.
The rules hold up to the batch size at which noise no longer dominates.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from largen.errors import InvalidInput, instance_of
from largen.scalars import real, sequence
from largen.text import shown
from largen.transfer.updates import Update

# Normalised updates whose denominator depends on the number of steps.
UNKNOWN = {
    "adagrad": "its denominator is a sum over all steps, which shrinks the step on its own",
    "adamax": "its denominator is a maximum over steps, which depends on their number",
}


@dataclass(frozen=True)
class Horizon:
    """Factors of an optimizer's settings for another batch size and number of samples."""

    # batch, samples: ratios of the target's batch size and number of training samples to the
    # base's.
    batch: float
    samples: float
    # lr, weight_decay, eps, forgetting: factors of η, λ, ε and 1 − β.
    lr: float
    weight_decay: float
    eps: float
    forgetting: float

    def __str__(self) -> str:
        return (
            f"batch × {self.batch:g}, samples × {self.samples:g}: lr × {self.lr:.4g}, "
            f"weight_decay × {self.weight_decay:.4g}, eps × {self.eps:.4g}, "
            f"1 − β × {self.forgetting:.4g}"
        )

    def betas(self, betas: object) -> tuple[float, ...]:
        """Return 1 − (1 − β)·B/D for every coefficient β of a running average."""
        found = []
        for beta in sequence("betas", betas, "numbers such as (0.9, 0.999)"):
            own = real("betas", beta, at_least=0)
            new = 1 - (1 - own) * self.forgetting
            if own >= 1 or (new < 0 < own):
                raise InvalidInput(
                    f"betas: wanted β in [0, 1) that stay so, got {shown(betas)}; 1 − β is "
                    f"multiplied by {self.forgetting:.4g}, the ratio of batches to samples."
                )
            found.append(max(new, 0.0))
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The target's training relative to the base's.

    Attributes
    ----------
    batch, samples
        Ratios of the target's batch size and number of training samples (or tokens) to the base's.

    Raises
    ------
    InvalidInput
        If a ratio is not positive.

    Examples
    --------
    >>> Budget(batch=8, samples=20)
    Budget(batch=8, samples=20)
    """

    batch: float = 1.0
    samples: float = 1.0

    def __post_init__(self) -> None:
        real("batch", self.batch, above=0)
        real("samples", self.samples, above=0)


def horizon_of(budget: object, optimizer: Update) -> Horizon:
    """Return the factors for a budget, all 1 if there is none."""
    wanted = "largen.transfer.Budget"
    given = Budget() if budget is None else instance_of("budget", budget, Budget, wanted)
    return horizon(optimizer, given.batch, given.samples)


def horizon(optimizer: Update, batch: float = 1.0, samples: float = 1.0) -> Horizon:
    """Return the factors for another batch size and number of samples."""
    batch, samples = real("batch", batch, above=0), real("samples", samples, above=0)
    if batch == samples == 1.0:
        return Horizon(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    why = UNKNOWN.get(optimizer.name)
    if optimizer.kind == "orthogonal":
        why = "the size of its step does not depend on the noise of single entries"
    if why is not None:
        raise InvalidInput(
            f"optimizer: there is no rule of batch size and samples for {optimizer.name}: {why}."
        )
    steps = samples / batch
    if optimizer.kind == "normalised":
        lr, eps = sqrt(1 / steps), sqrt(1 / batch)
    else:
        lr, eps = batch / sqrt(samples), 1.0
    decays = {
        "decoupled": 1 / (steps * lr),
        "coupled": 1 / sqrt(samples),
        "independent": 1 / steps,
    }
    return Horizon(batch, samples, lr, decays[optimizer.decay], eps, 1 / steps)
