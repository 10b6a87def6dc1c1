"""Writes ``reference.md``: every public name, in the order of what a user does."""

import importlib
import inspect
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
    Path(__file__).with_name("reference.md").write_text("\n".join(page))


if __name__ == "__main__":
    main()
