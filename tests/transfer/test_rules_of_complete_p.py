"""Rules of complete_p and of the horizon, entry by entry.

Width and depth: CompleteP, Dey et al. 2025 (arXiv 2505.01618), α = 1, for AdamW, as its public
implementation has them, with decay multiplied by the rate as in PyTorch. Outside of branches ε has
no power of l here, while that implementation has ε × n⁻¹l⁻¹ for all weights. Complete(d)P
(Mlodozeniec et al. 2025, arXiv 2512.22382) has an ε of its own for gains of QK-norms, and the
read-out's multiplier in its standard deviation and rate; its tables for batch size and horizon are
not compared. Batch size and horizon: the square-root rule of Malladi et al. 2022
(arXiv 2205.10287), and the time scale of decay of Wang and Aitchison 2024 (arXiv 2405.13698).
"""

from fractions import Fraction

import pytest

from largen.parameterizations import Power
from largen.transfer.horizon import horizon
from largen.transfer.rules import (
    attention_multiplier,
    branch_multiplier,
    fold,
    rule,
    with_decay,
)
from largen.transfer.schemes import scheme_of
from largen.transfer.updates import update

HALF = Fraction(1, 2)
ADAMW, COMPLETE_P = update("adamw"), scheme_of("complete_p")

# (role, in a branch): powers (of n, of l) of the standard deviation, rate, weight decay and ε.
COMPLETE = {
    ("embedding", False): ((0, 0), (0, 0), (0, 0), (-1, 0)),
    ("hidden", True): ((-HALF, 0), (-1, 0), (1, 0), (-1, -1)),
    ("attention", True): ((-HALF, 0), (-1, 0), (1, 0), (-1, -1)),
    ("bias", True): ((0, 0), (0, 0), (0, 0), (-1, -1)),
    ("norm", True): ((0, 0), (0, 0), (0, 0), (-1, -1)),
    ("norm", False): ((0, 0), (0, 0), (0, 0), (-1, 0)),
    ("output", False): ((0, 0), (0, 0), (0, 0), (-1, 0)),
}
COLUMNS = ("init_std", "lr", "weight_decay", "eps")


@pytest.mark.parametrize(("entry", "powers"), COMPLETE.items(), ids=str)
def test_complete_p(entry, powers):
    own = rule(COMPLETE_P, ADAMW, *entry)
    for column, (n, l) in zip(COLUMNS, powers, strict=True):
        assert getattr(own, column) == Power(width=n, depth=l), column
    wanted = Power(width=-1) if entry[0] == "output" else Power()
    assert own.multiplier == wanted


def test_forward_multipliers_of_complete_p():
    assert branch_multiplier(COMPLETE_P) == Power(depth=-1)
    assert attention_multiplier(COMPLETE_P, Fraction(0)) == Power(width=-1)  # logits q·k/d


def test_the_read_out_without_a_multiplier():
    # As in Complete(d)P: the multiplier is in the standard deviation and the rate, and the gradient
    # with respect to the weight is then of order one, as is ε.
    own = rule(COMPLETE_P, ADAMW, "output")
    folded = with_decay(fold(own, own.multiplier**-1, ADAMW), ADAMW)
    powers = [getattr(folded, column).width for column in COLUMNS]
    assert powers == [-1, -1, 1, 0]


def test_gains_that_heads_share_have_eps_of_their_own():
    # Gains of QK-norms have a fixed size under a growing number of heads: Complete(d)P has ε × n⁰.
    own = rule(COMPLETE_P, ADAMW, "scalar", in_branch=True)
    assert (own.eps.width, own.eps.depth) == (0, -1)
    assert own.lr == own.init_std == Power()


# Factors at B × 4, D × 16: rate, weight decay, ε, 1 − β.
HORIZON = {
    (4, 1): (2, 2, HALF, 4),  # √B, and the time scale of decay B/D in steps
    (1, 4): (HALF, HALF, 1, Fraction(1, 4)),
    (4, 4): (1, 1, HALF, 1),  # a fixed number of steps
    (4, 16): (HALF, HALF, HALF, Fraction(1, 4)),
}


@pytest.mark.parametrize(("ratios", "factors"), HORIZON.items(), ids=str)
def test_batch_size_and_horizon(ratios, factors):
    own = horizon(ADAMW, *ratios)
    found = (own.lr, own.weight_decay, own.eps, own.forgetting)
    assert found == pytest.approx([float(f) for f in factors])
    # The time scale 1/(ηλ) in steps is a fixed share of the number of steps.
    assert own.lr * own.weight_decay == pytest.approx(ratios[0] / ratios[1])
