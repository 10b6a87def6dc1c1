"""Factors of the tangent kernel of a PyTorch module, and the kernel from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from largen.networks.tangents.contraction import Factored, Site, product_of_factors, way_of
from largen.transfer.torch.tangent_uses import Read, Recorder, by_sample


class Factors(NamedTuple):
    """The derivative by a parameter: of its uses, or as rows (sample, output, entry)."""

    # sites, pairs: the uses, with a, (sample, position, ...), and δ, (sample, output, position,
    # ...).
    sites: Sequence[Site]
    pairs: Sequence[tuple[Tensor, Tensor]]
    # The derivative, for a parameter without uses in affine maps or where it is cheaper.
    rows: Tensor | None = None

    def as_rows(self) -> Tensor:
        """Return Σ_t a_t ⊗ δ_t, with the entries in the order of the parameter."""
        if self.rows is not None:
            return self.rows
        parts = []
        for site, (a, d) in zip(self.sites, self.pairs, strict=True):
            names = _axes(site)
            parts.append(
                torch.einsum(
                    a, [0, 1, *(names[label] for label in site.of_input)],
                    d, [0, 2, 1, *(names[label] for label in site.of_output)],
                    [0, 2, *names.values()],
                ).flatten(2)
            )  # fmt: skip
        return sum(parts[1:], start=parts[0])


def _axes(site: Site) -> dict[Any, int]:
    """Return a number for each label, in the order of the parameter's axes."""

    def place(label):
        return (0, label[0] == "within") if isinstance(label, tuple) else (label, False)

    labels = sorted({*site.of_input, *site.of_output}, key=place)
    return {label: 3 + i for i, label in enumerate(labels)}


def product(
    one: Mapping[str, Factors], two: Mapping[str, Factors], rates: Mapping[str, float]
) -> Any:
    """Return the kernel between two sets of samples, (n1, output, n2, output); 0 without uses."""
    total: Any = torch.zeros(())
    for name in {**one}.keys() & {**two}.keys():
        left, right = one[name], two[name]
        if left.rows is not None or right.rows is not None:
            part = torch.tensordot(left.as_rows(), right.as_rows(), ([2], [2]))  # type: ignore[arg-type]
        else:
            part = sum(
                product_of_factors(torch.einsum, s, t, a, b)
                for s, a in zip(left.sites, left.pairs, strict=True)
                for t, b in zip(right.sites, right.pairs, strict=True)
            )
        total = total + rates.get(name, 1.0) * part
    return total


def factors(
    model: nn.Module, parameters: Mapping[str, Tensor], x: Tensor, samples: tuple[int, int]
) -> tuple[dict[str, Factors], int]:
    """Return the factors of all parameters that are used, and how many numbers a sample holds.

    ``samples`` of the whole kernel decide what is cheaper.
    """
    with Recorder(parameters) as recorder:
        out = model(x)
    out = out.reshape(len(x), -1)
    if not out.requires_grad:
        return {}, 0
    targets = [use.output for use in recorder.uses]
    noise = torch.randn(out.shape, generator=torch.Generator().manual_seed(0)).to(out)
    mixed = _gradients((noise * out).sum(), [*targets, *parameters.values()])
    total = dict(zip(parameters, mixed[len(targets) :], strict=True))
    used = {name: gradient for name, gradient in total.items() if gradient is not None}
    of_names = {}
    for name, pairs in _pairs_by_name(recorder, out, noise, mixed).items():
        of_uses = Factors([site for site, _ in pairs], [pair for _, pair in pairs])
        if name in used and _complete(of_uses, noise, used[name]):
            of_names[name] = _cheaper(of_uses, out.shape[1], samples)
    rows = _rows(out, {name: parameters[name] for name in used if name not in of_names})
    of_names |= {name: Factors((), (), row) for name, row in rows.items()}
    held = sum(map(_numbers, of_names.values()))
    held += sum(output.numel() for output in targets) * (out.shape[1] + 1)
    return of_names, held // len(x)


def _pairs_by_name(
    recorder: Recorder, out: Tensor, noise: Tensor, mixed: Sequence[Any]
) -> dict[str, list[tuple[Site, tuple[Tensor, Tensor]]]]:
    """Return the factors of all uses of each parameter, of those that have no other uses.

    ``mixed``: the gradients of Σ noise · out by the outputs of all uses, in their order.
    """
    targets = [use.output for use in recorder.uses]
    parts = [_gradients(out[:, o].sum(), targets) for o in range(out.shape[1])]
    pairs: dict[str, list[tuple[Site, tuple[Tensor, Tensor]]]] = {}
    plain = set(recorder.plain)
    for number, use in enumerate(recorder.uses):
        if mixed[number] is None or use.name in plain:
            continue
        zero = torch.zeros_like(use.output)
        cotangents = [zero if part[number] is None else part[number] for part in parts]
        pair = _paired(use.read, cotangents, mixed[number], noise)
        if pair is None:
            plain.add(use.name)
        else:
            site = Site(number, use.read.of_input, use.read.of_output)
            pairs.setdefault(use.name, []).append((site, pair))
    return {name: own for name, own in pairs.items() if name not in plain}


def _numbers(found: Factors) -> int:
    if found.rows is not None:
        return found.rows.numel()
    return sum(a.numel() + d.numel() for a, d in found.pairs)


def _gradients(value: Tensor, targets: Sequence[Tensor]) -> Sequence[Any]:
    if not targets:
        return ()
    return torch.autograd.grad(value, targets, retain_graph=True, allow_unused=True)


def _paired(
    read: Read, cotangents: Sequence[Tensor], mixed: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Return a and δ by samples, if gradients of a sample are those of its outputs alone.

    With δ_j = Σ_i ∂f_i/∂h_j, the gradient of Σ_i u_i f_i by h_j is u_j δ_j for random u only if no
    other sample's output depends on h_j. Samples are the first or the last axis of positions.
    """
    n = len(noise)
    for first in (True, False):
        total = by_sample(read.arrange(mixed), read.positions, n, first)
        if total is None:
            return None
        whole = [by_sample(read.arrange(c), read.positions, n, first) for c in cotangents]
        delta = torch.stack(whole, 1)  # type: ignore[arg-type]
        if not _near(torch.einsum("no,no...->n...", noise, delta), total):
            continue
        if read.operand is None:
            return delta.new_ones(total.shape[:2]), delta
        operand = by_sample(read.operand, read.positions, n, first)
        return None if operand is None else (operand, delta)
    return None


def _near(found: Tensor, wanted: Tensor) -> bool:
    tolerance = 10 * torch.finfo(wanted.dtype).eps ** (2 / 3)
    return bool((found - wanted).norm() <= tolerance * wanted.norm())


def _complete(found: Factors, noise: Tensor, gradient: Tensor) -> bool:
    """Whether factors give a gradient of the batch, so that no use has been missed."""
    if len({frozenset(_axes(site)) for site in found.sites}) > 1:
        return False
    mixed = [(a, torch.einsum("no,no...->n...", noise, d)[:, None]) for a, d in found.pairs]
    return _near(found._replace(pairs=mixed).as_rows().sum((0, 1)), gradient.flatten())


def _cheaper(found: Factors, outputs: int, samples: tuple[int, int]) -> Factors:
    """Return the factors, or rows where the products of factors would take longer."""
    sizes: dict[Any, int] = {}
    for site, (a, d) in zip(found.sites, found.pairs, strict=True):
        sizes.update(zip(site.of_input, a.shape[2:], strict=True))
        sizes.update(zip(site.of_output, d.shape[3:], strict=True))
    positions = [a.shape[1] for a, _ in found.pairs]
    if isinstance(way_of(found.sites, positions, sizes, outputs, samples), Factored):
        return found
    return Factors((), (), found.as_rows())


def _rows(out: Tensor, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the derivatives of all outputs by some parameters, one backward pass for each."""
    if not parameters:
        return {}
    found = []
    for value in out.flatten():
        gradients = _gradients(value, list(parameters.values()))
        found.append(
            [
                torch.zeros(p.numel()).to(out) if g is None else g.flatten()
                for g, p in zip(gradients, parameters.values(), strict=True)
            ]
        )
    rows = [torch.stack(row).reshape(*out.shape, -1) for row in zip(*found, strict=True)]
    return dict(zip(parameters, rows, strict=True))
