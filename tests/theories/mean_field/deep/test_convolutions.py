"""Convolutions: the sweep is training of a convolutional network; limits; wide networks."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from tests.theories.mean_field.deep.test_against_networks import KERNELS, assert_chance

import largen as lg
from largen import networks
from largen.architectures.layers import Repeat, Serial
from largen.errors import NoRule, NoTheory
from largen.networks.rules.affine import Weights
from largen.networks.tangent import kernels, probe
from largen.programs import program_of
from largen.theories.chains.chain import affine_chain
from largen.theories.chains.problem import posed_by
from largen.theories.mean_field.deep.matrices.by_directions import Precision
from largen.theories.mean_field.deep.matrices.dense import drawn_by, stored
from largen.theories.mean_field.deep.sweep.causal_sweep import sweep
from largen.theories.mean_field.deep.sweep.initial_kernels import initial_tangent
from largen.theories.mean_field.deep.sweep.kernel_records import look, measure, trajectory_variables
from largen.theories.mean_field.deep.sweep.patches import OnePosition, positions_of
from largen.theories.mean_field.deep.sweep.schedule import descent
from largen.theories.mean_field.deep.sweep.start import begin, draw, initial_matrices
from largen.theories.mean_field.deep.sweep.state import Kept, SweepModel
from largen.theories.select import choose

solve = partial(lg.solve, theory="mean field, deep")

RNG = np.random.default_rng(5)
STEPS, NEURONS = 5, 128
TANH, ERF, RELU = (lg.Activation(name) for name in ("tanh", "erf", "relu"))


def run_of(net, space, *, optimizer=None, outputs=None, param=None, samples=3, steps=STEPS):
    x, xt = (RNG.standard_normal((n, *space, 2)) for n in (samples, 2))
    shape = () if outputs is None else (outputs,)
    y, yt = (RNG.standard_normal((n, *shape)) for n in (samples, 2))
    data = lg.Dataset(x, y, xt, yt)
    param = param or lg.mean_field(1.3)
    return lg.Run(net, param, data, optimizer=optimizer or lg.gd(0.5), steps=steps)


STRIDED = lg.serial(
    lg.Conv((3,), strides=2, bias_std=0.4),
    TANH,
    lg.Conv((2,), padding="VALID", weight_std=1.3, bias_std=0.3),
    ERF,
    lg.Flatten(),
    lg.Dense(bias_std=0.2),
    TANH,
    lg.Dense(),
)
POOLED = lg.serial(
    lg.Conv((2, 2), padding="CIRCULAR"),
    TANH,
    lg.layers.AvgPool((2, 1)),
    lg.Conv((1, 2), dilation=(1, 2), padding="CIRCULAR", bias_std=0.5),
    TANH,
    lg.GlobalAvgPool(),
    lg.Dense(weight_std=1.2),
)
STREAM = lg.serial(
    lg.Conv((2,)),
    lg.repeat(lg.Residual(lg.serial(TANH, lg.Conv((3,), bias_std=0.3))), 2),
    TANH,
    lg.layers.AvgPool((2,), padding="SAME"),
    lg.Flatten(),
    lg.Dense(),
)
NORMALISED = lg.serial(
    lg.Conv((3,), strides=2, bias_std=0.4),
    lg.LayerNorm(over_space=True, eps=0.1),
    TANH,
    lg.Conv((2,), padding="VALID", weight_std=1.3, bias_std=0.3),
    lg.RMSNorm(eps=0.2),
    ERF,
    lg.Flatten(),
    lg.Dense(bias_std=0.2),
    lg.LayerNorm(over_space=True),
    TANH,
    lg.Dense(),
)
BATCH = lg.layers.BatchNorm(eps=0.1)
COUPLED = lg.serial(
    lg.Conv((2,), strides=2, bias_std=0.4),
    lg.repeat(lg.Residual(lg.serial(BATCH, TANH, lg.Conv((3,), bias_std=0.3))), 2),
    BATCH,
    TANH,
    lg.Conv((2,), padding="VALID"),
    BATCH,
    TANH,
    lg.Flatten(),
    lg.Dense(),
)
CASES = {
    "normalised": run_of(NORMALISED, (6,), optimizer=lg.gd(0.6)),
    "coupled": run_of(COUPLED, (6,), optimizer=lg.gd(0.4, momentum=0.5), param=lg.depth_mup(1.2)),
    "coupled outputs": run_of(COUPLED, (6,), outputs=2, param=lg.depth_mup(1.2)),
    "strided": run_of(STRIDED, (6,), optimizer=lg.gd(0.6, momentum=0.5)),
    "pooled": run_of(POOLED, (4, 3), optimizer=lg.sgd(0.5, batch_size=2), outputs=2),
    "stream": run_of(STREAM, (3,), optimizer=lg.gd(0.5), param=lg.depth_mup(1.2)),
}


def swept(run, mode, dense):
    """Return initial values, outputs of the sweep, kernels at the end, and the matrices."""
    posed, rule = posed_by(run).problem, Precision(1 / NEURONS, 1e-6)
    model = SweepModel.of(posed, run, mode, Kept(test=not posed.coupled))
    with jax.enable_x64(True):
        start = draw(posed, mode, NEURONS, np.random.default_rng(3), rule, np.float64)
        keys = jax.random.split(jax.random.key(0), max(posed.streams) + 1)
        if dense:
            rng = np.random.default_rng(5)
            matrices = stored(
                start.inputs, start.outputs, NEURONS, None, drawn_by(rng), np.dtype(np.float64)
            )
            start = start._replace(anchors=None)
        else:
            matrices = initial_matrices(start, (256, 256))
        weights = np.array(matrices.change)
        state, constants = begin(posed, run, descent(run), start, keys, rule, matrices)
        state, _ = sweep(model, state, constants, STEPS)
        state, seen = look(model, state, constants)
        found = measure(model, state, constants, seen)
        state, _ = sweep(model, state, constants, STEPS + 1)
        found, state = jax.tree.map(np.asarray, (found, state._replace(draws=None)))
    if not dense:
        inputs, outputs = state.matrices.inputs, state.matrices.outputs
        weights = np.einsum("lri,lrj->lij", inputs.images, inputs.basis)
        weights += np.einsum("lri,lrj->lij", outputs.basis, outputs.images)
        weights /= NEURONS
    variables = trajectory_variables(posed, run.output_shape, [found])
    return posed, start, state.outputs[:, 0], variables, weights


def normals_of(run, network, posed, start, weights):
    """Return the standard Gaussian numbers behind a network's parameters, from random matrices."""
    values = iter([*zip(weights, start.biases, strict=True), (start.readout, None)])

    def read_in():
        program, names = network.module.sized.program, network.module.names[0]
        rules = {kind: network.table[name] for kind, name in names.items()}

        def fields(normals):
            params = {kind: rules[kind].init_std * normals[kind] for kind in rules}
            x = jnp.asarray(run.data.x)
            return jnp.ravel(networks.rule(program.operations[1], Weights(params, rules), (x,)))

        shapes = network.module.shapes[0]
        zero = jax.tree.map(lambda leaf: jnp.zeros((*leaf.shape[:-1], 1)), shapes)
        flat, tree = ravel_pytree(zero)
        linear = jax.jacobian(lambda flat: fields(tree(flat)))(flat)
        found = np.linalg.lstsq(linear, posed.fields @ start.fields, rcond=1e-10)[0]
        each = [tree(column) for column in found.T]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves, -1), *each)

    def affine(shapes):
        v, b = next(values)
        *window, fan_out = shapes["weight"].shape
        if b is None:
            return {"weight": v.T}
        v = v[:, : np.prod(window)] * NEURONS**0.5
        weight = v.T.reshape(*window, fan_out)
        return {"weight": weight} | ({"bias": b} if "bias" in shapes else {})

    def tree(layer, shapes):
        match layer:
            case Serial(layers):
                return tuple(map(tree, layers, shapes))
            case Repeat(inner, times):
                one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], float), shapes)
                return jax.tree.map(
                    lambda *x: np.stack(x), *(tree(inner, one) for _ in range(times))
                )
            case lg.Residual(branch):
                return tree(branch, shapes)
        return affine(shapes) if shapes else ()

    _, *rest = run.net.layers
    return read_in(), *map(tree, rest, network.module.shapes[1:])


def trained(run, network, params):
    """Return f of gradient descent on every parameter, and the parameters at the end."""
    x, p, beta = jnp.asarray(run.data.x), len(run.data.x_train), run.optimizer.momentum
    rates = jax.tree.map(lambda name: network.table[name].lr, network.module.names)
    y, velocity, outputs = run.data.y_train, jax.tree.map(np.zeros_like, params), []
    while True:

        def both(params):  # training samples are one batch, and test samples another
            parts = network.outputs_of(params, x[:p]), network.outputs_of(params, x[p:])
            return jnp.concatenate(parts)

        f, pull = jax.vjp(both, params)
        outputs.append(np.reshape(f, (len(x), -1)))
        step = len(outputs) - 1
        if step == STEPS:
            return np.array(outputs), params
        rows = np.arange(p) if run.batches is None else run.batches[step]
        delta = np.zeros(f.shape)
        delta[rows] = (y - f[:p])[rows] / len(rows)
        (push,) = pull(jnp.asarray(delta))
        velocity = jax.tree.map(
            lambda v, g, r: beta * v + run.optimizer.lr * r * g, velocity, push, rates
        )
        params = jax.tree.map(jnp.add, params, velocity)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode", "dense"),
    [
        ("strided", "variance_reduced", True),
        ("pooled", "finite_width", False),
        ("stream", "variance_reduced", True),
        ("normalised", "variance_reduced", False),
        ("coupled", "variance_reduced", False),
        ("coupled outputs", "finite_width", True),
    ],
)
def test_training_of_the_rebuilt_network(name, mode, dense):
    """The matrices are the weights of a network of finite width, which knows convolutions."""
    run = CASES[name]
    outputs = run.output_shape[0] if run.output_shape else None
    network = lg.networks.finite_network(
        run.net, run.param, width=NEURONS, inputs=run.data.inputs, outputs=outputs
    )
    posed, start, f, found, weights = swept(run, mode, dense)
    with jax.enable_x64(True):
        params = network.module.init(normals_of(run, network, posed, start, weights))
        network.check_params(params)
        expected, params = trained(run, network, params)
        assert np.abs(expected[-1] - expected[0]).max() > 0.1
        np.testing.assert_allclose(f, expected, atol=2e-9)
        if posed.coupled:
            return
        one, two = (probe(network, params, jnp.asarray(x)) for x in (run.data.x, run.data.x_train))
        theirs = jax.tree.map(np.asarray, kernels(network, one, two))
    p = posed.samples
    np.testing.assert_allclose(found["feature_kernel"], theirs.features[None, :, :p], atol=1e-8)
    np.testing.assert_allclose(found["gradient_kernel"], theirs.gradients[None, :, :p], atol=1e-8)
    ntk = np.concatenate([found["ntk"], found["ntk_test"]], 1)[0]
    np.testing.assert_allclose(ntk, theirs.tangent, atol=1e-8)


NETS = {
    "empty positions": lg.serial(
        lg.Conv((3,)), RELU, lg.Conv((3,), strides=2), RELU, lg.GlobalAvgPool(), lg.Dense()
    ),
    "normalised": lg.serial(
        lg.Conv((3,)),
        lg.LayerNorm(over_space=True, eps=0.2),
        RELU,
        lg.Conv((3,), strides=2),
        lg.RMSNorm(eps=0.1),
        RELU,
        lg.GlobalAvgPool(),
        lg.Dense(),
    ),
    "every layer": lg.serial(
        lg.layers.Axes("CW"),
        lg.layers.ConvTranspose((2,), strides=2, bias_std=0.2),
        TANH,
        lg.layers.SumPool((2,)),
        lg.Conv((2,), padding="CIRCULAR", dilation=2),
        ERF,
        lg.Flatten(),
        lg.Dense(),
    ),
    "weights that are not shared": lg.serial(
        lg.layers.LocallyConnected((2,)),
        TANH,
        lg.layers.LocallyConnected((3,), strides=2, weight_std=1.3),
        ERF,
        lg.Conv((2,)),
        TANH,
        lg.GlobalAvgPool(),
        lg.Dense(),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_tangent_kernel_at_initialisation_is_that_of_kernels(name):
    run = run_of(NETS[name], (4,))
    if name == "empty positions":
        data = lg.Dataset(run.data.x_train * np.array([[0.0], [0.0], [0.0], [1.0]]), np.ones(3))
        run = lg.Run(run.net, run.param, data, optimizer=run.optimizer, steps=STEPS)
    expected = lg.kernel(run.net, run.data.x, run.data.x_train, param=run.param).ntk
    np.testing.assert_allclose(initial_tangent(posed_by(run).problem), expected, atol=1e-13)


def test_one_position_is_the_dense_network():
    """Of a window around a sample of 1×1 one place sees something: the same program runs."""
    window = lg.Conv((3, 3), weight_std=1.5, bias_std=0.2)
    dense = lg.Dense(weight_std=0.5, bias_std=0.2)  # the fan-in counts the whole window
    one = run_of(lg.serial(window, TANH, window, TANH, lg.GlobalAvgPool(), lg.Dense()), (1, 1))
    data = lg.Dataset(one.data.x_train.reshape(3, -1), one.data.y_train)
    two = lg.Run(
        lg.serial(dense, TANH, dense, TANH, lg.Dense()),
        one.param,
        data,
        optimizer=lg.gd(0.5),
        steps=5,
    )
    conv, mlp = posed_by(one).problem, posed_by(two).problem
    for posed in (conv, mlp):
        readings = [affine.reading for affine in posed.maps]
        assert positions_of(readings, posed.positions, np.float64) == OnePosition()
    seen = conv.fields[:3] @ conv.fields[:3].T
    np.testing.assert_allclose(seen, mlp.fields @ mlp.fields.T, atol=1e-12)
    for ours, theirs in zip(conv.maps, mlp.maps, strict=True):
        for constant in ("std", "rate", "bias_std", "bias_rate"):
            np.testing.assert_allclose(getattr(ours, constant), getattr(theirs, constant))


@pytest.mark.slow
def test_small_gamma_is_the_kernel_limit():
    run = run_of(STREAM, (3,), param=lg.depth_mup(0.01), optimizer=lg.gd(0.4))
    half = "1/2"
    lazy = lg.abc(a=(0, half, half), b=0, c=0, branch=half)
    kernel = lg.solve(lg.Run(run.net, lazy, run.data, optimizer=run.optimizer, steps=STEPS))
    limit = solve(run, particles=256, replicates=1)
    assert np.abs(kernel.f_train[-1]).max() > 0.1
    np.testing.assert_allclose(limit.ntk[0], kernel.ntk, atol=1e-5)
    # The first correction is of order γ₀².
    np.testing.assert_allclose(limit.f_train, kernel.f_train, atol=2e-4)
    np.testing.assert_allclose(limit.f_test, kernel.f_test, atol=2e-4)


@pytest.mark.long_loops
@pytest.mark.slow
def test_ensembles_of_wide_networks():
    net = lg.serial(
        lg.Conv((3,), bias_std=0.3),
        TANH,
        lg.Conv((3,)),
        TANH,
        lg.layers.AvgPool((2,), padding="SAME"),
        lg.Flatten(),
        lg.Dense(),
    )
    run = run_of(net, (5,), param=lg.mean_field(1.0), optimizer=lg.gd(1.0), steps=10)
    limit = solve(run, particles=512, replicates=8, rtol=1e-2, key=1)
    assert "of up to 5 positions" in limit.reason
    nets = lg.train(
        run, width=256, seeds=32, key=2, record=("feature_kernel", "gradient_kernel", "ntk")
    )
    assert np.abs(limit.f_train[-1]).max() > 0.2
    for what in ("f_train", "f_test", *KERNELS):
        ours, error = getattr(limit, what), getattr(limit, f"{what}_error")
        assert_chance(ours, error, getattr(nets, what))


@pytest.mark.slow
@pytest.mark.parametrize("norm", [lg.LayerNorm(over_space=True), BATCH])
def test_ensembles_of_normalised_networks(norm):
    pool = lg.layers.AvgPool((2,), padding="SAME")
    conv = lg.Conv((3,), strides=2)
    net = lg.serial(lg.Conv((3,)), norm, TANH, conv, norm, TANH, pool, lg.Flatten(), lg.Dense())
    run = run_of(net, (5,), param=lg.mean_field(1.0), optimizer=lg.gd(0.5), steps=10)
    limit = solve(run, particles=512, replicates=12, rtol=1e-2, key=1)
    names = () if norm == BATCH else ("feature_kernel", "gradient_kernel", "ntk")
    nets = lg.train(run, width=256, seeds=32, key=2, record=names, progress=False)
    assert np.abs(limit.f_train[-1]).max() > 0.2
    for what in ("f_train", "f_test", *names):
        ours, error = getattr(limit, what), getattr(limit, f"{what}_error")
        assert_chance(ours, error, getattr(nets, what))


@pytest.mark.slow
def test_weights_that_are_not_shared_train_as_networks():
    net = lg.serial(
        lg.layers.LocallyConnected((2,)), TANH, lg.layers.LocallyConnected((2,)), TANH,
        lg.GlobalAvgPool(),
        lg.Dense(),
    )  # fmt: skip
    run = run_of(net, (3,), param=lg.mean_field(1.0), optimizer=lg.gd(1.0), steps=10)
    limit = solve(run, particles=512, replicates=8, rtol=1e-2, key=1)
    nets = lg.train(
        run, width=256, seeds=32, key=2, record=("feature_kernel", "gradient_kernel", "ntk")
    )
    assert np.abs(limit.f_train[-1]).max() > 0.1
    for what in ("f_train", "f_test", *KERNELS):
        ours, error = getattr(limit, what), getattr(limit, f"{what}_error")
        assert_chance(ours, error, getattr(nets, what))


@pytest.mark.parametrize(
    ("layers", "error", "words"),
    [
        ((lg.Conv((2,)), TANH, lg.layers.MaxPool((2,)), lg.Flatten()), NoRule, "MaxPool"),
        (
            (lg.layers.LocallyConnected((2,), bias_std=0.1), TANH, lg.Flatten()),
            NoTheory,
            "a bias of each position, got LocallyConnected",
        ),
        ((lg.Conv((2,)), TANH, lg.Conv((2,), groups=2), TANH, lg.Flatten()), NoTheory, "groups"),
        (
            (lg.Conv((2,)), lg.layers.AvgPool((2,)), TANH, lg.Flatten()),
            NoTheory,
            "pooling behind it",
        ),
        (
            (lg.Conv((2,)), lg.layers.AvgPool((2,)), lg.Residual(lg.serial(TANH, lg.Conv((2,))))),
            NoTheory,
            "residual branches that read",
        ),
    ],
)
def test_refusals(layers, error, words):
    with pytest.raises(error, match=words):
        affine_chain(program_of(lg.serial(*layers, lg.Dense()), (4, 2)))


def test_the_theory_is_chosen_by_itself():
    assert choose(CASES["pooled"])[0].name == "mean field, deep"
    net = lg.serial(lg.Conv((2,)), TANH, lg.layers.MaxPool((2,)), lg.Flatten(), lg.Dense())
    with pytest.raises(NoTheory, match=r"deep: .* no rule for a maximum over positions \(MaxPool"):
        choose(run_of(net, (4,)))
