"""Data sets hold what was given: exactly, as a copy, or not at all."""

import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput

X, Y = np.arange(6.0).reshape(3, 2), np.array([1.0, -1.0, 1.0])


def test_the_callers_arrays_stay_the_callers():
    base_x, base_y = np.zeros((4, 2)), np.zeros(4)
    x, y = base_x[1:], base_y[1:]  # views, whose bases change as well
    data = lg.Dataset(x, y, x, y)
    for array in (x, y, base_x, base_y):
        array -= 1.0
    for kept in (data.x_train, data.y_train, data.x_test, data.y_test):
        assert (kept == 0).all()
        assert not any(np.shares_memory(kept, given) for given in (base_x, base_y))
        with pytest.raises(ValueError, match="read-only"):
            kept += 1.0


def test_integers_stay_what_they_are():
    for y in ([0, 1, 2], np.array([0, 2**31 - 1, -(2**31)]), np.array([1, 2, 3], np.uint64)):
        kept = lg.Dataset(X, y).y_train
        assert kept.dtype == np.int32
        assert kept.tolist() == np.asarray(y).tolist()
    assert lg.Dataset(X.astype(np.float32), [2**24, 0, 1]).y_train.tolist() == [2**24, 0, 1]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ((X, np.array([2**40, 0, 1])), "y_train: 1 of 3 numbers, such as 1099511627776"),
        ((X, np.array([2**63, 0, 1], np.uint64)), "y_train: 1 of 3"),
        ((X, [2**70, 0, 1]), "y_train"),
        ((X.astype(np.float32), np.array([2**24 + 1, 0, 1])), "y_train: .* represented in float32"),
        (([[2**53 + 1, 0]], [0.0]), "x_train: .* represented in float64"),
        (
            (X.astype(np.float32), Y, X + 1e60, Y),
            r"x_test: 6 of 6 .* 1e\+60, cannot be repr",
        ),
        ((X.astype(np.float32), 1e60 * Y), "y_train: 3 of 3 numbers"),
        ((X.astype(np.float32), Y, X, -1e60 * Y), "y_test: 3 of 3 numbers"),
        ((np.ma.masked_greater(X, 3), Y), "x_train: is or holds a masked array"),
        ((X, np.ma.masked_greater(Y, 0)), "y_train: is or holds a masked array"),
        ((list(np.ma.masked_greater(X, 3)), Y), "x_train: is or holds a masked array"),
        ((X.astype(np.float32), 1e-60 * Y), "y_train: 3 of 3 .* represented in float32"),
        ((X.astype(np.longdouble), Y), "x_train: wanted a dtype of at most 64 bits"),
        ((X, Y.astype(np.longdouble)), "y_train: wanted a dtype of at most 64 bits"),
        ((X + 0j, Y), "x_train: .*complex"),
        ((X, Y + 0j), "y_train: .*complex"),
        ((X.astype("timedelta64[s]"), Y), "x_train: .*timedelta"),
        ((X, Y.astype(str)), "y_train"),
        ((X, [[1.0], [1.0, 2.0], [0.0]]), "y_train"),
    ],
)
def test_what_would_be_another_number_is_refused(arrays, words):
    with pytest.raises(InvalidInput, match=words):
        lg.Dataset(*arrays)


def test_other_kinds_of_arrays_are_the_same_numbers():
    wanted = lg.Dataset(X, Y)
    for x, y in (
        (X.astype(">f8"), Y.astype(">f8")),
        (X.tolist(), Y.tolist()),
        (np.asfortranarray(X), Y[::-1].copy()[::-1]),
    ):
        data = lg.Dataset(x, y)
        assert data.x_train.dtype == np.dtype("float64")
        assert data.x_train.dtype.isnative
        np.testing.assert_array_equal(data.x_train, wanted.x_train)
        np.testing.assert_array_equal(data.y_train, wanted.y_train)
    data = lg.Dataset(jnp.asarray(X), jnp.asarray(Y))
    assert data.x_train.dtype == np.float32
    np.testing.assert_array_equal(data.y_train, Y)
