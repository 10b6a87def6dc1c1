from functools import partial

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput

X = np.random.default_rng(0).standard_normal((6, 4))
Y = np.array([1.0, -1, 1, 1, -1, -1])
NET = lg.mlp(1, "tanh")


def run(loss="mse", y=Y, optimizer=None, steps=7, **more):
    data = lg.Dataset(X, y, X[:2], y[:2])
    return lg.Run(NET, lg.ntk(), data, loss, optimizer or lg.gd(0.5), steps, **more)


def test_time_is_rate_times_step():
    np.testing.assert_allclose(run().times, 0.5 * np.arange(8))
    flow = run(optimizer=lg.gradient_flow(), steps=None, times=[0.0, 1.0, 2.5])
    np.testing.assert_allclose(flow.times, [0, 1, 2.5])


def test_batches_go_through_every_sample_and_depend_on_the_seed_alone():
    batches = run(optimizer=lg.sgd(0.1, batch_size=2), steps=7).batches
    assert batches.shape == (7, 2)
    for epoch in (batches[:3], batches[3:6]):
        assert sorted(epoch.ravel()) == list(range(6))
    longer = run(optimizer=lg.sgd(0.1, batch_size=2), steps=20).batches
    np.testing.assert_array_equal(longer[:7], batches)
    other = run(optimizer=lg.sgd(0.1, batch_size=2, seed=1), steps=7).batches
    assert (other != batches).any()
    assert run().batches is None


def test_batches_in_an_order_of_ones_own():
    batches = run(optimizer=lg.sgd(0.1, batch_size=2, order=[5, 0, 3, 3, 1]), steps=5).batches
    np.testing.assert_array_equal(batches, [[5, 0], [3, 3], [5, 0], [3, 3], [5, 0]])
    for optimizer in (
        lg.adam,
        lg.optimizers.rmsprop,
        partial(lg.optimizers.langevin, temperature=0.1),
    ):
        found = run(optimizer=optimizer(0.1, batch_size=3, order=np.arange(6)[::-1]), steps=2)
        np.testing.assert_array_equal(found.batches, [[5, 4, 3], [2, 1, 0]])


def test_batch_that_does_not_divide_leaves_samples_out_of_an_epoch():
    batches = run(optimizer=lg.sgd(0.1, batch_size=4), steps=3).batches
    assert batches.shape == (3, 4)
    assert all(len(set(b)) == 4 for b in batches.tolist())


def test_output_shape_follows_the_loss():
    assert run().output_shape == ()
    assert run(y=np.stack([Y, Y, Y], 1)).output_shape == (3,)
    assert run("cross_entropy", np.array([0, 1, 2, 3, 1, 0])).output_shape == (4,)
    assert run("logistic").output_shape == ()


def test_losses_against_their_definitions():
    rng = np.random.default_rng(1)
    f, y = rng.standard_normal((5, 3)), rng.standard_normal((5, 3))
    np.testing.assert_allclose(
        lg.losses.as_loss("mse").mean(f, y), 0.5 * ((f - y) ** 2).sum(1).mean(), rtol=1e-6
    )
    np.testing.assert_allclose(lg.losses.as_loss("mse").residual(f, y), y - f, rtol=1e-5)
    signs = np.sign(y[:, 0])
    np.testing.assert_allclose(
        lg.losses.as_loss("logistic").residual(f[:, 0], signs),
        signs / (1 + np.exp(signs * f[:, 0])),
        rtol=1e-5,
    )
    classes = np.array([0, 2, 1, 1, 0])
    p = np.exp(f) / np.exp(f).sum(1, keepdims=True)
    np.testing.assert_allclose(
        lg.losses.as_loss("cross_entropy").residual(f, classes),
        np.eye(3)[classes] - p,
        rtol=1e-5,
        atol=1e-7,
    )
    assert lg.losses.as_loss("softmax") is lg.losses.as_loss("cross_entropy")


def test_equal_rows_are_found():
    x = X.copy()
    x[4] = x[1]
    assert lg.Dataset(x, Y).coincident == ((1, 4),)
    assert lg.Dataset(X, Y).coincident == ()


def test_precision_follows_the_inputs():
    assert lg.Dataset(X, Y).y_train.dtype == np.float64
    assert lg.Dataset(X.astype("float32"), Y).y_train.dtype == np.float32


def test_data_cannot_be_changed_behind_the_runs_back():
    with pytest.raises(ValueError, match="read-only"):
        lg.Dataset(X.copy(), Y.copy()).x_train[0, 0] = 1.0


def with_nan():
    x = X.copy()
    x[2, 1] = np.nan
    return x


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lg.Dataset(with_nan(), Y), "x_train: 1 of 24 entries are NaN"),
        (lambda: lg.Dataset(X, np.where(Y > 0, np.inf, Y)), "y_train: has NaN or infinite"),
        (lambda: lg.Dataset(X * 1j, Y), "x_train: wanted floats, got dtype complex128"),
        (lambda: lg.Dataset(X[0], Y), "x_train: wanted samples"),
        (lambda: lg.Dataset(X[:0], Y[:0]), "x_train: is empty"),
        (lambda: lg.Dataset(X, Y[:5]), "y_train: wanted shape"),
        (lambda: lg.Dataset(X, Y, X[:, :3], Y), "x_test: has 3 inputs"),
        (lambda: lg.Dataset(X, Y, X), "x_test and y_test"),
        (lambda: lg.Dataset(X, Y, X, np.stack([Y, Y], 1)), "y_test"),
        (lambda: run("mze"), "Did you mean 'mse'"),
        (lambda: run("logistic", (Y > 0).astype(int)), "For labels 0 and 1"),
        (lambda: run("cross_entropy"), "integer class indices"),
        (lambda: run("cross_entropy", np.array([0, 1, -1, 0, 0, 0])), "start at 0"),
        (lambda: run(steps=0), "steps"),
        (lambda: run(steps=None), "steps"),
        (lambda: run(times=[1.0]), "no times"),
        (lambda: run(optimizer=lg.gradient_flow()), "times"),
        (lambda: run(optimizer=lg.gradient_flow(), steps=None, times=[2.0, 1.0]), "increasing"),
        (lambda: run(optimizer=lg.gradient_flow(), steps=None, times=[]), "positive"),
        (lambda: run(optimizer=lg.sgd(0.1, batch_size=7)), "batch_size: 7 is more than the 6"),
        (lambda: run(optimizer=lg.sgd(0.1, 2, order=[1, 6])), "order: there is no sample 6"),
        (lambda: lg.sgd(0.1, 2, order=[1]), "order: wanted at least the 2 samples"),
        (lambda: lg.sgd(0.1, 1, order=[-1]), "order"),
        (lambda: lg.sgd(0.1, 1, order=np.array(0.5)), "order: wanted a list of integers"),
        (lambda: lg.adam(0.1, order=[1, 2]), "order: an order of samples needs a batch_size"),
    ],
)
def test_wrong_input_is_refused_by_name(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_entries_of_the_trajectory():
    assert run().time_indices("record_at", None) == (0, 7)
    assert run().time_indices("record_at", [5, 2, 5]) == (2, 5)
    assert run().time_indices("record_at", []) == ()
    for wrong in ([8], [-1], [1.5], 3):
        with pytest.raises(InvalidInput, match="record_at"):
            run().time_indices("record_at", wrong)
