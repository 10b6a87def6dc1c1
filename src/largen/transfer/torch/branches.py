"""Finding residual branches, by tracing forward passes symbolically.

A sum is residual if one of its terms, the branch, is computed from the other, the trunk:
x + f(x). Tracing stops at a module's own parts, so that only its own forward pass must be
traceable, not what its parts do. From each sum one learns which parts make up the branch, and
where it ends: in an affine layer, into which l^(−α) can be folded, or in a module whose output is
multiplied.
"""

from __future__ import annotations

import inspect
import operator
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import get_ident
from typing import Any

import torch
from torch import fx, nn

from largen.transfer.torch.layouts import CONVOLUTIONS, TRANSPOSED, is_norm
from largen.transfer.torch.process import ALONE
from largen.transfer.torch.residual import Residual

SUMS = (operator.add, operator.iadd, torch.add)
AFFINE = (nn.Linear, *CONVOLUTIONS, *TRANSPOSED)
LINEAR = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.Identity, nn.Flatten)
# Functions that pass a factor on: from their first argument to their value.
PASSING = {
    operator.mul, operator.truediv, operator.neg, operator.getitem, operator.imul,
    torch.mul, torch.div, torch.permute, torch.transpose, torch.reshape, torch.flatten,
    nn.functional.dropout,
}  # fmt: skip
PASSING_METHODS = {
    "mul", "mul_", "div", "view", "reshape", "permute", "transpose", "contiguous", "flatten",
    "unflatten", "squeeze", "unsqueeze", "to", "type_as", "float", "clone",
}  # fmt: skip


@dataclass(frozen=True)
class Branch:
    """One residual branch of a block.

    Attributes
    ----------
    end
        Path of the part where it ends.
    affine
        Whether that part is an affine layer or a norm with weights, so that a factor of the
        branch can be folded into it.
    members
        Paths of all parts and weights within the branch.
    """

    end: str
    affine: bool
    members: frozenset[str]

    def below(self, path: str) -> Branch:
        """Return the branch with paths seen from above."""
        return replace(
            self,
            end=join(path, self.end),
            members=frozenset(join(path, member) for member in self.members),
        )


class NotResidual(Exception):
    """No residual sum was found where one is needed; the message says what was found instead."""


def residual_branches(module: nn.Module) -> tuple[Branch, ...]:
    """Return the branches of a module's own sums, and of its parts that are in none of them.

    Raises
    ------
    NotResidual
        If there are none, or the forward pass cannot be traced, or a branch ends in no module.
    """
    if isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        return _of_torch_transformer(module)
    if isinstance(module, Residual):
        end, affine = _end_of(module.branch, "branch")
        return (Branch(end, affine, frozenset({"branch"})),)
    graph = _traced(module)
    found = [_branch(branch, trunk, module) for trunk, branch in _residual_sums(graph)]
    inside = {member for branch in found for member in branch.members}
    for node in graph.nodes:
        path = str(node.target)
        if node.op == "call_module" and path not in inside:
            part = module.get_submodule(path)
            if any(True for _ in part.children()):
                with suppress(NotResidual):
                    found.extend(branch.below(path) for branch in residual_branches(part))
    if not found:
        raise NotResidual(f"{type(module).__name__} adds nothing to its input")
    return tuple(found)


def _of_torch_transformer(layer: Any) -> tuple[Branch, ...]:
    """PyTorch's own layers, whose forward pass branches on values."""
    attentions = ["self_attn"]
    if isinstance(layer, nn.TransformerDecoderLayer):
        attentions.append("multihead_attn")
    found = []
    for i, name in enumerate(attentions):
        norm = {f"norm{i + 1}"} if layer.norm_first else set()
        found.append(Branch(f"{name}.out_proj", True, frozenset({name, *norm})))
    norm = {f"norm{len(attentions) + 1}"} if layer.norm_first else set()
    found.append(Branch("linear2", True, frozenset({"linear1", "linear2", *norm})))
    return tuple(found)


class _Shallow(fx.Tracer):
    """Traces a module's own forward pass; its parts are left whole.

    While it traces, calls of modules by other threads come here, too, and are passed on.
    """

    def __init__(self):
        super().__init__()
        self._thread = get_ident()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True

    def call_module(self, m: nn.Module, forward: Any, args: tuple, kwargs: dict) -> Any:
        ours = get_ident() == self._thread
        return super().call_module(m, forward, args, kwargs) if ours else forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict) -> Any:
        ours = get_ident() == self._thread
        return super().getattr(attr, attr_val, parameter_proxy_cache) if ours else attr_val


def _traced(module: nn.Module) -> fx.Graph:
    parameters = inspect.signature(module.forward).parameters.values()
    defaults = {
        p.name: p.default
        for p in parameters
        if p.default is not inspect.Parameter.empty and p.kind is not p.KEYWORD_ONLY
    }
    try:
        with ALONE:
            return _Shallow().trace(module, concrete_args=defaults or None)
    except Exception as error:
        raise NotResidual(
            f"the forward pass of {type(module).__name__} cannot be traced ({error})"
        ) from None


def _result(graph: fx.Graph) -> Any:
    value = next(node for node in graph.nodes if node.op == "output").args[0]
    return value[0] if isinstance(value, (tuple, list)) and value else value


def _residual_sums(graph: fx.Graph) -> list[tuple[fx.Node, fx.Node]]:
    """Return (trunk, branch) of every sum of which one term is computed from the other."""
    ancestors: dict[fx.Node, set[fx.Node]] = {}
    found = []
    for node in graph.nodes:
        inputs = node.all_input_nodes
        ancestors[node] = set(inputs).union(*(ancestors[n] for n in inputs))
        method = node.op == "call_method" and node.target in ("add", "add_")
        if (method or node.target in SUMS) and len(node.args) >= 2:
            a, b = node.args[:2]
            if isinstance(a, fx.Node) and isinstance(b, fx.Node):
                if a in ancestors[b]:
                    found.append((a, b))
                elif b in ancestors[a]:
                    found.append((b, a))
    return found


def _branch(end: Any, trunk: Any, module: nn.Module) -> Branch:
    members: set[str] = set()
    stack, seen = [end], {trunk}
    while stack:
        node = stack.pop()
        if not isinstance(node, fx.Node) or node in seen or node.op == "placeholder":
            continue
        seen.add(node)
        if node.op in ("call_module", "get_attr"):
            members.add(str(node.target))
        stack.extend(node.all_input_nodes)
    path, affine = _end(end, module)
    return Branch(path, affine, frozenset(members))


def _end(node: Any, module: nn.Module) -> tuple[str, bool]:
    """Return the part whose output a branch is, up to what passes a factor on."""
    if isinstance(node, fx.Node) and node.op == "call_module":
        part = module.get_submodule(str(node.target))
        if isinstance(part, LINEAR):
            return _end(node.args[0], module)
        return _end_of(part, str(node.target))
    if isinstance(node, fx.Node) and node.op in ("call_function", "call_method"):
        passing = node.target in (PASSING if node.op == "call_function" else PASSING_METHODS)
        inputs = [n for n in node.all_input_nodes if n.op != "get_attr"]
        if passing and len(inputs) == 1:
            return _end(inputs[0], module)
    what = getattr(node, "target", node)
    raise NotResidual(f"a branch of {type(module).__name__} ends in {what}, not in a module")


def _end_of(part: nn.Module, path: str) -> tuple[str, bool]:
    """Return the part of a branch's last module whose weights can take up a factor, if any."""
    if isinstance(part, nn.MultiheadAttention):
        return join(path, "out_proj"), True
    if isinstance(part, AFFINE) or (is_norm(part) and getattr(part, "weight", None) is not None):
        return path, True
    try:
        inner, affine = _end(_result(_traced(part)), part)
    except NotResidual:
        return path, False
    return (join(path, inner), affine) if affine else (path, False)


def join(path: str, name: str) -> str:
    """Join two paths, either of which may be empty."""
    return f"{path}.{name}" if path and name else path or name
