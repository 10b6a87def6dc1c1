"""Small functions of the transfer rules, on cases that are known by heart."""

import numpy as np
import pytest

from largen.errors import InvalidInput
from largen.parameterizations.powers import Power
from largen.transfer.coordinates import slope_with_margin
from largen.transfer.diagnoses import best_rate
from largen.transfer.experts import rule_of_number, with_experts
from largen.transfer.horizon import horizon
from largen.transfer.initial import Moments
from largen.transfer.jax.survey import is_query_name
from largen.transfer.plan_entries import ForwardMultiplier
from largen.transfer.records import fields_of
from largen.transfer.roles import family, role_of_sides
from largen.transfer.structure import Part, correspondence
from largen.transfer.updates import update, update_of
from largen.transfer.verdicts import fitted


def test_slopes_of_exact_powers_have_no_margin():
    one = slope_with_margin(np.array([1, 2, 4]), np.array([[1], [2], [4]]), 0.975)
    key = ("output", "", "w")
    rows = [[{key: size}] * 2 for size in (1.0, 2.0, 4.0)]
    assert np.allclose([one, fitted([1, 2, 4], rows)[key]], (1, 0), atol=1e-12)


def test_the_best_rate_is_one_at_which_no_seed_diverges():
    rate, losses = best_rate({0.1: np.array([2.0, 1.0]), 0.2: np.array([0.5, np.inf])})
    assert rate == 0.1
    assert losses.tolist() == [2, 1]


def test_the_number_of_experts():
    found = rule_of_number(update("sgd"))
    assert (found.init_std.width, found.lr.width, found.weight_decay.width) == (0, 1, -1)
    assert with_experts("n⁻¹", Power(width=1)) == "n⁻¹·e"
    assert with_experts("1", Power(width=-1)) == "e⁻¹"


def test_the_horizon_in_words():
    text = "batch × 4, samples × 16: lr × 0.5, weight_decay × 0.5, eps × 0.5, 1 − β × 0.25"
    assert str(horizon(update("adamw"), batch=4, samples=16)) == text


def test_optimizers_by_name_and_by_function():
    optax = pytest.importorskip("optax")
    assert update("adamw").decay == "decoupled"
    assert update(optax.rmsprop).kind == "normalised"
    assert update_of(update("muon"), "vector").name == "adamw"
    assert update_of(update("shampoo"), "vector").name == "shampoo"


def test_roles_and_names():
    assert family("router") == role_of_sides(True, False) == "output"
    assert is_query_name("blocks.0.attention.to_q")
    assert not is_query_name("blocks.0.attention.to_k")
    assert Moments.of(np.zeros((1, 0, 64))).std == 0


def test_fields_of_a_wrong_type_are_named():
    plain = {"module": "head", "kind": "output", "where": "input", "factor": "2", "power": "n"}
    with pytest.raises(InvalidInput, match="text: factor: wanted a number, got '2'"):
        fields_of(ForwardMultiplier, plain, "text")


def test_repeated_blocks_correspond():
    def net(depth):
        sizes = [(3, 8), *[(8, 8)] * depth, (8, 1)]
        parts = {str(i): Part("Linear", {"w": size}) for i, size in enumerate(sizes)}
        return Part("Sequential", {}, parts)

    found = correspondence(net(2), net(4))
    assert found.blocks == ("1", "2", "3", "4")
    assert found.parts["5.w"] == "3.w"
