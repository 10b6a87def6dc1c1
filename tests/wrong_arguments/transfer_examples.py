"""A call that works for every public name of transfer and sweeps."""

from __future__ import annotations

from functools import cache, wraps
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from tests.wrong_arguments.examples import Example
from torch import nn

import largen.transfer.jax as in_jax
import largen.transfer.torch as in_torch
from examples.tasks import digits_task, teacher_task
from largen import transfer
from largen.sweeps import (
    BaseTraining,
    Forecast,
    Grid,
    Monitored,
    Pilots,
    Ranges,
    Sweep,
    Task,
    Tuned,
    forecast,
    sweep,
    tune,
)
from largen.transfer.jax import replicas as jax_replicas
from largen.transfer.replicas import Replica
from largen.transfer.torch import replicas as torch_replicas

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)
Y = np.arange(8) % 2
BATCH = torch.tensor(X), torch.tensor(Y)
SIZES = {"base": {"width": 4, "depth": 1}, "target": {"width": 8, "depth": 2}}


class Net(nn.Module):
    """A residual network."""

    def __init__(self, width, depth):
        super().__init__()
        self.read_in, self.read_out = nn.Linear(3, width), nn.Linear(width, 2)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        h = self.read_in(x)
        for block in self.blocks:
            h = h + block(torch.relu(h))
        return self.read_out(h)


def init(key: Any, width: int, depth: int) -> Any:
    blocks = [{"w": jnp.eye(width)} for _ in range(depth)]
    return {"inp": jnp.ones((3, width)), "blocks": blocks, "out": jnp.ones((width, 2))}


def forward(params: Any, x: Any) -> Any:
    h = x @ params["inp"]
    for block in params["blocks"]:
        h = h + jnp.tanh(h) @ block["w"]
    return h @ params["out"]


def activations(params: Any, x: Any) -> Any:
    return {"inp": x @ params["inp"], "out": forward(params, x)}


def jax_loss(params: Any, x: Any) -> Any:
    return (forward(params, x) ** 2).mean()


def loss(model: nn.Module, batch: Any) -> Any:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


@cache
def plan() -> in_torch.TorchPlan:
    return in_torch.scale(Net, **SIZES, optimizer="sgd", scheme="mup")


@cache
def jax_plan() -> in_jax.JaxPlan:
    return in_jax.scale(init, **SIZES, optimizer="sgd", scheme="mup", layout="in_out")


def built() -> nn.Module:
    return plan().build(seed=0)


def optimizer() -> Any:
    return torch.optim.SGD(plan().param_groups(built(), lr=0.1))


@cache
def task() -> Task:
    return Task(X, Y, batch_size=4, steps=2)


def batches(t: int) -> Any:
    return X, Y


GRID: dict[str, Any] = {"lrs": [0.1], "base": (4, 1), "schemes": ["mup"]}


@cache
def swept() -> Sweep:
    return sweep(Net, task(), Grid(**GRID), progress=False)


# Losses of pilots of three widths, (rate, seed, step), and a table of them.
PILOTS: dict[str, Any] = {
    "sizes": [4, 8, 16],
    "losses": [2 + 3 / n + np.random.default_rng(n).normal(size=(2, 4, 3)) / n for n in (4, 8, 16)],
    "rates": [0.1, 0.2],
}
SETTINGS = {"draws": 10, "throw": False}


def tabled() -> dict[str, Any]:
    rows = np.array(np.meshgrid([4, 8], [0.1, 0.2], [0, 1], [1, 2], indexing="ij")).reshape(4, -1)
    names = ("width", "lr", "seed", "step")
    return dict(zip(names, rows, strict=True)) | {"loss": np.linspace(1, 2, 16)}


@cache
def foretold() -> Forecast:
    return forecast(**PILOTS, size=32, **SETTINGS)


def watched() -> Monitored:
    return foretold().monitor([1.0, 2.0], 0.1)


def watches(lr: Any, alarm: Any, stop: Any) -> Any:
    return foretold().watch(lr, alarm, stop)(1.0)


@cache
def pilots_swept() -> Sweep:
    grid = Grid(lrs=[0.1], base=(4, 1), widths=[4, 8], schemes=["mup"], seeds=4)
    return sweep(Net, task(), grid, verify=True, progress=False)


def trained(constants: Any, lr: float, seed: int) -> float:
    return 1.0 + (constants.output - lr) ** 2


def searched() -> Tuned:
    return tune(trained, Ranges(rate=(0.1, 1.0)), draws=4, progress=False)


def clipped(max_norm: Any) -> Any:
    model = built()
    loss(model, BATCH).backward()
    return plan().clip_grad_norm_(model, max_norm)


def examples() -> dict[str, Example]:
    """Return an example for each public name."""
    scaled = {"optimizer": "sgd", "scheme": "mup"}
    many = [{"width": 8, "depth": 1}, {"width": 16, "depth": 1}]
    check = {"base": SIZES["base"], "targets": many, "lr": 0.01, "steps": 1, "seeds": 2}
    common = {"steps": 2, "evaluation": [(X, Y)], "replicas": [Replica(0.1)]}
    swept_by = {"grid": Grid(**GRID), "progress": False}
    text = plan().to_json()
    return {
        "transfer.Budget": Example(transfer.Budget),
        "transfer.constant": Example(transfer.constant),
        "transfer.Constants": Example(transfer.Constants),
        "transfer.Hints": Example(transfer.Hints),
        "transfer.plan_from_json": Example(transfer.plan_from_json, {"text": text}),
        "transfer.rule_table": Example(transfer.rule_table),
        "transfer.warmup_cosine": Example(transfer.warmup_cosine, {"steps": 10}),
        "torch.Residual": Example(in_torch.Residual, {"branch": nn.Linear(2, 2)}),
        "torch.scale": Example(in_torch.scale, {"make_model": Net, **SIZES, **scaled}),
        "torch.coordinate_check": Example(
            in_torch.coordinate_check,
            {"make_model": Net, "batches": [BATCH], "loss": loss, **check, **scaled},
        ),
        "torch.diagnose": Example(
            in_torch.diagnose,
            {
                "plan": plan(), "batches": [BATCH], "loss": loss, "lrs": [0.01], "steps": 1,
                "seeds": 2,
            },
        ),
        "torch.check_optimizer": Example(in_torch.check_optimizer, {"optimizer": optimizer()}),
        "torch.check_rates": Example(in_torch.check_rates, {"optimizer": optimizer()}),
        "torch.check_scheduler": Example(
            in_torch.check_scheduler,
            {"scheduler": torch.optim.lr_scheduler.LambdaLR(optimizer(), lambda t: 1.0)},
        ),
        "torch.ntk_of_module": Example(
            in_torch.ntk_of_module, {"model": nn.Linear(3, 2), "x1": X, "x2": X[:1]}
        ),
        "torch.TorchPlan.build": Example(plan().build, {"seed": 0}),
        "torch.TorchPlan.repaired": Example(plan().repaired),
        "torch.TorchPlan.initialise": Example(plan().initialise, {"model": Net(**SIZES["target"])}),
        "torch.TorchPlan.attach": Example(plan().attach, {"model": built()}),
        "torch.TorchPlan.param_groups": Example(
            plan().param_groups, {"model": built(), "lr": 0.1}
        ),
        "torch.TorchPlan.clip_grad_norm_": Example(clipped, {"max_norm": 1.0}),
        "torch.TorchPlan.from_json": Example(in_torch.TorchPlan.from_json, {"text": text}),
        "torch.train_replicas": Example(
            torch_replicas.train_replicas,
            {"plan": plan(), "batches": batches, "loss": "cross_entropy", **common},
        ),
        "jax.scale": Example(
            in_jax.scale,
            {
                "init": init, **SIZES, **scaled, "layout": "in_out", "verify": False,
            },
        ),
        "jax.scale.verified": Example(
            in_jax.scale,
            {
                "init": init, "base": SIZES["base"], "target": many[0], **scaled,
                "layout": "in_out", "verify": (forward, X),
            },
        ),
        "jax.coordinate_check": Example(
            in_jax.coordinate_check,
            {
                "init": init, "batches": [jnp.asarray(X)], "loss": jax_loss,
                "activations": activations, **check, "layout": "in_out", **scaled,
            },
        ),
        "jax.JaxPlan.init": Example(jax_plan().init, {"key": 0}),
        "jax.JaxPlan.optax": Example(
            lambda **own: jax_plan().optax(**own).init(jax_plan().init(0)),
            {"lr": 0.1}, ("weight_decay", "eps", "schedule", "matrix_lr", "nesterov"), ("own",),
        ),
        "jax.JaxPlan.clip_by_global_norm": Example(
            jax_plan().clip_by_global_norm, {"max_norm": 1.0}
        ),
        "jax.JaxPlan.repaired": Example(jax_plan().repaired),
        "jax.JaxPlan.check": Example(jax_plan().check, {"parameters": jax_plan().init(0)}),
        "jax.JaxPlan.factor": Example(
            in_jax.scale(init, **SIZES, **scaled, layout="in_out", tied=["inp"]).factor,
            {"name": "inp"},
        ),
        "jax.JaxPlan.from_json": Example(in_jax.JaxPlan.from_json, {"text": text}),
        "jax.train_replicas": Example(
            jax_replicas.train_replicas,
            {
                "plan": jax_plan(), "apply": forward, "batches": batches,
                "loss": "cross_entropy", **common,
            },
        ),
        "sweeps.Grid": Example(Grid, GRID),
        "sweeps.Task": Example(Task, {"x": X, "y": Y, "batch_size": 4, "steps": 2}),
        "sweeps.Task.mse": Example(
            Task, {"x": X, "y": X[:, :2], "loss": "mse", "batch_size": 4, "steps": 2}
        ),
        "sweeps.sweep": Example(sweep, {"make_model": Net, "task": task(), **swept_by}),
        "sweeps.sweep.jax": Example(
            sweep,
            {"make_model": init, "task": task(), **swept_by, "apply": forward, "layout": "in_out"},
        ),
        "sweeps.Sweep": Example(lambda data: str(Sweep(data)), {"data": swept().data}),
        "sweeps.Sweep.drift": Example(swept().drift, {"along": "width"}),
        "sweeps.Grid.cost": Example(Grid(**GRID).cost, {"width": 8}),
        "sweeps.Pilots": Example(Pilots, PILOTS),
        "sweeps.Pilots.from_table": Example(Pilots.from_table, {"table": tabled()}),
        "sweeps.Pilots.cost": Example(Pilots(**PILOTS).cost, {"size": 32}),
        "sweeps.Pilots.forecast": Example(Pilots(**PILOTS).forecast, {"size": 32, **SETTINGS}),
        "sweeps.forecast": Example(forecast, {**PILOTS, "size": 32, **SETTINGS}),
        "sweeps.Forecast": Example(lambda data: str(Forecast(data)), {"data": foretold().data}),
        "sweeps.Forecast.interval": Example(foretold().interval),
        "sweeps.Forecast.best": Example(foretold().best),
        "sweeps.Forecast.monitor": Example(
            foretold().monitor, {"history": [1.0, 2.0], "lr": 0.1}
        ),
        "sweeps.Watch": Example(watches, {"lr": 0.1, "alarm": 4.0, "stop": False}),
        "sweeps.Monitored": Example(lambda data: str(Monitored(data)), {"data": watched().data}),
        "sweeps.Sweep.forecast": Example(
            pilots_swept().forecast, {"width": 32, **SETTINGS}
        ),
        "sweeps.Sweep.verdicts": Example(
            lambda along: str(swept().verdicts(along)), {"along": "width"}
        ),
        "sweeps.Ranges": Example(
            Ranges,
            {
                "rate": (0.1, 1.0), "output": (0.5, 2), "attention": (0.5, 2),
                "init": {"hidden": (0.5, 2)}, "lr": {"hidden": (0.5, 2)},
            },
        ),
        "sweeps.Ranges.of": Example(Ranges.of, {"plan": plan(), "rate": (0.1, 1.0)}),
        "sweeps.BaseTraining": Example(
            BaseTraining, {"make_model": Net, "task": task(), "base": SIZES["base"]}
        ),
        "sweeps.BaseTraining.call": Example(
            BaseTraining(make_model=Net, task=task(), base=SIZES["base"]).__call__,
            {"constants": None, "lr": 0.1, "seed": 0},
        ),
        "sweeps.BaseTraining.plan": Example(
            BaseTraining(make_model=Net, task=task(), base=SIZES["base"]).plan
        ),
        "sweeps.tune": Example(
            wraps(tune)(lambda *given, **more: str(tune(*given, **more))),
            {"train": trained, "ranges": Ranges(rate=(0.1, 1.0)), "draws": 4, "progress": False},
        ),
        "sweeps.Tuned": Example(lambda data: str(Tuned(data)), {"data": searched().data}),
        "sweeps.digits_task": Example(digits_task),
        "sweeps.teacher_task": Example(teacher_task, {"steps": 2, "batch_size": 4}),
    }  # fmt: skip
