"""Rules of primitives that multiply neurons by parameters, or add these to outputs."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.reading.calls import Param, Ref, registering
from largen.reading.engine.calls import Affine, Computed, Offset, Pending, Rule
from largen.reading.jax.population.run import Dual, Population, differentiated
from largen.reading.refusals import refused

RULES: dict[str, Rule] = {}
ONE = (1.0, 1.0)
Found = list[Dual] | None  # None for a primitive that runs as it is

# For functions of a population, a call and its primitive, by names of primitives.
rule = registering(RULES)


def _factors(population: Population, call: Pending, weight: Param) -> Any:
    """Return the factors of a weight, at both widths, of the forward pass as well."""
    pairs = population.widths.factors(call.index), population.factors(weight, call)
    one, two = (a * b for a, b in zip(*pairs, strict=True))
    return (one, two), ONE


class _Product(NamedTuple):
    """A product of a value and a weight: their axes that are summed, and those of the batch."""

    weight: Param
    place: int  # of the value among the arguments
    summed: tuple[tuple[int, ...], tuple[int, ...]]  # of the value, of the weight
    batch: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def free(self) -> list[int]:
        """The other axes of the weight."""
        rank = len(self.weight.axes or ())
        return [i for i in range(rank) if i not in (*self.summed[1], *self.batch[1])]


def _product(population: Population, call: Pending) -> _Product | None:
    """Return a product with one weight, whose new axes are of values; None for another."""
    weights = [each for each in call.args if isinstance(each, Param)]
    if len(weights) != 1:
        return None
    place = int(call.args[0] is weights[0])
    summed, batched = ((pair[place], pair[1 - place]) for pair in call.kwargs["dimension_numbers"])
    found = _Product(weights[0], place, summed, batched)
    shape = population.shapes[1 - place]
    added = [i for i, axis in enumerate(weights[0].axes or ()) if axis is None]
    return found if all(i in found.free and shape[i] == 1 for i in added) else None


@rule("dot_general")
def _(population: Population, call: Pending, primitive: Any) -> Found:
    product = _product(population, call)
    if product is None:
        return None
    weight, value = product.weight, call.args[product.place]
    axes: Any = weight.axes or ()
    shape, wide = population.shape(weight), population.widths.wide(Param(weight.name))
    grow = [axes[i] for i in product.free if axes[i] in wide]
    last = axes[product.free[-1]] if product.free else len(axes)
    sizes = [weight.seen(shape)[i] for i in product.free]
    affine = Affine(
        weight.name, None, tuple(axes[i] for i in product.summed[1]), grow[0] if grow else last, -1,
        _same, _factors(population, call, weight), math.prod(sizes),
    )  # fmt: skip
    if not set(affine.fan_in) & set(wide):
        return _few(population, call, primitive, weight, value, affine)
    if any(axes[i] in wide for i in product.batch[1]):
        raise population.refused(call, "a number of matrices that grows with the width has no rule")
    return _by_matrices(population, call, product, sizes, affine)


def _by_matrices(
    population: Population, call: Pending, product: _Product, sizes: list[int], affine: Affine
) -> list[Dual]:
    """Return a product with a matrix, or with one for each index of a batch."""
    (summed, _), (batched, _), weight = product.summed, product.batch, product.weight
    x = population.tensors(call.args[product.place], call)
    rows = [i for i in range(x.value.ndim) if i not in (*summed, *batched)]
    batch, kept = ([x.value.shape[i] for i in axes] for axes in (batched, rows))
    count = math.prod(batch)
    x = x.moved(lambda t: jnp.transpose(t, (*batched, *rows, *summed)).reshape(count, *kept, -1))
    found = []
    for n in range(count):
        each = affine._replace(part=f"[{n}]" if batch else "")
        part = x.moved(lambda t, n=n: t[n])
        found.append(population.affine(call, Computed(part), each, _fails))
    ends = np.cumsum([0, len(batch), len(kept), len(sizes)])
    of_batch, of_rows, of_free = (list(range(*pair)) for pair in pairwise(ends.tolist()))
    order = of_batch + (of_free + of_rows if product.place else of_rows + of_free)

    def placed(parts: list[Any]) -> Any:
        whole = jnp.stack(parts).reshape(*batch, *kept, *sizes) * weight.factor
        return jnp.transpose(whole, order)

    population.note_product(call, weight.name, lambda t: placed([t]))
    return [Dual(placed([f.value for f in found]), placed([f.derivative for f in found]))]


def _few(
    population: Population, call: Pending, primitive: Any, weight: Param, value: Any, its: Affine
) -> list[Dual]:
    """Return a product with the few entries of each neuron."""

    def native(x: Dual, entries: Dual, bias: Any) -> list[Dual]:
        arranged = population.arranged(weight, entries)
        given = [arranged if each is weight else x for each in call.args]
        return differentiated(primitive, call.kwargs, given)

    found = population.affine(call, value, its, native)
    population.note_product(call, weight.name)
    return found


@rule("conv_general_dilated")
def _(population: Population, call: Pending, primitive: Any) -> Found:
    value, weight = call.args
    options = call.kwargs
    if not isinstance(weight, Param) or isinstance(value, Param):
        raise population.refused(call, "its weight is computed from parameters, or no parameter")
    axes: Any = weight.axes or ()
    inside, of_weight, behind = (tuple(spec) for spec in options["dimension_numbers"])
    if options["batch_group_count"] != 1 or None in axes:
        raise population.refused(call, "groups of samples have no rule")
    fan_out, *fan_in = (axes[place] for place in of_weight)
    shape, wide = population.shape(weight), population.widths.wide(Param(weight.name))
    window = tuple(shape[axis] for axis in fan_in[1:])
    taps = math.prod(window)
    spaces = {
        name: options[name]
        for name in ("window_strides", "padding", "lhs_dilation", "rhs_dilation")
    }

    def move(features: np.ndarray) -> np.ndarray:
        rank = features.shape[-1]
        one = jnp.tile(jnp.eye(taps).reshape(taps, 1, *window), (rank, *(1 for _ in (1, *window))))
        moved = lax.conv_general_dilated(
            jnp.moveaxis(jnp.asarray(features), -1, 1), one, **spaces, feature_group_count=rank
        )
        return np.asarray(jnp.moveaxis(moved, 1, -1)) / math.sqrt(taps)

    affine = Affine(
        weight.name, None, tuple(fan_in), fan_out, 1, move, _factors(population, call, weight),
        shape[fan_out],
    )  # fmt: skip
    if not set(fan_in) & set(wide):
        return _few(population, call, primitive, weight, value, affine)
    if options["feature_group_count"] > 1:
        raise population.refused(
            call, "its groups have to be of channels whose number does not grow with the width"
        )
    x = population.tensors(value, call).moved(lambda t: jnp.transpose(t, inside))
    found = population.affine(call, Computed(x), affine, _fails)
    back = tuple(np.argsort(behind).tolist())

    def placed(t: Any) -> Any:
        return jnp.transpose(t, back) * weight.factor

    population.note_product(call, weight.name, placed)
    return [found.moved(placed)]


@rule("gather")
def _(population: Population, call: Pending, primitive: Any) -> Found:
    table, ids = call.args
    if not isinstance(table, Param):
        return None
    count, channels = population.shape(table)[0], population.shape(table)[1:]
    if table.axes != (0, 1) or call.kwargs["slice_sizes"] != (1, *channels):
        raise population.refused(
            call, f"it takes other parts of {table.name} than rows; table[ids] has a rule"
        )
    # Which row each part of the result is from shows in a table of the numbers of its rows.
    indices = population.tensors(ids, call)
    numbers = Dual(jnp.arange(count, dtype=float)[:, None]), indices
    (found,) = differentiated(primitive, {**call.kwargs, "slice_sizes": (1, 1)}, numbers)
    axis = call.kwargs["dimension_numbers"].offset_dims[-1]
    largest = float(indices.value.max())  # where there is no row
    rows = np.nan_to_num(np.asarray(found.value), nan=largest).squeeze(axis).astype(int)
    made = population.rows(table.name, rows, None, call, population.factors(table, call))
    return [made.moved(lambda t: jnp.moveaxis(t, -1, axis) * table.factor)]


@rule("add", "sub", "add_any")
def _(population: Population, call: Pending, primitive: Any) -> Found:
    one, two = call.args
    bias, other = (one, two) if isinstance(one, Param) else (two, one)
    if not isinstance(bias, Param) or not isinstance(other, Ref):
        return None
    law, last = population.widths.law(bias.name), population.read_out
    grows = population.widths.wide(Param(bias.name))
    behind = last is not None and last.index in population.before([other.place])
    if grows or law.kind == "constant" or not behind:
        if len(grows) == 1:
            population.note_bias(call, other.place, bias)
        return None
    if law.mean:
        raise refused(bias.name, "outputs have a constant offset at initialisation")
    population.note_bias(call, other.place, bias)
    value = population.tensors(other, call)
    shape = population.shape(bias)
    units = Dual(jnp.eye(math.prod(shape)).reshape(-1, *shape))
    parts = jnp.stack([population.arranged(bias, Dual(unit)).value for unit in units.value])
    parts = jnp.broadcast_to(parts, (len(parts), *value.value.shape))
    variance = population.constants.variance(bias.name, (), population.factors(bias, call))
    rate = population.own_rate(bias.name, variance)
    population.offsets.append(Offset(call.index, np.asarray(parts), variance, rate))
    return [value]


def _same(features: np.ndarray) -> np.ndarray:
    return features


def _fails(*given: Any) -> Any:
    raise AssertionError("its inputs grow in number")
