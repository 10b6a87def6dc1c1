"""A module's forward pass under the recorder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from largen.traces.torch.recorder import Recorder
from largen.traces.torch.trace import Trace


def record(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[Trace, Any]:
    """Return the trace of a module's forward pass, and what it returns.

    Tensors among the arguments, in nested containers as well, are the inputs, in their order. The
    settings of the process are changed while it runs: no other thread may use PyTorch's fused
    attention or recurrent layers meanwhile. Buffers that the forward pass changes are changed.
    """
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    inputs = [x for x in _pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    recorder = Recorder(named, inputs)
    with torch.no_grad(), _unfused(), _scopes(module, recorder), recorder:
        output = module(*args, **kwargs)
    return recorder.finish(output, dict(module.named_buffers())), output


@contextmanager
def _unfused() -> Iterator[None]:
    """Turn off what makes one operator of a whole layer."""
    mha: Any = torch.backends.mha
    mkldnn: Any = torch.backends.mkldnn
    before = mha.get_fastpath_enabled(), mkldnn.enabled
    mha.set_fastpath_enabled(False)
    mkldnn.enabled = False
    try:
        yield
    finally:
        mha.set_fastpath_enabled(before[0])
        mkldnn.enabled = before[1]


@contextmanager
def _scopes(module: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Tell a recorder in which part of a module a forward pass is."""
    handles = []
    for path, part in module.named_modules():

        def enter(part: Any, given: Any, path: str = path) -> None:
            recorder.scopes.append(path.replace(".", "/"))

        def leave(part: Any, given: Any, output: Any) -> None:
            recorder.scopes.pop()

        handles.append(part.register_forward_pre_hook(enter))
        handles.append(part.register_forward_hook(leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
