"""Small functions of several rooms, on cases that are known by heart."""

import jax
import numpy as np
import pytest

from largen.errors import DamagedFile
from largen.expectations import as_activation
from largen.expectations.composition import compose, product, weighted_sum
from largen.expectations.nodes import kinks_of
from largen.expectations.two_functions import cross_moments
from largen.files.contents import json_with_checksum, read_json
from largen.kernels.planes import displacements
from largen.networks.rules.attention import number_of_heads
from largen.plots.plan_factors import _fraction, _powers_of_two
from largen.plots.sweeps import plain_number
from largen.regression.large.preconditioners import inverse_root
from largen.sweeps.optimum import optimum
from largen.sweeps.quality import asymptote, line
from largen.sweeps.ranges import constants_named
from largen.sweeps.verdicts import difference
from papers.claims import Claim, above, below, tally

LINEAR, RELU, SIGMOID = map(as_activation, ("linear", "relu", "sigmoid"))


def test_functions_of_functions_have_names():
    assert repr(compose(as_activation("tanh"), RELU)) == "tanh∘relu"
    assert repr(weighted_sum((1.0, LINEAR), (0.5, RELU))) == "linear + 0.5·relu"
    assert repr(product(LINEAR, SIGMOID)) == "linear·sigmoid"


def test_kinks_are_found():
    assert kinks_of(as_activation("tanh")) == ()
    assert kinks_of(RELU) == (0,)
    assert kinks_of(as_activation(jax.nn.hard_swish)) == (-3, 3)


def test_moments_of_two_functions_of_one_gaussian():
    with jax.enable_x64(True):
        found = cross_moments(RELU, as_activation("abs"), 1.0, 1.0, 1.0)
    assert (found.value, found.derivative) == pytest.approx((0.5, 0.5))


def test_claims_are_counted():
    true = Claim("falls", "slope", -1.0, -1.1, -0.9, True)
    unclear = Claim("vanishes", "size", 0.1, -0.2, 0.4, None)
    other = Claim("other", "slope", -1.0, -1.1, -0.9, False, "alternative")
    assert tally([true, true, unclear]) == "2 agree, 1 unclear"
    assert tally([true, other]) == "1 agree, 1 alternative refuted"
    ends = (0.1, 0.3), (-0.3, 0.0), (-0.1, 0.2)
    assert [above("", "", 0.1, *pair).agrees for pair in ends] == [True, False, None]
    assert [below("", "", 0.1, *pair, bound=0.3).agrees for pair in ends] == [None, True, True]
    assert above("", "", 0.1, -0.1, 0.3).effort == pytest.approx(4)


def test_changed_text_is_damaged():
    text = json_with_checksum({"width": 64})
    assert read_json(text) == {"width": 64}
    with pytest.raises(DamagedFile, match="its checksum differs from that of its content"):
        read_json(text.replace("64", "65"))


def test_displacements_and_heads():
    steps, times, first = displacements((4,))
    assert (steps.ravel().tolist(), times.tolist(), first) == ([0, 1, 2, 3], [1, 2, 1, 0], 3)
    assert [number_of_heads(*n) for n in ((64, 64), (100, 200), (7, 7))] == [8, 10, 1]


def test_a_singular_matrix_has_a_root_of_its_pseudo_inverse():
    root = inverse_root(np.diag([4.0, 1.0, 0.0]))
    assert np.allclose(root @ root.T, np.diag([0.25, 1, 0]))


def test_numbers_in_pictures():
    assert _powers_of_two(0.2, 3.0).tolist() == [0.25, 0.5, 1, 2]
    assert (_fraction(4.0), _fraction(0.125)) == ("4", "1/8")
    assert (plain_number(2.0), plain_number(0.05)) == ("2", "0.05")


def test_fits_of_exact_curves():
    x = np.arange(-4.0, 1.0)
    best = optimum(x, np.exp((x + 1.8) ** 2)[None])
    assert (best.at, best.low, best.high, best.edge) == pytest.approx((-1.8, -2.5, -1.5, False))
    fit = line(np.arange(4.0), np.array([1.0, 3.0, 5.0, 7.0]))
    assert (fit.slope, fit.error) == pytest.approx((2, 0), abs=1e-9)
    sizes = np.array([32.0, 64.0, 128.0, 256.0])
    assert asymptote(sizes, 0.3 + 2 / sizes) == pytest.approx(0.3, abs=1e-6)


def test_constants_and_differences_of_a_search():
    constants = constants_named(["rate", "output", "lr of hidden"], [0.1, 2.0, 3.0])
    assert str(constants) == "output × 2, rate of hidden × 3"
    found = difference(np.array([2.1, 2.2]), np.array([2.6, 2.7]))
    assert (round(found.value, 3), round(found.error, 3), found.sure) == (-0.5, 0.071, True)
