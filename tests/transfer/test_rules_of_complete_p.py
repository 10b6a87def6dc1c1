"""Rules of complete_p, of the horizon and of experts, entry by entry.

Width and depth: CompleteP, Dey et al. 2025 (arXiv 2505.01618), α = 1, for AdamW, as its public
implementation has them, with decay multiplied by the rate as in PyTorch. Outside of branches ε has
no power of l here, while that implementation has ε × n⁻¹l⁻¹ for all weights. Complete(d)P
(Mlodozeniec et al. 2025, arXiv 2512.22382) as three public implementations of its Table 1 have it:
it has no multiplier of the read-out. Batch size and horizon: the square-root rule of Malladi et al.
2022 (arXiv 2205.10287), and the time scale of decay of Wang and Aitchison 2024 (arXiv 2405.13698).
Experts: Jiang, Bordelon, Pehlevan and Hanin 2026 (arXiv 2601.20205), Table 2, as a public
implementation has it, for experts whose size grows as the width.
"""

from fractions import Fraction

import pytest

from largen.parameterizations import Power
from largen.transfer.experts import rule_of_number
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


# Complete(d)P, α = 1: the same columns. Gains of QK-norms have a fixed size under a growing number
# of heads ("scalar"). The gain in front of the read-out is left out: there ε is constant, while the
# gradient is a sum over the read-out's weights, of order n⁻¹, as is ε here.
COMPLETED = {
    ("embedding", False): ((0, 0), (0, 0), (0, 0), (-1, 0)),
    ("hidden", True): ((-HALF, 0), (-1, 0), (1, 0), (-1, -1)),
    ("norm", True): ((0, 0), (0, 0), (0, 0), (-1, -1)),
    ("bias", True): ((0, 0), (0, 0), (0, 0), (-1, -1)),
    ("scalar", True): ((0, 0), (0, 0), (0, 0), (0, -1)),
    ("output", False): ((-1, 0), (-1, 0), (1, 0), (0, 0)),
    ("scalar", False): ((0, 0), (0, 0), (0, 0), (0, 0)),  # the read-out's bias
}


@pytest.mark.parametrize(("entry", "powers"), COMPLETED.items(), ids=str)
def test_completed_p(entry, powers):
    own = rule(COMPLETE_P, ADAMW, *entry)
    own = with_decay(fold(own, own.multiplier**-1, ADAMW), ADAMW)
    for column, (n, l) in zip(COLUMNS, powers, strict=True):
        assert getattr(own, column) == Power(width=n, depth=l), column


# Experts: powers (of n, of l, of the number e of experts) of the rate and of ε under Adam, with
# branches × l⁻¹ and means over active experts. Rates are those of the table. In ε it has no power
# of e, while the gradient of each expert falls as 1/e, and n⁻¹ for the router, the gradient of
# whose logits is a sum over features and of order one.
EXPERTS = {
    "hidden": ((-1, 0, 0), (-1, -1)),  # both matrices of an expert
    "output": ((-1, 0, 0), (0, -1)),  # the router, without its multiplier
}


@pytest.mark.parametrize(("role", "powers"), EXPERTS.items(), ids=str)
def test_experts(role, powers):
    adam = update("adam")
    own = rule(COMPLETE_P, adam, role, in_branch=True)
    own = fold(own, own.multiplier**-1, adam)
    of_e = rule_of_number(adam)
    rate, eps = powers
    assert (own.lr.width, own.lr.depth, of_e.lr.width) == rate
    assert (own.eps.width, own.eps.depth) == eps
    assert of_e.init_std == Power()
    assert of_e.eps == Power(width=-1)


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
