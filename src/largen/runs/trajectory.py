"""A trajectory: the training of a network, an ensemble or a limit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from largen.architectures import depth
from largen.errors import DamagedFile, InvalidInput, instance_of
from largen.files import load_dataset, save_dataset
from largen.results import labelled
from largen.runs.checks import arrays_on_axes, check_words, checked_outputs
from largen.runs.identity import identity_of
from largen.runs.losses import mean_loss
from largen.runs.run import Run
from largen.runs.spectra import dissipation, sharpness, weight_outliers
from largen.runs.status import Status, status_of
from largen.runs.time_pairs import between_times
from largen.runs.variables import Parts, WithVariables
from largen.runs.verdicts import raise_or_warn
from largen.scalars import flag

if TYPE_CHECKING:
    import xarray

FORMAT = 2  # of files; until 1 they had no checksum
RESERVED = ("f_train", "f_test", "loss_train", "loss_test", "y_train", "y_test", "step", "time")
Variables = Mapping[str, tuple[tuple[str, ...], Any]]


class Trajectory(WithVariables):
    """Outputs and losses along training, with the names of their axes.

    Index 0 of the axis ``step`` is the initialisation. The variables of the data set are
    NumPy attributes: ``trajectory.f_train``, ``trajectory.loss_test``, ``trajectory.time``, …

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

    and the variables that a theory or a request for records adds: see :func:`largen.solve` and
    :func:`largen.train`. Outputs and targets of networks with an output at each position have the
    axis ``position`` behind that of samples. :meth:`plot` draws all of them.

    Parameters
    ----------
    dataset
        The variables.
    run
        The run; None for a trajectory that was loaded.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> limit = lg.solve(lg.Run(lg.mlp(1, "erf"), lg.ntk(), data, optimizer=lg.gd(lr=1.0), steps=3))
    >>> limit.f_train.shape, limit.theory, bool(limit.loss_train[-1] < limit.loss_train[0])
    ((4, 2), 'kernel', True)
    """

    def __init__(self, dataset: xarray.Dataset, run: Run | None = None):
        import xarray

        instance_of("dataset", dataset, xarray.Dataset, "an xarray.Dataset")
        self._parts = None
        self._dataset = dataset
        self.run = None if run is None else instance_of("run", run, Run, "an lg.Run")

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
            The run.
        f_train, f_test
            Outputs, shape ``([seed,] step, sample[, output])``.
        theory, reason
            The name of the theory, or ``"finite"``, and the reason for its choice.
        seeds
            Number of seeds if there is a leading axis of them.
        width
            N of finite networks; None for a limit.
        extra
            Further variables: name to (axes, array).
        notes
            Remarks for the reader.
        """
        f_train, f_test = checked_outputs(run, f_train, f_test, seeds)
        check_words(theory, reason, notes, width, extra, RESERVED)
        data, lead = run.data, () if seeds is None else ("seed",)
        target = (out := run.output_axes)[: data.y_train.ndim - 1]
        variables: dict[str, Any] = {
            "f_train": ((*lead, "step", "sample", *out), f_train),
            "f_test": ((*lead, "step", "test_sample", *out), f_test),
            "loss_train": ((*lead, "step"), mean_loss(run.loss, f_train, data.y_train, len(lead))),
            "loss_test": ((*lead, "step"), mean_loss(run.loss, f_test, data.y_test, len(lead))),
            "y_train": (("sample", *target), data.y_train),
            "y_test": (("test_sample", *target), data.y_test),
            **(extra or {}),
        }
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
            "status": str(status_of(variables)),
            "notes": json.dumps(notes, ensure_ascii=False),
            "net": repr(run.net),
            "parameterization": str(run.param),
            "optimizer": str(run.optimizer),
            "loss": run.loss.name,
            "run": json.dumps(identity_of(run)),
            "depth": float(depth(run.net)),
            **({} if width is None else {"width": width}),
        }
        coordinates = {"step": np.arange(len(run.times)), "time": ("step", run.times)}
        if seeds is not None:
            coordinates["seed"] = np.arange(seeds)
        arrays = arrays_on_axes(variables, coordinates)
        return cls._of_parts(Parts(arrays, coordinates, attributes), run)

    @classmethod
    def _of_parts(cls, parts: Parts, run: Run | None) -> Trajectory:
        found = cls.__new__(cls)
        found._parts, found.run = parts, run
        return found

    @property
    def status(self) -> Status:
        """``"ok"``, or what failed: see :class:`Status`."""
        return Status(self._attributes["status"])

    @property
    def identity(self) -> dict[str, str]:
        """Digests of the parts of the run: the network, each array of the data, the optimizer, …

        Equal digests belong to equal parts. Empty for a file without them.
        """
        return json.loads(self._attributes.get("run", "{}"))

    def with_status(self, status: Status) -> Trajectory:
        """Return the same trajectory with another status."""
        if self._parts is None:
            return Trajectory(self._dataset.assign_attrs(status=str(status)), self.run)
        attributes = self._parts.attributes | {"status": str(status)}
        return self._of_parts(self._parts._replace(attributes=attributes), self.run)

    def checked(self, throw: bool) -> Trajectory:
        """Return the trajectory; raise if it is not ok.

        All theories and the training of networks return their trajectories through this method. One
        whose error is larger than requested, or not known, is returned with a warning.

        Warns
        -----
        Inaccurate
            If ``throw``, and the error is larger than requested, or not known.

        Raises
        ------
        NumericalFailure
            If ``throw`` and it is not ok; the message names the variables that are not finite.
        """
        if self.status is not Status.OK and throw:
            raise_or_warn(self)
        return self

    def to_xarray(self) -> xarray.Dataset:
        """Return a copy of all variables as an ``xarray.Dataset``."""
        return labelled(self._dataset)

    def between_times(self, record: str = "feature_kernel") -> xarray.DataArray:
        """Return a kernel between all pairs of times at which it was recorded, Φ(t, s).

        Parameters
        ----------
        record
            ``"feature_kernel"``, ``"gradient_kernel"``, or ``"feature_kernel_error"`` and the like,
            of a limit that was solved with ``record_pairs``.

        Returns
        -------
        xarray.DataArray
            Axes ``(step, step_2, layer, sample, sample_2)``, the first sample at ``step`` and the
            second at ``step_2``; NaN for pairs that were not recorded.

        Raises
        ------
        InvalidInput
            If there are no kernels of this name between times.

        Examples
        --------
        >>> import largen as lg, numpy as np
        >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
        >>> run = lg.Run(lg.mlp(1, "erf"), lg.mean_field(), data, optimizer=lg.gd(1.0), steps=2)
        >>> lg.solve(run, record_pairs="all").between_times().shape
        (3, 3, 1, 2, 2)
        """
        return between_times(self._dataset, record)

    def weight_outliers(self, layer: int) -> xarray.Dataset:
        """Return the outliers of a limit's trained hidden weights: singular values above the bulk.

        With the response functions A and B and the change M of W in the bases of all features and
        gradients so far, a singular value σ of W/√N above the edge 2 solves (derived for largen)

            λ_k [[m(1 − AAᵀ), A + B + M], [(A + B + M)ᵀ, m(1 − BᵀB)]] = σ,   m = (σ − √(σ² − 4))/2.

        A change independent of W(0) would give θ + 1/θ. In a network of width N an outlier is
        told from the bulk if it is several N^(−2/3) above the edge.

        Parameters
        ----------
        layer
            2 … L, the hidden layer to which the weights lead.

        Returns
        -------
        xarray.Dataset
            ``value (record, outlier)``, decreasing, NaN where fewer are above ``edge (record)``;
            their standard error ``value_error``, if known; ``right_overlap`` and ``left_overlap``,
            the lengths of the projections of their singular vectors on Σ_μ φ(h_μ)y_μ and on
            Σ_μ g_μ y_μ, of all outputs; of classes y is 1, less the mean.

        Raises
        ------
        InvalidInput
            If none were recorded, or for a wrong layer.

        Examples
        --------
        >>> import largen as lg, numpy as np
        >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
        >>> rich = lg.mean_field(gamma=2.0)
        >>> run = lg.Run(lg.mlp(2, "linear"), rich, data, optimizer=lg.gd(0.1), steps=30)
        >>> lg.solve(run, record=["singular_values"]).weight_outliers(2)["value"].values.round(2)
        array([[ nan],
               [2.04]])
        """
        return labelled(weight_outliers(self._dataset, layer))

    def sharpness(self, along: str | None = None) -> np.ndarray:
        """Return the Gauss-Newton part of the sharpness, or the curvature along the gradient.

        The first is the largest eigenvalue of (η₀/P) Kℓ″, ``([seed,] record)``: gradient descent is
        stable below 2, with momentum β below 2(1 + β). It lacks Σ_μ ℓ′_μ ∇²f_μ, whose top may at
        first be a neuron's and grow with N. The second, of the whole loss, is with the change K̇ of
        K per unit of the rate as weights move along −g (derived for largen)

            η gᵀHg/|g|² = η₀[(1/P) ℓ′ᵀKℓ″Kℓ′ − ½ ℓ′ᵀK̇ℓ′]/ℓ′ᵀKℓ′.

        ``along="gradient"`` gives the second: exactly if ``"sharpness"`` was recorded, as
        ``gradient_curvature``, of networks and in the mean field of one hidden layer; otherwise
        with differences of K between steps in the place of K̇, whose error is of first order in the
        rate. Where the two terms cancel, this error may be larger than their difference.

        Raises
        ------
        InvalidInput
            Without the run, or K, or for runs that are not of gradient descent; for the gradient
            also without steps in a row, or with momentum, decay or batches.

        Warns
        -----
        LostDigits
            If the estimated error of the curvature is above a quarter of it at some records: the
            distance between central and one-sided differences of K.

        Examples
        --------
        >>> import largen as lg, numpy as np
        >>> data, descent = lg.Dataset(np.eye(2), np.array([1.0, -1.0])), lg.gd(1.0)
        >>> run = lg.Run(lg.mlp(1, "tanh"), lg.mean_field(), data, optimizer=descent, steps=20)
        >>> bool((lg.solve(run, record=["ntk"]).sharpness() < 2).all())
        True
        """
        return sharpness(self.run, self._dataset, along)

    def dissipation(self, relative: bool = False) -> np.ndarray:
        """Return the rate at which the training loss L falls, ``([seed,] record)``, from K.

        Under gradient flow the measure μ of the neurons of one hidden layer descends L in the
        Wasserstein-2 distance, ∂μ/∂t = div(μ∇(δL/δμ)) (Hanin's primer, §4.1.2), so that

            −dL/dt = ∫|∇(δL/δμ)|² dμ = (1/P²) ℓ′ᵀKℓ′

        at rates of 1, and η times this for a flow of rate η. The last expression holds for networks
        and limits of any depth. Gradient descent, whose ``time`` is the sum of its rates, has
        L(t) − L(t + η) = η (−dL/dt) + O(η²). ``relative=True`` divides by L (NaN where L is 0),
        for ``"mse"`` 2 rᵀKr/(P rᵀr) with the residual r = f − y: where that stays above c, L falls
        at least as e^{−ct}, however small the eigenvalues of K (Hanin's primer, §3.2.1).

        Raises
        ------
        InvalidInput
            Without the run, or K; with momentum, decay, batches or noise; and for the kernel limit
            of other losses than ``"mse"``.

        Examples
        --------
        >>> import largen as lg, numpy as np
        >>> data, times = lg.Dataset(np.eye(2), np.array([1.0, -1.0])), np.linspace(0.1, 9, 90)
        >>> flow = {"optimizer": lg.gradient_flow(), "times": times}
        >>> limit = lg.solve(lg.Run(lg.mlp(1, "tanh"), lg.ntk(), data, **flow))
        >>> fallen = np.trapezoid(limit.dissipation(), limit.time)
        >>> round(float(fallen / (limit.loss_train[0] - limit.loss_train[-1])), 2)
        1.0
        """
        return dissipation(self.run, self._dataset, flag("relative", relative))

    def save(self, path: str | PathLike[str]) -> Path:
        """Write everything to a netCDF-4 file, bit for bit, with a checksum.

        The file is written atomically: after a failure the previous file is unchanged.

        Raises
        ------
        InvalidInput
            If the folder does not exist, or the path exists and is not a regular file.
        CannotWrite
            If the disk is full, or writing is not permitted.
        """
        save_dataset(path, self.to_xarray())
        return Path(path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Trajectory:
        """Read what :meth:`save` wrote.

        Raises
        ------
        InvalidInput
            If there is no such file, or it holds no trajectory.
        DamagedFile
            If the content differs from what was written.
        """
        return cls.from_file(*load_dataset(path), path=path)

    @classmethod
    def from_file(cls, dataset: xarray.Dataset, has_checksum: bool, *, path: Any) -> Trajectory:
        """Return the trajectory of a data set that was read from a file.

        Raises
        ------
        InvalidInput, DamagedFile
            As :meth:`load` does.
        """
        version = dataset.attrs.get("format")
        if version not in (1, FORMAT):
            raise InvalidInput(f"path: {str(path)!r} does not hold a trajectory of largen.")
        if dataset.attrs.get("status") not in set(Status):
            raise InvalidInput(f"path: {str(path)!r} has an unknown status.")
        if version == FORMAT and not has_checksum:
            raise DamagedFile(Path(path), "its checksum is missing")
        dataset.attrs["format"] = FORMAT
        dataset.attrs = {k: v.item() if hasattr(v, "item") else v for k, v in dataset.attrs.items()}
        return cls(dataset)

    def __repr__(self) -> str:
        attrs = self._attributes
        nets = "" if self.seeds is None else f"{self.seeds} networks of width {self.width}, "
        losses = [f"loss_train {_range(self._dataset['loss_train'])}"]
        if self._dataset.sizes["test_sample"]:
            losses.append(f"loss_test {_range(self._dataset['loss_test'])}")
        lines = [
            f"Trajectory: {nets}{attrs['parameterization']}, {attrs['optimizer']}",
            f"  theory  {self.theory}: {self.reason}",
            f"  status  {self.status}; {'; '.join(losses)}",
        ]
        return "\n".join([*lines, *(f"  note    {note}" for note in self.notes)])


def _range(losses: Any) -> str:
    values = losses.mean("seed") if "seed" in losses.dims else losses
    return f"{float(values[0]):.4g} → {float(values[-1]):.4g}"
