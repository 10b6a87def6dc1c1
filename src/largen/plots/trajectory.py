"""The picture of a trajectory: losses, outputs, and the feature kernel before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from largen.errors import InvalidInput
from largen.plots.panels import colour_bar, panels
from largen.plots.style import CYCLE, LIMIT, scheme_title, shades, style
from largen.text import shown

if TYPE_CHECKING:
    import xarray

MOST_SAMPLES = 8
BAND = (0.16, 0.84)  # quantiles of single networks


def trajectory_figure(trajectory: Any, *others: Any) -> Figure:
    """Draw losses and outputs of a limit or of networks against time, or compare several of them.

    Networks are shown by their mean and by a band that contains the middle two thirds of them. If
    feature kernels or attention weights were recorded, further panels show those of the last
    recorded layer, at the first and at the last record; attention weights are of the first sample.
    Feature kernels between tokens take the place of those between samples, and are of the last
    layer that has all tokens.

    Parameters
    ----------
    trajectory, others
        A result of :func:`largen.solve` or :func:`largen.train`, or its ``to_xarray()``; or several
        of them, one after the other or as a list. Of several, panels show the losses, and if
        feature kernels Φ were recorded of all, the alignment yᵀΦy/(‖Φ‖ |y|²) of the last layer's
        with the targets. What they differ in is the name of each line.

    Raises
    ------
    InvalidInput
        For something else.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]))
    >>> run = lg.Run(lg.mlp(1, "erf"), lg.mean_field(), data, optimizer=lg.gd(lr=1.0), steps=5)
    >>> limit = lg.solve(run, record=["feature_kernel"], rtol=1e-2)
    >>> len(lg.plots.trajectory_figure(limit.to_xarray()).axes) >= 4
    True
    """
    several = list(trajectory) if isinstance(trajectory, (list, tuple)) else [trajectory]
    data = [_data_of(each) for each in (*several, *others)]
    if not data:
        raise InvalidInput("trajectory: wanted one trajectory or more, got none.")
    if len(data) > 1:
        return _figure_of_several(data)
    (trajectory,) = data
    names = [name for name in _MAPS if name in trajectory]
    if "feature_kernel_tokens" in names:
        names.remove("feature_kernel")
    maps = [_MAPS[name](trajectory[name]) for name in names]
    with style():
        ends = [f"{name}_{end}" for name in names for end in ("first", "last")]
        figure, axes = panels(1, 2 + len(ends), ["loss", "outputs", *ends])
        _losses(axes[0, 0], trajectory)
        _outputs(axes[0, 1], trajectory)
        for i, drawn in enumerate(maps):
            _draw_ends(figure, axes[0, 2 + 2 * i : 4 + 2 * i], *drawn)
    return figure


def _data_of(trajectory: Any) -> xarray.Dataset:
    data = trajectory
    if not hasattr(data, "data_vars") and callable(getattr(data, "to_xarray", None)):
        data = data.to_xarray()
    if not hasattr(data, "data_vars") or not {"loss_train", "f_train", "time"} <= {*data.variables}:
        raise InvalidInput(
            "trajectory: wanted results of lg.solve or lg.train, one or a list, got "
            f"{shown(trajectory)}."
        )
    return data


def _figure_of_several(data: list[xarray.Dataset]) -> Figure:
    """Draw the losses of several trajectories, and the alignment of their feature kernels."""
    aligned = [a for each in data if (a := _alignment(each)) is not None]
    quantities = [
        ("loss_train", "training loss", [d["loss_train"] for d in data]),
        ("loss_test", "test loss", [d["loss_test"] for d in data]),
    ]
    if len(aligned) == len(data):
        quantities.append(("alignment", "alignment of $\\Phi$ with the targets", aligned))
    seen = [q for q in quantities if any(np.isfinite(values).any() for values in q[2])]
    with style():
        figure, axes = panels(1, len(seen), [name for name, *_ in seen])
        colours = shades(len(data))
        for ax, (name, words, values) in zip(axes[0], seen, strict=True):
            for one, d, label, colour in zip(values, data, _labels(data), colours, strict=True):
                steps = slice(None) if name != "alignment" else d["record_step"].values
                _line(ax, d["time"].values[steps], one, label, {"color": colour})
            ax.set(xlabel=r"time $\eta_0 t$", ylabel=words)
            if name != "alignment" and all((line.get_ydata() > 0).all() for line in ax.get_lines()):
                ax.set_yscale("log")
        axes[0, 0].legend()
    return figure


def _labels(data: list[xarray.Dataset]) -> list[str]:
    """Return what trajectories differ in: parameterization, width, network, optimizer."""
    parts = [
        [scheme_title(d.attrs["parameterization"]) for d in data],
        [f"N = {d.attrs['width']}" if d.attrs.get("width") else "limit" for d in data],
        [str(d.attrs.get("net", "")) for d in data],
        [str(d.attrs.get("optimizer", "")) for d in data],
    ]
    told = [part for part in parts if len(set(part)) > 1]
    if not told:
        return [f"{i + 1}" for i in range(len(data))]
    return [", ".join(words) for words in zip(*told, strict=True)]


def _alignment(d: xarray.Dataset) -> xarray.DataArray | None:
    """Return yᵀΦy/(‖Φ‖ |y|²) of the last layer at each record; None if it is not known."""
    y = d["y_train"]
    if "feature_kernel" not in d or y.dtype.kind != "f" or y.ndim > 2:
        return None
    kernel = d["feature_kernel"].isel(layer=-1)
    columns = y.values.reshape(len(y), -1)
    size = np.sqrt(np.square(kernel.values).sum((-2, -1)))
    along = np.einsum("ac,...ab,bc->...", columns, kernel.values, columns)
    # With several outputs Y Yᵀ is in the place of y yᵀ, whose norm is |y|².
    of_targets = np.linalg.norm(columns @ columns.T)
    return kernel.isel(sample=0, sample_2=0, drop=True).copy(data=along / (size * of_targets))


def _losses(ax: Any, d: xarray.Dataset) -> None:
    time = d["time"].values
    for name, words, colour in (
        ("loss_train", "training", CYCLE[0]),
        ("loss_test", "test", CYCLE[1]),
    ):
        if not np.isfinite(d[name].values).any():
            continue
        _line(ax, time, d[name], words, {"color": colour})
    ax.set(
        xlabel=r"time $\eta_0 t$", ylabel="loss", title=scheme_title(d.attrs["parameterization"])
    )
    if all((line.get_ydata() > 0).all() for line in ax.get_lines()):
        ax.set_yscale("log")
    ax.legend()


def _outputs(ax: Any, d: xarray.Dataset) -> None:
    """Draw the first output, at the last position, of some training samples, and their targets."""
    one = {"position": -1, "output": 0}
    f, y = (d[name].isel(one, missing_dims="ignore") for name in ("f_train", "y_train"))
    shown = min(MOST_SAMPLES, f.sizes["sample"])
    chosen = np.linspace(0, f.sizes["sample"] - 1, shown).astype(int).tolist()
    for i, colour in zip(chosen, shades(shown), strict=True):
        _line(ax, d["time"].values, f.isel(sample=i), None, {"color": colour})
        if y.dtype.kind == "f":
            ax.axhline(float(y[i]), **{**LIMIT, "linewidth": 0.6})
    title = f"{shown} training samples; dashed: targets"
    ax.set(xlabel=r"time $\eta_0 t$", ylabel=r"output $f$", title=title)


def _line(ax: Any, time: np.ndarray, values: Any, label: str | None, line: dict[str, Any]) -> None:
    if "seed" in values.dims:
        low, high = (values.quantile(q, "seed").values for q in BAND)
        ax.fill_between(time, low, high, alpha=0.2, linewidth=0, color=line["color"])
        values = values.mean("seed")
    ax.plot(time, values.values, label=label, **line)


def _feature_kernel(kernel: xarray.DataArray) -> tuple[xarray.DataArray, str, tuple[str, str]]:
    return kernel, r"feature kernel $\Phi$", ("sample", "sample")


def _token_kernel(kernel: xarray.DataArray) -> tuple[xarray.DataArray, str, tuple[str, str]]:
    """Return the kernel of the last layer that has all tokens, those of a sample side by side."""
    has_all = np.isfinite(kernel.values[0]).reshape(kernel.sizes["layer"], -1).all(1)
    one = kernel.isel(layer=int(np.flatnonzero(has_all)[-1]) if has_all.any() else 0)
    one = one.stack(token=("sample", "position"), token_2=("sample_2", "position_2"))
    label = "token, sample by sample"
    return one, r"feature kernel $\Phi$", (label, label)


def _attention(weights: xarray.DataArray) -> tuple[xarray.DataArray, str, tuple[str, str]]:
    return weights.isel(sample=0), r"attention $\sigma_{st}$", ("token $t$", "token $s$")


_MAPS = {
    "feature_kernel": _feature_kernel,
    "feature_kernel_tokens": _token_kernel,
    "attention": _attention,
}


def _draw_ends(
    figure: Figure, axes: Any, array: xarray.DataArray, words: str, labels: tuple[str, str]
) -> None:
    """Draw a matrix of the last layer at the first and the last record, with one colour scale."""
    if "seed" in array.dims:
        array = array.mean("seed")
    array = array.isel({"layer": -1, "attention_layer": -1}, missing_dims="ignore")
    times = array.dims[0]
    ends = [array.isel({times: i}) for i in (0, -1)]
    largest = max(float(np.abs(end).max()) for end in ends)
    images: list[tuple[Any, Any]] = []
    for ax, end, which in zip(axes, ends, ("first", "last"), strict=True):
        image = ax.imshow(end.values, vmin=-largest, vmax=largest, cmap="RdBu_r")
        images.append((ax, image))
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True))
        ax.set(xlabel=labels[0], ylabel=labels[1], title=f"{words}, {which} record")
        ax.grid(visible=False)
    colour_bar(figure, images, shrink=0.8, label=f"{words} of the last layer")
