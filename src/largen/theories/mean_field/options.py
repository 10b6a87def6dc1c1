"""Options that the mean-field theories have in common, and their checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from largen.errors import InvalidInput, one_of
from largen.files import as_path
from largen.memory import check_fits
from largen.progress import check_progress
from largen.runs import Run
from largen.runs.records import OF_NETWORKS, RECORDS, check_rule, pairs_of, record_names
from largen.runs.theory import set_fields
from largen.runs.time_pairs import all_pairs
from largen.scalars import flag, integer, integers, random_key, real
from largen.theories.mean_field.record_times import NOTHING, Recorded

Sampling = Literal["variance_reduced", "finite_width"]
SAMPLINGS: tuple[Sampling, ...] = get_args(Sampling)


# How options are checked that have the same meaning in all theories, and converted.
CHECKS: dict[str, Callable[[Any], Any]] = {
    "rtol": partial(real, "rtol", above=0),
    "max_particles": partial(integer, "max_particles", at_least=1),
    "replicates": lambda count: optional_count("replicates", count, 1),
    "sampling": lambda name: one_of("sampling", name, SAMPLINGS),
    "fluctuations": partial(flag, "fluctuations"),
    "record_at": lambda at: None if at is None else tuple(integers("record_at", at, at_least=0)),
    "record_pairs": partial(pairs_of, "record_pairs"),
    "sample_neurons": partial(integer, "sample_neurons", at_least=0),
    "memory_budget": partial(real, "memory_budget", above=0),
    "checkpoint": lambda path: None if path is None else as_path("checkpoint", path),
}


def check_shared(options: Any, fewest: int, more: tuple[str, ...] = ()) -> None:
    """Check the options of a theory that others have as well, and convert them.

    ``options``: the theory, a frozen dataclass of options; ``fewest``: the smallest allowed number
    of particles; ``more``: names of records other than kernels.
    """
    record = options.record
    checked = {
        "particles": optional_count("particles", options.particles, fewest),
        "record": None if record is None else record_names(record, more),
    }
    shared = [field.name for field in fields(options) if field.name in CHECKS]
    checked |= {name: CHECKS[name](getattr(options, name)) for name in shared}
    set_fields(options, **checked)
    random_key(options.key)
    check_progress(options.progress)


def optional_count(name: str, value: Any, at_least: int) -> int | None:
    """Check a count that may be None."""
    return None if value is None else integer(name, value, at_least=at_least)


class WantedKernels(NamedTuple):
    """The kernels that are recorded in a solution, and their time indices."""

    recorded: Recorded  # the time indices, and the pairs of them
    names: tuple[str, ...]  # the names of the kernels, as in runs.records.record_names
    test: bool  # whether the tangent kernel between test and training samples is recorded

    def has(self, variable: str) -> bool:
        """Whether a variable of the trajectory is recorded."""
        plain = variable.removesuffix("_error").removesuffix("_pair").removesuffix("_test")
        return plain not in RECORDS or plain in self.names


NO_KERNELS = WantedKernels(NOTHING, (), False)


def wanted_kernels(
    run: Run,  # the training run
    # record, record_at, record_pairs: options of the theory.
    record: str | Sequence[str] | None,
    record_at: Sequence[int] | None,
    record_pairs: Sequence[tuple[int, int]] | Literal["all"],
    others: bool = False,  # whether there are other records than kernels at these time indices
    more: tuple[str, ...] = (),  # names of records other than kernels
) -> WantedKernels:
    """Return the kernels to record for a run, and their time indices."""
    alone = np.array(run.time_indices("record_at", record_at), dtype=int)
    if record_pairs == "all":
        times = np.arange(len(run.times)) if record_at is None else alone
        x = run.data.x_train
        check_fits(
            len(times) ** 2 * (x.itemsize * len(x) ** 2 + 16),  # Φ and G of half of the pairs
            f"record_pairs: kernels between all pairs of {len(times)} times",
            "Pass fewer times in record_at, or some of the pairs.",
        )
        pairs = all_pairs(times)
    else:
        pairs = run.pairs("record_pairs", record_pairs)
    names = OF_NETWORKS if record is None else record_names(record, more)
    check_rule(run.optimizer, names)
    if not names:
        if (record_at and not others) or len(pairs):
            name = "record_pairs" if len(pairs) else "record_at"
            raise InvalidInput(
                f"{name}: nothing to record; pass record={OF_NETWORKS!r} or some of it."
            )
        alone = alone[:0]
    test = record is not None and "ntk" in names and len(run.data.x_test) > 0
    return WantedKernels(Recorded(alone, pairs), names, test)
