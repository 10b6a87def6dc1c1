"""What public functions refuse at their door, before they compute anything."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory
from largen.experiments.digits import digits
from largen.sweeps import Grid, Task
from largen.transfer import warmup_cosine
from largen.transfer.patterns import patterns

X = np.eye(3)
NET = lg.mlp(1, "relu")
LINEAR = lg.mlp(1, "linear")
DATA = lg.Dataset(X, X[:, 0])
ONE = lg.Run(LINEAR, lg.ntk(), lg.Dataset(X[:1], X[:1, 0]), optimizer=lg.gd(0.1), steps=2)
SDE = {"time": 1.0, "draws": 2, "steps": 2, "key": 0}


def two(**given):
    """Call the diffusion of covariances with further options."""
    return lg.finite_width.covariance_sde(np.eye(2), **SDE, **given)


def of_parameters(f):
    """Return the tangent kernel of a function of one parameter."""
    return lg.networks.ntk_of_function(f, {"w": np.ones(3)}, X)


class Unhashable:
    """A function that cannot be told from others."""

    __hash__ = None

    def __call__(self, f, y):
        return (f - y) ** 2


def params(net=NET):
    """Return parameters of a small network of three inputs."""
    return lg.networks.init(net, lg.ntk(), width=2, inputs=3, key=0)


CALLS = {
    "momentum of a rate": (
        lambda: lg.regression.critical_learning_rate(X, momentum=1.0),
        "momentum: wanted 0 ≤ momentum < 1",
    ),
    "neither slopes nor activation": (two, "wanted either slopes or activation"),
    "a scale beside slopes": (
        lambda: two(slopes=(0, -1), scale=2.0),
        "scale: is for a smooth activation",
    ),
    "growth beside slopes": (
        lambda: two(slopes=(0, -1), growth=0.1),
        "growth: is for a smooth activation",
    ),
    "one slope": (lambda: two(slopes=(1.0,)), "got 1 numbers"),
    "a correlation above one": (
        lambda: lg.expectations.gaussian_moments("relu", 1.0, 2.0, 1.0),
        "correlation above 1",
    ),
    "a device twice": (
        lambda: lg.kernel(NET, X, devices=[jax.devices()[0]] * 2),
        "devices: the same device is given twice",
    ),
    "no device": (lambda: lg.kernel(NET, X, devices=["cpu"]), "wanted some of jax.local_devices"),
    "law of outputs at two inputs": (
        lambda: lg.finite_width.output_law(NET, X, width=4),
        "x: wanted one input",
    ),
    "correlators of relu": (
        lambda: lg.finite_width.linear_correlator(NET, X[:2], width=4),
        "is not linear",
    ),
    "correlators with biases": (
        lambda: lg.finite_width.linear_correlator(
            lg.mlp(1, "linear", bias_std=0.1), X[:2], width=4
        ),
        "without biases",
    ),
    "parameters and a width": (
        lambda: lg.training.catapult(ONE, params(LINEAR), width=4),
        "pass either params, or width and start",
    ),
    "a start without a kernel": (
        lambda: lg.training.catapult(ONE, start=(0.0, -1.0)),
        "wanted the pair",
    ),
    "a plane from high to low": (
        lambda: lg.scaling.plane_map(q_sigma=(0, -1)),
        "q_sigma: wanted .* with from < to",
    ),
    "more digits than there are": (lambda: digits(2000, 2000), "there are 1797"),
    "one digit twice": (lambda: digits(2, 2, classes=(1, 1)), "two different digits"),
    "few modes": (
        lambda: lg.regression.scaling_laws(
            lg.regression.Spectrum(np.arange(400.0, 0, -1), np.eye(400)[0])
        ),
        "too few modes have power",
    ),
    "a vector of another length": (
        lambda: lg.regression.large.kernel_operator(NET, X) @ np.ones(2),
        "v: wanted 3 rows",
    ),
    "both uncertainties": (
        lambda: lg.NNGPRegressor().fit(X, X[:, 0]).predict(X, return_std=True, return_cov=True),
        "at most one of them",
    ),
    "an activation that is zero": (
        lambda: lg.NNGPRegressor(activation=lambda u: 0 * u).fit(X, X[:, 0]),
        r"E\[φ\(z\)²\].* is 0; give a network",
    ),
    "times on two axes": (
        lambda: lg.Run(NET, lg.ntk(), DATA, optimizer=lg.gradient_flow(), times=np.ones((2, 2))),
        "times: wanted one axis",
    ),
    "a loss without a name": (
        lambda: lg.Run(NET, lg.ntk(), DATA, loss=Unhashable(), optimizer=lg.gd(0.1), steps=1),
        "loss: is not hashable",
    ),
    "outputs of another number": (
        lambda: of_parameters(lambda p, x: x[:2] @ p["w"]),
        "wanted outputs",
    ),
    "complex outputs": (
        lambda: of_parameters(lambda p, x: 1j * (x @ p["w"])),
        "real outputs, got dtype complex",
    ),
    "samples of other positions": (
        lambda: lg.networks.apply(NET, params(), jnp.ones(3), param=lg.ntk()),
        "For a single sample",
    ),
    "a stride of too many axes": (
        lambda: lg.Conv((3, 3), strides=(1, 1, 1)),
        "strides: has 3 entries",
    ),
    "padding of one axis of two": (
        lambda: lg.Conv((3, 3), padding=(1,)),
        "padding: has 1 entries",
    ),
    "padding with three ends": (
        lambda: lg.Conv((3,), padding=((1, 1, 1),)),
        "padding: wanted a name, a number, or",
    ),
    "a window without axes": (lambda: lg.Conv(()), "wanted 1 to"),
    "a sum of one node": (
        lambda: lg.layers.Graph({"u": (lg.Dense(), "x"), "s": ("sum", "u")}),
        "is a sum of one node",
    ),
    "ratios of too many layers": (
        lambda: lg.mlp(2, "relu", width_ratios=(1,)),
        "one for each of 2 hidden layers",
    ),
    "branches with other positions": (
        lambda: lg.kernel(
            lg.serial(
                lg.layers.Concatenate(
                    lg.Conv((3,)), lg.serial(lg.Conv((3,)), lg.layers.AvgPool((2,)))
                ),
                lg.Flatten(),
                lg.Dense(),
            ),
            np.ones((2, 4, 1)),
        ),
        "cannot be put side by side",
    ),
    "a large exponent": (
        lambda: lg.abc(a=(0, 10**9, 0), b=0, c=0),
        "an exponent of at most",
    ),
    "equal names of sizes": (
        lambda: Grid(lrs=[1.0], base=(8, 1), widths=[8], names=("n", "n")),
        "the builder's two names",
    ),
    "final samples without targets": (
        lambda: Task(X, np.arange(3), steps=1, x_final=X),
        "wanted both or none",
    ),
    "classes that are floats": (
        lambda: Task(X, X[:, 0], steps=1, loss="cross_entropy"),
        "wanted classes, integers ≥ 0",
    ),
    "samples that are not finite": (
        lambda: Task(np.full((3, 2), np.nan), np.arange(3), steps=1),
        "are not finite",
    ),
    "more warm-up than steps": (
        lambda: warmup_cosine(10, warmup=10),
        "warmup: wanted less than steps = 10",
    ),
    "a rate whose square overflows": (
        lambda: lg.theories.kernel_after_one_step(1e150, gamma=1e150),
        "its square overflows",
    ),
    "a name that is taken": (
        lambda: lg.theories.register(lg.theories.KernelLimit),
        "is taken by KernelLimit",
    ),
    "a picture of no format": (
        lambda: lg.kernel(NET, X).plot("picture.text"),
        "are not written as '.text'",
    ),
    "a path without a name": (lambda: lg.kernel(NET, X).save(""), "wanted a path"),
    "a path of a null": (lambda: lg.load("a\0b"), "null character"),
    "a long path": (lambda: lg.load(f"{'a' * 300}.nc"), "too long"),
    "patterns that are numbers": (lambda: patterns("hints", [1]), "patterns of names"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_what_is_wrong_is_named(name):
    call, message = CALLS[name]
    with pytest.raises((InvalidInput, NoTheory), match=message):
        call()


def test_a_trajectory_lists_its_variables():
    limit = lg.Trajectory.of(ONE, np.zeros((3, 1)), np.zeros((3, 0)), theory="none", reason="none")
    with pytest.raises(AttributeError, match="has no 'features'; it has f_test, f_train"):
        getattr(limit, "features")  # noqa: B009
    with pytest.raises(InvalidInput, match="extra: wanted variables by name"):
        lg.Trajectory.of(
            ONE,
            np.zeros((3, 1)),
            np.zeros((3, 0)),
            theory="n",
            reason="n",
            extra={"f_train": (("step",), np.ones(3))},
        )
