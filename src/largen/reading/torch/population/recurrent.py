"""Rules of PyTorch's recurrent cells and of its layers of them, which are unrolled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from largen.reading.engine.calls import Computed, Pending
from largen.reading.torch.population.maps import Form, product, rule
from largen.reading.torch.population.run import Population

State = tuple[Tensor, ...]  # the hidden values, and with an LSTM its cells


def _lstm(x: Tensor, h: Tensor, state: State) -> State:
    i, f, g, o = (x + h).chunk(4, -1)
    cells = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cells), cells


def _gru(x: Tensor, h: Tensor, state: State) -> State:
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, -1), h.chunk(3, -1)
    z = torch.sigmoid(xz + hz)
    return ((1 - z) * torch.tanh(xn + torch.sigmoid(xr + hr) * hn) + z * state[0],)


CELLS: dict[str, Callable[[Tensor, Tensor, State], State]] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": lambda x, h, state: (torch.tanh(x + h),),
    "rnn_relu": lambda x, h, state: (torch.relu(x + h),),
}


def _step(
    population: Population, call: Pending, cell: str, x: Tensor, state: State, weights: Any
) -> State:
    """Return the state behind a step, with weights of the input, of the state, and biases."""
    gates = [
        product(
            population, call, Computed(value), weight, bias, Form((1,), 0, 1), F.linear,
            whole=False,
        )
        for value, weight, bias in zip((x, state[0]), weights[:2], weights[2:], strict=True)
    ]  # fmt: skip
    return CELLS[cell](gates[0], gates[1], state)


@rule("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def _(
    population: Population, call: Pending, input: Any, hx: Any, w_ih: Any, w_hh: Any,
    b_ih: Any = None, b_hh: Any = None,
) -> Any:  # fmt: skip
    x, given = population.tensors(input, call), population.tensors(hx, call)
    state = given if isinstance(given, tuple) else (given,)
    cell = call.op.removesuffix("_cell")
    found = _step(population, call, cell, x, state, (w_ih, w_hh, b_ih, b_hh))
    return found if isinstance(given, tuple) else found[0]


@rule("lstm", "gru", "rnn_tanh", "rnn_relu")
def _(  # noqa: PLR0913  (the arguments of PyTorch)
    population: Population, call: Pending, input: Any, hx: Any, params: Any, has_biases: Any,
    num_layers: Any, dropout: Any = 0.0, train: Any = False, bidirectional: Any = False,
    batch_first: Any = False,
) -> Any:  # fmt: skip
    if not isinstance(has_biases, bool) or bidirectional or (train and dropout):
        raise population.refused(call, "packed, bidirectional and dropped sequences have no rule")
    x, given = population.tensors(input, call), population.tensors(hx, call)
    start = given if isinstance(given, tuple) else (given,)
    if x.ndim != 3:
        raise population.refused(call, "wanted a batch of sequences")
    steps = list(x.unbind(1 if batch_first else 0))
    ends: list[State] = []
    size = 4 if has_biases else 2
    for layer in range(num_layers):
        weights = [*params[layer * size : (layer + 1) * size], *([None, None] * (not has_biases))]
        state = tuple(each[layer] for each in start)
        for place, value in enumerate(steps):
            state = _step(population, call, call.op, value, state, weights)
            steps[place] = state[0]
        ends.append(state)
    lasts = [torch.stack(each) for each in zip(*ends, strict=True)]
    return torch.stack(steps, 1 if batch_first else 0), *lasts
