"""A status covers everything that is returned; only what is ok and belongs together is compared."""

import json

import numpy as np
import pytest

import largen as lg
from largen.errors import Inaccurate, InvalidInput, NumericalFailure
from largen.runs import Status
from largen.runs.status import status_of

X, Y = np.eye(3), np.array([1.0, -1.0, 1.0])
F = ("step", "sample"), np.zeros((2, 3))
FT = ("step", "test_sample"), np.zeros((2, 0))
NAN, INF = np.array([[np.nan]]), np.array([[np.inf]])


def run(x=X, y=Y, param=None, net=None, **changes):
    given = {"optimizer": lg.gd(lr=0.1), "steps": 2} | changes
    data = lg.Dataset(x, y, x[:1] + 0.5, y[:1])
    return lg.Run(net or lg.mlp(1, "erf"), param or lg.ntk(), data, **given)


def test_a_status_is_its_text():
    assert Status.OK == "ok"
    assert f"{Status.OUT_OF_MEMORY}" == "out of memory"
    assert json.dumps({"status": Status.DIVERGED}) == '{"status": "diverged"}'


@pytest.mark.parametrize("status", [Status.INACCURATE, Status.ERROR_UNKNOWN])
def test_a_result_whose_error_is_too_large_or_unknown_is_returned_with_a_warning(status):
    found = lg.solve(run()).with_status(status)
    assert found.status.has_numbers
    with pytest.warns(Inaccurate, match=f"kernel: {status}"):
        assert found.checked(True) is found
    assert found.checked(False) is found
    assert not Status.DIVERGED.has_numbers
    with pytest.raises(NumericalFailure, match="kernel: diverged"):
        found.with_status(Status.DIVERGED).checked(True)


@pytest.mark.parametrize(
    ("name", "axes", "values", "wanted"),
    [
        ("f_train", ("step", "sample"), NAN, "diverged"),
        ("f_test", ("step", "test_sample"), INF, "diverged"),
        ("loss_train", ("step",), INF[0], "overflow"),
        ("ntk", ("sample", "sample_2"), NAN, "overflow"),
        ("f_train_std", ("step", "sample"), NAN, "overflow"),
        ("some_kernel_of_tomorrow", ("a", "b"), -INF, "overflow"),
        ("f_train_error", ("step", "sample"), NAN, "ok"),  # it is not known
        ("loss_test", ("step",), NAN[0], "ok"),  # there are no test samples
        ("neuron_h", ("neuron", "position"), NAN, "ok"),  # a layer has fewer positions
        ("neuron_h", ("neuron", "position"), INF, "overflow"),
        ("layer", ("layer",), np.arange(3), "ok"),
    ],
)
def test_every_variable_counts(name, axes, values, wanted):
    assert status_of({"f_train": F, "f_test": FT, name: (axes, values)}) == wanted


HUGE = {
    "kernel limit, targets": (run(y=1e200 * Y), {}),
    "kernel limit, flow": (
        run(y=1e200 * Y, optimizer=lg.gradient_flow(), steps=None, times=[1.0]),
        {},
    ),
    "mean field, inputs": (run((1e30 * X).astype(np.float32), param=lg.mean_field()), {}),
    "mean field, targets": (run(y=1e200 * Y, param=lg.mean_field()), {}),
    "deep mean field, inputs": (
        run((1e30 * X).astype(np.float32), param=lg.mean_field(), net=lg.mlp(2, "erf")),
        {"particles": 64, "replicates": 1},
    ),
}


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("case", HUGE)
def test_what_overflows_is_no_result(case):
    """Outputs may be finite, where losses (targets of 1e200) or kernels are not."""
    posed, options = HUGE[case]
    found = lg.solve(posed, throw=False, **options)
    assert isinstance(found.status, Status)
    assert found.status in ("diverged", "overflow")
    with pytest.raises(NumericalFailure) as caught:
        lg.solve(posed, **options)
    assert caught.value.result.status == found.status


def test_networks_with_an_infinite_loss_are_no_result():
    posed = run(y=1e200 * Y)
    found = lg.train(posed, width=4, seeds=2, key=0, throw=False)
    assert found.status in ("diverged", "overflow")
    with pytest.raises(NumericalFailure, match=r"train|finite"):
        lg.train(posed, width=4, seeds=2, key=0)


def test_what_is_saved_has_its_status(tmp_path):
    found = lg.train(run(y=1e200 * Y), width=4, seeds=2, key=0, throw=False)
    back = lg.Trajectory.load(found.save(tmp_path / "t.nc"))
    assert back.status is found.status
    assert back.identity == found.identity


@pytest.mark.slow
def test_only_what_is_ok_and_belongs_together_is_compared(tmp_path):
    posed = run()
    limit, nets = lg.solve(posed), lg.train(posed, width=4, seeds=4, key=0)
    assert "nan" not in str(lg.compare(limit, nets))
    assert "nan" not in str(lg.compare(limit, lg.train(posed, width=4, seeds=1, key=0)))
    lg.compare(lg.Trajectory.load(limit.save(tmp_path / "limit.nc")), nets)
    same = run(X.astype(np.float32), Y.astype(np.float32))  # the same numbers
    lg.compare(limit, lg.train(same, width=4, seeds=4, key=0))
    for other, words in (
        (run(X + 0.1), "x_train, x_test"),
        (run(y=-Y), "y_train"),
        (run(net=lg.mlp(1, "tanh")), "net"),
        (run(param=lg.mean_field()), "parameterization"),
        (run(optimizer=lg.gd(lr=0.2)), "optimizer"),
        (run(steps=3), "times"),
        (run(loss=lambda f, y: (f - y) ** 2), "loss"),
        (run(net=lg.mlp(1, lambda u: u)), "net"),
    ):
        with pytest.raises(InvalidInput, match=f"nets: .*{words}"):
            lg.compare(limit, lg.train(other, width=4, seeds=2, key=0))
    for status in ("out of memory", "diverged"):
        with pytest.raises(InvalidInput, match=f"limit: its status is {status}"):
            lg.compare(limit.with_status(Status(status)), nets)
        with pytest.raises(InvalidInput, match=f"nets: the status at width 4 is {status}"):
            lg.compare(limit, nets.with_status(Status(status)))


def test_losses_of_one_name_are_told_apart():
    def loss(scale):
        return lambda f, y: scale * (f - y) ** 2

    one, other = (run(loss=loss(scale)) for scale in (1.0, 1.1))
    with pytest.raises(InvalidInput, match="not the limit's are: loss"):
        lg.compare(lg.solve(one, draws=4), lg.train(other, width=4, seeds=2, key=0))
