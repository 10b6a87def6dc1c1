"""Mean fields of normalised layers: gradients, the kernel limit, ensembles of wide networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.theories.mean_field.deep.test_against_networks import KERNELS, assert_chance

import largen as lg
from largen.errors import InvalidInput, NoTheory
from largen.expectations import as_activation
from largen.programs import program_of
from largen.theories.chains.chain import affine_chain
from largen.theories.chains.normalized import NormalizedActivation, pull_back, slopes

RNG = np.random.default_rng(6)
X, XT = RNG.standard_normal((4, 6)), RNG.standard_normal((2, 6))
Y, YT = np.array([1.0, -1.0, 1.0, -1.0]), np.ones(2)
DATA = lg.Dataset(X, Y, XT, YT)
RELU, TANH = lg.Activation("relu"), lg.Activation("tanh")


@pytest.mark.parametrize("norm", [lg.LayerNorm(eps=0.4), lg.RMSNorm(eps=0.4)])
def test_gradient_through_a_normalisation(norm):
    """[v − ⟨v⟩ − h̃⟨h̃v⟩]/σ is what autodiff gives for any number of neurons, ε included."""
    phi = NormalizedActivation(as_activation("tanh"), isinstance(norm, lg.LayerNorm), norm.eps)
    with jax.enable_x64(True):
        h, z = (jnp.asarray(RNG.standard_normal((3, 7)) + 0.5) for _ in range(2))

        def features(h):
            centre = h.mean(1, keepdims=True) if isinstance(norm, lg.LayerNorm) else 0.0
            apart = h - centre
            return jnp.tanh(apart / jnp.sqrt((apart**2).mean(1, keepdims=True) + norm.eps))

        value, pull = jax.vjp(features, h)
        np.testing.assert_allclose(phi(h), value, atol=1e-14)
        at = slopes(phi, h)
        np.testing.assert_allclose(pull_back(phi, at, z), pull(z)[0], atol=1e-14)
        elementwise = at.slope * z * at.inverse
        assert np.abs(elementwise - pull(z)[0]).max() > 0.05


@pytest.mark.parametrize(
    ("over", "centred"), [("sample", True), ("sample", False), ("batch", True), ("batch", False)]
)
def test_gradient_through_averages_over_positions_or_a_batch(over, centred):
    """Autodiff agrees; there is room for a fourth position, and samples 3 and 4 are a test set."""
    phi = NormalizedActivation(as_activation("tanh"), centred, 0.4, over, 3, 3)
    axes = {"sample": (1, 2), "batch": (0, 1)}[over]
    with jax.enable_x64(True):
        h, z = (jnp.asarray(RNG.standard_normal((5, 3, 6)) + 0.5) for _ in range(2))

        def features(h):
            parts = []
            for part in (h[:3], h[3:]):
                apart = part - part.mean(axes, keepdims=True) * centred
                parts.append(apart / jnp.sqrt((apart**2).mean(axes, keepdims=True) + 0.4))
            return jnp.tanh(jnp.concatenate(parts))

        value, pull = jax.vjp(features, h)
        padded = jnp.pad(h, ((0, 0), (0, 1), (0, 0)))
        np.testing.assert_allclose(phi(padded)[:, :3], value, atol=1e-14)
        at, back = slopes(phi, padded), jnp.pad(z, ((0, 0), (0, 1), (0, 0)))
        found = pull_back(phi, at, back)
        np.testing.assert_allclose(found[:, :3], pull(z)[0], atol=1e-14)
        assert not np.any(found[:, 3])
        np.testing.assert_allclose(pull_back(phi, slopes(phi, h), z), pull(z)[0], atol=1e-14)


def test_constant_preactivations_have_no_directions():
    """Samples that are all alike are 0 behind a normalisation over them, also without ε."""
    phi = NormalizedActivation(as_activation("tanh"), True, 0.0, "batch", 1, 2)
    h = jnp.ones((2, 1, 3))
    assert not np.any(phi(h))
    assert not np.any(pull_back(phi, slopes(phi, h), h))


def serial(*layers):
    return lg.serial(*layers, lg.Dense())


DENSE, NORM = lg.Dense(), lg.LayerNorm()
REFUSED = {
    "inputs": ((NORM, DENSE, RELU), (6,), NoTheory, "before LayerNorm.* are the inputs"),
    "behind": ((DENSE, RELU, NORM), (6,), NoTheory, "normalisations of preactivations"),
    "twice": ((DENSE, NORM, lg.RMSNorm(), RELU), (6,), NoTheory, "normalisations of preactiv"),
    "stream": (
        (DENSE, NORM, lg.Residual(lg.serial(RELU, DENSE))),
        (6,),
        NoTheory,
        "residual branches that read",
    ),
    "end of a branch": (
        (DENSE, lg.Residual(lg.serial(RELU, DENSE, NORM))),
        (6,),
        NoTheory,
        "end in an affine map",
    ),
    "flattened": ((lg.Conv((2,)), lg.Flatten(), NORM, RELU), (4, 2), NoTheory, "preactivations"),
    "widths": (
        (DENSE, NORM, RELU, lg.Dense(width_ratio=2), RELU),
        (6,),
        NoTheory,
        "one width for all hidden layers",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    layers, inputs, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        affine_chain(program_of(serial(*layers), inputs))


BATCH = lg.Run(
    serial(DENSE, lg.layers.BatchNorm(), TANH, DENSE, TANH),
    lg.mean_field(),
    DATA,
    optimizer=lg.gd(0.1),
    steps=2,
)


def test_batches_without_a_limit_are_refused():
    small = BATCH.with_changes(optimizer=lg.sgd(0.1, batch_size=2))
    with pytest.raises(NoTheory, match="takes full batches"):
        lg.solve(small)
    with pytest.raises(InvalidInput, match=r"record: .* no gradients of a sample"):
        lg.solve(BATCH, record="ntk")
    with pytest.raises(InvalidInput, match="sample_neurons: "):
        lg.solve(BATCH, sample_neurons=3)


@pytest.mark.parametrize("optimizer", [lg.gradient_flow(1.0), lg.sgd(0.1, batch_size=2)])
def test_networks_take_test_samples_as_a_batch_of_their_own(optimizer):
    """Outputs on training samples do not depend on the test samples."""
    long = {"times": [0, 1]} if optimizer == lg.gradient_flow(1.0) else {"steps": 1}
    alone = lg.Dataset(X, Y)
    runs = (lg.Run(BATCH.net, BATCH.param, x, optimizer=optimizer, **long) for x in (DATA, alone))
    one, two = (lg.train(run, width=8, seeds=1, progress=False).f_train for run in runs)
    np.testing.assert_allclose(one, two, atol=1e-5)


def test_a_batch_has_outputs_and_feature_kernels():
    limit = lg.solve(BATCH, rtol=5e-2, particles=256, replicates=2, record_pairs=[(0, 2)])
    assert limit.feature_kernel.shape == (2, 2, 4, 4)
    assert limit.feature_kernel_pair_error.shape == (1, 2, 4, 4)
    for name in ("gradient_kernel", "ntk", "gradient_kernel_pair"):
        with pytest.raises(AttributeError, match="has no"):
            getattr(limit, name)


def test_response_functions_are_refused():
    run = lg.Run(serial(DENSE, NORM, TANH), lg.mean_field(), DATA, optimizer=lg.gd(0.1), steps=1)
    with pytest.raises(NoTheory, match="normalised layers"):
        lg.theories.response_functions(run)


def residual(norm, phi):
    """Two blocks and a read-out that read the normalised stream."""
    block = lg.Residual(lg.serial(norm, lg.Activation(phi), DENSE))
    return serial(DENSE, lg.repeat(block, 2), norm)


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "phi"), [(NORM, "relu"), (lg.RMSNorm(eps=0.3), "gelu")])
def test_ensembles_of_wide_networks(norm, phi):
    net = residual(norm, phi)
    run = lg.Run(net, lg.depth_mup(), DATA, optimizer=lg.gd(0.3), steps=10)
    limit = lg.solve(run, replicates=4)
    np.testing.assert_allclose(limit.ntk[0], lg.ntk_kernel(net, X, param=lg.depth_mup()), atol=1e-5)
    records = ("feature_kernel", "gradient_kernel", "ntk")
    nets = lg.train(run, width=256, seeds=128, key=2, record=records, progress=False)
    assert np.abs(limit.f_train[-1]).max() > 0.2
    for what in ("f_train", "f_test", *KERNELS):
        ours, error = getattr(limit, what), getattr(limit, f"{what}_error")
        assert_chance(ours, error, getattr(nets, what))
