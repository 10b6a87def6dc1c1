"""One rule for what is taken as an array, and what is refused, at every entrance."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from tests import kinds_of_data

import largen as lg
from largen.arrays import booleans, floating, numbers
from largen.errors import InvalidInput

A = np.array([[0.0, 2.0, -1.0], [3.0, 1.0, -2.0]])


@pytest.mark.parametrize("read", [floating, numbers])
@pytest.mark.parametrize("values", [A, A[0]])
@pytest.mark.parametrize("kind", kinds_of_data.taken())
def test_kinds_that_are_taken(kind, values, read):
    got = read("x", kinds_of_data.taken()[kind](values))
    assert type(got) is np.ndarray
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, values)


@pytest.mark.parametrize("values", [A, A[0]])
@pytest.mark.parametrize("kind", kinds_of_data.refused())
def test_kinds_that_are_refused(kind, values):
    make, words = kinds_of_data.refused()[kind]
    for read in (floating, numbers):
        with pytest.raises(InvalidInput, match=r"^x: ") as refused:
            read("x", make(values))
        assert words in str(refused.value)


def test_jax_decides_on_the_precision_of_its_integers():
    whole = jnp.asarray(A, jnp.int32)
    assert floating("x", whole).dtype == np.float32
    with jax.enable_x64(True):
        assert floating("x", whole).dtype == np.float64
    assert jax.eval_shape(lambda x: floating("x", x), whole).dtype == np.float32
    with pytest.raises(InvalidInput, match="cannot be represented"):
        floating("x", jnp.asarray([2**30 + 1]))


def test_integers_without_a_float_are_refused_and_a_truth_value_is_no_number():
    for value in ([2**60 + 1], np.array([2**60 + 1]), np.array([2**70], dtype=object)):
        with pytest.raises(InvalidInput, match="x: "):
            floating("x", value)
    with pytest.raises(InvalidInput, match="wanted a number, got True"):
        floating("x", True)


def test_nullable_truth_values_are_truth_values():
    table = pd.DataFrame([[True, False], [True, True]])
    for given in (table.convert_dtypes(), table.astype(object), table.to_numpy().tolist()):
        assert np.array_equal(booleans("mask", given), table)
    with pytest.raises(InvalidInput, match="wanted Booleans, got dtype int64"):
        booleans("mask", np.array([True, 1], object))


def test_pixels_are_numbers():
    images = (np.arange(16) % 7).reshape(1, 4, 4, 1)
    net = lg.serial(lg.Conv((3, 3)), lg.Activation("relu"), lg.Flatten(), lg.Dense())
    pixels = lg.nngp_kernel(net, images.astype(np.uint8))
    np.testing.assert_array_equal(pixels, lg.nngp_kernel(net, images.astype(float)))


def test_classes_of_every_type():
    labels = np.array([0, 1])
    for kind in ("list", "int8", "whole objects", "nullable integers", "tensor of integers"):
        make = kinds_of_data.taken().get(kind)
        if make is not None:
            data = lg.Dataset(A, make(labels))
            assert data.y_train.dtype == np.int32, kind
    assert lg.Dataset(A, labels > 0).y_train.tolist() == [0, 1]


@pytest.mark.slow
def test_every_kind_at_every_entrance():
    command = [sys.executable, "-m", "tests.kinds_of_data"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert not [row for row in rows if row[-1]]
    assert len(rows) > 2500
