"""The rule table against the published ones, and against what follows from the symmetry."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import largen as lg
from largen.errors import InvalidInput, NoTheory
from largen.parameterizations import Power, canonical_form

HALF = Fraction(1, 2)
SCHEMES = [lg.ntk(), lg.standard(), lg.mean_field(2.0), lg.mup(), lg.depth_mup(), lg.complete_p()]
OPTIMIZERS = [lg.gd(0.1), lg.adam(0.1)]
NET = lg.residual_mlp(3, "tanh", bias_std=0.5, weight_std=1.3)


def powers(param, optimizer, what, net=None):
    """Exponents of (N, L) of one column, for input, hidden and output weights."""
    rows = param.table(net or lg.residual_mlp(4, "relu"), optimizer).rows
    return [(getattr(r.rule, what).width, getattr(r.rule, what).depth) for r in rows]


def test_mup_is_the_published_table():
    """Yang et al. 2022, Table 8 (and Table 9 for gradient descent)."""
    sgd, adam = OPTIMIZERS
    assert powers(lg.mup(), sgd, "lr") == [(1, 0), (0, 0), (1, 0)]
    assert powers(lg.mup(), adam, "lr") == [(0, 0), (-1, 0), (0, 0)]
    assert powers(lg.mup(), adam, "init_std") == [(0, 0), (-HALF, 0), (0, 0)]
    assert powers(lg.mup(), adam, "multiplier") == [(0, 0), (0, 0), (-1, 0)]
    assert powers(lg.mup(), adam, "weight_decay") == [(0, 0), (1, 0), (0, 0)]


@pytest.mark.parametrize(("param", "alpha"), [(lg.depth_mup(), HALF), (lg.complete_p(), 1)])
def test_rates_in_depth(param, alpha):
    """Hidden rates: n⁻¹ l^(α−1) for Adam and l^(2α−1) for gradient descent, in μP's gauge."""
    practice = param.shift({"hidden": -HALF})
    sgd, adam = OPTIMIZERS
    assert powers(practice, sgd, "lr")[1] == (0, 2 * alpha - 1)
    assert powers(practice, adam, "lr")[1] == (-1, alpha - 1)
    assert powers(practice, adam, "eps")[1] == (-1, -alpha)
    assert param.table(lg.residual_mlp(4)).branch == Power(depth=-alpha)


def test_standard_has_one_rate_for_all():
    for optimizer in OPTIMIZERS:
        table = lg.standard().table(lg.mlp(2, "relu", bias_std=1.0), optimizer)
        assert {rule.lr for rule in table.values()} == {Power()}
        assert {rule.multiplier for rule in table.values()} == {Power()}


def test_numbers_are_the_powers_evaluated():
    table = lg.mean_field(2.0).table(NET, lg.gd(0.1), width=64, inputs=9)
    assert table["0.weight"].multiplier == pytest.approx(1.3 / 3)
    assert table["1.0.0.1.weight"].multiplier == pytest.approx(1.3 / 8)
    assert table["3.weight"].multiplier == pytest.approx(1.3 / (2 * 64))
    assert table["3.bias"].multiplier == pytest.approx(0.5 / (2 * 8))
    assert all(rule.lr == pytest.approx(4 * 64) for rule in table.values())


@settings(max_examples=20)
@given(
    scheme=st.sampled_from(SCHEMES),
    optimizer=st.sampled_from(OPTIMIZERS),
    role=st.sampled_from(["input", "hidden", "output", "bias"]),
    theta=st.fractions(-2, 2, max_denominator=6),
)
def test_shift_keeps_what_training_sees(scheme, optimizer, role, theta):
    """Invariant: multiplier·std, rate·multiplier² (GD) or rate·multiplier (Adam), and
    ε/multiplier; the gradient has the multiplier as a factor."""
    before, after = scheme.table(NET, optimizer), scheme.shift({role: theta}).table(NET, optimizer)
    for name in before:
        old, new = before[name], after[name]
        ratio = new.multiplier / old.multiplier
        assert new.init_std * ratio == old.init_std
        assert new.lr * ratio ** (1 if optimizer.adaptive else 2) == old.lr
        assert new.eps == old.eps * ratio
        assert new.lr.width + new.weight_decay.width == 0


@settings(max_examples=20)
@given(scheme=st.sampled_from(SCHEMES), theta=st.fractions(-2, 2, max_denominator=6))
def test_shift_by_zero_and_back(scheme, theta):
    there = scheme.shift({"hidden": theta, "output": -theta})
    back = there.shift({"hidden": -theta, "output": theta})
    for optimizer in OPTIMIZERS:
        assert back.table(NET, optimizer).rows == scheme.table(NET, optimizer).rows


def test_mup_is_mean_field_up_to_the_symmetry():
    """At infinite width they differ by constants of the rates alone: 1/(effective variance)."""
    net = lg.mlp(3, "tanh")
    mup = canonical_form(lg.mup(), net, lg.gd(0.1), inputs=7).weights
    field = canonical_form(lg.mean_field(), net, lg.gd(0.1), inputs=7).weights
    assert [w.std for w in mup.values()] == [w.std for w in field.values()]
    assert [w.rate for w in field.values()] == [1, 1, 1, 1]
    assert [w.rate for w in mup.values()] == pytest.approx([7, 1, 1, 1])


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("theta", [HALF, Fraction(-3, 2)])
def test_canonical_form_does_not_see_the_gauge(scheme, theta):
    shifted = scheme.shift({"hidden": theta, "input": -theta, "output": 2 * theta})
    try:
        form = canonical_form(scheme, NET, lg.gd(0.1), inputs=5)
    except NoTheory:
        with pytest.raises(NoTheory):
            canonical_form(shifted, NET, lg.gd(0.1), inputs=5)
    else:
        assert canonical_form(shifted, NET, lg.gd(0.1), inputs=5).weights == form.weights


@pytest.mark.parametrize("delta", [HALF, Fraction(-1, 3)])
@pytest.mark.parametrize(
    "net",
    [lg.residual_mlp(3, "tanh", weight_std=1.3), lg.serial(lg.Dense(bias_std=0.5), lg.Dense())],
    ids=["residual", "with a bias"],
)
def test_what_is_called_gamma_has_no_effect(net, delta):
    """A factor of the read-out may be in its multiplier or in γ = γ₀Nᵈ."""
    scheme = lg.mean_field(2.0)
    moved = {
        role: replace(getattr(scheme, role), c=getattr(scheme, role).c + 2 * delta)
        for role in ("input", "hidden", "output", "bias")
    }
    moved["output"] = replace(moved["output"], a=scheme.output.a - delta)
    other = replace(scheme, d=scheme.d + delta, **moved)
    for optimizer in OPTIMIZERS:
        mine, theirs = (each.table(net, optimizer) for each in (scheme, other))
        assert (mine.rows, mine.gamma) == (theirs.rows, theirs.gamma)
    forms = [canonical_form(each, net, lg.gd(0.1), inputs=5) for each in (scheme, other)]
    assert forms[0] == forms[1]


@pytest.mark.parametrize("param", SCHEMES, ids=str)
def test_gains_and_offsets_have_no_factor(param):
    norms = lg.LayerNorm(gain=True, offset=True), lg.RMSNorm(gain=True)
    rules = [row.rule for row in param.table(lg.serial(lg.Dense(), *norms, lg.Dense())).rows[1:4]]
    assert [rule.multiplier.constant for rule in rules] == [1.0, 1.0, 1.0]
    assert [rule.init_std.constant for rule in rules] == [0.0, 0.0, 0.0]


def test_standard_at_a_fixed_rate_has_no_limit():
    with pytest.raises(NoTheory, match=r"update at the weight .* grows as N\^1"):
        canonical_form(lg.standard(), lg.mlp(2), lg.gd(0.1), inputs=5)


def test_adam_has_no_limit_here():
    with pytest.raises(NoTheory, match="Adam"):
        canonical_form(lg.ntk(), lg.mlp(2), lg.adam(0.1), inputs=5)


def test_powers_form_a_group():
    p = Power(3.0, Fraction(1, 3), -2, HALF)
    one = p / p
    assert (one.width, one.depth, one.inputs) == (0, 0, 0)
    assert np.isclose((p**2).at(width=8, depth=2, inputs=4), p.at(width=8, depth=2, inputs=4) ** 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lg.mean_field(gamma=0.0), "gamma"),
        (lambda: lg.mean_field(gamma=-1.0), "gamma"),
        (lambda: lg.abc(a=0, b=0, c=2**0.5), "rational"),
        (lambda: lg.abc(a=(0, 1), b=0, c=0), "three"),
        (lambda: lg.abc(a="half", b=0, c=0), "rational"),
        (lambda: lg.abc(a=0, b=0, c=0, std_in="nowhere"), "std_in"),
        (lambda: lg.ntk().shift({"bais": 1}), "Did you mean 'bias'"),
        (lambda: lg.ntk().table(lg.mlp(1), width=4), "needs inputs"),
        (lambda: lg.ntk().table(lg.mlp(1), width=-4, inputs=3), "width"),
        (lambda: lg.gd(lr=0.0), "lr"),
        (lambda: lg.gd(lr=-1.0), "lr"),
        (lambda: lg.gd(lr=float("nan")), "lr"),
        (lambda: lg.gd(0.1, momentum=1.0), "momentum"),
        (lambda: lg.gd(0.1, weight_decay=-1.0), "weight_decay"),
        (lambda: lg.sgd(0.1, batch_size=0), "batch_size"),
        (lambda: lg.adam(0.1, beta1=1.5), "beta1"),
    ],
)
def test_wrong_parameterizations_are_refused_by_name(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()
