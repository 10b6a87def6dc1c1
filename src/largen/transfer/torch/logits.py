"""What makes a module's attention logits, found out by calling it.

Names and attributes say little of what a forward pass does: queries may be divided by √d before
or after the product, by d instead, normalised, or cut from a fused layer in any order. Here the
module is called on random sequences, the logits are caught where they enter the softmax, and the
outputs of its parts are multiplied one by one to see which of them multiplies the logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import log, prod
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from largen.transfer.torch.multipliers import ScaleFirstThird, ScaleOutput
from largen.transfer.torch.process import seeded

# A number that is no width: a softmax over so many entries is one over positions.
LENGTH = 13
DRAWS = 8
MENTIONS = frozenset({"softmax", "Softmax", "scaled_dot_product_attention"})
SOFTMAXES = {F.softmax, torch.softmax, Tensor.softmax}
PRODUCTS = {
    torch.matmul, torch.bmm, torch.einsum, torch.baddbmm,
    Tensor.matmul, Tensor.__matmul__, Tensor.bmm, Tensor.baddbmm,
}  # fmt: skip
TRIES = {"output": ScaleOutput, "first third": ScaleFirstThird}

Hooks = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class Queries:
    """What multiplies the logits if it is multiplied: queries, or keys, which does as well.

    Attributes
    ----------
    part
        Path of the part that makes them, below the module; None if no part's output does.
    where
        ``"output"`` or the ``"first third"`` of it.
    built
        The power of a head's dimension that the logits have by themselves, beyond q·k.
    """

    part: str | None
    where: str = "output"
    built: Fraction = Fraction(-1, 2)


class NotCallable(Exception):
    """The module could not be called on a sequence; the message says what it raised."""


def attends(module: nn.Module) -> bool:
    """Whether the code of a module with weights, or of a part without any, names a softmax."""
    parts = [part for part in module.children() if not any(True for _ in part.parameters())]
    has_weights = any(True for _ in module.parameters())
    return has_weights and any(map(_mentions_softmax, (module, *parts)))


def _mentions_softmax(module: nn.Module) -> bool:
    functions = (f for c in type(module).__mro__ for f in vars(c).values())
    return any(_mentions(f, set()) for f in functions)


def _mentions(function: Any, seen: set[Any]) -> bool:
    """Whether a function, or one that it calls by a global name, names a softmax."""
    if not isinstance(function, FunctionType) or function in seen:
        return False
    seen.add(function)
    if function.__module__.startswith("torch."):
        return False
    names = _names(function.__code__)
    called = (function.__globals__.get(name) for name in names)
    return bool(MENTIONS & names) or any(_mentions(f, seen) for f in called)


def _names(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def queries_of(base: nn.Module, wide: nn.Module, named: Callable[[str], bool]) -> Queries | None:
    """Return what multiplies a module's attention logits, or None if it has none.

    Parameters
    ----------
    base, wide
        The module at two widths. Its values are replaced by random ones.
    named
        Whether a part's name is one that queries usually have: of several, it is preferred.

    Raises
    ------
    NotCallable
        If it could not be called.
    """
    with seeded(0), torch.no_grad():
        small, large = (_Tried(_randomised(module)) for module in (base, wide))
        if small.head is None or large.head is None:
            return None
        linear = small.linear()
        exact = [found for found in linear if small.once and small.multiplies(*found)]
        if not exact:
            return Queries(None)
        # Rather by name, and rather where a factor can be folded into weights.
        held = {path for path, part in base.named_modules() if part._parameters}
        part, where = min(
            exact, key=lambda f: (not named(f[0]), f[0] not in held, f[1] != "output")
        )
        makers = small.besides(part, {path for path, _ in linear})
        sizes = [tried.size(part, makers) for tried in (small, large)]
        heads = [float(tried.head or 1.0) for tried in (small, large)]
    if not min(sizes):  # something behind what was drawn makes queries or keys of its own
        return Queries(None)
    if heads[0] == heads[1]:
        whole = log(sizes[0]) / log(heads[0]) if heads[0] > 1 else 0.0
    else:
        whole = log(sizes[1] / sizes[0]) / log(heads[1] / heads[0])
    # Of independent entries, q·k itself has the power ½.
    return Queries(part, where, Fraction(round(4 * whole), 4) - Fraction(1, 2))


def head_size(module: nn.Module) -> int | None:
    """Return the dimension of a module's heads, which may be without memory; None if unknown."""
    try:
        with seeded(0), torch.no_grad():
            return _Tried(module).head
    except NotCallable:
        return None


class _Tried:
    """A module that can be called on a sequence.

    Attributes
    ----------
    head
        The dimension over which queries and keys are multiplied; None if there is no softmax over
        positions of a product.
    once
        Whether there is one softmax only.
    """

    def __init__(self, module: nn.Module):
        self.module, error = module, "it has no matrix whose side could be the input's size"
        for self.args in _inputs(module):
            try:
                watch = self._watched({})
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
                continue
            self.head, self.once = watch.head if watch.count else None, watch.count == 1
            return
        raise NotCallable(error)

    def logits(self, hooks: Hooks) -> Tensor:
        """Return the finite logits, with hooks on the parts' outputs."""
        found = self._watched(hooks).logits
        assert found is not None
        return found[found > -1e4].double()

    def linear(self) -> list[tuple[str, str]]:
        """Return the parts, and where in their outputs, in which the logits are linear."""
        start, found = self.logits({}), []
        for path, _ in self.module.named_modules():
            for where, hook in TRIES.items() if path else ():
                try:
                    two, three = (self.logits({path: hook(factor)}) for factor in (2.0, 3.0))
                    first, second = two - start, three - two
                except (RuntimeError, TypeError, IndexError, AttributeError):
                    continue  # its output is no tensor
                largest = first.abs().max()
                everywhere = (first.abs() > 1e-4 * largest).double().mean() > 0.9
                if everywhere and (second - first).abs().max() < 1e-3 * largest:
                    found.append((path, where))
        return found

    def multiplies(self, path: str, where: str) -> bool:
        """Whether doubling a part's output does nothing but double the logits: no values."""
        doubled = self._watched({path: TRIES[where](2.0)})
        wanted = self._watched({}, instead=doubled.logits)
        return torch.allclose(doubled.output, wanted.output, rtol=1e-3, atol=1e-5)

    def besides(self, part: str, makers: set[str]) -> set[str]:
        """Return as many makers of queries and keys as do not hide the part if they are drawn."""
        drawn: dict[str, Any] = {}
        for other in sorted(makers - {part}):
            tried = {**drawn, other: _drawn}
            one, two = (self._seeded({**tried, part: ScaleOutput(f)}) for f in (1.0, 2.0))
            if not torch.equal(one, two):
                drawn = tried
        return {part, *drawn}

    def size(self, part: str, makers: set[str]) -> float:
        """Return the logits' deviation if queries and keys have independent entries of size 1."""
        all_drawn, squares = dict.fromkeys(makers, _drawn), []
        for seed in range(DRAWS):
            full = self._seeded(all_drawn, seed)
            # What is added to the products, such as biases of positions, is no part of them.
            added = self._seeded({**all_drawn, part: _drawn_as_zero}, seed)
            squares.append((full - added).square().mean())
        return float(torch.stack(squares).mean().sqrt())

    def _seeded(self, hooks: Hooks, seed: int = 0) -> Tensor:
        torch.manual_seed(seed)
        return self.logits(hooks)

    def _watched(self, hooks: Hooks, instead: Tensor | None = None) -> _Watch:
        watch = _Watch(instead)
        handles = [self.module.get_submodule(p).register_forward_hook(h) for p, h in hooks.items()]
        try:
            with watch:
                output = self.module(*self.args)
        finally:
            for handle in handles:
                handle.remove()
        watch.output = output[0] if isinstance(output, tuple) else output
        return watch


def _drawn(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    return torch.randn_like(output)


def _drawn_as_zero(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    return 0.0 * torch.randn_like(output)  # draws what it would have drawn


class _Watch(TorchFunctionMode):
    """Keeps the logits of the first softmax over positions.

    Attributes
    ----------
    logits
        None if there is none. Without the mask in PyTorch's fused attention.
    count
        How many there are.
    head
        The side that the last product before summed over.
    output
        What the module returned.
    """

    def __init__(self, instead: Tensor | None = None):
        super().__init__()
        self.logits: Tensor | None = None
        self.count = 0
        self.head: int | None = None
        self.output: Any = None
        self.instead = instead

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look at a function that is called, and call it, on other logits if there are."""
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            kwargs, args = self._fused(*args, **kwargs), ()
        elif func in PRODUCTS and self.logits is None:
            self.head = _summed(args)
        elif func in SOFTMAXES and self.head is not None:
            dim = kwargs.get("dim", args[1] if len(args) > 1 else -1)
            if args and args[0].shape[dim] == LENGTH:
                self._keep(args[0])
                args = args if self.instead is None else (self.instead, *args[1:])
        return func(*args, **kwargs)

    def _keep(self, logits: Tensor) -> None:
        self.count += 1
        self.logits = logits if self.logits is None else self.logits

    def _fused(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None,
        dropout_p: float = 0.0, is_causal: bool = False, scale: Any = None, **others: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the arguments of PyTorch's fused attention, which makes its logits itself."""
        repeated = key
        if query.ndim > 3 and key.shape[-3] != query.shape[-3]:
            repeated = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        head = query.shape[-1]
        factor = head**-0.5 if scale is None else scale
        self.head = head if self.logits is None else self.head
        self._keep(factor * (query @ repeated.mT))
        given = {"query": query, "key": key, "value": value, "attn_mask": attn_mask}
        given |= {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, **others}
        if self.instead is not None:
            given["scale"] = 2.0 * factor
        return given


def _summed(args: tuple) -> int:
    """Return the side that a product of two tensors sums over."""
    if not isinstance(args[0], str):  # the last two: what they are added to may come before
        return [a for a in args if isinstance(a, Tensor)][-2].shape[-1]
    first = args[1][0] if isinstance(args[1], (list, tuple)) else args[1]
    inputs, _, output = args[0].replace(" ", "").partition("->")
    ours, _, theirs = inputs.partition(",")
    ours = ours.rpartition("...")[2]  # counted from the right
    sides = dict(zip(ours[::-1], first.shape[::-1], strict=False))
    return prod(size for axis, size in sides.items() if axis in theirs and axis not in output)


def _inputs(module: nn.Module) -> Iterator[tuple[Tensor, ...]]:
    """Return what the module might take: sequences, or images, of a size that a weight has."""
    sizes: dict[tuple[int, ...], Tensor] = {}
    for parameter in module.parameters():
        for size in parameter.shape[1::-1]:
            if parameter.ndim in (2, 4):
                shape = (2, LENGTH, size) if parameter.ndim == 2 else (2, size, 1, LENGTH)
                sizes.setdefault(shape, parameter)
    for shape, like in sizes.items():
        x = torch.randn(shape, dtype=like.dtype, device=like.device)
        for count in (1, 3, 2):
            yield (x,) * count


def _randomised(module: nn.Module) -> nn.Module:
    """Return the module without zeros, which would hide what is behind them."""
    for part in module.eval().modules():
        for parameter in part.parameters(recurse=False):
            if parameter.ndim > 1:
                affine = isinstance(part, (nn.Linear, nn.Conv1d, nn.Conv2d))
                parameter.normal_(std=parameter[0].numel() ** -0.5 if affine else 1.0)
    return module
