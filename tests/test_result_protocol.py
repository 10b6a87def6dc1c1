"""What every result has: a data set with labels, a file that is read back, and a picture."""

import re
import warnings
from functools import cache

import matplotlib
import numpy as np
import pytest
import xarray
from matplotlib.figure import Figure
from tests.wrong_arguments.examples import X, examples, limit, net, networks, read

import largen as lg
from largen.errors import InvalidInput
from largen.results.labels import long_name

matplotlib.use("agg")

# The example that makes each result, whether it has a picture, and whether it is read back as a
# result of its own class.
RESULTS = {
    "AdaptivePrediction": ("AdaptivePosterior.predict", True, True),
    "Catapult": ("catapult", True, False),
    "CatapultDiagram": ("catapult_diagram", True, True),
    "Check": ("Model.check", True, True),
    "Classification": ("classify", True, False),
    "Comparison": ("compare", True, True),
    "ConvergenceBound": ("convergence_bound", True, False),
    "CovariancePaths": ("covariance_sde", True, False),
    "Depth": ("Model.depth", True, True),
    "EdgeOfChaos": ("edge_of_chaos", True, False),
    "FixedPoints": ("variance_fixed_points", False, False),
    "HomogeneousJacobian": ("homogeneous_jacobian", False, True),
    "Frontier": ("OnePassCurve.frontier", True, True),
    "HomogeneousLimits": ("homogeneous_limits", False, True),
    "HomogeneousMoments": ("homogeneous_moments", False, True),
    "InfiniteDepthStep": ("infinite_depth_one_step", True, True),
    "Initialization": ("critical_initialization", False, False),
    "InputGradients": ("input_gradients", True, False),
    "JacobianMoments": ("jacobian_moments", True, True),
    "KernelEstimate": ("averaged_kernel", True, True),
    "KernelSpectrum": ("kernel_spectrum", True, False),
    "KernelSolution": ("solve_kernel", False, True),
    "Kernels": ("kernel", True, True),
    "LayerRates": ("layer_learning_rates", True, True),
    "LearningCurve": ("learning_curve", True, False),
    "LearningRateCurve": ("learning_rate_curve", True, False),
    "LinearTraining": ("linear_training", True, False),
    "LogLikelihood": ("log_likelihood", False, False),
    "LyapunovExponents": ("lyapunov_exponents", True, True),
    "MeasuredExponents": ("measure_exponents", True, False),
    "NetworkDiagram": ("network_diagram", True, False),
    "NetworksAtRest": ("equilibrium", True, False),
    "OnePassCurve": ("one_pass_sgd", True, False),
    "OneStep": ("kernel_after_one_step", True, True),
    "OutputLaw": ("output_law", True, False),
    "PathSum": ("path_sum", False, True),
    "PhaseDiagram": ("phase_diagram", True, False),
    "PredictedNetworks": ("predict_networks", True, False),
    "PredictedTraining": ("predict_training", True, False),
    "PosteriorSamples": ("sample_posterior", True, True),
    "Prediction": ("Posterior.predict", True, True),
    "Propagation": ("propagate", True, False),
    "RandomFeatureCurve": ("random_feature_curve", True, False),
    "RateDrift": ("LearningRateCurve.drift", True, False),
    "Regime": ("lazy_or_rich", False, True),
    "Regimes": ("feature_movement", True, True),
    "ResponseFunctions": ("response_functions", True, True),
    "RidgeError": ("ridge_test_error", False, True),
    "ScalingLaws": ("scaling_laws", True, False),
    "ScalingMap": ("plane_map", True, False),
    "Spectrum": ("target_spectrum", True, False),
    "TangentSamples": ("sample_tangent_kernels", True, True),
    "RelaxationTimes": ("relaxation_times", True, True),
    "Trajectory": ("solve", True, True),
    "WhitenedLinear": ("whitened_linear_flow", True, True),
    "WidthCorrections": ("width_corrections", True, False),
    "WidthCorrectionsInTraining": ("width_corrections_in_training", True, False),
    "WidthFluctuations": ("width_fluctuations", True, False),
    "WidthPosterior": ("corrected_posterior", False, True),
}
# Quick ones; the others are computed with the slow tests.
QUICK = {
    "Check": lambda: read().check(widths=(8, 16), seeds=8),
    "Classification": lambda: lg.scaling.classify(lg.mup(), 3),
    "Comparison": lambda: lg.compare(limit(), networks()),
    "HomogeneousLimits": lambda: lg.finite_width.homogeneous_limits("relu", depth_over_width=0.1),
    "Kernels": lambda: lg.kernel(net(), X),
    "RidgeError": lambda: lg.regression.ridge_test_error(features_per_sample=0.5, penalty=0.1),
    "ScalingMap": lambda: lg.scaling.plane_map(per_unit=4),
    "Trajectory": limit,
}
all_examples = cache(examples)


@cache
def result_of(name):
    if name in QUICK:
        return QUICK[name]()
    example = all_examples()[RESULTS[name][0]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return example.call(**example.arguments)


def named(names):
    return [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in names]


@pytest.mark.parametrize("name", named(RESULTS))
def test_every_result_keeps_the_protocol(name, tmp_path):
    result = result_of(name)
    _, pictured, same_class = RESULTS[name]
    assert type(result).__name__ == name

    dataset = result.to_xarray()
    for variable in dataset.variables.values():
        assert variable.attrs["long_name"]
        assert variable.dtype.kind not in "fiu" or variable.attrs["units"] == "1"

    back = lg.load(result.save(tmp_path / "result.nc"))
    assert (type(back) is type(result)) == same_class
    assert str(back) == str(result)
    xarray.testing.assert_identical(back.to_xarray().drop_attrs(), dataset.drop_attrs())

    if not pictured:
        if hasattr(result, "plot"):
            with pytest.raises(InvalidInput, match="nothing to draw"):
                result.plot()
        return
    figure = result.plot(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 2000
    assert isinstance(figure, Figure)
    assert figure.axes
    assert figure._repr_png_().startswith(b"\x89PNG")  # pyright: ignore[reportAttributeAccessIssue]
    for what in (None, *panels_of(result)):
        outer = Figure(layout="constrained")
        left, right = outer.subplots(1, 2)
        assert result.plot(ax=right, what=what) is outer
        colour_bars = [ax for ax in outer.axes if ax.get_label() == "<colorbar>"]
        assert outer.axes == [left, right, *colour_bars]
        assert right.has_data()
        outer.draw_without_rendering()


def panels_of(result):
    """Return the names of a picture's panels, as the answer to a wrong name has them."""
    with pytest.raises(InvalidInput, match="neither a panel nor a variable") as found:
        result.plot(what="nothing")
    names = re.search(r"panels: (.*); variables", str(found.value))
    return names[1].split(", ") if names else []


def test_one_panel_or_variable_is_drawn_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert panels_of(limit()) == ["loss", "outputs"]
    (panel,) = limit().plot(what="outputs").axes
    assert "targets" in panel.get_title()
    for figure in (limit().plot("f_train"), limit().plot(what="f_train")):
        assert [ax.get_title() for ax in figure.axes] == ["f train"]
    assert not list(tmp_path.iterdir())
    limit().plot("loss.png", what="loss")
    assert [path.name for path in tmp_path.iterdir()] == ["loss.png"]
    with pytest.raises(InvalidInput, match=r"path: 'picture' .* picture\.png; panels: loss"):
        limit().plot("picture")
    with pytest.raises(InvalidInput, match="need a suffix"):
        limit().plot(tmp_path / "picture")
    with pytest.raises(InvalidInput, match="need a suffix"):
        limit().plot("picture", what="loss")


def test_pictures_follow_the_settings_of_the_user():
    usual = limit().plot()
    assert usual.get_size_inches().tolist() == [7.2, 3.0]
    assert usual.axes[0].xaxis.label.get_fontsize() == 9
    with matplotlib.rc_context({"figure.figsize": (5.0, 2.0), "font.size": 14}):
        figure = limit().plot()
        assert matplotlib.rcParams["axes.grid"] is False
    assert figure.get_size_inches().tolist() == [5.0, 2.0]
    assert figure.axes[0].xaxis.label.get_fontsize() == 14
    assert figure.axes[0].title.get_fontsize() == 14


def test_one_ending_does_not_describe_what_is_none():
    assert long_name("edge_weight_std") == "standard deviation of the weights on the edge of chaos"
    assert long_name("edge_bias_std") == "standard deviation of the biases on the edge of chaos"
    assert long_name("kernel_shift") == "change at finite width of: kernel"


@pytest.mark.slow
def test_the_table_has_all_results():
    """Whatever a public function returns and has a data set is in the table above."""
    found = set()
    for example in all_examples().values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result = example.call(**example.arguments)
            except Exception:  # of the tests' type checker: lists where annotations say arrays
                continue
        if hasattr(result, "to_xarray") and type(result).__module__.startswith("largen"):
            found.add(type(result).__name__)
    assert found == set(RESULTS)


def test_several_results_in_one_file(tmp_path):
    report, solved = result_of("Comparison"), limit()
    path = lg.save(tmp_path / "all.nc", limit=solved, nets=[networks(), solved], report=report)
    back = lg.load(path)
    assert sorted(back) == ["limit", "nets", "report"]
    assert [type(net) for net in back["nets"]] == [lg.Trajectory] * 2
    np.testing.assert_array_equal(back["limit"].f_train, solved.f_train)
    assert [net.width for net in back["nets"]] == [4, None]
    assert str(back["report"]) == str(report)
    with xarray.open_datatree(path, engine="h5netcdf") as tree:  # as other programs read it
        assert set(tree.children) == {"limit", "nets", "report"}


def test_what_is_no_result_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="wanted a result"):
        lg.save(tmp_path / "all.nc", numbers=np.ones(3))
    with pytest.raises(InvalidInput, match="at least one"):
        lg.save(tmp_path / "all.nc")
    with pytest.raises(InvalidInput, match="no file"):
        lg.load(tmp_path / "all.nc")
    with pytest.raises(InvalidInput, match="matplotlib axes"):
        result_of("Kernels").plot(ax="left")


def test_damage_is_found_in_any_file(tmp_path):
    path = result_of("Kernels").save(tmp_path / "kernels.nc")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(lg.errors.DamagedFile):
        lg.load(path)
