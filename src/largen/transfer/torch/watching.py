"""Products of two signals in a forward pass that autograd records.

As :mod:`largen.transfer.torch.products` finds them in a record of operations, which autograd cannot
differentiate, a mode finds them where functions of PyTorch are called: matrix products, einsum, and
sums of products entry by entry. A product is followed through masks and what multiplies or divides
it, such as its own sum, to the scores that a nonlinear function or another product takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor

from largen.transfer.torch.recording import tensors_in

PRODUCTS = frozenset({"matmul", "rmatmul", "mm", "bmm", "mv", "dot", "inner", "linear"})
TIMES = frozenset({"mul", "rmul", "imul", "multiply"})
OVER = frozenset({"div", "truediv", "itruediv", "divide", "true_divide"})
INVERSES = frozenset({"rtruediv", "rdiv", "reciprocal", "rsqrt"})
ADDS = frozenset({"add", "radd", "iadd", "sub", "isub", "baddbmm"})
VIEWS = frozenset({
    "view", "reshape", "transpose", "permute", "unsqueeze", "squeeze", "flatten", "unflatten",
    "contiguous", "to", "float", "getitem", "get", "expand", "movedim", "swapaxes", "where",
    "masked_fill", "tril", "triu", "type_as", "clone",
})  # fmt: skip
CAPS = frozenset({"tanh", "clamp", "clip", "clamp_min", "clamp_max", "maximum", "minimum"})
SIZES = VIEWS | ADDS | CAPS | {"abs", "sum", "amax", "max", "sqrt"}  # that lead to a divisor

MIXED = 4  # vectors that are combined to a direction


@dataclass(eq=False)
class Score:
    """A product of two signals, or of two weights, and what follows it up to factors."""

    where: str  # the module that computes it
    tensor: Tensor
    terms: int  # the number of terms of each sum
    entries: int  # the number of sums, of a product of weights; 0 for signals
    needed: bool = True  # False for divisors of others, and for what a softmax reads


@dataclass(eq=False)
class _Seen:
    """What is known of one tensor."""

    tensor: Tensor  # keeps its id from being used again
    data: bool = False  # whether the inputs enter
    score: Score | None = None  # which it is, up to factors and what is added
    factors: tuple[Tensor, Tensor] | None = None  # of which it is the product, entry by entry
    size_of: frozenset[Score] = frozenset()  # of whose sizes it is computed
    inverse: bool = False  # whether it is one over these


@dataclass
class Scores:
    """The products of two signals in one forward pass."""

    found: list[Score] = field(default_factory=list)
    _seen: dict[int, _Seen] = field(default_factory=dict)

    def begin(self, inputs: Any) -> None:
        """Note the model's inputs."""
        for tensor in tensors_in(inputs):
            self._seen[id(tensor)] = _Seen(tensor, data=True)

    def read_by_softmax(self, tensor: Tensor) -> None:
        """Leave out the scores that a softmax takes, which are noted as its input."""
        score = self._of(tensor).score
        if score is not None:
            score.needed = False

    def after(self, func: Any, args: tuple, kwargs: Any, output: Any, where: str) -> None:
        """Note what a function of PyTorch has computed."""
        name = getattr(func, "__name__", "").strip("_")
        given = [t for t in tensors_in((args, kwargs)) if t.is_floating_point()]
        data = any(self._of(t).data for t in tensors_in((args, kwargs)))
        for tensor in tensors_in(output):
            made = self._made(name, args, kwargs, given, tensor)
            made.data = data
            for one, other, terms in _sums_in(name, args, kwargs, tensor, self._factors(given)):
                if made.score is None and self._both(one, other):
                    entries = 0 if data else tensor.numel()
                    made.score = Score(where, tensor, terms, entries)
                    self.found.append(made.score)
            self._seen[id(tensor)] = made

    def _of(self, tensor: Tensor) -> _Seen:
        return self._seen.get(id(tensor)) or _Seen(tensor)

    def _both(self, one: Tensor, other: Tensor) -> bool:
        """Whether two sides both are trained signals, or both trained weights."""
        trained = one.requires_grad and other.requires_grad
        return trained and self._of(one).data == self._of(other).data

    def _factors(self, given: Sequence[Tensor]) -> tuple[Tensor, Tensor] | None:
        return self._of(given[0]).factors if given else None

    def _made(
        self, name: str, args: tuple, kwargs: Any, given: Sequence[Tensor], output: Tensor
    ) -> _Seen:
        """Return what a function makes of the scores that it is given."""
        made = _Seen(output)
        own = [self._of(t) for t in given]
        score = next((seen.score for seen in own if seen.score is not None), None)
        if name in TIMES and len(given) == 2:
            made.factors = given[0], given[1]
            made.score = self._multiplied(score, own, output)
        elif name in OVER and given and own[0].score is not None:
            made.score = own[0].score
            made.score.tensor = output
            self._leave_out(own[1:], made.score)
        elif name in TIMES | OVER and len(given) == 1:
            made.score = score
            if score is not None:
                score.tensor = output
        elif name == "einsum":
            self._leave_out([seen for seen in own if seen.inverse], None)
        elif name in VIEWS | ADDS | CAPS:
            made.score = score
            made.factors = own[0].factors if name in VIEWS and own else None
            if name in VIEWS and score is not None and score.tensor is given[0]:
                score.tensor = output
        if name in SIZES | INVERSES:
            scores = {seen.score for seen in own if seen.score is not None}
            made.size_of = frozenset(scores).union(*(seen.size_of for seen in own))
            made.inverse = name in INVERSES or any(seen.inverse for seen in own)
        return made

    def _multiplied(
        self, score: Score | None, own: Sequence[_Seen], output: Tensor
    ) -> Score | None:
        """Return the scores that a product with another tensor is, if that is a mere factor."""
        for first, second in (own, own[::-1]):
            if first.score is not None and (second.inverse or not second.data):
                first.score.tensor = output
                if second.inverse:
                    self._leave_out([second], first.score)
                return first.score
            if first.inverse:
                self._leave_out([first], None)
        return None

    def _leave_out(self, divisors: Sequence[_Seen], but: Score | None) -> None:
        """Leave out the scores that others are divided by."""
        for seen in divisors:
            for score in (seen.score, *seen.size_of):
                if score is not None and score is not but:
                    score.needed = False


def _sums_in(
    name: str, args: tuple, kwargs: Any, output: Tensor, factors: tuple[Tensor, Tensor] | None
) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Yield the two sides of each sum over products that a function computes, and its terms."""
    if name in PRODUCTS:
        one, other = [t for t in tensors_in((args, kwargs)) if t.is_floating_point()][:2]
        yield one, other, one.shape[-1]
    elif name == "baddbmm" and len(args) > 2:
        yield args[1], args[2], args[1].shape[-1]
    elif name == "einsum" and args and isinstance(args[0], str):
        yield from _of_einsum(args[0], list(tensors_in(args[1:])))
    elif name == "sum" and factors is not None and factors[0] is not factors[1]:
        whole = torch.broadcast_shapes(*(t.shape for t in factors))
        if all(_varies(t, whole, args, kwargs) for t in factors):
            yield *factors, prod(whole) // max(1, output.numel())


def _varies(factor: Tensor, whole: tuple[int, ...], args: tuple, kwargs: Any) -> bool:
    """Whether a factor of summed products has an entry of its own for each term."""
    axes = args[1] if len(args) > 1 else kwargs.get("dim")
    product = args[0] if args else kwargs["input"]
    if product.shape != whole or axes is None:
        return factor.shape == whole
    axes = [axes] if isinstance(axes, int) else axes
    places = [axis - len(whole) if axis >= 0 else axis for axis in axes]
    return all(-i <= factor.ndim and factor.shape[i] == whole[i] for i in places)


def _of_einsum(equation: str, operands: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor, int]]:
    left, _, right = equation.replace(" ", "").replace("...", "").partition("->")
    letters = left.split(",")
    if "->" not in equation:
        right = "".join(a for a in set(left) - {","} if left.count(a) == 1)
    for j, (more, other) in enumerate(zip(letters, operands, strict=False)):
        for own, one in zip(letters[:j], operands, strict=False):
            shared = (set(own) & set(more)) - set(right)
            if shared:
                # Axes that an ellipsis stands for come first.
                yield one, other, prod(one.shape[own.index(a) - len(own)] for a in shared)


def along_numbers(z: Tensor, seed: int) -> Tensor:
    """Return the mean of a tensor times fixed Gaussian numbers."""
    return (z * torch.randn(z.shape, generator=torch.Generator().manual_seed(seed)).to(z)).mean()


def along_itself(z: Tensor, axis: int | None, seed: int) -> Tensor:
    """Return the mean of a tensor along a direction; ``axis``: that of it which grows, if any.

    What is read from a memory, Σ (q·k) v, moves along few of the directions of v. They are combined
    by fixed numbers from the vectors of the tensor itself.
    """
    if axis is None:
        return along_numbers(z, seed)
    vectors = z.movedim(axis, -1).flatten(0, -2)
    own = vectors.detach()
    shape, generator = (MIXED, len(own), 1), torch.Generator().manual_seed(seed)
    shares = torch.randn(shape, generator=generator).to(own)
    direction = sum(share * own.roll(i, 0) for i, share in enumerate(shares))
    size = own.square().mean().sqrt()
    return (vectors * direction).mean() / size if size > 0 else along_numbers(z, seed)
