"""References for the theories that a result was computed with."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

import largen
from largen.bibliography import Paper, papers_in
from largen.errors import InvalidInput
from largen.runs import Theory, Trajectory
from largen.text import shown

SOFTWARE = Paper(
    "largen",
    "largen",
    "",
    "software",
    {
        "author": "{The largen developers}",
        "title": "{largen: large-N limits of neural networks}",
        "year": "2026",
        "version": largen.__version__,
    },
)


def cite(*results: Any) -> str:
    """Return the BibTeX entries of largen and of the papers whose theory led to some results.

    The papers are those that the documentation cites: for a trajectory, at its theory and its
    parameterization; for any other result, at its class and at the public functions that return
    it; for a function or a class, at itself; and at the modules of these.

    Parameters
    ----------
    results
        Results, such as a :class:`largen.Trajectory` or a posterior, and functions and classes of
        largen, such as ``lg.width_corrections``.

    Returns
    -------
    str
        One entry for each paper, the oldest first, after the entry of largen itself.

    Raises
    ------
    InvalidInput
        If an argument is neither a result nor a function or class of largen, or of a subclass of
        :class:`largen.Theory`.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> run = lg.Run(lg.mlp(1, "erf"), lg.mean_field(), data, optimizer=lg.gd(lr=0.5), steps=2)
    >>> entries = lg.cite(lg.solve(run, rtol=1e-2), lg.fixed_points)
    >>> [line for line in entries.splitlines() if line.startswith("@")]  # doctest: +ELLIPSIS
    ['@software{largen,', '@inproceedings{poole2016exponential,', ...]
    >>> "golikov2020towards" in entries
    True
    """
    text = "\n\n".join(part for result in results for part in _documentation(result))
    return "\n\n".join(paper.bibtex() for paper in (SOFTWARE, *papers_in(text)))


def _documentation(result: Any) -> Iterator[str]:
    """Return the docstrings that say which theory a result, a function or a class is based on."""
    if isinstance(result, Trajectory):
        yield from map(_docstring, _makers(result))
        return
    described = result if inspect.isroutine(result) or inspect.isclass(result) else type(result)
    own_theory = inspect.isclass(described) and issubclass(described, Theory)
    if not (own_theory or str(described.__module__).partition(".")[0] == "largen"):
        raise InvalidInput(
            "results: wanted results, functions or classes of largen, such as a Trajectory or "
            f"lg.posterior, got {shown(result)}."
        )
    yield _docstring(described)
    yield _docstring(sys.modules[described.__module__])
    if described is not result:
        yield from map(_docstring, _returning(described.__name__))


def _makers(trajectory: Trajectory) -> Iterator[Any]:
    """Return the theory of a trajectory and the function that makes its parameterization."""
    yield largen.train if trajectory.theory == "finite" else _theory(trajectory.theory)
    scheme = re.match(r"\w+", trajectory.to_xarray().attrs["parameterization"])
    if scheme and scheme.group() in largen.__all__:
        yield getattr(largen, scheme.group())


def _theory(name: str) -> Any:
    """Return the class of a theory, registered or not, and None if it is not imported."""
    kinds = [Theory]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    return next((kind for kind in kinds if getattr(kind, "name", None) == name), None)


def _returning(name: str) -> Iterator[Any]:
    """Return the public functions whose result is of a class."""
    for public in sorted(set(largen.__all__) - {"cite"}):
        found = getattr(largen, public)
        if inspect.isfunction(found):
            annotation = str(inspect.signature(found).return_annotation)
            if re.search(rf"\b{re.escape(name)}\b", annotation):
                yield found


def _docstring(described: Any) -> str:
    return inspect.getdoc(described) or ""
