"""Places of the forward pass for factors, and refusals of models without one."""

from __future__ import annotations

from typing import NoReturn

from largen.errors import InvalidInput
from largen.transfer.torch.logits import users
from largen.transfer.torch.reading import Reading
from largen.transfer.torch.recording import Record
from largen.transfer.torch.streams import Sum
from largen.transfer.torch.walks import End, walk
from largen.transfer.torch.widths import behind

TABLES = ("embedding", "index", "index_select")  # operations that look up rows


def module_of(record: Record, place: int) -> str | None:
    """Return the innermost module whose output is a tensor, up to views and constant factors.

    Its output has no other use, and it is called once: a shared dropout would multiply two
    branches.
    """
    consumers = users(record)
    paths = [call.path for call in record.calls]
    weighted = {node.parameter for node in record.nodes if node.parameter is not None}
    chain = behind(record, place)
    for i, here in enumerate(chain):
        if i and len(consumers[here]) > 1:
            return None
        for call in record.calls:
            if not call.path or call.outputs[:1] != (here,):
                continue
            if paths.count(call.path) == 1 or any(
                name.startswith(f"{call.path}.") for name in weighted
            ):
                return call.path
    return None


def added_to(record: Record, end: End) -> list[str] | None:
    """Return what is added to a product to make the model's output; None if it is not made so."""
    assert record.output is not None
    found = walk(record, record.output)
    if set(found.ends) != {end.node}:
        return None
    return sorted({*found.biases, *found.ends[end.node].biases})


def tables_of(record: Record) -> set[str]:
    """Return the parameters of which rows are taken, as of an embedding."""
    return {
        name
        for node in record.nodes
        if node.op in TABLES and record.nodes[node.inputs[0]].is_weight
        for name in record.parameters(node.inputs[0])
    }


def refuse_branch(reading: Reading, own: Sum) -> NoReturn:
    """Refuse a branch whose end is neither a product with a weight nor a module's output."""
    node = reading.base.record.nodes[own.branch]
    where = reading.base.record.nodes[own.node].module
    kind = type(reading.base.model.get_submodule(where)).__name__
    raise InvalidInput(
        f"branches: {where or 'the model'} ({kind}) adds what its own forward pass makes "
        f"({node.op}), which no weight and no module multiplies. Make it in a module of its "
        "own, or name the modules that branches end in: hints=Hints(branches=[…])."
    )


def refuse_tied(name: str, module: str, looked_up: bool) -> NoReturn:
    """Refuse a tied read-out in front of which there is no place for its factor."""
    what = f"the embedding {name}" if looked_up else f"{name}, which reads the inputs,"
    layer = "the embedding's" if looked_up else "that layer's, transposed"
    raise InvalidInput(
        f"make_model: {what} is the read-out as well, by a function of "
        f"{module or 'the model'}; what it is multiplied with is no module's output, and the "
        "model's output is no sum with it, so that there is nothing to scale. Read out by an "
        f"nn.Linear whose weight is {layer}, or put a norm or a module (nn.ReLU() in place of "
        "torch.relu) in front of it."
    )
