import numpy as np
import pytest

import largen as lg
from largen.errors import DamagedFile, InvalidInput

RNG = np.random.default_rng(0)


def trajectory(seeds=3, dtype=np.float64, y=None, scale=1.0, **more):
    x = RNG.standard_normal((4, 2)).astype(dtype)
    y = RNG.standard_normal(4) if y is None else y
    data = lg.Dataset(x, y, x[:2] + 1, y[:2])
    run = lg.Run(lg.mlp(1), lg.ntk(), data, optimizer=lg.gd(0.1), steps=5)
    lead = () if seeds is None else (seeds,)
    out = run.output_shape
    f, ft = (scale * RNG.standard_normal((*lead, 6, n, *out)).astype(dtype) for n in (4, 2))
    return lg.Trajectory.of(run, f, ft, theory="finite", reason="a test", seeds=seeds, **more)


def test_losses_are_those_of_the_outputs():
    t = trajectory()
    np.testing.assert_allclose(t.loss_train, 0.5 * ((t.f_train - t.y_train) ** 2).mean(-1))
    assert t.loss_test.shape == (3, 6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seeds", [None, 3])
def test_saved_and_loaded_bit_for_bit(tmp_path, dtype, seeds):
    t = trajectory(
        seeds, dtype, width=8, extra={"odd": (("sample",), np.array([0, np.pi, -0.0, 1]))}
    )
    t.save(tmp_path / "t.nc")
    back = lg.Trajectory.load(tmp_path / "t.nc")
    a, b = t.to_xarray(), back.to_xarray()
    assert a.identical(b)
    for name in a.variables:
        assert a[name].dtype == b[name].dtype
        assert a[name].values.tobytes() == b[name].values.tobytes()
    assert back.width == 8
    assert repr(back) == repr(t)


def test_axes_of_vector_outputs():
    t = trajectory(y=RNG.standard_normal((4, 3)))
    assert t.to_xarray()["f_test"].dims == ("seed", "step", "test_sample", "output")
    np.testing.assert_allclose(t.loss_train, 0.5 * ((t.f_train - t.y_train) ** 2).sum(-1).mean(-1))


def test_what_is_not_finite_is_flagged():
    assert trajectory().status == "ok"
    assert trajectory(scale=np.inf).status == "diverged"


def test_changing_the_copy_leaves_the_trajectory_alone():
    t = trajectory()
    t.to_xarray()["f_train"] = 0
    assert t.f_train.shape == (3, 6, 4)


def test_errors_name_what_is_wrong(tmp_path):
    with pytest.raises(AttributeError, match="f_train"):
        _ = trajectory().f_trian
    with pytest.raises(InvalidInput, match="no file"):
        lg.Trajectory.load(tmp_path / "none.nc")
    (tmp_path / "text.nc").write_text("hello")
    with pytest.raises(DamagedFile, match=r"text\.nc.*not a complete netCDF"):
        lg.Trajectory.load(tmp_path / "text.nc")
    with pytest.raises(InvalidInput, match="folder"):
        trajectory().save(tmp_path / "none" / "t.nc")


def test_notebooks_show_the_text_and_the_variables():
    shown = trajectory()._repr_html_()
    assert "theory  finite: a test" in shown
    assert "loss_train" in shown
    assert "test_sample" in shown


def test_variables_are_offered_for_completion():
    data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    run = lg.Run(lg.mlp(1, "erf"), lg.ntk(), data, optimizer=lg.gd(lr=0.5), steps=1)
    limit = lg.solve(run)
    assert {"f_train", "loss_test", "ntk", "save"} <= set(dir(limit))
    assert "neuron_h" not in dir(limit)
