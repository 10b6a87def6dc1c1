"""The mean over initialisations to order 1/n, beside ensembles with control variates."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.finite_width.training.mean_shift import Averages, shift_of

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((6, 4)), RNG.standard_normal(6)
DATA = lg.Dataset(X[:4], Y[:4], X[4:], Y[4:])
NET = lg.mlp(1, "erf", weight_std=1.2)
TIMES = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
Theory = lg.theories.FiniteWidth


def run_of(net=NET, param=None, data=DATA, **changed):
    given = {"optimizer": lg.gradient_flow(float(len(data.x_train))), "times": TIMES, **changed}
    return lg.Run(net, param or lg.ntk(), data, **given)


def lazy(f0, kernel, samples=4):
    """Return training at constant kernel, (time, row)."""
    rates, basis = np.linalg.eigh(kernel[:samples])
    rest = basis.T @ (f0[:samples] - Y[:samples])
    times = np.array([0.0, *TIMES])
    return np.stack(
        [f0 - kernel @ basis @ ((1 - np.exp(-rates * t)) / rates * rest) for t in times]
    )


@pytest.mark.slow
def test_the_mean_is_the_limit_plus_the_shift_over_the_width():
    found = lg.solve(run_of(), theory=Theory(width=50, particles=200, replicates=2))
    limit = lg.solve(run_of())
    np.testing.assert_allclose(found.f_test, limit.f_test + found.f_test_shift, rtol=1e-12)
    assert found.theory == "kernel, order 1/width"
    assert "width 50" in repr(found)
    assert np.abs(found.f_train_shift[0]).max() == 0
    assert (found.f_train_error[1:] > 0).all()
    assert found.ntk_shift.shape == (6, 4, 4)
    at_infinity = lg.solve(run_of(), theory=Theory(particles=200, replicates=2))
    np.testing.assert_allclose(at_infinity.f_train, limit.f_train)
    assert not at_infinity.f_train_shift.any()
    whole = lg.solve(run_of(), theory=Theory(width=1, particles=200, replicates=2))
    for name in ("f_train_shift", "f_train_error", "f_train_of_kernels", "ntk_shift"):
        np.testing.assert_allclose(getattr(whole, name), 50 * getattr(found, name), rtol=1e-12)


@pytest.mark.slow
def test_part_of_fluctuating_kernels_is_half_a_second_derivative():
    limit = lg.solve(run_of())
    kernel = np.concatenate([limit.ntk, limit.ntk_test])
    sites = [0.2 * RNG.standard_normal((6, 4)) for _ in range(3)]
    for site in sites:
        site[:4] += site[:4].T.copy()
    pairs = np.mean([np.einsum("ab,cd->abcd", kernel + s, (kernel + s)[:4]) for s in sites], 0)
    none = np.zeros((6, 4, 4, 4))
    mean = kernel + np.mean(sites, 0)
    found = shift_of(
        Averages(mean, pairs, none, none), kernel, limit.nngp, Y[:4], np.array([0.0, *TIMES])
    )
    step, zero = 1e-3, np.zeros(6)
    middle = 2 * lazy(zero, kernel)
    second = [lazy(zero, kernel + step * s) + lazy(zero, kernel - step * s) - middle for s in sites]
    np.testing.assert_allclose(found.of_kernels, np.mean(second, 0) / step**2 / 2, atol=2e-5)
    assert np.abs(found.of_features).max() == 0


@pytest.mark.slow
def test_ensembles_with_control_variates():
    run = run_of(lg.mlp(1, "tanh", weight_std=1.2))
    found, limit = lg.solve(run, theory=Theory(width=1, particles=2**13)), lg.solve(run)
    kernel = np.concatenate([limit.ntk, limit.ntk_test])
    count, width = 3000, 128
    nets = lg.train(run, width=width, seeds=count, key=5, record=["ntk"])
    f = np.concatenate([nets.f_train, nets.f_test], 2)
    start, end = (np.concatenate([nets.ntk[:, i], nets.ntk_test[:, i]], 1) for i in (0, 1))
    of_kernels = np.concatenate([found.f_train_of_kernels, found.f_test_of_kernels], 1)
    shift = np.concatenate([found.f_train_shift, found.f_test_shift], 1)
    errors = np.concatenate([found.f_train_error, found.f_test_error], 1)

    def score(samples, theory, error):
        spread = samples.std(0, ddof=1) / count**0.5
        return (samples.mean(0) - theory) / np.maximum(np.hypot(spread, error), 1e-300)

    # What training adds to its own constant kernel; and the constant kernel, less its linear part.
    own = np.array([lazy(f[i, 0], start[i]) for i in range(count)])
    z = score(width * (f - own), shift - of_kernels, errors)[1:]
    assert np.abs(z).max() < 3
    assert np.sqrt((z**2).mean()) < 1.5
    zero, step = np.zeros(6), 1e-4
    along = [step * (one - kernel) for one in start]
    slopes = np.array([lazy(zero, kernel + s) - lazy(zero, kernel - s) for s in along]) / (2 * step)
    alone = np.array([lazy(zero, one) for one in start]) - lazy(zero, kernel) - slopes
    z = score(width * alone, of_kernels, errors)[1:]
    assert np.abs(z).max() < 3
    assert np.sqrt((z**2).mean()) < 1.5
    z = score(width * (end - start)[:, :4], found.ntk_shift[-1], found.ntk_shift_error[-1])
    assert np.abs(z).max() < 3


@pytest.mark.slow
def test_float32_and_a_bias_of_the_read_out():
    net = lg.serial(lg.Dense(bias_std=0.4), lg.Activation("erf"), lg.Dense(bias_std=0.5))
    double = lg.solve(run_of(net), theory=Theory(width=1, particles=512))
    arrays = (np.float32(a) for a in (X[:4], Y[:4], X[4:], Y[4:]))
    single = lg.solve(run_of(net, data=lg.Dataset(*arrays)), theory=Theory(width=1, particles=512))
    assert single.f_train_shift.dtype == np.float32
    np.testing.assert_allclose(single.f_train_shift, double.f_train_shift, atol=2e-4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"param": lg.mean_field()}, "kernel limit needs"),
        ({"param": lg.abc(a=(0, "1/2", "1/2"), b=0, c=0, d="1/4")}, "vanish as N"),
        ({"optimizer": lg.adam(0.1), "times": None, "steps": 3}, "(?i)adam"),
        (
            {"net": lg.mlp(1, "relu"), "optimizer": lg.gradient_flow(1.0, weight_decay=0.1)},
            "weight decay",
        ),
        ({"data": lg.Dataset(X, np.sign(Y)), "loss": "logistic"}, "mse"),
        ({"data": lg.Dataset(X, RNG.standard_normal((6, 2)))}, "one output"),
    ],
)
def test_what_it_does_not_cover(change, words):
    with pytest.raises(NoTheory, match=words):
        lg.solve(run_of(**change), theory=Theory(width=10))


def test_wrong_options_and_singular_kernels():
    for option in ({"width": 0}, {"particles": 1}, {"networks": 1}, {"network_width": 7}):
        with pytest.raises(InvalidInput, match=next(iter(option))):
            Theory(**option)
    twice = lg.Dataset(X[[0, 0, 1]], Y[:3])
    with pytest.raises(NumericalFailure, match="alike"):
        lg.solve(run_of(data=twice), theory=Theory(width=10))
    assert lg.solve(run_of(data=twice), theory=Theory(width=10), throw=False).status == "singular"
