"""Shapes and types are checked in tests only: the import hook comes before any import of largen."""

import os

from jaxtyping import install_import_hook

os.environ.setdefault("MPLBACKEND", "agg")
install_import_hook("largen", "tests.typecheck.typecheck")
