"""What pictures of scalings and of training show of numbers that are given."""

import sys
from types import SimpleNamespace

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray

from largen.errors import InvalidInput
from largen.plots import edge_figure, placed_in, plan_figure, predicted_figure
from largen.plots.exponents import exponents_figure
from largen.plots.large_steps import catapult_diagram_figure, catapult_figure
from largen.plots.layer_exponents import QUANTITIES, layer_exponents_figure
from largen.plots.panels import Picture, hand_over
from largen.plots.predicted_networks import predicted_networks_figure
from largen.plots.scaling_map import scaling_figure
from largen.plots.style import distinct, scheme_title, size_axis, style
from largen.plots.sweeps import sweep_figure
from papers.bordelon.pictures import dynamics_figure, tradeoff_figure

RNG = np.random.default_rng(0)


def texts(ax):
    """Return the entries of a panel's legend."""
    return [text.get_text() for text in ax.get_legend().get_texts()]


class Numbers:
    """A result with a data set."""

    def __init__(self, data):
        self.data = data

    def to_xarray(self):
        """Return all numbers with named axes."""
        return self.data


@pytest.mark.parametrize("attracts", [["nothing"], ["above", "below and above"], []])
def test_the_edge_has_dots_where_variances_are_attracted(attracts):
    n = len(attracts)
    data = {f"critical_{name}": ("critical", np.ones(n)) for name in ("weight_std", "bias_std")}
    data |= {
        "critical_attracts": ("critical", np.array(attracts, dtype=object)),
        "critical_variance": ("critical", np.arange(n, dtype=float)),
    }
    names = ("weight_std", "bias_std", "variance", "chi_parallel")
    data |= {name: ("point", np.linspace(0.1, 1, 5)) for name in names}
    plane, along = edge_figure(Numbers(xarray.Dataset(data, attrs={"activation": "gelu"}))).axes
    attracting = sum(each != "nothing" for each in attracts)
    assert len(plane.get_lines()) == 1 + attracting
    assert (plane.get_legend() is not None) == (attracting > 0)
    assert len(along.get_lines()) == 2 + max(attracting - 1, 0)  # not that of variance 0


def test_exponents_of_quantities_that_vanish_have_no_line():
    sizes = np.array([[1.0, 0.5], [0.0, 0.0], [1.0, 1.0], [2.0, 1.0]])
    data = xarray.Dataset(
        {
            "size": (("quantity", "width"), sizes),
            "size_error": (("quantity", "width"), 0.1 * sizes),
            "predicted": ("quantity", [-1.0, 0.0, np.nan, -1.0]),
            "exponent": ("quantity", [-1.0, 0.0, 0.0, -1.0]),
            "exponent_error": ("quantity", np.full(4, 0.1)),
            "deviates": ("quantity", [False, True, False, False]),
        },
        {
            "width": [8, 16],
            "name": ("quantity", ["W1", "W2", "h", "f"]),
            "group": ("quantity", ["relative", "relative", "features", "absolute"]),
        },
        {"parameterization": "ntk", "optimizer": "gd", "length": "5 steps", "seeds": 4},
    )
    groups = {"relative": "relative updates", "features": "features", "absolute": "not drawn"}
    figure = exponents_figure(data, groups)
    relative, features, slopes = figure.axes
    assert texts(relative) == ["W1"]
    assert features.get_ylim()[1] >= 9 * features.get_ylim()[0]
    assert [tick.get_text() for tick in slopes.get_yticklabels()] == [
        "δθ W1", "δθ W2", "features into h"
    ]  # fmt: skip
    with placed_in(None, "exponents"):
        (alone,) = exponents_figure(data, groups).axes
    assert alone.get_xlabel() == "exponent of $N$"


@pytest.mark.parametrize("difference", [0.0, 1.0])
def test_the_plane_of_scalings_has_its_words_and_points(difference):
    x = y = np.linspace(-1.5, 0.5, 9).tolist()
    regions = np.full((8, 8), "finite", dtype="<U32")
    regions[4:] = "divergent"
    regions[0, 0] = "vanishing"  # too small for its word
    segment = np.array([[[-1, 0], [0, 0]]], float)
    lines = {"NTK": np.repeat(segment, 2, 0), "stuck at initialisation": segment}
    named = {"ntk": (-0.5, 0.0, 0.0), "mean field": (-1.0, 0.0, 1.0)}
    (ax,) = scaling_figure(x, y, regions, lines, named, difference).axes
    words = [text.get_text() for text in ax.texts]
    assert "outputs diverge\nfrom the start" in words
    assert "outputs vanish" not in words
    other = "ntk" if difference else "mean field"
    assert any(word.startswith(f"{other}\n") for word in words)
    assert texts(ax)[-2:] == ["NTK", "stuck at initialisation"]
    assert len(texts(ax)) == (4 if difference else 3)


def sweep(loss, depths=(2,), chance=None):
    """Return the numbers of a sweep of one scheme, and its best rates."""
    coords = {"scheme": ["mup"], "lr": [0.5, 1.0, 2.0], "width": [8, 16], "depth": list(depths)}
    axes = "scheme", "lr", "width", "depth", "seed"
    about = {} if chance is None else {"chance": chance}
    data = xarray.Dataset({"loss": (axes, loss)}, coords, about)
    cells = ("scheme", "width", "depth")
    shape = 1, 2, len(depths)
    trains = np.isfinite(loss).any((1, 4))
    best = xarray.Dataset(
        {
            "trains": (cells, trains),
            "grid": (cells, np.zeros(shape)),
            "loss": (cells, np.full(shape, 0.3)),
        },
        {name: coords[name] for name in cells},
    )
    return data, best


def test_sweeps_show_what_ran_and_what_diverged():
    loss = 0.5 + RNG.random((1, 3, 2, 1, 2))
    figure = sweep_figure(*sweep(loss))
    (names,) = ([text.get_text() for text in legend.get_texts()] for legend in figure.legends)
    assert names == ["width 8, depth 2", "width 16, depth 2", "filled: best rate"]
    loss[0, 2, 0] = np.inf
    loss[0, :, 1] = np.nan  # was not trained
    figure = sweep_figure(*sweep(loss, chance=1.0), transferred=1.0)
    (names,) = ([text.get_text() for text in legend.get_texts()] for legend in figure.legends)
    assert "rate of the small model" in names
    assert "training diverges" in names
    assert "width 16, depth 2" not in names
    with placed_in(None, "mup"):
        (ax,) = sweep_figure(*sweep(loss)).axes
    assert texts(ax)[-1] == "filled: best rate"
    nothing = np.full((1, 3, 2, 2, 2), np.nan)
    assert sweep_figure(*sweep(nothing, (2, 4))).axes[0].get_xscale() == "log"


def test_curves_that_diverge_do_not_set_the_range():
    sound, wild = np.array([1.0, 0.8, 0.7]), np.array([1.0, 50.0, np.inf])
    figure = dynamics_figure(
        [("one", [("a", 0, sound), ("b", 0, wild)]), ("two", [("c", 1, sound)])]
    )
    assert figure.axes[0].get_ylim()[1] < 1.1
    plain = figure.axes[1].yaxis.get_major_formatter()
    assert plain(0.75, 0) == "0.75"
    far = dynamics_figure([("far", [("a", 0, np.array([1.0, 1e-3]))])])
    assert far.axes[0].get_ylim()[0] < 1e-2
    (ax,) = tradeoff_figure({2: (np.array([10, 20]), np.array([1.0, 0.5]))}).axes
    assert texts(ax) == ["depth 2"]


@pytest.mark.parametrize("known", [False, True])
def test_expansions_of_training_beside_the_network(known):
    f = RNG.random((3, 4, 2))
    data = {"f_train": (("order", "step", "sample"), f)}
    if known:
        data["f_train_actual"] = ("step", "sample"), f[2]
    data = xarray.Dataset(data, {"time": ("step", np.arange(4.0))}, {"width": 8})
    left, right = predicted_figure(data).axes
    assert ("the network" in texts(left)) == known
    assert len(texts(right)) == (3 if known else 2)
    assert right.get_ylabel().startswith("rms error" if known else "rms distance")


@pytest.mark.parametrize("tested", [False, True])
def test_laws_of_networks_are_bands(tested):
    data = {}
    for on in ("train", "test") if tested else ("train",):
        data[f"loss_{on}"] = ("seed", "step"), RNG.random((5, 3))
        data[f"loss_{on}_limit"] = "step", np.ones(3)
        data[f"f_{on}"] = data[f"f_{on}_std"] = ("step", f"{on}_sample"), RNG.random((3, 8))
    data = xarray.Dataset(data, {"time": ("step", np.arange(3.0))}, {"width": 8})
    left, right = predicted_networks_figure(data).axes
    assert texts(left) == [*(("train", "test") if tested else ("train",)), "limit"]
    assert len(right.get_lines()) == 6  # at most
    assert ("test samples" in right.get_ylabel()) == tested


@pytest.mark.parametrize("layers", [2, 30])
def test_exponents_of_layers_that_are_zero_are_hollow(layers):
    data = {name: ("place", np.zeros(layers)) for name in QUANTITIES}
    data["increment"] = "place", np.full(layers, np.nan)
    data |= {name: ("place", [f"{name}{i}" for i in range(layers)]) for name in ("layer", "role")}
    (ax,) = layer_exponents_figure(
        xarray.Dataset(data, attrs={"title": "mup", "kind": "rich"})
    ).axes
    hollow = [line for line in ax.get_lines() if line.get_markerfacecolor() == "none"]
    assert [len(line.get_xdata()) for line in hollow].count(layers) == 1
    assert len(ax.get_xticks()) == min(layers, 10)


def test_settings_that_no_weight_changes_are_left_out():
    n = 3
    data = {name: ("weight", np.ones(n)) for name in ("init_std", "lr", "weight_decay", "eps")}
    data["row"] = "weight", ["a", "b", "b"]
    same = xarray.Dataset(data, attrs={"title": "a plan"})
    (ax,) = plan_figure(same).axes
    assert ax.get_legend() is None
    (ax,) = plan_figure(same.assign(lr=("weight", [0.25, 8.0, 8.0]))).axes
    assert texts(ax) == ["learning rate"]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["a", "b"]
    assert "1/2" in [tick.get_text() for tick in ax.get_xticklabels()]


def test_catapults_against_the_edge_of_stability():
    result = SimpleNamespace(
        losses=np.array([1.0, 3.0, 0.1]), rates=np.full(2, 0.5), kernels=np.array([6.0, 5.0, 3.0]),
        of="a network", coupling=2.0,
    )  # fmt: skip
    _, kernel = catapult_figure(result).axes
    np.testing.assert_allclose(kernel.get_lines()[0].get_ydata(), [3.0, 2.5, 1.5])
    axes, shape = ("model", "width", "rate", "seed"), (2, 1, 3, 2)
    names = "curvature", "initial_curvature", "largest_loss", "initial_loss", "steps"
    data = {name: (axes, np.ones(shape)) for name in names}
    data["alive"] = axes, np.ones(shape, bool)
    coords = {"model": ["network", "quadratic"], "width": [8], "rate": [1.0, 2.0, 3.0]}
    figure = catapult_diagram_figure(xarray.Dataset(data, coords, {"level": 0.1}))
    assert texts(figure.axes[0]) == ["N = 8", "N = 8, quadratic"]
    assert figure.axes[3].get_yscale() == "log"


def test_settings_of_the_user_win(monkeypatch):
    with mpl.rc_context({"font.size": 20}), style():
        assert mpl.rcParams["font.size"] == 20
    assert distinct(0) == distinct(7)
    assert scheme_title("mean_field(gamma=2)").endswith(r"$\gamma_0 = 2$")
    assert scheme_title("own(3)") == "own(3)"
    ax = plt.figure().subplots()
    size_axis(ax, [1000, 1001, 4000])
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1000", "", "4000"]
    plt.close(ax.get_figure())


def test_pictures_draw_themselves_in_notebooks(monkeypatch):
    figure = Picture(figsize=(1, 1))
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert figure._repr_mimebundle_() == {}
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=None))
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    before = len(plt.get_fignums())
    hand_over(figure)
    assert len(plt.get_fignums()) == before  # the backend shows no figures in cells
    monkeypatch.setattr(mpl, "get_backend", lambda: "module://matplotlib_inline")
    hand_over(figure)
    assert len(plt.get_fignums()) == before + 1
    plt.close("all")
    with pytest.raises(InvalidInput, match="ax"), placed_in("axes"):
        pass
