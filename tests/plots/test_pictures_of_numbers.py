"""What pictures show of numbers that are given, without the computations that make them."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray

from largen.errors import InvalidInput
from largen.plots import (
    comparison_figure,
    coordinate_figure,
    dataset_figure,
    depth_figure,
    learning_curve_figure,
    learning_rate_figure,
    placed_in,
    posterior_figure,
    random_feature_figure,
    regimes_figure,
    response_figure,
    trajectory_figure,
    variable_figure,
)
from papers.golikov import widths as by_width

RNG = np.random.default_rng(0)


def labels(ax):
    """Return the entries of a panel's legend, or of its figure's."""
    legend = ax.get_legend() or ax.get_figure().legends[0]
    return [text.get_text() for text in legend.get_texts()]


def power(value, resolved=True):
    """Return a fitted power of the width."""
    return SimpleNamespace(
        value=value, error=0.01, resolved=resolved, at=lambda width: np.asarray(width) ** value
    )


def test_losses_against_widths_leave_the_default_scaling_out_of_the_range():
    losses = {
        "NTK": [(n, np.array([1.0, 1.2])) for n in (8, 16)],
        "default": [(n, np.array([50.0, 60.0])) for n in (8, 16)],
    }
    figure = by_width.row(
        "title",
        [
            lambda ax: by_width.loss_panel(ax, losses, {"NTK": 0.9}),
            lambda ax: by_width.loss_panel(ax, losses),
        ],
        [lambda ax: by_width.loss_curves_panel(ax, {"reference": RNG.random((3, 4))})],
    )
    assert len(figure.axes) == 3  # the fourth panel is taken away
    limited, free, curves = figure.axes
    assert limited.get_ylim()[1] < 2
    assert len(limited.get_lines()) == len(free.get_lines()) + 1
    assert curves.get_title() == "reference network and limits"


def test_exponents_have_ticks_where_they_are_predicted():
    figure, (ax, other, third) = plt.subplots(1, 3)
    laws = {"NTK": {f"q{i}": (power(-0.5), -0.5 if i else None) for i in range(9)}}
    by_width.exponents_panel(ax, laws)
    assert "predicted" in ax.get_title()
    by_width.exponents_panel(other, {"NTK": {"q": (power(-0.5), None)}})
    assert other.get_title() == "exponents"
    by_width.loss_curves_panel(third, {"NTK": RNG.random((1, 4))}, "one sample")
    assert not third.collections  # no band of one sample
    plt.close(figure)


@pytest.mark.parametrize("colours", [None, dict.fromkeys("abcde", "black")])
def test_sizes_leave_room_for_their_legend(colours):
    ax = plt.figure().subplots()
    sizes = {name: (np.array([4, 16]), 1 + RNG.random((2, 3))) for name in "abcde"}
    by_width.sizes_panel(ax, sizes, "sizes", "size", colours)
    assert labels(ax) == list("abcde")
    assert ax.get_ylim()[1] > 3
    plt.close(ax.get_figure())


def rates(of, diverged=False, optimum=1.0, span=2):
    """Return a curve of losses against rates."""
    n = 4
    losses = np.array([0.4, 0.3, 0.2, 0.5])
    bad = np.array([False] * 3 + [diverged])
    return SimpleNamespace(
        rates=np.logspace(-1, -1 + span, n), losses=losses, errors=0.01 * losses, diverged=bad,
        of=of, initial=1.0, optimum=optimum, on="test",
    )  # fmt: skip


def test_learning_rates_that_diverge_are_crosses():
    figure = learning_rate_figure([rates("limit"), rates("width 8", diverged=True)])
    assert "training diverges" in labels(figure.axes[0])
    with pytest.raises(InvalidInput, match="curves: wanted one or more"):
        learning_rate_figure([])
    steady = learning_rate_figure([rates("limit", optimum=np.nan, span=1)])
    assert labels(steady.axes[0]) == ["limit"]
    many = learning_rate_figure([rates(f"width {n}") for n in range(6)])
    assert many.axes[0].get_legend() is None
    assert len(labels(many.axes[0])) == 7
    ax = plt.figure().subplots()
    with placed_in(ax):  # a legend of the figure would be the user's
        learning_rate_figure([rates(f"width {n}") for n in range(6)])
    assert len(labels(ax)) == 7
    plt.close(ax.get_figure())


def comparison(limit=True, error=0.0, seen=True):
    """Return the numbers of a comparison at two widths."""
    loss = 1 + RNG.random((2, 3))
    data = {
        "loss": (("width", "step"), loss),
        "loss_low": (("width", "step"), loss - 0.1),
        "loss_high": (("width", "step"), loss + 0.1),
        "prediction": (("width", "point"), RNG.random((2, 4))),
        "network": (("width", "point"), RNG.random((2, 4))),
    }
    if limit:
        data["loss_limit"] = "step", loss[0]
    for kind in ("single", "mean"):
        data[kind] = "width", np.array([0.2, 0.1])
        data[f"{kind}_error"] = "width", np.array([0.01, 0.01 if seen else 0.08])
    coords = {"width": [8, 32], "time": ("step", np.arange(3.0))}
    return xarray.Dataset(data, coords, {"on": "test", "limit_error": error})


def test_a_comparison_says_what_is_below_its_error():
    exponents = {"single": power(-0.5), "mean": power(-1.0, resolved=False)}
    rows = [("one", comparison(), exponents), ("two", comparison(False, 1e-3, False), exponents)]
    figure = comparison_figure(rows)
    first, second = figure.axes[:3], figure.axes[3:]
    assert "limit" in labels(first[0])
    assert "limit" not in labels(second[0])
    assert "limit's error" in labels(second[2])
    assert "upper bound (2 s.e.)" in labels(second[2])
    assert labels(first[2]) == [r"single network, $N^{-0.50 \pm 0.01}$", "ensemble mean"]


def test_distances_in_width_and_depth_have_a_line_for_each_size():
    widths, depths = [8, 8, 32, 32], [2, 4, 2, np.inf]
    data = {name: ("network", np.array([0.4, 0.2, 0.1, 0.05])) for name in ("single", "mean")}
    data |= {f"{name}_error": ("network", np.full(4, 0.1)) for name in ("single", "mean")}
    numbers = xarray.Dataset(data, {"width": ("network", widths), "depth": ("network", depths)})
    powers = {kind: power(-0.5) for kind in ("single", "mean")}
    figure = depth_figure(numbers, powers, powers)
    in_width, in_depth = figure.axes[:2]
    assert labels(in_width) == ["$L$ = 2", "$L$ = 4", r"$L$ = $\infty$"]
    assert labels(in_depth) == ["$N$ = 8", "$N$ = 32"]
    assert "-0.50" in in_width.get_title()


@pytest.mark.parametrize(("shape", "entries"), [((5,), 1), ((3, 5, 2), 2), ((3, 5, 9), 6)], ids=str)
def test_posteriors_show_at_most_six_outputs_at_the_last_time(shape, entries):
    mean = RNG.random(shape)
    variance = np.ones(shape[:2] if len(shape) > 1 else shape)
    axes = ("time", "sample", "output")[3 - len(shape) :] if len(shape) > 1 else ("sample",)
    data = xarray.Dataset({"mean": (axes, mean), "variance": (axes[: variance.ndim], variance)})
    (ax,) = posterior_figure(data).axes
    assert len(labels(ax)) == entries
    drawn = ax.get_lines()[0].get_ydata()
    np.testing.assert_array_equal(drawn, np.sort(drawn))


@pytest.mark.parametrize("outputs", [(), ("output",)])
def test_response_functions_have_a_panel_for_each_layer(outputs):
    at = ("time", "sample", "time_2", "sample_2", *outputs)
    sizes = (2, 3, 2, 3, *(2 for _ in outputs))
    data = xarray.Dataset(
        {
            "A": (("layer", *at), np.zeros((2, *sizes))),
            "B": (("layer_below_last", *at), RNG.random((1, *sizes))),
        },
        {"layer": [1, 2], "layer_below_last": [1]},
    )
    figure = response_figure(data)
    titles = [ax.get_title() for ax in figure.axes if "(t, s)" in ax.get_title()]
    assert titles == [
        "$A^{1}(t, s)$: features", "$A^{2}(t, s)$: features", "$B^{1}(t, s)$: gradients"
    ]  # fmt: skip


def trajectory(seeds=0, **further):
    """Return the numbers of a trajectory of three steps."""
    ahead, n = (("seed",), (seeds,)) if seeds else ((), ())
    data = {
        "f_train": ((*ahead, "step", "sample"), RNG.random((*n, 3, 2))),
        "loss_train": ((*ahead, "step"), RNG.random((*n, 3))),
        "loss_test": ((*ahead, "step"), np.full((*n, 3), np.nan)),
        "y_train": ("sample", np.array([1.0, -1.0])),
    }
    return xarray.Dataset(
        data | further, {"time": ("step", np.arange(3.0))}, {"parameterization": "ntk"}
    )


def test_trajectories_show_bands_of_networks_and_what_was_recorded():
    losses, outputs = trajectory_figure(trajectory(seeds=4)).axes
    assert labels(losses) == ["training"]
    assert losses.get_yscale() == "log"
    assert len(losses.collections) == 1
    assert len(outputs.get_lines()) == 4  # two outputs, two targets
    kernel = RNG.random((4, 2, 1, 2, 2))
    named = {"feature_kernel": (("seed", "record", "layer", "sample", "sample_2"), kernel)}
    *_, first, last, _bar = trajectory_figure(trajectory(seeds=4, **named)).axes
    assert first.get_title().endswith("first record")
    assert last.get_title().endswith("last record")


def test_several_trajectories_are_compared_in_one_picture():
    kernel = RNG.random((2, 1, 2, 2)) + np.eye(2)
    named = {
        "feature_kernel": (("record", "layer", "sample", "sample_2"), kernel),
        "record_step": ("record", np.array([0, 2])),
    }
    ntk, mean_field = trajectory(**named), trajectory(seeds=4, **named)
    mean_field.attrs |= {"parameterization": "mean_field(gamma=2)", "width": 8}
    for figure in (trajectory_figure([ntk, mean_field]), trajectory_figure(ntk, mean_field)):
        losses, alignment = figure.axes[0], figure.axes[-1]
        assert [len(ax.get_lines()) for ax in (losses, alignment)] == [2, 2]
        assert labels(losses)[0].endswith("limit")
        assert labels(losses)[1].endswith("N = 8")
    y, one = ntk["y_train"].values, kernel[-1, 0]
    drawn = alignment.get_lines()[0].get_xydata()
    known = y @ one @ y / (np.linalg.norm(one) * y @ y)
    np.testing.assert_allclose(drawn[-1], [2.0, known])
    assert labels(trajectory_figure(ntk, ntk).axes[0]) == ["1", "2"]
    for wrong in ([], 3, [ntk, np.eye(2)]):
        with pytest.raises(InvalidInput, match="trajectory: wanted"):
            trajectory_figure(wrong)


def test_kernels_of_tokens_take_the_place_of_those_of_samples():
    tokens = RNG.random((2, 2, 2, 2, 3, 3))
    tokens[:, 1] = np.nan  # the last layer has not all tokens
    axes = "record", "layer", "sample", "sample_2", "position", "position_2"
    further = {
        "feature_kernel": (("record", "layer", "sample", "sample_2"), np.ones((2, 2, 2, 2))),
        "feature_kernel_tokens": (axes, tokens),
        "attention": (
            ("record", "sample", "attention_layer", "token", "token_2"), np.ones((2, 2, 1, 3, 3))
        ),
    }  # fmt: skip
    figure = trajectory_figure(trajectory(**further))
    drawn = [ax for ax in figure.axes if "record" in ax.get_title()]
    assert [ax.get_xlabel() for ax in drawn] == ["token, sample by sample"] * 2 + ["token $t$"] * 2
    assert np.isfinite(drawn[0].get_images()[0].get_array()).all()


@pytest.mark.parametrize("measured", [None, False, True])
def test_random_features_beside_what_was_measured(measured):
    axes = "time", "size", "width", "output"
    numbers = 0.1 + RNG.random((2, 10, 3, 2))
    data = dict.fromkeys(("mse_test", "best_mse", "best_ridge"), (axes, numbers))
    if measured is not None:
        data["measured_test"] = axes, numbers
    if measured:
        data["measured_test_error"] = axes, 0.1 * numbers
    coords = {"size": np.arange(10, 110, 10), "width": [10, 20, 30]}
    left, right = random_feature_figure(xarray.Dataset(data, coords)).axes
    assert len(left.containers) == (0 if measured is None else 10)
    assert right.get_yscale() == "symlog"
    assert labels(left)[0] == "n = 10"


@pytest.mark.parametrize("several", [False, True])
def test_learning_curves_are_dashed_where_they_are_extrapolated(several):
    axes, ahead = (("time", "size"), (2,)) if several else (("size",), ())
    error = 0.1 + RNG.random((*ahead, 4))
    data = dict.fromkeys(("mse_test", "measured_test"), (axes, error))
    if not several:
        data |= {f"{name}_error": (axes, 0.1 * error) for name in ("mse_test", "measured_test")}
        data["alignment"] = "mode", np.linspace(0.1, 1, 5)
    coords = {"size": [10, 20, 200, 400]} | ({"time": [1.0, 2.0]} if several else {})
    data = xarray.Dataset(data, coords, {"extrapolated_from": 100})
    figure = learning_curve_figure(data)
    left = figure.axes[0]
    assert len(figure.axes) == (1 if several else 2)
    dashed = [line for line in left.get_lines() if line.get_linestyle() == "--"]
    assert [line.get_xdata().tolist() for line in dashed] == [[20, 200, 400]] * (1 + several)
    assert labels(left) == (["time 1", "time 2"] if several else ["predicted"])
    known = xarray.Dataset({"mse_test": data["mse_test"]}, attrs={"extrapolated_from": 1000})
    inside = learning_curve_figure(known).axes[0]
    assert "--" not in [line.get_linestyle() for line in inside.get_lines()]


def test_regimes_have_one_legend():
    data = {name: (("width", "gamma"), np.ones((2, 3))) for name in ("loss", "loss_error")}
    coords = {"width": [8, 16], "gamma": [0.1, 1.0, 10.0]}
    data = xarray.Dataset(data, coords)
    data["gamma0"] = ("width", "gamma"), np.ones((2, 3))
    upper, lower = regimes_figure(data, {"loss": "loss, $L$"}).axes
    assert upper.get_title() == "loss"
    assert upper.get_ylabel() == "$L$"
    assert labels(upper) == ["N = 8", "N = 16"]
    assert lower.get_legend() is None


@pytest.mark.parametrize("layers", [3, 12])
def test_coordinate_checks_name_their_layers(layers):
    sizes = 1 + RNG.random((2, 3, layers))
    slopes = np.zeros(layers)
    slopes[0] = np.nan  # a layer that does not move
    data = dict.fromkeys(("size", "change"), (("ratio", "seed", "layer"), sizes))
    data |= {f"{name}_slope": ("layer", slopes) for name in ("size", "change")}
    data["passed"] = "layer", np.arange(layers) != 1
    names = [f"layer {i}" for i in range(layers - 1)] + [""]
    about = {"along": "width", "title": "mup", "tolerance": 0.1}
    figure = coordinate_figure(xarray.Dataset(data, {"ratio": [1, 2], "layer": names}, about))
    size, _, powers = figure.axes
    ticks = [tick.get_text() for tick in powers.get_yticklabels()]
    assert ticks == [*names[1:-1], "(model)"]
    assert (size.get_legend() is None) == (layers > 10)


def test_numbers_without_a_picture_are_lines_or_colours():
    data = xarray.Dataset(
        {
            "lines": (("i", "x"), RNG.random((3, 4))),
            "many": (("j", "x"), RNG.normal(size=(9, 4))),
            "ntk": (("s", "s_2"), RNG.random((4, 4))),
            "last": (("t", "x"), RNG.random((2, 4))),
            "curve": ("x", np.arange(4.0)),
            "curve_error": ("x", np.ones(4)),
            "unknown": (("s", "s_2"), np.full((4, 4), np.nan)),
            "seventh": ("x", np.ones(4)),
            "name": ("x", list("abcd")),
            "number": ((), 1.0),
        },
        {"x": np.arange(4.0), "i": list("abc")},
    )
    figure = dataset_figure(data, "numbers")
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert titles == ["lines", "many", "NTK", "last", "curve", "unknown"]
    deep = xarray.Dataset({"f": (("t", "a", "b"), RNG.random((2, 3, 4)))})
    (ax,) = variable_figure(deep, "f").axes
    assert ax.get_title() == "f\n(last t)"
    for nothing, draw in (
        ("it has only single numbers", lambda: dataset_figure(data[["number", "name"]], "it")),
        ("'name': it has no axes of numbers", lambda: variable_figure(data, "name")),
        ("'number': it has no axes of numbers", lambda: variable_figure(data, "number")),
    ):
        with pytest.raises(InvalidInput, match=nothing):
            draw()
