"""Networks are read once: layers are asked for their type nowhere else, and forms have names."""

import ast
from pathlib import Path

import largen
from largen import architectures
from largen.architectures import kinds_of_layers

ROOT = Path(largen.__file__).parent
READERS = ("architectures", "programs")


def layers_named_in(tree: ast.Module) -> set[str]:
    """Return the names that concrete layers and traits with fields have in a file."""
    kinds = {kind.__name__ for kind in kinds_of_layers() if hasattr(architectures, kind.__name__)}
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {
        alias.asname or alias.name
        for node in imports
        if (node.module or "").startswith("largen.architectures")
        for alias in node.names
        if alias.name in kinds
    }


def asked_in(tree: ast.Module) -> list[str]:
    """Return the layers that a file names in ``isinstance``, cases and registrations."""
    names, asked = layers_named_in(tree), []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, where]):
                pass
            case ast.Call(func=ast.Attribute(attr="register"), args=[where, *_]):
                pass
            case ast.MatchClass(cls=where):
                pass
            case ast.FunctionDef(
                decorator_list=[ast.Attribute(attr="register")],
                args=ast.arguments(args=[ast.arg(annotation=ast.expr() as where), *_]),
            ):
                pass
            case _:
                continue
        asked += [n.id for n in ast.walk(where) if isinstance(n, ast.Name) and n.id in names]
    return asked


def test_no_room_asks_for_concrete_layers():
    found = {}
    for file in sorted(ROOT.rglob("*.py")):
        room = file.relative_to(ROOT).parts[0]
        if room not in READERS and (asked := asked_in(ast.parse(file.read_text()))):
            found[str(file.relative_to(ROOT))] = asked
    assert found == {}


def test_no_two_forms_of_networks_have_one_name():
    trees = (ast.parse(file.read_text()) for file in ROOT.rglob("*.py"))
    defined = [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    for form in ("AffineMap", "Attention", "Chain", "Map", "Signal"):
        assert defined.count(form) < 2


def test_what_counts():
    source = """
from largen.architectures import Dense, Layer, Repeat as Copies
from largen.programs import Affine
isinstance(net, Dense | Copies)
isinstance(net, Layer)
isinstance(operation, Affine)
@build.register(Dense)
def _(layer): ...
@build.register
def _(layer: Dense): ...
match net:
    case Copies(layer=Dense()): ...
"""
    assert sorted(asked_in(ast.parse(source))) == [
        "Copies",
        "Copies",
        "Dense",
        "Dense",
        "Dense",
        "Dense",
    ]
