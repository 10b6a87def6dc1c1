"""Placement of the factors of attention logits, and of other products of two signals."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from largen.errors import InvalidInput
from largen.parameterizations import Parameterization, Power
from largen.transfer.constants import NO_LOGITS
from largen.transfer.rules import attention_multiplier
from largen.transfer.schemes import as_built
from largen.transfer.torch.attention import (
    Attention,
    NoPlace,
    Pair,
    built_power,
    heads_count_ratio,
    heads_ratio,
    place_of,
)
from largen.transfer.torch.factors import Factors
from largen.transfer.torch.logits import Logits
from largen.transfer.torch.products import Scores
from largen.transfer.torch.reading import Reading, all_of
from largen.transfer.torch.walks import walk
from largen.transfer.torch.widths import module_at


def put_on_logits(
    factors: Factors, param: Parameterization, named: Mapping[str, float] | None
) -> None:
    """Put the factors of attention logits on queries, those of ``named`` if they are given."""
    facts = factors.facts
    if factors.logits == 1.0 and (as_built(param) or not facts.widens):
        return
    if named is None and facts.reading is not None:
        for pair in facts.reading.logits:
            power = attention_multiplier(param, built_power(facts.reading, pair))
            _put(factors, facts.reading, pair, power, factors.logits)
        for scores in facts.reading.scores:
            _put_on_scores(factors, facts.reading, scores, param)
    power = attention_multiplier(param)
    for pattern, ratio in (named or {}).items():
        for path in facts.matching("attention", [pattern]):
            _put_on_queries(factors, path, power, float(ratio))
    if factors.logits != 1.0 and "attention" not in _kinds(factors):
        raise InvalidInput(NO_LOGITS)


def _kinds(factors: Factors) -> set[str]:
    """Return the kinds of all factors."""
    return {each.kind for each in (*chain(*factors.folds.values()), *factors.forward)}


def _put_on_scores(
    factors: Factors, reading: Reading, scores: Scores, param: Parameterization
) -> None:
    """Put the factor of products that no softmax reads, or note why they have none."""
    own = scores.base
    where = reading.base.record.nodes[own.node].module or "the model"
    if scores.built is None:
        factors.notes.append(
            f"products of signals in {where} have unlike powers of the width, and no factor"
        )
        return
    power = attention_multiplier(param, scores.built)
    logits = 1.0 if scores.of_weights else factors.logits
    if logits == 1.0 and power == Power():
        return
    if not scores.of_weights and _of_one_sign(reading, own) and reading.cancels(own):
        factors.notes.append(
            f"the sums of products in {where} are of one sign and divided by their own sum, which "
            "cancels a factor: they have none"
        )
        return
    try:
        _put(factors, reading, (own, scores.wide), power, logits)
    except NoPlace as error:
        factors.notes.append(f"products of signals have no factor. {error}")


def _of_one_sign(reading: Reading, own: Logits) -> bool:
    """Whether a product has two positive sides, so that its terms add up before training, too."""
    nodes = reading.base.record.nodes
    return any(
        all(bool((nodes[i].value >= 0).all()) for i in (product.queries, product.keys))
        for product in own.products
    )


def _put(factors: Factors, reading: Reading, pair: Pair, power: Power, logits: float) -> None:
    """Fold the factor of one attention's logits, or keep it in the forward pass."""
    ratio = heads_ratio(reading, pair, factors.facts.sizes)
    if logits == 1.0 and (ratio == 1.0 or power == Power()):
        return
    place = place_of(reading, pair[0], heads_count_ratio(reading, pair, factors.facts.sizes))
    if place.weights:
        record = reading.base.record
        end = next(iter(walk(record, _side(reading, pair, place)).ends))
        module = module_at(record, end)
        n = factors.ratio_of(place.weights[0])
        own = _in_terms_of(power, ratio, n) * Power(logits)
        if factors.fold or module is None:
            factors.fold_all(place.weights, "attention", own)
        else:
            factors.keep_all(module, "attention", "output", own, n)
    elif place.module is not None:
        own = power * Power(logits)
        factors.keep_all(place.module, "attention", place.where, own, ratio)


def _side(reading: Reading, pair: Pair, place: Attention) -> int:
    """Return the side of the product that the weights multiply."""
    product = pair[0].products[0]
    weights = all_of(walk(reading.base.record, product.queries))
    return product.queries if set(weights) <= set(place.weights) else product.keys


def _put_on_queries(factors: Factors, module: str, power: Power, ratio: float) -> None:
    """Put the factor on queries that the user names."""
    held = factors.facts.weights_of(module)
    n = factors.facts.ratio(held[0]) if held else 1.0
    own = _in_terms_of(power, ratio, n) * Power(factors.logits)
    if factors.logits == 1.0 and (ratio == 1.0 or power == Power()):
        return
    if factors.fold and held:
        factors.put(module, "attention", own)
    else:
        factors.keep(module, "attention", "output", own, n)


def _in_terms_of(power: Power, ratio: float, n: float) -> Power:
    """Return a power of the heads' ratio as a power of a weight's own n."""
    return power if n == ratio else Power(ratio ** float(power.width))
