"""References for the theories that a result was computed with."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import largen
from largen.bibliography import references
from largen.errors import InvalidInput
from largen.parameterizations import Parameterization, schemes
from largen.runs import Theory, Trajectory
from largen.text import shown

SOFTWARE = f"""@software{{largen,
  author  = {{{{The largen developers}}}},
  title   = {{{{largen: large-N limits of neural networks}}}},
  year    = {{2026}},
  version = {{{largen.__version__}}}
}}"""


def cite(*results: Any) -> str:
    """Return the BibTeX entries of largen and of the papers whose theory led to some results.

    A trajectory is based on the papers of its theory and of its parameterization; every other
    result on those of its class, and a function on those of its result if it names no others. Their
    keys are the attribute ``papers`` of a class or a function, as of
    :class:`largen.theories.Theory`.

    Parameters
    ----------
    results
        Results, such as a :class:`largen.Trajectory` or a posterior, and functions and classes of
        largen, such as ``lg.finite_width.width_corrections``.

    Returns
    -------
    str
        One entry for each paper, the oldest first, after the entry of largen itself.

    Raises
    ------
    InvalidInput
        If an argument is neither a result nor a function or class of largen, or of a subclass of
        :class:`largen.theories.Theory`; if ``papers`` of such a subclass has an unknown key.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> run = lg.Run(lg.mlp(1, "erf"), lg.mean_field(), data, optimizer=lg.gd(lr=0.5), steps=2)
    >>> entries = lg.cite(lg.solve(run, rtol=1e-2), lg.criticality.variance_fixed_points)
    >>> [line for line in entries.splitlines() if line.startswith("@")]  # doctest: +ELLIPSIS
    ['@software{largen,', '@inproceedings{poole2016exponential,', ...]
    >>> "golikov2020towards" in entries
    True
    """
    papers = {paper for result in results for paper in _papers(result)}
    known = [entry for key, entry in references().items() if key in papers]
    given = sorted(paper for paper in papers if paper.lstrip().startswith("@"))
    if unknown := sorted(papers - {*references(), *given}):
        raise InvalidInput(
            f"papers: {unknown[0]!r} is neither a key of largen.bibliography.references() nor a "
            "BibTeX entry."
        )
    return "\n\n".join([SOFTWARE, *known, *given])


def _papers(result: Any) -> Iterator[str]:
    """Return the keys of the papers on which a result, a function or a class is based."""
    if isinstance(result, Trajectory):
        name = result.theory
        yield from getattr(largen.train if name == "finite" else _theory(name), "papers", ())
        yield from _of_scheme(result.to_xarray().attrs["parameterization"])
        return
    described = result if inspect.isroutine(result) or inspect.isclass(result) else type(result)
    a_theory = inspect.isclass(described) and issubclass(described, Theory)
    if not (a_theory or str(described.__module__).partition(".")[0] == "largen"):
        raise InvalidInput(
            "results: wanted results, functions or classes of largen, such as a Trajectory or "
            f"lg.posterior, got {shown(result)}."
        )
    if isinstance(result, Parameterization):
        yield from _of_scheme(result.name)
    yield from getattr(described, "papers", getattr(_made_by(described), "papers", ()))


def _made_by(described: Any) -> Any:
    """Return the class that a function returns, where its annotation is a name of its module."""
    function = inspect.unwrap(described)
    name = getattr(function, "__annotations__", {}).get("return")
    return getattr(function, "__globals__", {}).get(name)


def _of_scheme(parameterization: str) -> tuple[str, ...]:
    """Return the papers of the function that makes a parameterization, by how it is printed."""
    name = parameterization.partition("(")[0].partition(" ")[0]
    return getattr(getattr(schemes, name, None), "papers", ())


def _theory(name: str) -> type[Theory] | None:
    """Return the class of a theory, registered or not, and None if it is not imported."""
    kinds = [Theory]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    return next((kind for kind in kinds if getattr(kind, "name", None) == name), None)
