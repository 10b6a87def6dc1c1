"""Shapes and types are checked in tests only: the import hook comes before any import of largen."""

import os

import hypothesis
import tests.typecheck  # loaded here, so that the hook finds it by name
from jaxtyping import install_import_hook

os.environ.setdefault("MPLBACKEND", "agg")
install_import_hook("largen", f"{tests.typecheck.__name__}.typecheck")

# No test is timed: a busy machine makes no difference.
hypothesis.settings.register_profile("largen", deadline=None)
hypothesis.settings.load_profile("largen")
