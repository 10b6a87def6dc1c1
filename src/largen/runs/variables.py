"""The variables of a trajectory as attributes."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from largen.results import Result

if TYPE_CHECKING:
    import xarray


# Coordinates of the records, which are not variables.
COORDINATES = ("record_step", "pair_step", "pair_step_2", "layer", "attention_layer")


class Parts(NamedTuple):
    """What an ``xarray.Dataset`` is made of."""

    variables: dict[str, tuple[tuple[str, ...], np.ndarray]]
    coordinates: dict[str, Any]
    attributes: dict[str, Any]


class WithVariables(Result):
    """A result whose variables are NumPy attributes."""

    _parts: Parts | None  # what the data set is made of, if it was not given

    @cached_property
    def _dataset(self) -> xarray.Dataset:
        """The variables, made from the parts when they are asked for: xarray is slow to import."""
        import xarray

        assert self._parts is not None
        dataset = xarray.Dataset(*self._parts)
        return dataset.set_coords([n for n in COORDINATES if n in self._parts.variables])

    @property
    def _attributes(self) -> dict[Any, Any]:
        return self._dataset.attrs if self._parts is None else self._parts.attributes

    def _length(self, axis: str) -> int | None:
        """Return the length of an axis with a coordinate; None without it."""
        if self._parts is None:
            return self._dataset.sizes.get(axis)
        coordinate = self._parts.coordinates.get(axis)
        return None if coordinate is None else len(coordinate)

    @property
    def theory(self) -> str:
        """The name of the theory that computed the trajectory, or ``"finite"``."""
        return self._attributes["theory"]

    @property
    def reason(self) -> str:
        """The reason for the choice of the theory."""
        return self._attributes["reason"]

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for the reader."""
        return tuple(json.loads(self._attributes["notes"]))

    @property
    def width(self) -> int | None:
        """N; None for a limit."""
        width = self._attributes.get("width")
        return None if width is None else int(width)  # a NumPy number if loaded from a file

    @property
    def depth(self) -> float:
        """L, the number of residual branches; ``math.inf`` for infinitely deep networks."""
        depth = float(self._attributes.get("depth", float("nan")))
        return int(depth) if depth.is_integer() else depth

    @property
    def seeds(self) -> int | None:
        """Number of networks; None for a limit."""
        return self._length("seed")

    if TYPE_CHECKING:  # the possible variables, so that type checkers find misspelled names
        f_train: np.ndarray
        f_test: np.ndarray
        loss_train: np.ndarray
        loss_test: np.ndarray
        y_train: np.ndarray
        y_test: np.ndarray
        time: np.ndarray
        step: np.ndarray
        f_train_error: np.ndarray
        f_test_error: np.ndarray
        f_train_margin: np.ndarray
        f_test_margin: np.ndarray
        f_train_std: np.ndarray
        f_test_std: np.ndarray
        f_train_covariance: np.ndarray
        f_test_covariance: np.ndarray
        f_train_fluctuation: np.ndarray
        f_test_fluctuation: np.ndarray
        f_train_drawn_fluctuation: np.ndarray
        f_test_drawn_fluctuation: np.ndarray
        f_train_fluctuation_error: np.ndarray
        f_test_fluctuation_error: np.ndarray
        f_train_fluctuation_covariance: np.ndarray
        f_train_shift: np.ndarray
        f_test_shift: np.ndarray
        record_step: np.ndarray
        feature_kernel: np.ndarray
        gradient_kernel: np.ndarray
        ntk: np.ndarray
        ntk_test: np.ndarray
        pseudo_gradient_kernel: np.ndarray
        effective_ntk: np.ndarray
        alignment: np.ndarray
        nngp: np.ndarray
        feature_kernel_error: np.ndarray
        gradient_kernel_error: np.ndarray
        ntk_error: np.ndarray
        ntk_shift: np.ndarray
        ntk_shift_error: np.ndarray
        feature_kernel_pair: np.ndarray
        gradient_kernel_pair: np.ndarray
        feature_kernel_tokens: np.ndarray
        gradient_kernel_tokens: np.ndarray
        neuron_h: np.ndarray
        neuron_g: np.ndarray
        neuron_z: np.ndarray
        singular_values: np.ndarray
        singular_values_error: np.ndarray
        right_overlap: np.ndarray
        left_overlap: np.ndarray
        bulk_edge: np.ndarray
        hessian_sharpness: np.ndarray
        gradient_curvature: np.ndarray
        output_hessian: np.ndarray
        input_jacobian: np.ndarray
        input_jacobian_test: np.ndarray
        single_neuron: np.ndarray
    else:

        def __getattr__(self, name: str) -> np.ndarray:
            parts = self.__dict__.get("_parts")
            if parts is not None and name in parts.variables:
                return parts.variables[name][1]
            if name.startswith("_") or name not in self._dataset.variables:
                known = self.__dict__.get("_dataset", ()) if parts is None else parts.variables
                names = ", ".join(sorted(map(str, known)))
                raise AttributeError(f"the trajectory has no {name!r}; it has {names}")
            return self._dataset[name].values

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *map(str, self._dataset.variables)})

    def __contains__(self, name: str) -> bool:
        return name in self._dataset.variables
