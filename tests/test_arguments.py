"""Checks of arguments, at the values on both sides of each bound."""

import inspect
from collections import namedtuple
from decimal import Decimal
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from largen import arrays, callables, scalars
from largen.errors import InvalidInput, NumericalFailure
from largen.jobs import number_of_jobs, results_of
from largen.results import brief, fields_over, in_notebooks
from largen.results.protocol import tuple_from


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (scalars.random_key, 2**63, "a seed below 2"),
        (scalars.random_key, True, "an integer seed, got True"),
        (scalars.random_key, jnp.zeros(2), "an integer seed"),
        (scalars.random_key, jnp.zeros((2, 2), jnp.uint32), "an integer seed"),
        (lambda v: scalars.integer("n", v, 1), True, "an integer ≥ 1, got True"),
        (lambda v: scalars.integer("n", v, 1), 1.0, "an integer ≥ 1"),
        (lambda v: scalars.integer("n", v, 1), 0, "an integer ≥ 1, got 0"),
        (lambda v: scalars.integer("n", v, 1, 3), 4, "an integer ≤ 3, got 4"),
        (lambda v: scalars.integers("n", v, 1), "12", "a list of integers ≥ 1"),
        (lambda v: scalars.integers("n", v, 1), np.array(3), "a list of integers ≥ 1"),
        (lambda v: scalars.flag("f", v), 1, "True or False, got 1"),
        (lambda v: scalars.sample_shape("s", v), (), "a number or"),
        (lambda v: scalars.sample_shape("s", v), (3, 0), "an integer ≥ 1, got 0"),
        (lambda v: scalars.real("r", v), "1", "a number, got"),
        (lambda v: scalars.real("r", v), True, "a number, got True"),
        (lambda v: scalars.real("r", v), np.ones(1), "a number, got"),
        (lambda v: scalars.real("r", v, above=0), 0.0, "a finite number > 0, got 0"),
        (lambda v: scalars.real("r", v, at_least=0), -1, "a finite number ≥ 0, got -1"),
        (lambda v: scalars.real("r", v), 10**400, "a finite number"),
        (lambda v: scalars.real("r", v), np.nan, "a finite number"),
        (lambda v: scalars.real("r", v), 1e-200, "0 or a size between"),
        (number_of_jobs, 0, "-1 for one on each core"),
    ],
)
def test_numbers_beyond_their_bounds_are_refused(check, value, message):
    with pytest.raises(InvalidInput, match=message):
        check(value)


def test_numbers_within_their_bounds_are_taken():
    key = jax.random.key(3)
    for same in (3, np.int64(3), key, jax.random.key_data(key)):
        found = scalars.random_key(same)
        np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(key))
    assert scalars.integer("n", np.int8(3), 3, 3) == 3
    assert scalars.integers("n", np.arange(1, 3), 1) == [1, 2]
    assert scalars.integers("n", range(2), 0) == [0, 1]
    assert scalars.flag("f", np.True_) is True
    assert scalars.sample_shape("s", (4, 4, 1)) == (4, 4, 1)
    assert scalars.sample_shape("s", (4,)) == 4
    assert scalars.real("r", jnp.asarray(2), above=1, at_least=2) == 2.0
    assert number_of_jobs(-1) == -1
    assert list(results_of([], jobs=1)) == []


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (arrays.numbers, [1.0, np.inf], "1 of 2 numbers are NaN or infinite"),
        (arrays.booleans, [0, 1], "wanted Booleans, got dtype int64"),
        (arrays.samples, np.ones(3), r"For a single sample, pass x\[None, :\]"),
        (arrays.samples, np.ones(()), r"wanted samples, .*got shape \(\)\.$"),
        (arrays.floating, np.ones((0, 2)), "is empty"),
        (arrays.floating, [1.0, None], "is missing"),
        (arrays.floating, [1.0, [2.0]], "rows of one length|array of numbers"),
        (arrays.floating, [{}, 1.0], "of type dict"),
        (arrays.floating, jnp.ones(2, complex), "wanted floats"),
        (arrays.floating, True, "wanted a number, got True"),
        (arrays.floating, [2**70, 1], "an array of numbers"),
        (arrays.tree_of_floats, {}, "a tree of arrays"),
        (arrays.tree_of_floats, {"n": np.arange(2)}, "an array of dtype int64"),
    ],
)
def test_arrays_of_other_things_are_refused(check, value, message):
    with pytest.raises(InvalidInput, match=message):
        check("x", value)


def test_arrays_keep_their_numbers():
    assert arrays.floating("x", [Decimal("0.5"), 1]).tolist() == [0.5, 1.0]
    assert arrays.floating("x", np.ones(2, ">f4")).dtype.isnative
    assert arrays.floating("x", jnp.arange(2)).dtype == jnp.result_type(float)
    for row, ndim in ((np.ones(2), 2), (np.ones((2, 2)), (1, 3))):
        with pytest.raises(InvalidInput, match="axes, got shape"):
            arrays.floating("x", row, ndim)
    with pytest.raises(InvalidInput, match="1 of 2 numbers, such as 1e-60"):
        arrays.convert("y", np.array([0.0, 1e-60]), np.float32)
    with pytest.raises(InvalidInput, match="1 of 2 numbers, such as 300"):
        arrays.convert("y", np.array([1, 300]), np.int8)
    with pytest.raises(InvalidInput, match=r"2\*\*53|9007199254740993"):
        arrays.convert("y", np.array([2**53 + 1]), np.float64)
    with pytest.raises(NumericalFailure, match="f: the result is not finite"):
        arrays.finite_result("f", {"a": np.array([np.nan])})


def test_what_is_traced_is_not_known():
    def asks(x):
        with pytest.raises(InvalidInput, match="wanted a value that is known"):
            arrays.known("x", x)
        traced = arrays.floating("x", [x, 1.0])
        assert arrays.like(traced, np.ones(1)) is traced
        assert "traced" in brief(Pair(traced, 1.0))
        return traced.sum()

    assert jax.jit(asks)(2.0) == 3.0
    assert isinstance(arrays.like(jnp.ones(1), np.ones(1)), np.ndarray)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (3, r"a function of \(f, y\), got 3"),
        (dict, "a class. Pass one of its instances"),
        (np.exp, "of 1"),
        (lambda f: f, "too many positional arguments"),
    ],
)
def test_what_does_not_take_the_arguments_is_refused(function, message):
    with pytest.raises(InvalidInput, match=message):
        callables.takes("loss", function, ("f", "y"))


def test_functions_without_a_signature_are_taken(monkeypatch):
    def none(function):
        raise ValueError

    monkeypatch.setattr(inspect, "signature", none)
    assert callables.takes("phi", max, ("u",)) is max


class Unprintable(Exception):
    """An error whose text is one, too."""

    def __str__(self):
        raise ValueError


def test_errors_of_functions_name_them():
    def branches(x):
        return x if x[0, 0] > 0 else -x

    def fails(x):
        raise Unprintable

    for function, message in (
        (branches, "branches asks for the value of an array"),
        (lambda x: np.asarray(x) + 1, "asks for the value"),
        (fails, "fails fails on JAX arrays of shape .*no message"),
        (lambda x: x @ x.T[:1, :1], "fails on JAX arrays"),
    ):
        with pytest.raises(InvalidInput, match=message):
            callables.outputs_on_shapes("f", function, jnp.ones((2, 3)))


def test_the_source_of_a_function_is_what_it_reads():
    factor, unset = 2.0, 3.0

    def scaled(x):
        import math
        from os import path as place

        return factor * math.sin(x) * len(place.sep) * np.ones(1)

    assert callables.source_of(scaled).startswith("def scaled(x):")
    read = dict(callables.read_from_outside(scaled, lambda name: True))
    assert read["the outer variable 'factor'"] == 2.0
    assert read["the global 'np'"] is np
    assert isinstance(read["math"], ModuleType)
    assert read["os.path"] is not None
    own = dict(callables.read_from_outside(scaled, lambda name: False))
    assert own["np.ones"] is np.ones
    later = lambda: unset  # noqa: E731
    del unset
    assert dict(callables.outer_variables(later)) == {"the outer variable 'unset'": None}
    pair = (lambda x: x + 1, lambda x: x + 2)
    assert callables.source_of(pair[1]) == "lambda x: x + 2"
    made = eval("lambda x: x")
    assert callables.source_of(made) is None


Pair = namedtuple("Pair", "first second")
Pair.to_xarray = fields_over(first=("sample",))


def test_fields_of_results_become_variables_and_texts():
    kept = Pair(np.ones((2, 3)), {"a/b": 1.0}).to_xarray()
    assert kept["first"].dims == ("extra", "sample")
    assert float(kept["second_a_b"]) == 1.0
    assert Pair(np.ones(()), None).to_xarray()["first"].dims == ()
    some = Pair(np.ones(2), None).to_xarray()
    again = tuple_from(Pair, some)
    assert again.second is None
    assert again.first.tolist() == [1.0, 1.0]
    assert tuple_from(Pair, Pair(2.0, "text").to_xarray()) == Pair(2.0, "text")
    with pytest.raises(TypeError, match="Pair has no first"):
        tuple_from(Pair, xarray.Dataset())


def test_records_are_described_in_a_line_a_field():
    text = brief(Pair(np.array([1.0, np.nan]), [np.ones(2), np.ones(3)]))
    assert text.splitlines() == [
        "Pair:",
        "  first   (2,), from 1 to 1, 1 not finite",
        "  second  2 of (2,), from 1 to 1",
    ]
    assert brief(Pair(np.array(2.5), jnp.ones(1))).splitlines()[1:] == [
        "  first   2.5",
        "  second  (1,), from 1 to 1",
    ]
    assert brief(Pair(np.array([True]), np.array([np.nan]))).splitlines()[1:] == [
        "  first   (1,) bool",
        "  second  (1,)",
    ]
    assert in_notebooks(3) == "<pre>3</pre>"
    assert "xr-wrap" in in_notebooks(Pair(1.0, 2.0))
