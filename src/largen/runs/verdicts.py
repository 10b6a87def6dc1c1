"""What follows from the status of a trajectory that is not ok."""

from __future__ import annotations

import warnings
from typing import Any

from largen.errors import Inaccurate, NumericalFailure
from largen.runs.status import not_finite


def raise_or_warn(found: Any) -> None:
    """Raise for a trajectory that is not ok; warn if all of its numbers are there.

    ``found``: the :class:`largen.Trajectory`.
    """
    held = found.to_xarray()
    bad = not_finite({str(name): (v.dims, v.values) for name, v in held.variables.items()})
    if found.status.has_numbers and not bad:
        told = "; ".join([f"{found.theory}: {found.status}", *found.notes[:1]])
        warnings.warn(told, Inaccurate, stacklevel=4)
        return
    why = f": not finite are {', '.join(bad)}" if bad else ""
    raise NumericalFailure(
        f"{found.theory}: {found.status}{why}. Inputs, targets or rates are too large for "
        f"numbers of {found.f_train.dtype}: scale them down. throw=False returns what was "
        "computed.",
        found,
    )
