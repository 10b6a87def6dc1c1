"""The transfer rule table: against published tables, and by its defining properties."""

from fractions import Fraction

import pytest

import largen as lg
from largen.errors import InvalidInput
from largen.parameterizations import Power
from largen.transfer import ROLES, rule_table
from largen.transfer.rules import (
    attention_multiplier,
    fold,
    rule,
    tied_multiplier,
    value,
    with_decay,
)
from largen.transfer.schemes import SCHEMES, scheme_of
from largen.transfer.updates import UPDATES, update

HALF = Fraction(1, 2)


def powers(scheme, optimizer, role, in_branch=False, field="lr"):
    power = getattr(rule(scheme_of(scheme), update(optimizer), role, in_branch), field)
    assert power.constant == 1
    return power.width, power.depth


# (init_std, SGD rate, Adam rate): powers of n. Yang et al. 2022, Table 8; their read-out's
# multiplier is 1/n.
MUP = {"embedding": (0, 1, 0), "hidden": (-HALF, 0, -1), "output": (0, 1, 0), "bias": (0, 1, 0)}


@pytest.mark.parametrize("role", MUP)
@pytest.mark.parametrize("scheme", ["mup", "mean_field", "depth_mup", "complete_p"])
def test_mup_as_published(scheme, role):
    std, sgd, adam = MUP[role]
    assert powers(scheme, "sgd", role, field="init_std") == (std, 0)
    assert powers(scheme, "sgd", role) == (sgd, 0)
    assert powers(scheme, "adam", role) == (adam, 0)
    out = rule(scheme_of(scheme), update("adam"), role).multiplier
    assert out == (Power(width=-1) if role == "output" else Power())


@pytest.mark.parametrize("alpha", [HALF, Fraction(3, 4), 1])
def test_depth_as_published(alpha):
    # Dey et al. 2025: AdamW rates n⁻¹l^(α−1) in branches, ε × n⁻¹l^(−α), decay × n with lr·wd kept.
    param = scheme_of("mup", alpha=alpha)
    own = rule(param, update("adamw"), "hidden", in_branch=True)
    assert (own.lr.width, own.lr.depth) == (-1, alpha - 1)
    assert (own.eps.width, own.eps.depth) == (-1, -alpha)
    assert own.weight_decay * own.lr == Power()
    # Bordelon et al., Table 1, and l^(2α−1) for gradient descent.
    sgd = rule(param, update("sgd"), "hidden", in_branch=True)
    assert (sgd.lr.width, sgd.lr.depth) == (0, 2 * alpha - 1)
    for role in ("bias", "norm", "depthwise", "router", "scalar"):
        assert powers(param, "adamw", role, in_branch=True)[1] == alpha - 1


@pytest.mark.parametrize("optimizer", UPDATES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_changes_at_the_base(scheme, optimizer):
    for role in ROLES:
        for in_branch in (False, True):
            own = rule(scheme_of(scheme), update(optimizer), role, in_branch)
            for power in vars(own).values():
                assert value(power, 1.0, 1.0) == 1.0


@pytest.mark.parametrize("optimizer", UPDATES)
@pytest.mark.parametrize("scheme", ["ntk", "mup", "complete_p"])
def test_shifted_parameterizations_have_the_same_rules(scheme, optimizer):
    # The abc-symmetry: one form is written for all parameterizations that train alike.
    param, moved = scheme_of(scheme), update(optimizer)
    shifted = param.shift({"input": "1/2", "hidden": "-1/3", "bias": 1, "output": "1/4"})
    for role in ROLES:
        for in_branch in (False, True):
            a, b = (rule(p, moved, role, in_branch) for p in (param, shifted))
            if a.multiplier != b.multiplier:  # the read-out's own, folded
                a, b = (with_decay(fold(r, r.multiplier**-1, moved), moved) for r in (a, b))
            assert a == b, role


def test_momentum_is_linear_in_the_gradients():
    for scheme in SCHEMES:
        for role in ROLES:
            param = scheme_of(scheme)
            assert rule(param, update("momentum"), role) == rule(param, update("sgd"), role)


def test_muon_moves_features_as_much_as_adam_does():
    # ‖ΔW‖ = √(fan_out/fan_in) in the spectral norm: Yang, Simon and Bernstein 2023, (1).
    assert powers("mup", "muon", "hidden") == (0, 0)
    assert powers("depth_mup", "muon", "hidden", in_branch=True) == (0, -HALF)
    for role in ("embedding", "output", "norm"):
        assert powers("mup", "muon", role) == powers("mup", "adamw", role)
    assert powers("standard", "muon", "hidden") == (0, 0)


def test_attention_logits_are_divided_by_the_head_dimension_where_features_move():
    assert attention_multiplier(lg.mup()) == Power(width=-HALF)
    assert attention_multiplier(lg.ntk()) == attention_multiplier(lg.standard()) == Power()
    # A model whose logits are q·k/d already.
    assert attention_multiplier(lg.mup(), Fraction(-1)) == Power()


@pytest.mark.parametrize("scheme", ["ntk", "mean_field", "mup", "depth_mup", "complete_p"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_tied_embeddings_ask_for_one_rule(scheme, optimizer):
    param, moved = scheme_of(scheme), update(optimizer)
    into, out = (rule(param, moved, role) for role in ("embedding", "output"))
    # Write the read-out with the embedding's standard deviation: the rates then agree as well.
    as_embedding = fold(out, tied_multiplier(param, moved) / out.multiplier, moved)
    assert as_embedding.init_std == into.init_std
    assert as_embedding.lr == into.lr
    assert as_embedding.eps == into.eps


def test_kinds_of_weight_decay():
    adamw = rule(lg.mup(), update("adamw"), "hidden")
    assert adamw.weight_decay == Power(width=1)
    adam = rule(lg.mup(), update("adam"), "hidden")
    assert adam.weight_decay == adam.eps / adam.init_std == Power(width=-HALF)
    assert rule(lg.mup(), update("sgd"), "embedding").weight_decay == Power(width=-1)


def test_a_parameterization_of_ones_own_is_a_scheme():
    own = lg.abc(a=(0, "1/2", "1/2"), b=0, c=0, d="1/2")
    assert powers(own, "adam", "hidden") == (-1, 0)
    assert "abc" in rule_table(own)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rule_table("mupp"), "Did you mean 'mup'"),
        (lambda: rule_table("mup", "adamx"), "optimizer: 'adamx' is not known"),
        (lambda: rule_table("mup", decay="l2"), "decay: 'l2'"),
        (lambda: rule_table("mup", "lion", decay="coupled"), "no coupled weight decay"),
        (lambda: rule_table("mup", alpha="x"), "alpha: wanted a rational"),
        (
            lambda: rule_table(lg.scaling.from_reference(width=8, scaling="mean field"), "sgd"),
            "the base model is one",
        ),
    ],
)
def test_doors(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()
