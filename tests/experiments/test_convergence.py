"""The bound on the loss against trained networks, and the rates as printed."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory, NumericalFailure

X, Y = np.eye(3, 4) + 0.3, np.array([1.0, -1.0, 0.5])
NET = lg.mlp(1, "linear")


def run(optimizer, **options):
    return lg.Run(NET, lg.ntk(), lg.Dataset(X, Y), optimizer=optimizer, **options)


def params():
    return lg.networks.init(NET, lg.ntk(), width=512, inputs=4, key=0, dtype=np.float64)


def test_trained_networks_stay_below():
    times = np.linspace(0.5, 6, 12)
    given = run(lg.gradient_flow(), times=times)
    trained = lg.train(given, width=512, seeds=1, key=0)
    found = lg.training.convergence_bound(given, params())
    seen = np.asarray(trained.to_xarray()["loss_train"]).ravel()
    assert len(seen) == len(found.loss)
    # Both start anew, so that losses are compared with their own beginnings.
    assert np.all(seen / seen[0] <= found.loss / found.loss[0] * 1.05)


def test_a_constant_kernel_attains_the_rate():
    # f − y along the weakest eigenvector falls by e^{−δt/P}, and its square by e^{−2δt/P}: the
    # printed e^{−δt/P} is a weaker bound.
    found = lg.training.convergence_bound(run(lg.gradient_flow(), times=[2.0]), params())
    assert found.loss[1] / found.loss[0] == pytest.approx(np.exp(-2 * found.smallest * 2 / 3))
    kernel = np.asarray(lg.networks.empirical_ntk(NET, params(), X))
    eigenvalues, vectors = np.linalg.eigh(kernel)
    residual, step = vectors[:, 0], 1e-5
    moved = residual - step / 3 * kernel @ residual
    rate = -np.log(np.sum(moved**2)) / step
    assert rate == pytest.approx(found.rate, rel=1e-4)
    assert rate > 1.9 * eigenvalues[0] / 3


def test_the_rate_along_the_residual():
    """With a constant kernel the loss stays between the rates of δ and of the residual."""
    found = lg.training.convergence_bound(run(lg.gradient_flow(0.7), times=[1.0, 3.0]), params())
    kernel = np.asarray(lg.networks.empirical_ntk(NET, params(), X))
    values, vectors = np.linalg.eigh(kernel)
    residual = np.asarray(lg.networks.apply(NET, params(), X)) - Y
    parts = (vectors.T @ residual) ** 2
    loss = np.exp(-2 * 0.7 * np.outer(found.times, values) / 3) @ parts / 6
    assert found.along_residual == pytest.approx(parts @ values / parts.sum(), rel=1e-12)
    assert found.along_residual > 1.05 * found.smallest
    below = loss[0] * np.exp(-2 * 0.7 * found.along_residual * found.times / 3)
    assert np.all(below <= loss * (1 + 1e-12))
    assert np.all(loss <= found.loss * (1 + 1e-12))
    # It is the rate of the trained network at its start, which the trajectory measures.
    nets = lg.train(run(lg.gradient_flow(0.7), times=[1e-3]), 64, record="ntk")
    first, second = nets.loss_train[0]
    rate = nets.dissipation(relative=True)[0].mean()
    assert np.log(first / second) / 1e-3 == pytest.approx(rate, rel=1e-5)


def test_steps_of_gradient_descent():
    found = lg.training.convergence_bound(run(lg.gd(lr=0.2), steps=5), params())
    factor = max(abs(1 - 0.2 * each / 3) for each in (found.smallest, found.largest)) ** 2
    assert found.loss[5] / found.loss[0] == pytest.approx(factor**5)
    with pytest.raises(InvalidInput, match="diverges"):
        lg.training.convergence_bound(run(lg.gd(lr=20.0), steps=5), params())


def test_what_is_not_covered():
    with pytest.raises(NoTheory, match="momentum"):
        lg.training.convergence_bound(run(lg.gd(lr=0.1, momentum=0.9), steps=5), params())
    same = lg.Run(NET, lg.ntk(), lg.Dataset(X[[0, 0, 1]], Y), optimizer=lg.gd(lr=0.1), steps=5)
    with pytest.raises(NumericalFailure, match="singular"):
        lg.training.convergence_bound(same, params())
