"""Writes ``reference.md``: every public name, in the order of what a user does."""

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
}


def room_of(name: str) -> str:
    """Return the package in which a public name is defined."""
    return inspect.getmodule(getattr(lg, name)).__name__.split(".")[1]


def main() -> None:
    """Write the page beside this file."""
    names = sorted(set(lg.__all__) - {"__version__"}, key=str.lower)
    rooms = {name: room_of(name) for name in names}
    groups = {room: GROUPS.get(room, room.capitalize()) for room in [*GROUPS, *rooms.values()]}
    page = ["# Reference", "", "Every public name of `largen`.", ""]
    for room, title in groups.items():
        members = [name for name in names if rooms[name] == room]
        if members:
            page += [
                f"## {title}",
                "",
                "```{eval-rst}",
                ".. autosummary::",
                "   :toctree: generated",
            ]
            page += ["   :nosignatures:", "", *(f"   largen.{name}" for name in members), "```", ""]
    page += [
        "## Transfer", "", "```{eval-rst}", ".. autosummary::", "   :toctree: generated",
        "   :nosignatures:", "",
        *(f"   largen.transfer.torch.{name}" for name in
          ("scale", "TorchPlan", "coordinate_check", "audit", "audit_stock",
           "check_optimizer")), "```", "",
    ]  # fmt: skip
    Path(__file__).with_name("reference.md").write_text("\n".join(page))


if __name__ == "__main__":
    main()
