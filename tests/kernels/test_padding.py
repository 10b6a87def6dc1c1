"""Other numbers of samples or layers compile nothing anew, and change nothing but rounding."""

from functools import partial

import jax
import numpy as np
import pytest

import largen as lg

RNG = np.random.default_rng(0)
X = RNG.standard_normal((24, 3))
Y = np.sin(X[:, 0])
COMPILED = "/jax/core/compile/backend_compile_duration"


@pytest.fixture
def compiled():
    """How often XLA has compiled so far, as a function."""
    events = []

    def listen(event, _, **__):
        if event == COMPILED:
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield lambda: len(events)
    jax.monitoring.unregister_event_duration_listener(listen)


CALLS = {
    "one set": lambda n: lg.kernel(lg.mlp(2, "tanh"), X[:n]),
    "two sets": lambda n: lg.ntk_kernel(lg.mlp(2, "tanh"), X[:n], X[n - 2 : n]),
    "likelihood": lambda n: lg.regression.log_likelihood(
        lg.mlp(1, "relu"), X[:n], Y[:n], noise=0.1
    ),
    "cross-validation": lambda n: lg.regression.fit_cross_validation(
        lg.mlp(1, "erf"), X[:n], Y[:n], noise=1.0, throw=False
    ),
    "training": lambda n: lg.posterior(lg.mlp(1, "erf"), X[:n], Y[:n], noise=0.1),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_another_number_of_samples_compiles_nothing(call, compiled):
    call(20)
    jax.jit(lambda x: x + 2)(1.0)
    before = compiled()
    assert before > 0
    call(19)
    call(21)
    assert compiled() == before


def unequal(depth, bias_std):
    """Layers of different variances, whose constants have an entry for each of them."""
    hidden = [lg.Dense(weight_std=1 + 0.1 * n, bias_std=bias_std) for n in range(depth)]
    relu = lg.Activation("relu")
    return lg.serial(lg.Dense(), *(each for dense in hidden for each in (relu, dense)))


@pytest.mark.parametrize(
    "network", [partial(lg.mlp, activation="relu", bias_std=0.3), partial(unequal, bias_std=0.2)]
)
def test_another_depth_compiles_nothing(network, compiled):
    lg.kernel(network(3), X)
    jax.jit(lambda x: x + 2)(1.0)
    before = compiled()
    assert before > 0
    found = [lg.kernel(network(depth), X) for depth in (5, 40)]
    assert compiled() == before
    with jax.enable_x64(True):  # traced, with a number of copies that is compiled
        traced = jax.jit(lambda x: tuple(lg.kernel(network(5), x)))(X)
    np.testing.assert_allclose(found[0], traced, rtol=1e-12)
    assert np.isfinite(found[1]).all()


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_rows_that_fill_up_change_nothing(activation):
    net = lg.mlp(2, activation, bias_std=0.3)
    many, few = lg.kernel(net, X), lg.kernel(net, X[:7])
    for one, other in zip(many, few, strict=True):
        np.testing.assert_allclose(one[:7, :7], other, rtol=1e-13, atol=1e-14)


@pytest.mark.slow
def test_a_hundred_sizes_have_three_programs(compiled):
    """Programs, and the memory that they hold, are those of 32, 64 and 128 rows."""
    x, counts = RNG.standard_normal((119, 3)), []
    for n in range(20, 120):
        lg.kernel(lg.mlp(1, "relu"), x[:n])
        counts.append(compiled())
    assert set(20 + 1 + np.flatnonzero(np.diff(counts))) == {33, 65}
