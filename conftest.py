"""Shapes and types are checked in tests only: the import hook comes before any import of largen."""

import os

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

os.environ.setdefault("MPLBACKEND", "agg")

# An integer will do where a float is wanted.
typecheck = beartype(conf=BeartypeConf(is_pep484_tower=True))
install_import_hook("largen", "conftest.typecheck")
