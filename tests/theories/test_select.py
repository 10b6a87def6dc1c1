"""The choice among the theories, and what is said when none fits."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoRule, NoTheory
from largen.theories import choose, registered

X = np.random.default_rng(0).standard_normal((4, 3))
DATA = lg.Dataset(X, np.array([1.0, -1.0, 1.0, -1.0]))


def run(param, net=None, optimizer=None):
    net = net or lg.mlp(1, "tanh")
    return lg.Run(net, param, DATA, optimizer=optimizer or lg.gd(0.1), steps=3)


@pytest.mark.parametrize(
    ("param", "theory"),
    [
        (lg.ntk(), "kernel"),
        (lg.ntk().shift({"hidden": "-1/2", "output": 1}), "kernel"),
        (lg.abc(a=(0, "1/2", "1/2"), b=0, c=0, d="1/4"), "kernel"),
        (lg.mean_field(), "mean field, one hidden layer"),
        (lg.mup(), "mean field, one hidden layer"),
    ],
    ids=str,
)
def test_the_parameterization_decides(param, theory):
    assert choose(run(param))[0].name == theory


def convolutional(*layers):
    data = lg.Dataset(X[:, :, None], np.array([1.0, -1.0, 1.0, -1.0]))
    net = lg.serial(lg.Conv((2,)), lg.Activation("tanh"), *layers, lg.Flatten(), lg.Dense())
    return lg.Run(net, lg.mean_field(), data, optimizer=lg.gd(0.1), steps=3)


def test_a_layer_that_one_theory_does_not_know_leaves_the_choice_to_the_others():
    assert choose(convolutional())[0].name == "mean field, deep"
    with pytest.raises(NoTheory, match=r"field, deep: .* no rule for a maximum over .* \(MaxPool"):
        choose(convolutional(lg.layers.MaxPool((2,))))
    with pytest.raises(NoRule, match="MaxPool"):
        lg.solve(convolutional(lg.layers.MaxPool((2,))), theory="mean field, deep")


def test_result_says_which_theory_and_why():
    limit = lg.solve(run(lg.ntk()))
    assert limit.theory == "kernel"
    assert "features stand still" in limit.reason
    assert limit.status == "ok"


def test_what_no_theory_covers_is_refused_by_all_of_them():
    with pytest.raises(NoTheory) as refused:
        lg.solve(run(lg.standard()))
    for theory in registered():
        assert theory.name in str(refused.value)
    assert "lg.ntk()" in str(refused.value)


@pytest.mark.parametrize(
    ("layers", "optimizer", "says"),
    [
        (3, lg.gd(0.1), "vanishing: outputs are zero at all times"),
        (3, lg.optimizers.rmsprop(0.1), "feature learning"),
    ],
)
def test_the_inverse_width_scaling_is_refused_by_its_class(layers, optimizer, says):
    """004, §4: trivial by gradient descent from three hidden layers on, not with RMSProp."""
    with pytest.raises(NoTheory, match=f"By its exponents the scaling is {says}"):
        lg.solve(run(lg.scaling.plane_scheme(-1, 1), lg.mlp(layers, "relu"), optimizer))


def test_insisting_on_a_theory_that_does_not_cover_the_run():
    with pytest.raises(NoTheory, match="features"):
        lg.solve(run(lg.mean_field()), theory="kernel")


def test_options_of_another_theory_are_refused():
    with pytest.raises(InvalidInput, match="option of the theory 'kernel'"):
        lg.solve(run(lg.ntk()), particles=1000)


def test_an_option_that_no_theory_has_is_refused_before_others_are_posed(monkeypatch):
    monkeypatch.setattr(lg.theories.DeepMeanField, "pose", None)
    with pytest.raises(InvalidInput, match="option of the theory 'mean field, one hidden layer'"):
        lg.solve(run(lg.mean_field()), rtoll=1e-2)


def test_options_choose_among_the_theories_that_cover_the_run(tmp_path):
    posed = run(lg.mean_field())
    shallow, deep = (
        lg.solve(posed),
        lg.solve(posed, checkpoint=tmp_path / "limit.npz", sample_neurons=4),
    )
    assert shallow.theory == "mean field, one hidden layer"
    assert deep.theory == "mean field, deep"
    assert deep.neuron_h.shape[2] == 4
    assert (tmp_path / "limit.npz").exists()
    error = np.hypot(deep.f_train_error, shallow.f_train_error)
    assert (np.abs(deep.f_train - shallow.f_train)[1:] < 5 * error[1:]).all()


def test_an_option_of_another_theory_that_covers_the_run_names_it():
    with pytest.raises(InvalidInput, match=r"sample_neurons: .* pass theory='mean field, deep'"):
        lg.solve(run(lg.mean_field()), theory="mean field, one hidden layer", sample_neurons=4)


@pytest.mark.slow
def test_a_limit_read_from_a_file_still_compares(tmp_path):
    posed = run(lg.ntk())
    limit = lg.solve(posed)
    nets = lg.train(posed, width=32, seeds=4, key=0)
    limit.save(tmp_path / "limit.nc")
    again = lg.Trajectory.load(tmp_path / "limit.nc")
    a, b = (lg.compare(x, nets, on="train").to_xarray() for x in (limit, again))
    assert a.identical(b)
