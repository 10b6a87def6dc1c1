"""Writes ``reference.md``: every public name, in the order of what a user does, and results.

The classes of results have no public names, since functions and methods return them. Which ones
there are is read from the annotations of all that is public, and of what these return.
"""

import importlib
import inspect
import re
import sys
from pathlib import Path

import largen as lg

GROUPS = {
    "architectures": "Networks",
    "parameterizations": "Parameterizations and optimizers",
    "runs": "Runs and results",
    "networks": "Finite networks",
    "theories": "Limits",
    "kernels": "Kernels",
    "regression": "Predictions from kernels",
    "expectations": "Activations and expectations",
    "criticality": "Criticality",
    "finite_width": "Finite width at initialisation",
    "experiments": "Comparison and measurement",
    "kept_programs": "Compiled programs",
}
# Rooms, with the names that are not at the top as well.
MODULES = {
    "layers": "Layers",
    "optimizers": "Optimizers",
    "scaling": "Scaling with width and depth",
    "losses": "Losses",
    "networks": "Finite networks and kernels of any function",
    "theories": "Theories and their options",
    "training": "Training",
    "kernels": "Kernels of constants and by draws",
    "regression": "Regression",
    "regression.large": "Regression on many samples",
    "criticality": "Criticality",
    "finite_width": "Finite width at initialisation",
    "expectations": "Expectations of activations",
    "reading": "PyTorch models as networks",
    "transfer.torch": "Transfer for PyTorch",
    "transfer.jax": "Transfer for JAX",
    "sweeps": "Sweeps",
    "plots": "Pictures",
    "errors": "Errors and warnings",
}
RESULTS = "What functions and methods return, with its methods. `lg.load` reads saved ones."


def room_of(name: str) -> str:
    """Return the package in which a public name is defined."""
    return inspect.getmodule(getattr(lg, name)).__name__.split(".")[1]


def table(names: list[str]) -> list[str]:
    """Return the lines of a table of names, each with a page of its own."""
    head = ["```{eval-rst}", ".. autosummary::", "   :toctree: generated", "   :nosignatures:", ""]
    return [*head, *(f"   {name}" for name in names), "```", ""]


def names_of(module: str) -> list[str]:
    """Return the public names of a room that are not at the top."""
    found = importlib.import_module(f"largen.{module}")
    defined = [
        name
        for name, value in vars(found).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == found.__name__
    ]
    names = sorted(getattr(found, "__all__", defined), key=str.lower)
    return [name for name in names if getattr(lg, name, None) is not getattr(found, name)]


def callables_of(value: object) -> list[object]:
    """Return a function, or the public methods and properties of a class.

    Methods of layers and theories are called by largen: what they return is internal.
    """
    if not inspect.isclass(value):
        return [value] if inspect.isfunction(inspect.unwrap(value)) else []
    if issubclass(value, (lg.layers.Layer, lg.theories.Theory)):
        return []
    members = [
        member
        for kind in value.__mro__
        if kind.__module__.startswith("largen")
        for name, member in vars(kind).items()
        if not name.startswith("_")
    ]
    found = [getattr(m, "fget", None) or getattr(m, "__func__", m) for m in members]
    return [inspect.unwrap(f) for f in found if inspect.isfunction(f)]


def returned_by(function: object) -> list[type]:
    """Return the classes of largen that the annotation of a function's result names."""
    function = inspect.unwrap(function)
    annotation = getattr(function, "__annotations__", {}).get("return", "")
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    names = set(re.findall(r"[A-Za-z_]\w*", re.sub(r"[\"'].*?[\"']", "", text)))
    found = [vars(sys.modules[function.__module__]).get(name) for name in sorted(names)]
    return [c for c in found if inspect.isclass(c) and c.__module__.startswith("largen")]


def results() -> list[str]:
    """Return the full names of classes that are returned, and have no public name."""
    pending = [getattr(lg, name) for name in lg.__all__]
    for module in MODULES:
        room = importlib.import_module(f"largen.{module}")
        pending += [getattr(room, name) for name in names_of(module)]
    seen = set(map(id, pending))
    names = []
    while pending:
        for function in callables_of(pending.pop()):
            for kind in returned_by(function):
                if id(kind) not in seen and not kind.__name__.startswith("_"):
                    seen.add(id(kind))
                    pending.append(kind)
                    names.append(f"~{kind.__module__}.{kind.__qualname__}")
    return sorted(names, key=lambda name: name.rpartition(".")[2].lower())


def main() -> None:
    """Write the page beside this file."""
    names = sorted(set(lg.__all__) - {"__version__"}, key=str.lower)
    rooms = {name: room_of(name) for name in names}
    groups = {room: GROUPS.get(room, room.capitalize()) for room in [*GROUPS, *rooms.values()]}
    page = ["# Reference", "", "Every public name: those at the top, and those in rooms.", ""]
    for room, title in groups.items():
        members = [f"largen.{name}" for name in names if rooms[name] == room]
        page += [f"## {title}", "", *table(members)] if members else []
    for module, title in MODULES.items():
        members = [f"largen.{module}.{name}" for name in names_of(module)]
        page += [f"## {title}", "", f"`largen.{module}`", "", *table(members)]
    page += ["## Results", "", RESULTS, "", *table(results())]
    Path(__file__).with_name("reference.md").write_text("\n".join(page))


if __name__ == "__main__":
    main()
