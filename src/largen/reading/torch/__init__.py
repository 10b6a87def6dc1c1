"""PyTorch modules: their forward pass, and the laws of their weights."""

import largen.transfer.torch  # noqa: F401  (says what to install where PyTorch is missing)
