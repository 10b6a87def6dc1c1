"""Rooms that read the program ask for no concrete layer."""

import ast
from pathlib import Path

import pytest

import largen
from largen.architectures import kinds_of_layers

ROOMS = ("networks", "runs", "theories")
SOURCE = Path(largen.__file__).parent
FILES = [path for room in ROOMS for path in sorted((SOURCE / room).rglob("*.py"))]
TRAITS = {"Affine", "Container", "Elementwise", "Layer", "Parallel", "Sequence"}
LAYERS = {kind.__name__ for kind in kinds_of_layers() if kind.__module__.startswith("largen.")}


def asked_for(tree):
    """Yield the layers in isinstance, match and register that come from the architectures."""
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("largen.archi")
        for alias in node.names
    } & (LAYERS | TRAITS)
    for node in ast.walk(tree):
        parts = []
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            parts = node.args[1:] if name == "isinstance" else node.args * (name == "register")
        elif isinstance(node, ast.MatchClass):
            parts = [node.cls]
        elif isinstance(node, ast.FunctionDef):
            registers = any(getattr(d, "attr", "") == "register" for d in node.decorator_list)
            first = node.args.args[:1] if registers else []
            parts = [argument.annotation for argument in first if argument.annotation]
        for part in parts:
            yield from (n.id for n in ast.walk(part) if isinstance(n, ast.Name) and n.id in names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_file_asks_for_a_layer(path):
    assert not set(asked_for(ast.parse(path.read_text())))


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(x, Dense | Conv)",
        "match x:\n    case Conv():\n        pass",
        "@rule.register(Dense)\ndef _(x): pass",
        "@rule.register\ndef _(x: Dense): pass",
    ],
)
def test_such_a_question_is_seen(code):
    imports = "from largen.architectures import Conv, Dense\n"
    assert set(asked_for(ast.parse(imports + code)))
    assert not set(asked_for(ast.parse("from largen.programs import Conv, Dense\n" + code)))
