"""What optimizers of a user's own are in every room: right, or refused by what they lack."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tests.own_optimizers import (
    HeavyBall,
    Lion,
    Nesterov,
    OfAKind,
    Orthogonal,
    OwnAdam,
    Silent,
    UnitSteps,
    Uphill,
)

import largen as lg
from largen.errors import InvalidInput, NoRule, NoTheory
from largen.parameterizations import Optimizer, Stepped, Velocity

RNG = np.random.default_rng(7)
X, Y = RNG.standard_normal((4, 3)), np.array([1.0, -1.0, 0.5, -0.5])
DATA = lg.Dataset(X, Y)


def run(optimizer, net=None, param=None, steps=4):
    net = net or lg.mlp(1, "tanh")
    return lg.Run(net, param or lg.mup(), DATA, optimizer=optimizer, steps=steps)


def trained(optimizer, **options):
    return lg.train(run(optimizer, **options), width=16, seeds=2, key=0).f_train


@pytest.mark.parametrize(
    ("own", "known"),
    [
        (HeavyBall(0.2, friction=0.2), lg.gd(0.2, momentum=0.8)),
        (HeavyBall(0.2, 0.1, friction=0.2), lg.gd(0.2, momentum=0.8, weight_decay=0.1)),
        (OwnAdam(0.05), lg.adam(0.05)),
        (OwnAdam(0.05, 0.1, 2), lg.adam(0.05, weight_decay=0.1, batch_size=2)),
    ],
    ids=["velocity", "velocity with decay", "moments", "moments with decay and batches"],
)
def test_networks_train_by_what_an_optimizer_says_as_by_the_one_that_is_the_same(own, known):
    np.testing.assert_allclose(trained(own), trained(known), rtol=2e-6)


def test_lion_trains_as_optax_has_it():
    net, lr, decay = lg.mlp(1, "tanh"), 0.05, 0.1
    one = run(Lion(lr, decay))
    network = lg.networks.finite_network(net, lg.mup(), width=16, inputs=3)
    table = lg.mup().table(net, Lion(lr), width=16, inputs=3)
    raw = network.per_leaf(table, "lr")
    f = lg.train(one, width=16, seeds=1, key=0).f_train[0]

    def loss(params):
        return 0.5 * ((network.outputs_of(params, X) - Y) ** 2).mean()

    seen = []
    with jax.enable_x64(True):
        params = network.draw(jax.random.fold_in(jax.random.key(0), 0), np.float64)
        # Rates differ from weight to weight: each has a Lion of its own.
        leaves, tree = jax.tree.flatten(params)
        lions = [optax.lion(lr * rate, weight_decay=decay / rate) for rate in jax.tree.leaves(raw)]
        states = [lion.init(leaf) for lion, leaf in zip(lions, leaves, strict=True)]
        for _ in range(5):
            now = tree.unflatten(leaves)
            seen.append(np.asarray(network.outputs_of(now, X)))
            slopes = jax.tree.leaves(jax.grad(loss)(now))
            for place, (lion, slope) in enumerate(zip(lions, slopes, strict=True)):
                moved, states[place] = lion.update(slope, states[place], leaves[place])
                leaves[place] = leaves[place] + moved
    np.testing.assert_allclose(f, np.stack(seen), rtol=1e-9)


def test_rates_and_classes_are_those_of_the_kind():
    net = lg.mlp(2, "tanh")
    for own, known, called in (
        (Lion(0.1), lg.adam(0.1), "Lion"),
        (UnitSteps(0.1), lg.adam(0.1), "UnitSteps"),
        (Nesterov(0.1), lg.gd(0.1), "Nesterov"),
    ):
        for param in (lg.mup(), lg.standard(), lg.ntk()):
            assert param.table(net, own).rows == param.table(net, known).rows
            one = lg.scaling.classify(param, net, own)
            two = lg.scaling.classify(param, net, known)
            assert (one.kind, one.layers, one.stable_rate) == (
                two.kind,
                two.layers,
                two.stable_rate,
            )
            assert f", {called}" in one.title


@pytest.mark.slow
def test_theories_solve_the_update_that_is_said():
    few = {"particles": 256, "replicates": 2}
    settings: Any = ((1, {"rtol": 3e-2}), (2, few))
    for depth, options in settings:
        net = lg.mlp(depth, "tanh")
        for own, known in (
            (HeavyBall(0.2, friction=0.2), lg.gd(0.2, momentum=0.8)),
            (OwnAdam(0.05), lg.adam(0.05)),
        ):
            one, two = (lg.solve(run(each, net), key=1, **options) for each in (own, known))
            assert one.theory == two.theory
            np.testing.assert_allclose(one.f_train, two.f_train, rtol=1e-6)
    for own, known in ((HeavyBall(0.2, friction=0.2), lg.gd(0.2, momentum=0.8)),):
        one, two = (lg.solve(run(each, param=lg.ntk())) for each in (own, known))
        np.testing.assert_allclose(one.f_train, two.f_train, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("depth", "lr", "steps", "options"),
    [(1, 0.3, 8, {"rtol": 3e-2}), (2, 0.2, 5, {"particles": 1024, "replicates": 8})],
    ids=["one hidden layer", "two hidden layers"],
)
def test_networks_under_lion_have_the_limit_of_its_averages(depth, lr, steps, options):
    own = Lion(lr, beta1=0.5, beta2=0.8)  # whose signs change within a few steps
    one = run(own, lg.mlp(depth, "tanh"), lg.mean_field(), steps)
    f = np.asarray(lg.train(one, width=256, seeds=192, key=3).f_train, float)
    # Beside the ensemble's error: the mean's deviation, of order 1/N, and that of the limit.
    error = np.hypot(f.std(0, ddof=1) / len(f) ** 0.5, 3e-3)

    def apart(optimizer):
        limit = lg.solve(one.with_changes(optimizer=optimizer), key=2, **options)
        return np.abs((f.mean(0) - np.asarray(limit.f_train)) / error).max()

    assert apart(own) < 3.5
    assert apart(Lion(lr)) > 4.5  # with other averages


def test_what_an_optimizer_lacks_is_said_in_words():
    for optimizer, why in ((Silent(0.1), "Silent does not say how its update scales"),):
        for ask in (
            lambda own=optimizer: trained(own),
            lambda own=optimizer: lg.solve(run(own)),
            lambda own=optimizer: lg.scaling.classify(lg.mup(), 2, own),
            lambda own=optimizer: lg.mup().table(lg.mlp(1), own),
        ):
            with pytest.raises((NoRule, NoTheory), match=why):
                ask()
    assert lg.scaling.classify(lg.mup(), 2, OfAKind(0.1)).kind == "maximal"
    with pytest.raises(NoRule, match="OfAKind does not say its update, `transformation`"):
        trained(OfAKind(0.1))
    for optimizer in (OfAKind(0.1), UnitSteps(0.1), Nesterov(0.1)):
        for param in (lg.mean_field(), lg.ntk()):
            with pytest.raises(NoTheory, match="does not say what its update averages"):
                lg.solve(run(optimizer, param=param))
    for depth in (1, 2):
        with pytest.raises(NoTheory, match="Uphill is not odd"):
            lg.solve(run(Uphill(0.1), lg.mlp(depth, "tanh")))
    for ask in (lambda: trained(Orthogonal(0.1)), lambda: lg.solve(run(Orthogonal(0.1)))):
        with pytest.raises(
            (NoRule, NoTheory), match=r"orthogonalised|Orthogonal has no implemented limit"
        ):
            ask()
    assert np.isfinite(trained(UnitSteps(0.05))).all()
    assert np.isfinite(trained(Nesterov(0.05))).all()


def test_wrong_optimizers_are_refused_at_the_door():
    class Bare(Optimizer):
        """A class without steps."""

        kind = "proportional"

    with pytest.raises(InvalidInput, match="Bare derives from Optimizer"):
        Bare(0.1)

    class Accelerated(type(lg.gradient_flow())):
        """A flow of another kind."""

        kind = "proportional"
        averages = Velocity(0.9)

    flow = lg.Run(lg.mlp(1, "tanh"), lg.mup(), DATA, optimizer=Accelerated(0.1), times=[1.0])
    with pytest.raises(NoRule, match="Accelerated says another"):
        lg.train(flow, width=4, seeds=1, key=0)

    class Torn(Stepped):
        """What it says of its kind and of its averages do not agree."""

        kind = "normalised"
        averages = Velocity()

    with pytest.raises(InvalidInput, match="Torn says 'normalised'"):
        Torn(0.1)

    class NoTransformation(Lion):
        kind = "normalised"

        def transformation(self, scales):
            return None

    with pytest.raises(InvalidInput, match="NoTransformation has to return"):
        trained(NoTransformation(0.1))

    # An optimizer that derives from one of the user's own says its update again, too.
    class Tiger(Lion):
        pass

    with pytest.raises(NoRule, match=r"Tiger does not say .* What Lion says does not hold"):
        trained(Tiger(0.1))
    assert replace(Lion(0.1), lr=0.2).averages == Lion(0.1).averages


def init(key, width):
    keys = jax.random.split(key, 3)
    shapes = {"first": (5, width), "hidden": (width, width), "out": (width, 2)}
    return {
        name: {"kernel": jax.random.normal(k, shape) / shape[0] ** 0.5}
        for k, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def loss_of(params, x):
    h = jnp.tanh(jnp.tanh(x @ params["first"]["kernel"]) @ params["hidden"]["kernel"])
    return jnp.mean((h @ params["out"]["kernel"] - 1) ** 2)


@pytest.mark.parametrize(
    ("own", "known"), [(Lion, "lion"), (HeavyBall, "momentum"), (Orthogonal, "shampoo")]
)
def test_plans_are_by_the_kind_that_an_optimizer_says(own, known):
    torch = pytest.importorskip("torch")
    from largen.transfer import jax as of_jax
    from largen.transfer import torch as of_torch

    def module(width):
        nn = torch.nn
        return nn.Sequential(
            nn.Linear(5, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
        )

    sizes, options = ({"width": 8}, {"width": 32}), {"scheme": "mup", "verify": False}
    frameworks: Any = (
        (of_jax.scale, init, {"layout": "in_out"}),
        (of_torch.scale, module, {}),
    )
    for scale, model, kinds in frameworks:
        one, two = (
            scale(model, *sizes, optimizer=each, **kinds, **options) for each in (own, known)
        )
        for mine, theirs in zip(one.weights, two.weights, strict=True):
            for name in ("name", "role", "init", "lr", "weight_decay", "eps"):
                assert getattr(mine, name) == getattr(theirs, name), name
        assert one.optimizer == f"tests.own_optimizers.{own.__name__}"
        assert (one.decay, one.update.kind) == (two.decay, two.update.kind)


def test_plans_train_with_the_update_that_an_optimizer_says():
    from largen.transfer import jax as of_jax

    x, sizes = jax.random.normal(jax.random.key(1), (6, 5)), ({"width": 8}, {"width": 32})
    options = {"scheme": "mup", "layout": "in_out", "verify": False}

    def planned(optimizer):
        return of_jax.scale(init, *sizes, optimizer=optimizer, **options)

    found = []
    given: Any = ((Lion, {"beta1": 0.8}), ("lion", {"b1": 0.8}))
    for optimizer, chosen in given:
        plan = planned(optimizer)
        update = plan.optax(lr=0.02, weight_decay=0.1, **chosen)
        params = plan.init(jax.random.key(0))
        state = update.init(params)
        for _ in range(3):
            moved, state = update.update(jax.grad(loss_of)(params, x), state, params)
            params = optax.apply_updates(params, moved)
        found.append(jax.tree.leaves(params))
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    for wrong, why in (
        (Silent, "Silent does not say how its update scales"),
        (Lion(0.1, beta1=0.5), "no options of Lion"),
    ):
        with pytest.raises((InvalidInput, NoRule), match=why):
            planned(wrong)
    plan = planned(OfAKind)
    with pytest.raises(NoRule, match="OfAKind does not say its update"):
        plan.optax(lr=0.1)
