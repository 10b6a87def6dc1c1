"""Checks what a wheel and an sdist hold: all of the package, and nothing else in the wheel.

python -m build --outdir dist && python tests/wheel_contents.py dist
"""

import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
NEEDED = ("README.md", "LICENSE", "pyproject.toml", "CHANGELOG.md", "CITATION.cff")


def faults(folder: Path) -> list[str]:
    """Return what is missing, and what does not belong there."""
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    held = set(zipfile.ZipFile(wheel).namelist())
    package = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "largen").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    modules = {name for name in held if ".dist-info/" not in name}
    found = [f"missing in the wheel: {name}" for name in sorted(package - modules)]
    found += [f"does not belong into the wheel: {name}" for name in sorted(modules - package)]
    if not any(name.endswith("licenses/LICENSE") for name in held):
        found.append("missing in the wheel: the licence")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    return [*found, *(f"missing in the sdist: {name}" for name in NEEDED if name not in names)]


def main() -> None:
    found = faults(Path(sys.argv[1]))
    print("\n".join(found) or "The wheel holds the package, all of it and nothing else.")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
