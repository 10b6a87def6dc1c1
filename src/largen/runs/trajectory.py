"""A trajectory: what a network, an ensemble or a limit did while it was trained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.arrays import precision
from largen.errors import InvalidInput
from largen.runs.losses import Loss
from largen.runs.run import Run

if TYPE_CHECKING:
    import xarray

FORMAT = 1
# What says where the variables were recorded, rather than being one.
COORDINATES = ("record_step", "pair_step", "pair_step_2", "layer")
Variables = Mapping[str, tuple[tuple[str, ...], Any]]


class Trajectory:
    """Outputs and losses along training, with the names of their axes.

    Entry 0 of the axis ``step`` is the initialisation. Attributes are the variables of the data
    set as NumPy arrays: ``trajectory.f_train``, ``trajectory.loss_test``, ``trajectory.time``, …

    ==================  =============================================  ========================
    variable            axes                                           what
    ==================  =============================================  ========================
    ``f_train``         ``([seed,] step, sample[, output])``           outputs on training data
    ``f_test``          ``([seed,] step, test_sample[, output])``      outputs on test data
    ``loss_train``      ``([seed,] step)``                             (1/P) Σ_μ ℓ(f_μ, y_μ)
    ``loss_test``       ``([seed,] step)``                             the same on test data
    ``y_train``         ``(sample[, output])``                         targets
    ``y_test``          ``(test_sample[, output])``                    targets
    ``time``            ``(step)``                                     a coordinate
    ==================  =============================================  ========================

    and what a theory or a request for records adds: see :func:`largen.solve` and
    :func:`largen.train`.

    Parameters
    ----------
    dataset
        The variables.
    run
        What was computed; None for a trajectory that was loaded.
    """

    def __init__(self, dataset: xarray.Dataset, run: Run | None = None):
        self._dataset = dataset
        self.run = run

    @classmethod
    def of(
        cls,
        run: Run,
        f_train: Any,
        f_test: Any,
        *,
        theory: str,
        reason: str,
        seeds: int | None = None,
        width: int | None = None,
        extra: Variables | None = None,
        notes: tuple[str, ...] = (),
    ) -> Trajectory:
        """Build a trajectory from the outputs on training and test data.

        Parameters
        ----------
        run
            What was computed.
        f_train, f_test
            Outputs, shape ``([seed,] step, sample[, output])``.
        theory, reason
            What computed it, and why that.
        seeds
            Number of seeds if there is a leading axis of them.
        width
            N of finite networks; None for a limit.
        extra
            Further variables: name to (axes, array).
        notes
            What the reader should know.
        """
        import xarray

        data, lead = run.data, () if seeds is None else ("seed",)
        out = ("output",) if run.output_shape else ()
        target = out if data.y_train.ndim == 2 else ()
        f_train, f_test = np.asarray(f_train), np.asarray(f_test)
        variables: dict[str, Any] = {
            "f_train": ((*lead, "step", "sample", *out), f_train),
            "f_test": ((*lead, "step", "test_sample", *out), f_test),
            "loss_train": ((*lead, "step"), mean_loss(run.loss, f_train, data.y_train, len(lead))),
            "loss_test": ((*lead, "step"), mean_loss(run.loss, f_test, data.y_test, len(lead))),
            "y_train": (("sample", *target), data.y_train),
            "y_test": (("test_sample", *target), data.y_test),
            **(extra or {}),
        }
        finite = all(np.isfinite(values).all() for _, values in list(variables.values())[:2])
        if data.coincident:
            first, second = data.coincident[0]
            notes = (
                *notes,
                f"training rows {first} and {second} are equal: kernels are singular"
                + (f" ({len(data.coincident)} such rows)" if len(data.coincident) > 1 else ""),
            )
        attributes = {
            "format": FORMAT,
            "theory": theory,
            "reason": reason,
            "status": "ok" if finite else "diverged",
            "notes": json.dumps(notes, ensure_ascii=False),
            "net": repr(run.net),
            "parameterization": str(run.param),
            "optimizer": str(run.optimizer),
            "loss": run.loss.name,
            **({} if width is None else {"width": width}),
        }
        coordinates = {"step": np.arange(len(run.times)), "time": ("step", run.times)}
        if seeds is not None:
            coordinates["seed"] = np.arange(seeds)
        dataset = xarray.Dataset(variables, coordinates, attributes)
        return cls(dataset.set_coords([n for n in COORDINATES if n in variables]), run)

    def __getattr__(self, name: str) -> np.ndarray:
        if name.startswith("_") or name not in self._dataset.variables:
            known = ", ".join(sorted(map(str, self.__dict__.get("_dataset", ()))))
            raise AttributeError(f"the trajectory has no {name!r}; it has {known}")
        return self._dataset[name].values

    def __contains__(self, name: str) -> bool:
        return name in self._dataset.variables

    @property
    def theory(self) -> str:
        """What computed it: the name of a theory, or ``"finite"``."""
        return self._dataset.attrs["theory"]

    @property
    def reason(self) -> str:
        """Why that theory."""
        return self._dataset.attrs["reason"]

    @property
    def status(self) -> str:
        """``"ok"``, or what failed: ``"diverged"``, ``"inaccurate"`` or ``"overflow"``."""
        return self._dataset.attrs["status"]

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader should know."""
        return tuple(json.loads(self._dataset.attrs["notes"]))

    @property
    def width(self) -> int | None:
        """N; None for a limit."""
        return self._dataset.attrs.get("width")

    @property
    def seeds(self) -> int | None:
        """Number of networks; None for a limit."""
        return self._dataset.sizes.get("seed")

    def to_xarray(self) -> xarray.Dataset:
        """Return a copy of all variables as an ``xarray.Dataset``."""
        return self._dataset.copy()

    def save(self, path: str | PathLike[str]) -> Path:
        """Write everything to a netCDF-4 file, bit for bit.

        Raises
        ------
        InvalidInput
            If the folder does not exist.
        """
        path = Path(path)
        if not path.parent.is_dir():
            raise InvalidInput(f"path: the folder {str(path.parent)!r} does not exist.")
        self._dataset.to_netcdf(path, engine="h5netcdf")
        return path

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Trajectory:
        """Read what :meth:`save` wrote.

        Raises
        ------
        InvalidInput
            If there is no such file, or it holds something else.
        """
        import xarray

        if not Path(path).is_file():
            raise InvalidInput(f"path: there is no file {str(path)!r}.")
        try:
            dataset = xarray.load_dataset(path, engine="h5netcdf")
        except (OSError, ValueError) as error:
            raise InvalidInput(f"path: {str(path)!r} is not a netCDF-4 file: {error}.") from None
        if dataset.attrs.get("format") != FORMAT:
            raise InvalidInput(f"path: {str(path)!r} does not hold a trajectory of largen.")
        dataset.attrs = {k: v.item() if hasattr(v, "item") else v for k, v in dataset.attrs.items()}
        return cls(dataset)

    def __repr__(self) -> str:
        attrs = self._dataset.attrs
        nets = "" if self.seeds is None else f"{self.seeds} networks of width {self.width}, "
        test = self._dataset["loss_test"]
        losses = [f"loss_train {_range(self._dataset['loss_train'])}"]
        if self._dataset.sizes["test_sample"]:
            losses.append(f"loss_test {_range(test)}")
        lines = [
            f"Trajectory: {nets}{attrs['parameterization']}, {attrs['optimizer']}",
            f"  theory  {self.theory}: {self.reason}",
            f"  status  {self.status}; {'; '.join(losses)}",
            *(f"  note    {note}" for note in self.notes),
        ]
        return "\n".join(lines)


def mean_loss(loss: Loss, f: np.ndarray, y: np.ndarray, leading: int) -> np.ndarray:
    """Return (1/P) Σ_μ ℓ(f_μ, y_μ) for outputs with ``leading`` axes before the step's."""
    shape = f.shape[: leading + 1]
    if not len(y):
        return np.full(shape, np.nan, dtype=f.dtype)
    flat = f.reshape(-1, *f.shape[leading + 1 :])
    with precision(f):
        return np.asarray(_mean_losses(loss, jnp.asarray(flat), jnp.asarray(y))).reshape(shape)


@partial(jax.jit, static_argnums=0)
def _mean_losses(loss: Loss, f, y):
    return jax.vmap(loss.mean, in_axes=(0, None))(f, y)


def _range(losses: Any) -> str:
    values = losses.mean("seed") if "seed" in losses.dims else losses
    return f"{float(values[0]):.4g} → {float(values[-1]):.4g}"
