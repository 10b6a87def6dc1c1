import numpy as np
import pytest

import largen as lg
from largen.programs import Affine, Repeat, program_of
from largen.programs.folding import folded

HALVING = lg.serial(lg.Conv((3,), strides=2), lg.Activation("relu"))


@pytest.mark.parametrize(
    ("layer", "keeps"),
    [
        (lg.Conv((3, 3)), True),
        (lg.Conv((3, 3), strides=2), False),
        (lg.Conv((3,), padding="VALID"), False),
        (lg.Conv((1,), padding="VALID"), True),
        (lg.layers.AvgPool((2,)), False),
        (lg.layers.Concatenate(lg.Dense(), lg.Dense()), False),
        (lg.Residual(HALVING, shortcut=lg.Conv((1,), strides=2)), False),
        (lg.repeat(lg.Residual(lg.Conv((3,))), 3), True),
        (lg.LayerNorm(), True),
    ],
)
def test_which_layers_keep_the_shape(layer, keeps):
    assert layer.keeps_shape is keeps


def test_equal_layers_that_change_the_shape_are_no_repetition():
    halving, keeping = lg.Conv((3,), strides=2), lg.Conv((3,))
    program = folded(program_of(lg.serial(halving, halving, keeping, keeping), (16, 2)))
    assert [type(operation) for operation in program.operations[1:]] == [Affine, Affine, Repeat]
    assert program.operations[3].times == 2


def test_kernel_of_layers_that_halve_the_sample_twice():
    # Without padding and nonlinearity each output averages what it sees.
    x = np.random.default_rng(1).normal(size=(3, 4, 1))
    halving = lg.Conv((2,), strides=2, padding="VALID")
    net = lg.serial(halving, halving, lg.Flatten(), lg.Dense())
    want = np.einsum("nsc,msc->nm", x, x) / 4
    np.testing.assert_allclose(lg.nngp_kernel(net, x), want, rtol=1e-13)


@pytest.mark.slow
def test_likelihood_and_posterior_of_images():
    x = np.random.default_rng(2).normal(size=(5, 4, 4, 2))
    y = x.mean((1, 2, 3))
    net = lg.serial(lg.Conv((3, 3), strides=2), lg.Activation("erf"), lg.Flatten(), lg.Dense())
    given = lg.posterior(net, x, y, noise=0.01)
    mean, variance, _ = given.predict(x[:2])
    kernel = lg.nngp_kernel(net, x)
    solved = np.linalg.solve(kernel + 0.01 * np.eye(5), np.c_[y, kernel[:, :2]])
    np.testing.assert_allclose(mean, kernel[:2] @ solved[:, 0], rtol=1e-9)
    want = kernel[:2, :2].diagonal() - np.sum(kernel[:2] * solved[:, 1:].T, 1)
    np.testing.assert_allclose(variance, want, rtol=1e-7)
    np.testing.assert_allclose(
        lg.regression.log_likelihood(net, x, y, noise=0.01).value, given.log_likelihood, rtol=1e-9
    )
    with pytest.raises(lg.errors.InvalidInput, match="shape"):
        given.predict(x[:, :3])
