"""Products of two signals over an axis that grows are attention logits in JAX, too."""

import warnings

import jax
import pytest
from tests.transfer.jax.attention_models import ATTENTIONS, SETS, differential, init, linear

from largen.errors import WrongPlan
from largen.transfer import Hints
from largen.transfer.jax import scale
from largen.transfer.jax.effects import scores_of
from largen.transfer.jax.scores import growing


def found_in(apply, shape=SETS.shape):
    x = jax.numpy.zeros(shape)
    small, large = (scores_of(apply, init(jax.random.key(0), n), x) for n in (32, 128))
    return growing(small, large)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_products_that_grow_are_found_whatever_reads_them(name):
    found = [*found_in(ATTENTIONS[name]).values()]
    # Of a memory, what is read at each of four steps has an axis that grows; its size has none.
    assert found == ([2] * 4 if name == "memory" else [None])
    assert len(found_in(ATTENTIONS[name], (2, 5, 6))) == len(found)


def test_divisors_are_judged_in_what_they_divide():
    assert [*found_in(linear).values()] == [2]


def test_a_number_made_of_two_vectors_is_judged_and_what_a_softmax_reads_is_not_twice():
    assert [*found_in(differential).values()] == [None]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sigmoid", "relu"])
def test_products_are_judged_as_logits_are(name):
    def plan(hints):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WrongPlan)
            return scale(
                init, {"width": 32}, {"width": 128}, scheme="mup", optimizer="adam",
                layout="in_out", hints=hints, verify=(ATTENTIONS[name], SETS),
            )  # fmt: skip

    assert plan(Hints(attention={"q": 4.0})).verified[0].passed
    wrong = plan(Hints(attention={}))
    (flag,) = wrong.verified[0].flags
    assert flag.kind == "logits"
    assert flag.slope == pytest.approx(0.5, abs=0.25)
    assert wrong.repaired().verified[0].passed
