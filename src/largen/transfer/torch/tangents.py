"""The neural tangent kernel of a PyTorch module, from the affine maps that it consists of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from largen.arrays import as_array, finite_result
from largen.errors import InvalidInput, instance_of
from largen.interrupts import check
from largen.memory import check_fits
from largen.scalars import real
from largen.text import shown
from largen.transfer.torch.tangent_factors import factors, product

NUMBERS_AT_ONCE = 2**26  # held at a time, 256 MB in single precision


def ntk_of_module(
    model: nn.Module,
    x1: Any,
    x2: Any = None,
    *,
    rates: Mapping[str, float] | None = None,
) -> Any:
    """Return the neural tangent kernel of a module, K(x, x') = Σ_θ ρ_θ ∂f(x)/∂θ ∂f(x')/∂θ.

    As :func:`largen.networks.ntk_of_function` does for JAX functions: for weights of linear maps,
    convolutions and embeddings it is computed from products of their inputs and of the gradients
    by their outputs, a·a' g·g', without ∂f/∂θ. One forward pass and a backward pass for each output
    give these of all samples. Parameters that are used in any other way cost a backward pass for
    each sample and output. Whether all uses were seen is checked against a gradient of the batch.

    Parameters
    ----------
    model
        A module that takes a batch of samples (sample, ...) and returns (sample,) or
        (sample, output). It is called in evaluation mode, without dropout and with running
        statistics; modes are restored. Parameters that do not require gradients are frozen.
    x1, x2
        Samples, tensors or NumPy arrays; without ``x2``, the kernel of ``x1`` with itself, which
        is exactly symmetric. Floats are converted to the precision of the parameters, integers
        (tokens) stay.
    rates
        ρ by the parameter's name; 1 for those that are missing.

    Returns
    -------
    Tensor or array
        (n1, n2), or (n1, n2, output, output); a NumPy array if x1 is one.

    Raises
    ------
    InvalidInput
        If the module fails on the samples, its outputs are of another shape, or a rate is of no
        parameter.
    OutOfMemory
        If the kernel does not fit into memory.
    NumericalFailure
        If it is not finite.

    Examples
    --------
    >>> import torch
    >>> from largen.transfer.torch import ntk_of_module
    >>> ntk_of_module(torch.nn.Linear(2, 1, bias=False), torch.eye(2))[..., 0, 0]
    tensor([[1., 0.],
            [0., 1.]])
    """
    instance_of("model", model, nn.Module, "a torch.nn.Module")
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    kinds = {p.dtype for p in parameters.values()}
    if len(kinds) != 1 or not kinds <= {torch.float32, torch.float64}:
        raise InvalidInput(
            "model: wanted parameters of float32 or of float64 that require gradients, got "
            f"{', '.join(map(str, kinds)) or 'none'}."
        )
    scales = _rates(rates, parameters)
    first = _samples("x1", x1, next(iter(parameters.values())))
    other = None if x2 is None else _samples("x2", x2, next(iter(parameters.values())))
    with _evaluation(model), torch.enable_grad():
        kernel, outputs = _kernel(model, parameters, scales, first, other)
    if other is None:
        kernel = (kernel + kernel.permute(2, 3, 0, 1)) / 2
    kernel = kernel.transpose(1, 2) if outputs else kernel[:, 0, :, 0]
    finite_result("ntk_of_module", kernel.cpu().numpy())
    return kernel if isinstance(x1, Tensor) else kernel.cpu().numpy()


def _rates(rates: Any, parameters: Mapping[str, Tensor]) -> dict[str, float]:
    if rates is None:
        return {}
    instance_of("rates", rates, Mapping, "a mapping from names of parameters to numbers")
    for name in rates:
        if name not in parameters:
            raise InvalidInput(
                f"rates: {shown(name)} is not a parameter that requires gradients; there are "
                f"{', '.join(list(parameters)[:8])}."
            )
    return {name: real(f"rates[{name!r}]", rate) for name, rate in rates.items()}


def _samples(name: str, value: Any, like: Tensor) -> Tensor:
    """Return samples as a tensor of the parameters' precision, integers unchanged."""
    if isinstance(value, Tensor):
        x = value.detach()
    else:
        array = as_array(name, value)
        if array.dtype.kind not in "fiu":
            raise InvalidInput(f"{name}: wanted floats or integers, got dtype {array.dtype}.")
        x = torch.as_tensor(np.array(array))
    if x.ndim == 0 or x.numel() == 0:
        raise InvalidInput(f"{name}: wanted samples (sample, ...), got shape {tuple(x.shape)}.")
    if x.is_complex() or x.dtype == torch.bool:
        raise InvalidInput(f"{name}: wanted floats or integers, got dtype {x.dtype}.")
    if x.is_floating_point():
        x = x.to(like.dtype)
        if not torch.isfinite(x).all():
            raise InvalidInput(f"{name}: holds NaN or infinite numbers; drop or impute them.")
    return x.to(like.device)


@contextmanager
def _evaluation(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _outputs(model: nn.Module, name: str, x: Tensor) -> Tensor:
    try:
        out = model(x)
    except Exception as error:
        raise InvalidInput(
            f"model: fails on {name} of shape {tuple(x.shape)} and {x.dtype}: "
            f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}."
        ) from error
    if not isinstance(out, Tensor) or out.ndim not in (1, 2) or len(out) != len(x):
        raise InvalidInput(
            f"model: wanted outputs ({len(x)},) or ({len(x)}, output) for the {len(x)} samples of "
            f"{name}, got {shown(tuple(out.shape) if isinstance(out, Tensor) else out)}."
        )
    if not out.is_floating_point():
        raise InvalidInput(f"model: wanted real outputs, got {out.dtype}.")
    return out


def _kernel(model, parameters, scales, x1, x2) -> tuple[Tensor, bool]:
    """Return the kernel, (n1, output, n2, output), and whether there are outputs."""
    with torch.no_grad():
        outs = [_outputs(model, "x1", x1), _outputs(model, "x2", x1 if x2 is None else x2)]
    outputs = prod(outs[0].shape[1:])
    ends = [len(out) * outputs for out in outs]
    check_fits(
        float(ends[0]) * ends[1] * outs[0].element_size(),
        f"x1: the kernel of {len(outs[0])} × {len(outs[1])} samples",
        "Take fewer samples.",
    )
    other = x1 if x2 is None else x2
    counts = len(x1), len(other)
    _, held = factors(model, parameters, x1[:1], counts)
    side = max(NUMBERS_AT_ONCE // max(2 * held, 1), 1)
    rows = _blocks(model, x1, outs[0], side)
    columns = rows if x2 is None else _blocks(model, other, outs[1], side)
    kernel = outs[0].new_empty(counts[0], outputs, counts[1], outputs)
    kept: dict[int, Any] = {}
    keep = held * counts[1] <= NUMBERS_AT_ONCE

    def of(block: slice) -> Any:
        found = kept.get(block.start) or factors(model, parameters, other[block], counts)[0]
        if keep:
            kept[block.start] = found
        return found

    for row in rows:
        one = of(row) if x2 is None else factors(model, parameters, x1[row], counts)[0]
        for column in columns:
            if x2 is None and column.start < row.start:
                continue  # the kernel is symmetric
            two = one if x2 is None and column.start == row.start else of(column)
            tile = product(one, two, scales)
            kernel[row, :, column] = tile
            if x2 is None:
                kernel[column, :, row] = tile.permute(2, 3, 0, 1)
            check()
    return kernel, outs[0].ndim == 2


def _blocks(model: nn.Module, x: Tensor, out: Tensor, side: int) -> list[slice]:
    """Return slices of samples; one, if samples of a batch depend on one another."""
    found = [slice(i, i + side) for i in range(0, len(x), side)]
    if len(found) > 1:
        with torch.no_grad():
            parts = torch.cat([_outputs(model, "x1", x[block]) for block in found])
        if (parts - out).abs().max() > torch.finfo(out.dtype).eps ** 0.5 * out.abs().max():
            return [slice(0, len(x))]
    return found
