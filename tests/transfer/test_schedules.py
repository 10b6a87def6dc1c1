"""Schedules are factors; what looks like absolute rates is refused."""

import numpy as np
import pytest

from largen.errors import InvalidInput
from largen.transfer.schedules import check_factor, constant, warmup_cosine


@pytest.mark.parametrize("near_one_at", [0, 1, 9])
def test_a_schedule_is_a_factor_if_it_comes_near_one_somewhere(near_one_at):
    check_factor(lambda step: 1.0 if step == near_one_at else 1e-3, steps=10)


def test_absolute_rates_are_refused_with_the_first_of_them():
    with pytest.raises(InvalidInput, match=r"at step 0 it is 0\.002"):
        check_factor(lambda step: 0.002 / (1 + step))


def test_a_rise_is_followed_by_half_a_cosine():
    s = warmup_cosine(110, warmup=10, final=0.2)
    found = [s(t) for t in (0, 4, 9, 10, 35, 60, 110)]
    quarter = 0.2 + 0.8 * (1 + np.cos(np.pi / 4)) / 2
    assert found == pytest.approx([0.1, 0.5, 1.0, 1.0, quarter, 0.6, 0.2])


def test_a_rise_to_a_constant():
    s = constant(warmup=4)
    assert [s(t) for t in (0, 1, 3, 4, 100)] == [0.25, 0.5, 1.0, 1.0, 1.0]
