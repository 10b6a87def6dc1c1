"""Networks with an output at each position: training, and what takes a run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory

DRAW = np.random.default_rng(7)
X, XT = DRAW.standard_normal((4, 3, 2)), DRAW.standard_normal((2, 3, 2))
BLOCK = lg.Residual(lg.serial(lg.QKVAttention(causal=True), lg.Dense()))
NET = lg.serial(lg.Dense(), BLOCK, lg.Dense())
TARGETS = {
    "mse": DRAW.standard_normal((6, 3)),
    "several outputs": DRAW.standard_normal((6, 3, 2)),
    "logistic": np.sign(DRAW.standard_normal((6, 3))),
    "cross_entropy": DRAW.integers(0, 4, (6, 3)),
}
TARGETS["cross_entropy"][0, 0] = 3


def run_of(which, net=NET, param=None, optimizer=None, **options):
    y = TARGETS[which]
    data = lg.Dataset(X, y[:4], XT, y[4:])
    loss = "mse" if which == "several outputs" else which
    optimizer = optimizer or lg.gd(0.3)
    options = options or {"steps": 4}
    return lg.Run(net, param or lg.mean_field(), data, loss=loss, optimizer=optimizer, **options)


@pytest.mark.slow
def test_networks_follow_a_gradient_that_is_written_out():
    # f_s = w·(h_s + W_o o_s/√N)/(γ√N) with h = Ex/√D, and the mean of −log softmax over positions.
    width, y = 8, TARGETS["cross_entropy"]
    run = run_of("cross_entropy")
    network = lg.networks.finite_network(NET, run.param, width=width, inputs=(3, 2), outputs=4)
    both = lg.networks.train_and_measure(
        run, width, lambda network, start, end, x: (start, end), seeds=1, key=5
    )
    start, end = jax.tree.map(lambda leaf: leaf[0], both)
    table = run.param.table(NET, run.optimizer, width=width, inputs=(3, 2))
    multipliers = network.per_leaf(table, "multiplier")

    def outputs(params, x):
        scaled = jax.tree.map(jnp.multiply, params, multipliers)
        embed, queries, keys, values, out, read = jax.tree.leaves(scaled)
        h = x @ embed
        q, k, v = h @ queries, h @ keys, h @ values
        logits = jnp.einsum("psi,pti->pst", q, k) / width
        logits = jnp.where(jnp.tril(jnp.ones((3, 3), bool)), logits, -jnp.inf)
        return (h + jax.nn.softmax(logits) @ v @ out) @ read

    def loss(params):
        f = outputs(params, jnp.asarray(X))
        chosen = jnp.take_along_axis(f, jnp.asarray(y[:4, :, None]), -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(f, -1) - chosen)

    nets, slopes = lg.train(run, width=width, seeds=1, key=5), jax.jit(jax.grad(loss))
    with jax.enable_x64(True):
        rates = network.per_leaf(table, "lr")
        for step in range(5):
            for x, found in ((X, nets.f_train), (XT, nets.f_test)):
                f = outputs(start, jnp.asarray(x))
                np.testing.assert_allclose(found[0, step], f, rtol=0, atol=1e-12)
            np.testing.assert_allclose(nets.loss_train[0, step], loss(start), rtol=1e-12)
            if step < 4:
                slope = slopes(start)
                start = jax.tree.map(lambda w, g, r: w - 0.3 * r * g, start, slope, rates)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), start, end)
    assert np.abs(nets.f_train[0, 4] - nets.f_train[0, 0]).max() > 0.02


@pytest.mark.parametrize("which", TARGETS)
def test_outputs_and_targets_have_positions(which, tmp_path):
    run = run_of(which)
    nets = lg.train(run, width=6, seeds=3, key=0)
    out = {"several outputs": (2,), "cross_entropy": (4,)}.get(which, ())
    assert nets.f_train.shape == (3, 5, 4, 3, *out)
    assert nets.f_test.shape == (3, 5, 2, 3, *out)
    axes = ("seed", "step", "sample", "position", "output")[: 4 + len(out)]
    assert nets.to_xarray().f_train.dims == axes
    one = lg.losses.as_loss("mse" if which == "several outputs" else which)
    f, y = nets.f_train[0, 2].reshape(12, *out), run.data.y_train
    y = y.reshape(12, *y.shape[2:])
    np.testing.assert_allclose(nets.loss_train[0, 2], one.mean(f, y), rtol=1e-12)
    nets.save(tmp_path / "nets.nc")
    np.testing.assert_array_equal(lg.Trajectory.load(tmp_path / "nets.nc").f_train, nets.f_train)
    assert "loss" in repr(nets)
    nets.plot()


@pytest.mark.slow
def test_minibatches_and_adam_lower_the_loss():
    for optimizer in (lg.sgd(0.3, 2), lg.adam(0.05)):
        found = lg.train(run_of("mse", optimizer=optimizer, steps=10), width=6, seeds=1, key=0)
        assert found.loss_train[0, -1] < 0.95 * found.loss_train[0, 0]


@pytest.mark.slow
def test_small_steps_follow_gradient_flow():
    flow = run_of("mse", optimizer=lg.gradient_flow(), times=[1.0])
    fine = run_of("mse", optimizer=lg.gd(0.002), steps=500)
    there, near = (lg.train(run, width=6, seeds=1, key=0).f_train[:, -1] for run in (flow, fine))
    np.testing.assert_allclose(there, near, atol=2e-3)


WRONG = {
    "one target": (NET, TARGETS["mse"][:4, 0], {}, "output at each of 3 positions"),
    "other positions": (NET, TARGETS["mse"][:4, :2], {}, "output at each of 3 positions"),
    "one output": (
        lg.serial(lg.Dense(), lg.GlobalAvgPool(), lg.Dense()), TARGETS["several outputs"][:4], {},
        "one output for a sample",
    ),
    "classes": (NET, TARGETS["several outputs"][:4], {"loss": "cross_entropy"}, "position"),
    "test": (NET, TARGETS["mse"][:4], {"y_test": TARGETS["mse"][4:, 0]}, "y_test"),
}  # fmt: skip


@pytest.mark.parametrize("which", WRONG)
def test_targets_that_do_not_fit_are_refused(which):
    net, y, changed, words = WRONG[which]
    test = (XT, changed["y_test"]) if "y_test" in changed else ()
    loss = changed.get("loss", "mse")
    with pytest.raises(InvalidInput, match=words):
        lg.Run(net, lg.ntk(), lg.Dataset(X, y, *test), loss=loss, optimizer=lg.gd(0.1), steps=1)


PLAIN = lg.serial(lg.Dense(), lg.Activation("tanh"), lg.Dense())
READERS = {
    "kernel": lambda run, params: lg.solve(run, theory=lg.theories.KernelLimit),
    "finite width": lambda run, params: lg.solve(run, theory=lg.theories.FiniteWidth),
    "one hidden layer": lambda run, params: lg.solve(run, theory=lg.theories.MeanField),
    "deep": lambda run, params: lg.solve(run, theory=lg.theories.DeepMeanField),
    "infinite depth": lambda run, params: lg.solve(run, theory=lg.theories.InfiniteDepth),
    "record": lambda run, params: lg.train(run, 6, 1, 0, record=("ntk",)),
    "lg.training.convergence_bound": lg.training.convergence_bound,
    "lg.training.feature_movement": lambda run, params: lg.training.feature_movement(
        run, [1, 2], [4, 8], key=0
    ),
    "lg.training.catapult_diagram": lambda run, params: lg.training.catapult_diagram(
        run, [4], [2.0], key=0
    ),
    "lg.training.catapult": lg.training.catapult,
    "lg.scaling.measure_exponents": lambda run, params: lg.scaling.measure_exponents(
        run, [4, 8, 64], key=0
    ),
    "lg.training.predict_training": lg.training.predict_training,
    "lg.training.lazy_or_rich": lambda run, params: lg.training.lazy_or_rich(run, 8),
    "lg.training.width_corrections_in_training": lambda run, params: (
        lg.training.width_corrections_in_training(run, width=4)
    ),
    "response": lambda run, params: lg.theories.response_functions(run),
}


@pytest.mark.parametrize("which", READERS)
def test_what_wants_one_output_says_so(which):
    scheme = lg.ntk() if which in ("kernel", "finite width") else lg.mean_field()
    run = run_of("mse", net=PLAIN, param=scheme)
    params = lg.networks.init(PLAIN, scheme, width=6, inputs=(3, 2), key=0)
    with pytest.raises(NoTheory, match="output at each of 3 positions"):
        READERS[which](run, params)


def test_kernels_want_one_output():
    with pytest.raises(InvalidInput, match="spatial axes"):
        lg.kernel(PLAIN, X)
    params = lg.networks.init(PLAIN, lg.ntk(), width=6, inputs=(3, 2), key=0)
    with pytest.raises(InvalidInput, match="spatial axes"):
        lg.networks.empirical_ntk(PLAIN, params, np.float32(X), param=lg.ntk())


@pytest.mark.slow
def test_the_curve_over_rates_is_of_the_mean_over_positions():
    run = run_of("mse")
    curve = lg.learning_rate_curve(run, [0.1, 0.3], width=6, seeds=2, on="train")
    nets = lg.train(run, width=6, seeds=2, key=0)
    np.testing.assert_allclose(curve.losses[1], nets.loss_train[:, -1].mean(), rtol=1e-6)
