"""Versions: ``nox`` runs a part of the tests with the oldest and the newest packages.

pip install nox
nox                      # every session whose Python is on the machine
nox -s oldest            # the lowest versions that pyproject.toml claims
nox -s newest-3.13       # the newest packages on one Python
nox -s package           # what would be published: built, checked, installed and imported
"""

import re
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.error_on_missing_interpreters = False

MAKEFILE = Path(__file__).with_name("Makefile").read_text().replace("\\\n", " ")
TESTERS = ("pytest", "hypothesis", "beartype", "mpmath")


def part() -> list[str]:
    """Return the tests that reach furthest into other packages, as the Makefile lists them."""
    found = re.search(r"^PART := (.*)$", MAKEFILE, re.MULTILINE)
    assert found
    return found.group(1).split()


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def newest(session: nox.Session) -> None:
    """A part of the tests with the newest packages."""
    session.install("-e", ".[large]", *TESTERS)
    session.run("python", "-m", "pytest", "-q", "--default-compiler", "-m", "not slow", *part())


@nox.session(python="3.11")
def oldest(session: nox.Session) -> None:
    """The same part with the lowest versions of all that largen needs."""
    session.install("uv")
    install = ("uv", "pip", "install", "--python", session.virtualenv.location)
    session.run(*install, "--resolution", "lowest-direct", "-e", ".[large]")
    session.run(*install, *TESTERS)
    session.run("python", "-m", "pytest", "-q", "--default-compiler", "-m", "not slow", *part())


@nox.session(python="3.11")
def package(session: nox.Session) -> None:
    """Build sdist and wheel, check them, and import the wheel from outside the clone."""
    session.install("build", "twine")
    folder = Path(session.create_tmp()).resolve()
    session.run("python", "-m", "build", "--outdir", str(folder))
    built = sorted(map(str, folder.iterdir()))
    session.run("twine", "check", "--strict", *built)
    session.run("python", "tests/wheel_contents.py", str(folder))
    session.install(*(path for path in built if path.endswith(".whl")))
    session.chdir(folder)
    session.run("python", "-c", "import largen; print(largen.__version__, largen.mlp(2))")
