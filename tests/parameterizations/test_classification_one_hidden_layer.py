"""Golikov's plane of scalings: every exponent and every case of the paper, by exact arithmetic."""

from fractions import Fraction as F

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import largen as lg
from largen.errors import InvalidInput

HALF = F(1, 2)
NTK = lg.scaling.plane_class("-1/2", 0)
INTERMEDIATE = lg.scaling.plane_class("-3/4", "1/2")
MEAN_FIELD = lg.scaling.plane_class(-1, 1)
DEFAULT = lg.scaling.plane_class("-1/2", 1, 0)

exponents = st.fractions(min_value=-2, max_value=2, max_denominator=6)
few = settings(max_examples=40)
negative = st.fractions(min_value=-2, max_value=F(-1, 6), max_denominator=6)


def from_first(q_sigma, first_a, first_w):
    """The scaling with given q_σ, q_a⁽¹⁾ and q_w⁽¹⁾."""
    return lg.scaling.plane_class(q_sigma, first_a - q_sigma, first_w - q_sigma)


def paper_recursion(scaling, steps):
    """(9) and (10), as printed."""
    a1, w1 = scaling.rate_a + scaling.q_sigma, scaling.rate_w + scaling.q_sigma
    a, w = a1, w1
    for _ in range(steps - 1):
        a, w = max(a, a1 + max(0, w)), max(w, w1 + max(0, a))
    return {"a": a, "w": w}


@given(exponents, exponents, exponents, st.integers(1, 7))
@few
def test_increments_obey_the_papers_recursion(q_sigma, rate_a, rate_w, steps):
    scaling = lg.scaling.plane_class(q_sigma, rate_a, rate_w)
    assert scaling.increments(steps) == paper_recursion(scaling, steps)


@pytest.mark.parametrize(
    ("scaling", "kind", "terms"),
    [
        (NTK, "NTK", {"∅": 0, "a": 0, "w": 0, "aw": -1}),
        (INTERMEDIATE, "intermediate", {"∅": F(-1, 4), "a": 0, "w": 0, "aw": -HALF}),
        (MEAN_FIELD, "mean field", {"∅": 0, "a": 0, "w": 0, "aw": 0}),
    ],
)
def test_terms_of_the_three_scalings_of_section_3_2(scaling, kind, terms):
    assert scaling.kind == scaling.name == kind
    assert scaling.nontrivial
    assert all(scaling.terms(k) == terms for k in (2, 3, 10))
    assert {k for k, q in terms.items() if q == 0} == set(scaling.kept)


def test_increments_of_the_named_scalings():
    """Fig. 3 of the paper: q = −½, −¼ and 0 for both layers."""
    for scaling, q in ((NTK, -HALF), (INTERMEDIATE, F(-1, 4)), (MEAN_FIELD, 0)):
        assert scaling.increments(1) == scaling.increments(50) == {"a": q, "w": q}


def test_kappas_of_appendix_d():
    lazy = {"∅": HALF, "a": 1, "w": 1, "aw": HALF}
    assert NTK.kappas(1) == NTK.kappas(9) == lazy
    assert MEAN_FIELD.kappas(1) == MEAN_FIELD.kappas(9) == dict.fromkeys(lazy, 1)
    # Slower than N^(−1/2), increments are correlated: not ½ as in App. D.1, but as in §3.2.
    assert INTERMEDIATE.kappas(2) == {"∅": HALF, "a": 1, "w": 1, "aw": F(3, 4)}


def test_default_scaling_diverges_by_its_output_weights():
    assert DEFAULT.increments(1) == {"a": HALF, "w": -HALF}
    assert DEFAULT.increments(5) == {"a": HALF, "w": 0}
    assert (DEFAULT.kind, DEFAULT.case, DEFAULT.name) == ("divergent", "App. E.3", "default")
    assert DEFAULT.violated == "(13): q_f,a = 1 > 0"
    # What App. E.3 asks for instead, q_σ = −1 − q_a⁽¹⁾ = −3/2, with the same increments:
    assert from_first(F(-3, 2), HALF, -HALF).kind == "both layers, output weights from zero"


@given(exponents, negative, negative)
@few
def test_nontrivial_lazy_scalings_are_those_of_section_3_1(q_sigma, first_a, first_w):
    expected = -1 < q_sigma <= -HALF and max(first_a, first_w) == -1 - q_sigma
    scaling = from_first(q_sigma, first_a, first_w)
    assert scaling.nontrivial == expected
    if expected:
        assert scaling.kind == ("NTK" if q_sigma == -HALF else "intermediate")
        assert not scaling.features_move
        assert scaling.outputs(0) == q_sigma + HALF
        assert max(scaling.rate_a, scaling.rate_w) == -1 - 2 * q_sigma
        assert scaling.terms(9)["aw"] < 0


@given(exponents)
@few
def test_mean_field_needs_q_sigma_minus_one(q_sigma):
    scaling = from_first(q_sigma, 0, 0)
    assert scaling.nontrivial == (q_sigma == -1)
    if scaling.nontrivial:
        assert (scaling.rate_a, scaling.rate_w, scaling.case) == (1, 1, "§3.1.1")


@given(negative)
@few
def test_one_layer_learns(vanishing):
    """App. E.1 and E.2."""
    output = from_first(-1, 0, vanishing)
    assert (output.kind, output.case, output.rate_a) == ("output layer only", "App. E.1", 1)
    assert output.kept == ("a",)
    assert not output.features_move
    assert output.increments(9) == {"a": 0, "w": vanishing}
    assert output.kappas(9)["a"] == 1
    if vanishing <= F(-1, 4):  # slower ones move the gates: App. E.1 has ½ for all
        assert output.kappas(9)["∅"] == HALF
    into = from_first(-1, vanishing, 0)
    assert (into.kind, into.case, into.rate_w) == ("input layer only", "App. E.2", 1)
    assert into.kept == ("∅", "w")
    assert into.features_move
    assert into.increments(9) == {"a": vanishing, "w": 0}
    assert into.kappas(9)["∅"] == into.kappas(9)["w"] == 1
    for q_sigma in (F(-3, 4), F(-5, 4)):
        assert not from_first(q_sigma, 0, vanishing).nontrivial
        assert not from_first(q_sigma, vanishing, 0).nontrivial


@given(st.fractions(min_value=F(1, 6), max_value=2, max_denominator=6), st.booleans())
@few
def test_output_weights_that_outgrow_their_initialisation(first, both):
    """App. E.3, and E.4 which the paper leaves to its reader."""
    other = -first if both else -first - F(1, 3)
    q_sigma = -1 - first
    for name, case, scaling in (
        ("output", "App. E.3", from_first(q_sigma, first, other)),
        ("input", "App. E.4", from_first(q_sigma, other, first)),
    ):
        grown, grown_by = ("a", scaling.rate_a) if name == "output" else ("w", scaling.rate_w)
        assert scaling.case == case
        still = "w" if grown == "a" else "a"
        assert scaling.increments(1) == {grown: first, still: other}
        assert scaling.increments(4) == {grown: first, still: first + other}
        assert scaling.kappas(4)[grown] == 1
        assert first == -1 - q_sigma
        assert grown_by == -1 - 2 * q_sigma
        if both:
            assert scaling.kind == f"both layers, {name} weights from zero"
            assert scaling.kept == (grown, "aw")
            assert scaling.kappas(4)["aw"] == 1
            assert (scaling.rate_w if name == "output" else scaling.rate_a) == 1
        else:
            assert scaling.kind == f"{name} layer only"
            assert scaling.kept == (grown,)


@given(exponents, exponents, exponents)
@few
def test_increments_that_feed_each_other_diverge(q_sigma, first_a, first_w):
    """App. E.5, with q⁽²ᵐ⁾ = m(q_a⁽¹⁾ + q_w⁽¹⁾) where both are positive (misprinted there)."""
    scaling = from_first(q_sigma, first_a, first_w)
    total = first_a + first_w
    assert (scaling.case == "App. E.5") == (total > 0)
    if total <= 0:
        return
    assert scaling.kind == "divergent"
    assert scaling.constant_from is None
    early, late = scaling.increments(4), scaling.increments(10)
    assert late["a"] - early["a"] == late["w"] - early["w"] == 3 * total
    if min(first_a, first_w) > 0:
        assert scaling.increments(6) == {"a": 3 * total, "w": 3 * total}


@given(exponents, exponents, exponents)
@few
def test_class_is_what_conditions_13_and_14_say_step_by_step(q_sigma, rate_a, rate_w):
    scaling = lg.scaling.plane_class(q_sigma, rate_a, rate_w)
    nontrivial = q_sigma <= -HALF
    for k in range(1, 8):
        terms = scaling.terms(k)
        trained = max(terms["a"], terms["w"], terms["aw"])
        moved = scaling.increments(k)["w"] >= 0
        nontrivial &= scaling.outputs(k) == 0
        nontrivial &= trained == 0 or (terms["∅"] == 0 and moved)
        assert all(HALF <= kappa <= 1 for kappa in scaling.kappas(k).values())
        assert all(HALF <= kappa <= 1 for kappa in scaling.kappas(k, seen=True).values())
    assert scaling.nontrivial == nontrivial or scaling.case == "App. E.5"


def test_trivial_scalings_say_which_condition_fails():
    stuck = lg.scaling.plane_class("-1/2", "-1/4")
    assert stuck.kind == "stuck at initialisation"
    assert stuck.violated == "(14): max(q_f,a, q_f,w, q_f,aw) = -1/4 < 0 and q_w = -3/4 < 0"
    vanishing = lg.scaling.plane_class("-3/4", "1/4")
    assert vanishing.kind == "vanishing"
    assert "(13)" in vanishing.violated
    exploding = lg.scaling.plane_class("-1/4", 0)
    assert exploding.kind == "divergent"
    assert exploding.violated.startswith("(13) from the start: q_f⁽⁰⁾ = q_σ + 1/2 = 1/4 > 0")


def test_report_says_what_the_class_is():
    text = str(DEFAULT)
    assert "divergent (App. E.3, the default scaling)" in text
    assert "violates (13): q_f,a = 1 > 0" in text
    assert "k = 3" in str(lg.scaling.plane_class("-1/2", 1, 1))


def test_exponents_that_are_not_rational_are_refused():
    assert lg.scaling.plane_class(-0.75, 0.5) == INTERMEDIATE
    assert lg.scaling.plane_class(-1 / 3, 0).q_sigma == F(-1, 3)
    for bad in (2**-0.5, float("nan"), "half", None):
        with pytest.raises(InvalidInput, match="rate_a"):
            lg.scaling.plane_class(-1, bad)
