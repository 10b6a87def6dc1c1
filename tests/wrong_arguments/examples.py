"""A call that works for every public name: what the table of wrong arguments starts from."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

import largen as lg

X = np.array([[0.3, -1.2, 0.5], [1.0, 0.4, -0.7]])
XT = np.array([[0.8, 0.1, -0.4]])
Y, YT = np.array([1.0, -0.5]), np.array([0.2])
IMAGES = np.stack([np.outer(row, row)[:, :, None] for row in X])
RATES = [0.1, 0.2, 0.3, 0.4]
AROUND = [0.3, 0.6, 0.9, 1.2, 1.5]  # the best rate
GRAM = np.array([[1.0, 0.3], [0.3, 1.5]])
_FOLDER = tempfile.TemporaryDirectory()  # deleted when the process ends
FOLDER = Path(_FOLDER.name)
VARIADIC = (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)


@dataclass(frozen=True)
class Example:
    """A call that works, and the arguments of it that are replaced one at a time."""

    call: Callable[..., Any]
    arguments: dict[str, Any] = field(default_factory=dict)
    further: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def parameters(self) -> Iterator[str]:
        """Names of all arguments, given or not."""
        # A class is asked for its fields: layers answer for wrong ones before these are looked at.
        maker = self.call.__init__ if isinstance(self.call, type) else self.call
        for name, parameter in signature(maker).parameters.items():
            if parameter.kind not in VARIADIC and name not in ("self", *self.kept):
                yield name
        yield from self.further


@cache
def net() -> lg.layers.Layer:
    return lg.mlp(1, "relu")


def module(width: int) -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(3, width), nn.Identity(), nn.Linear(width, 2))


def other_module(width: int) -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 2))


def in_jax(key: Any, width: int) -> Any:
    one, two = jax.random.split(key)
    return {"w": jax.random.normal(one, (3, width)), "v": jax.random.normal(two, (width, 1))}


def forward_in_jax(p: Any, x: Any) -> Any:
    return jnp.tanh(x @ p["w"]) @ p["v"] / jnp.sqrt(p["v"].size)


@cache
def read() -> Any:
    return lg.read(module, X)


@cache
def converted() -> Any:
    return lg.reading.as_jax(module)


def deep_module(width: int) -> Any:
    from torch import nn

    blocks = [part for _ in range(2) for part in (nn.Tanh(), nn.Linear(width, width))]
    return nn.Sequential(nn.Linear(3, width), *blocks, nn.Tanh(), nn.Linear(width, 2))


@cache
def read_deep() -> Any:
    # Normal weights in the read-in: other functions refuse sums of three uniform numbers.
    def make(width: int) -> Any:
        from torch import nn

        net = deep_module(width)
        nn.init.normal_(net[0].weight)
        nn.init.normal_(net[0].bias)
        return net

    return lg.read(make, X)


@cache
def data() -> lg.Dataset:
    return lg.Dataset(X, Y, XT, YT)


def run(param: Any = None, **changed: Any) -> lg.Run:
    given = {"optimizer": lg.gd(lr=0.1), "steps": 2, **changed}
    return lg.Run(net(), lg.ntk() if param is None else param, data(), **given)


def smooth_run(optimizer: Any = None) -> lg.Run:
    given = optimizer or lg.gd(lr=0.1)
    return lg.Run(lg.mlp(1, "erf"), lg.mean_field(), data(), optimizer=given, steps=2)


def bent_run() -> lg.Run:
    return lg.Run(lg.mlp(1, "relu"), lg.mean_field(), data(), optimizer=lg.gd(lr=0.1), steps=2)


def rich_run() -> lg.Run:
    rich, descent = lg.mean_field(gamma=4.0), lg.gd(lr=0.1)
    return lg.Run(lg.mlp(3, "linear"), rich, data(), optimizer=descent, steps=8)


def one_sample_run() -> lg.Run:
    one = lg.Dataset(X[:1], Y[:1])
    return lg.Run(lg.mlp(1, "linear"), lg.ntk(), one, optimizer=lg.gd(lr=0.1), steps=2)


def linear_run() -> lg.Run:
    return lg.Run(lg.mlp(1, "linear"), lg.ntk(), data(), optimizer=lg.gd(lr=0.1), steps=2)


@cache
def smooth_weights() -> Any:
    return lg.networks.init(lg.mlp(1, "erf"), lg.mean_field(), width=4, inputs=3, key=0)


@cache
def limit() -> lg.Trajectory:
    return lg.solve(run())


def spectrum(modes: int = 40) -> lg.regression.Spectrum:
    i = np.arange(1.0, modes + 1)
    return lg.regression.Spectrum(i**-1.5, i**-1.8, noise=0.1)


@cache
def predicted() -> Any:
    options = {"pilots": 8, "pilot_width": 4, "draws": 16, "throw": False}
    return lg.training.predict_networks(run(), 8, limit=limit(), **options)


@cache
def networks() -> lg.Trajectory:
    return lg.train(run(), width=4, seeds=2, key=0)


@cache
def finite() -> lg.networks.FiniteNetwork:
    return lg.networks.finite_network(net(), lg.ntk(), width=4, inputs=3)


@cache
def weights() -> Any:
    return finite().init(0)


def network_function(params: Any, x: Any) -> Any:
    """A network of the user's own, with one output."""
    return jnp.tanh(x @ params["w"]) @ params["v"]


@cache
def own_weights() -> Any:
    return {"w": jnp.ones((3, 2), jnp.float32), "v": jnp.ones((2,), jnp.float32)}


def first_weight(network: Any, start: Any, end: Any, x: Any) -> Any:
    """Something to observe of a network."""
    return jax.tree.leaves(end)[0]


@dataclass(frozen=True)
class Known(lg.theories.Theory):
    """A theory of the user's own that knows the answer."""

    name: ClassVar[str] = "known"
    limit: Any = None

    @classmethod
    def pose(cls, run: lg.Run) -> lg.theories.Posed:
        return lg.theories.Posed(run, "always", None)

    def solve(self, posed: lg.theories.Posed, *, throw: bool = True) -> lg.Trajectory:
        return self.limit


def solved_by(theory: Any, throw: Any = True) -> lg.Trajectory:
    """Return what a theory of the user's own says."""
    return lg.solve(run(), theory=theory, throw=throw)


def solved_at_width(width=None, particles=4, replicates=2, key=0, memory_budget=1e9, progress=None):
    """Return the mean over networks of one width."""
    flow = lg.Run(lg.mlp(1, "erf"), lg.ntk(), data(), optimizer=lg.gradient_flow(1.0), times=[0.5])
    options = {"width": width, "particles": particles, "replicates": replicates, "key": key}
    theory = lg.theories.FiniteWidth(**options, memory_budget=memory_budget, progress=progress)
    return lg.solve(flow, theory=theory)


def solved_by_networks(
    width=None, networks=4, network_width=8, particles=16, key=0, memory_budget=1e9, progress=None
):
    """Return the mean over deep networks of one width."""
    deep = lg.Run(lg.mlp(2, "erf"), lg.ntk(), data(), optimizer=lg.gd(0.1), steps=2)
    options = {"width": width, "networks": networks, "network_width": network_width, "key": key}
    theory = lg.theories.FiniteWidth(
        **options, particles=particles, memory_budget=memory_budget, progress=progress
    )
    return lg.solve(deep, theory=theory)


def registered(theory: Any) -> None:
    """Register a theory, and take it out again."""
    lg.theories.register(theory)
    lg.theories.unregister(theory)


def estimator(kind: Any) -> Callable[..., Any]:
    """Return a function that makes an estimator, fits it and predicts with it."""

    def fitted(X=X, y=Y, X_test=XT, **options):
        return kind(**options).fit(X, y).predict(X_test)

    return fitted


def examples() -> dict[str, Example]:
    """Return an example for each public name."""
    x, y = X, Y
    small32 = X.astype(np.float32)
    kernels = {"net": net(), "x1": X}
    fit = {"net": net(), "x": X, "y": Y}
    of_function = {"f": network_function, "params": own_weights(), "x1": small32}
    found = {
        "Activation": Example(lg.Activation, {"function": "tanh"}),
        "AvgPool": Example(lg.layers.AvgPool, {"window": (2, 2)}),
        "Axes": Example(lg.layers.Axes, {"order": "NHWC"}),
        "BatchNorm": Example(lg.layers.BatchNorm, {"gain": True}),
        "Comparison": Example(lg.compare(limit(), networks()).plot),
        "Concatenate": Example(
            lambda branch: lg.layers.Concatenate(branch, lg.Dense()), {"branch": net()}
        ),
        "Conv": Example(lg.Conv, {"window": (2, 2)}),
        "ConvTranspose": Example(lg.layers.ConvTranspose, {"window": (2, 2)}),
        "Dataset": Example(lg.Dataset, {"x_train": x, "y_train": y, "x_test": XT, "y_test": YT}),
        "Dense": Example(lg.Dense),
        "Dropout": Example(lg.layers.Dropout, {"rate": 0.5}),
        "FiniteNetwork": Example(finite().apply, {"params": weights(), "x": small32}),
        "FiniteNetwork.init": Example(finite().init, {"key": 0}),
        "Flatten": Example(lg.Flatten),
        "Gain": Example(lg.layers.Gain, {"initial": 0.5}),
        "GlobalAvgPool": Example(lg.GlobalAvgPool),
        "GlobalSumPool": Example(lg.layers.GlobalSumPool),
        "Graph": Example(
            lg.layers.Graph, {"nodes": {"h": (lg.Dense(), "x"), "f": (lg.Dense(), "h")}}
        ),
        "Layer": Example(lg.layers.Layer),
        "LayerNorm": Example(lg.LayerNorm, {"gain": True}),
        "LocallyConnected": Example(lg.layers.LocallyConnected, {"window": (2, 2)}),
        "Loss": Example(lg.losses.as_loss("mse").residual, {"f": y, "y": y}),
        "Loss.mean": Example(lg.losses.as_loss("mse").mean, {"f": y, "y": y}),
        "MaxPool": Example(lg.layers.MaxPool, {"window": (2, 2)}),
        "MeasuredExponents": Example(
            lg.scaling.measure_exponents(run(), [2, 4, 8], seeds=2, key=0, progress=False).plot
        ),
        "MultiHeadAttention": Example(lg.layers.MultiHeadAttention),
        "QKVAttention": Example(lg.QKVAttention),
        "Product": Example(lambda branch: lg.layers.Product(branch, lg.Dense()), {"branch": net()}),
        "Parameterization": Example(lg.ntk().table, {"net": net(), "width": 8, "inputs": 3}),
        "Parameterization.shift": Example(lg.ntk().shift, {"theta": {"hidden": "1/2"}}),
        "Parameterization.with_distribution": Example(
            lg.ntk().with_distribution, {"distribution": "uniform"}
        ),
        "Parameterization.with_rates": Example(lg.ntk().with_rates, {"rates": {"input": 0.5}}),
        "from_reference": Example(lg.scaling.from_reference, {"width": 8, "scaling": "mean field"}),
        "catapult": Example(lg.training.catapult, {"run": one_sample_run(), "width": 4}),
        "catapult.start": Example(
            lg.training.catapult, {"run": one_sample_run(), "start": (0.5, 1.0)}
        ),
        "catapult.params": Example(
            lg.training.catapult,
            {
                "run": one_sample_run(),
                "params": lg.networks.init(lg.mlp(1, "linear"), lg.ntk(), width=4, inputs=3, key=0),
            },
        ),
        "catapult_diagram": Example(
            lg.training.catapult_diagram,
            {"run": run(), "widths": [4], "rates": [0.5], "seeds": 1, "level": 0.99},
        ),
        "linear_training": Example(
            lg.training.linear_training, {"run": linear_run(), "width": 4, "key": 0}
        ),
        "linear_training.params": Example(
            lg.training.linear_training,
            {
                "run": linear_run(),
                "params": lg.networks.init(lg.mlp(1, "linear"), lg.ntk(), width=4, inputs=3, key=0),
            },
        ),
        "linear_catapult_diagram": Example(
            lg.training.linear_catapult_diagram,
            {"run": linear_run(), "widths": [4], "rates": [0.5], "seeds": 1, "level": 0.99},
        ),
        "classify": Example(
            lg.scaling.classify, {"param": lg.mup(), "net": 2, "optimizer": "adam"}
        ),
        "RMSNorm": Example(lg.RMSNorm, {"gain": True}),
        "Residual": Example(lg.Residual, {"branch": lg.Dense()}),
        "Run": Example(
            lg.Run,
            {"net": net(), "param": lg.ntk(), "data": data(), "optimizer": lg.gd(0.1), "steps": 2},
        ),
        "Run.times": Example(
            lg.Run,
            {
                "net": net(),
                "param": lg.ntk(),
                "data": data(),
                "optimizer": lg.gradient_flow(1.0),
                "times": [0.5, 1.0],
            },
        ),
        "ScalePositions": Example(lg.layers.ScalePositions, {"factors": [0.5, 0.3, 0.2]}),
        "SelfAttention": Example(lg.layers.SelfAttention),
        "SumPool": Example(lg.layers.SumPool, {"window": (2, 2)}),
        "Upsample": Example(lg.layers.Upsample, {"factor": (2, 2)}),
        "Theory": Example(solved_by, {"theory": Known(limit=limit())}),
        "theories.register": Example(registered, {"theory": Known}),
        "theories.KernelLimit": Example(lg.theories.KernelLimit),
        "theories.MeanField": Example(lg.theories.MeanField),
        "theories.DeepMeanField": Example(lg.theories.DeepMeanField),
        "theories.AttentionMeanField": Example(lg.theories.AttentionMeanField),
        "theories.AdaptiveKernelLimit": Example(
            lg.theories.AdaptiveKernelLimit, {"particles": 64, "replicates": 2}
        ),
        "theories.AdaptiveMeanField": Example(
            lg.theories.AdaptiveMeanField, {"particles": 64, "replicates": 2}
        ),
        "theories.FeedbackKernelLimit": Example(lg.theories.FeedbackKernelLimit),
        "theories.FeedbackMeanField": Example(
            lg.theories.FeedbackMeanField, {"particles": 64, "replicates": 2}
        ),
        "theories.InfiniteDepth": Example(lg.theories.InfiniteDepth),
        "Trajectory": Example(lg.Trajectory, {"dataset": limit().to_xarray(), "run": run()}),
        "Trajectory.of": Example(
            lg.Trajectory.of,
            {
                "run": run(),
                "f_train": np.zeros((3, 2)),
                "f_test": np.zeros((3, 1)),
                "theory": "mine",
                "reason": "none",
            },
        ),
        "Trajectory.save": Example(limit().save, {"path": FOLDER / "limit.nc"}),
        "Trajectory.between_times": Example(
            lg.solve(smooth_run(), record_pairs="all").between_times,
            {"record": "gradient_kernel"},
        ),
        "Trajectory.weight_outliers": Example(
            lg.solve(rich_run(), record=["singular_values"], record_at=[8]).weight_outliers,
            {"layer": 2},
        ),
        "Trajectory.sharpness": Example(
            lg.solve(smooth_run(), record=["ntk"], record_at=[0, 1, 2]).sharpness,
            {"along": "gradient"},
        ),
        "Trajectory.dissipation": Example(
            lg.solve(smooth_run(), record=["ntk"], record_at=[0, 1, 2]).dissipation
        ),
        "Trajectory.load": Example(lg.Trajectory.load, {"path": limit().save(FOLDER / "saved.nc")}),
        "abc": Example(lg.abc, {"a": (0, "1/2", "1/2"), "b": 0, "c": 0}),
        "as_activation": Example(lg.expectations.as_activation, {"spec": "tanh"}),
        "adam": Example(lg.adam, {"lr": 0.1}),
        "apply": Example(lg.networks.apply, {"net": net(), "params": weights(), "x": small32}),
        "cite": Example(lambda results: lg.cite(results), {"results": limit()}),
        "compare": Example(lg.compare, {"limit": limit(), "nets": networks()}),
        "complete_p": Example(lg.complete_p),
        "critical_initialization": Example(
            lg.criticality.critical_initialization, {"activation": "relu", "depth": 3, "widths": 10}
        ),
        "edge_of_chaos": Example(
            lg.criticality.edge_of_chaos, {"activation": "relu", "variances": [1.0]}
        ),
        "edge_of_chaos.biases": Example(
            lg.criticality.edge_of_chaos, {"activation": "relu", "bias_std": [0.0]}
        ),
        "variance_fixed_points": Example(
            lg.criticality.variance_fixed_points, {"activation": "relu", "weight_std": 1.0}
        ),
        "input_gradients": Example(
            lg.criticality.input_gradients, {"net": lg.mlp(1, "relu"), "x": np.eye(2)}
        ),
        "jacobian_moments": Example(
            lg.criticality.jacobian_moments, {"activation": "relu", "weight_std": 1.4, "layers": 2}
        ),
        "lyapunov_exponents": Example(lg.criticality.lyapunov_exponents, {"width": 4}),
        "product_density": Example(
            lg.criticality.product_density, {"values": [0.5, 2.0], "factors": 2}
        ),
        "network_diagram": Example(
            lg.criticality.network_diagram,
            {
                "network": lambda w, b: lg.residual_mlp(2, "relu", weight_std=w, bias_std=b),
                "x": np.eye(2),
                "weight_std": [0.5, 1.0],
                "bias_std": [0.1],
            },
        ),
        "phase_diagram": Example(
            lg.criticality.phase_diagram,
            {
                "activation": "relu",
                "weight_std": [0.5],
                "bias_std": [0.1],
                "width": 4,
                "depth": 2,
                "draws": 2,
                "key": 0,
            },
        ),
        "predict_networks": Example(
            lg.training.predict_networks,
            {
                "run": run(),
                "width": 8,
                "anchor": "pilots",
                "pilots": 8,
                "pilot_width": 4,
                "limit": limit(),
                "draws": 16,
                "key": 0,
                "throw": False,
            },
        ),
        "PredictedNetworks.at_width": Example(predicted().at_width, {"width": 16}),
        "PredictedNetworks.interval": Example(predicted().interval, {"level": 0.9, "on": "test"}),
        "PredictedNetworks.output_interval": Example(
            predicted().output_interval, {"level": 0.9, "on": "test"}
        ),
        "PredictedNetworks.outputs": Example(predicted().outputs, {"step": 1, "on": "test"}),
        "PredictedNetworks.quantiles": Example(
            predicted().quantiles, {"levels": [0.1, 0.9], "on": "test"}
        ),
        "predict_training": Example(
            lg.training.predict_training, {"run": smooth_run(), "params": smooth_weights()}
        ),
        "propagate": Example(lg.criticality.propagate, {"net": net(), "x": X}),
        "convergence_bound": Example(
            lg.training.convergence_bound, {"run": run(loss="mse"), "params": weights()}
        ),
        "covariance_sde": Example(
            lg.finite_width.covariance_sde,
            {"covariance": GRAM, "slopes": (0, -1), "time": 0.1, "draws": 2, "steps": 2, "key": 0},
            kept=("activation",),
        ),
        "critical_learning_rate": Example(lg.regression.critical_learning_rate, {"ntk": GRAM}),
        "solve_deep_linear": Example(
            lg.theories.solve_deep_linear, {"kernel": GRAM, "y": y, "hidden_layers": 1, "steps": 2}
        ),
        "depth_mup": Example(lg.depth_mup),
        "empirical_ntk": Example(
            lg.networks.empirical_ntk, {"net": net(), "params": weights(), "x1": small32}
        ),
        "finite_network": Example(
            lg.networks.finite_network, {"net": net(), "param": lg.ntk(), "width": 4, "inputs": 3}
        ),
        "fit_cross_validation": Example(
            lg.regression.fit_cross_validation,
            {**fit, "noise": 0.1, "max_steps": 2, "throw": False},
        ),
        "fit_likelihood": Example(
            lg.regression.fit_likelihood, {**fit, "max_steps": 2, "throw": False}
        ),
        "flow_posterior": Example(lg.regression.flow_posterior, {**fit, "time": 1.0}),
        "FlowPosterior.predict": Example(
            lg.regression.flow_posterior(**fit, time=1.0).predict, {"x_test": XT}
        ),
        "flow_posterior_from_kernel": Example(
            lg.regression.flow_posterior_from_kernel, {"ntk": GRAM, "y": y, "time": 1.0}
        ),
        "feature_movement": Example(
            lg.training.feature_movement,
            {"run": run(), "gammas": [0.5, 1.0], "widths": [2, 4], "seeds": 2, "key": 0},
        ),
        "gaussian_moments": Example(
            lg.expectations.gaussian_moments,
            {"activation": "relu", "q1": 1.0, "q12": 0.5, "q2": 1.0},
        ),
        "gd": Example(lg.gd, {"lr": 0.1}),
        "gradient_flow": Example(lg.gradient_flow),
        "homogeneous_jacobian": Example(
            lg.finite_width.homogeneous_jacobian,
            {"net": lg.mlp(1, "linear"), "width": 10, "inputs": 3},
        ),
        "homogeneous_limits": Example(
            lg.finite_width.homogeneous_limits, {"activation": "relu", "depth_over_width": 0.1}
        ),
        "homogeneous_moments": Example(
            lg.finite_width.homogeneous_moments,
            {"net": lg.mlp(1, "linear"), "x": X[:1], "width": 10},
        ),
        "infinite_depth_one_step": Example(lg.theories.infinite_depth_one_step, {"y": 1.0}),
        "init": Example(
            lg.networks.init, {"net": net(), "param": lg.ntk(), "width": 4, "inputs": 3, "key": 0}
        ),
        "kernel": Example(lg.kernel, kernels),
        "read": Example(lg.read, {"make": module, "x": X}),
        "read.jax": Example(lg.read, {"make": in_jax, "x": X, "apply": forward_in_jax}),
        "as_jax": Example(lg.reading.as_jax, {"make": module, "train": False}),
        "InJax.init": Example(converted().init, {"key": 0, "width": 8}),
        "InJax.of": Example(converted().of, {"module": module(8)}),
        "InJax.apply": Example(
            converted().apply, {"params": converted().init(0, 8), "x": X, "state": {}, "key": 0}
        ),
        "Model.kernel": Example(read().kernel, {"x1": X, "x2": XT, "width": 8}),
        "Population": Example(lg.reading.Population, {"neurons": 64, "replicates": 2}),
        "Model.check": Example(read().check, {"x": X, "widths": (8, 16), "seeds": 8}),
        "Model.at": Example(read().at, {"width": 8}),
        "Model.propagation": Example(read().propagation, {"x": X, "width": 8}),
        "Model.depth": Example(read_deep().depth, {"x": X, "width": 8}),
        "Model.classify": Example(read().classify, {"optimizer": "gd"}),
        "Model.critical_rate": Example(read().critical_rate, {"x": X, "width": 8}),
        "Model.corrections": Example(read_deep().corrections, {"x": X[:2], "width": 8}),
        "Model.fluctuations": Example(
            read_deep().fluctuations, {"x": X[:2], "width": 8, "draws": 20}
        ),
        "Model.predict": Example(read().predict, {"x": X, "y": Y, "x_test": XT, "noise": 0.1}),
        "kernel_after_one_step": Example(lg.theories.kernel_after_one_step, {"y": 1.0}),
        "averaged_kernel": Example(lg.kernels.averaged_kernel, kernels),
        "kernel_of_stds": Example(lg.kernels.kernel_of_stds, kernels),
        "kernel_operator": Example(lg.regression.large.kernel_operator, kernels),
        "feedback_alignment": Example(lg.optimizers.feedback_alignment, {"lr": 0.1}),
        "gated_linear": Example(lg.layers.gated_linear, {"hidden_layers": 1}),
        "hebbian": Example(lg.optimizers.hebbian, {"lr": 0.1}),
        "langevin": Example(lg.optimizers.langevin, {"lr": 0.1, "temperature": 0.1}),
        "layer_learning_rates": Example(
            lg.finite_width.layer_learning_rates, {"net": net(), "x": X, "width": 10}
        ),
        "learning_curve": Example(
            lg.regression.learning_curve,
            {**fit, "sizes": [1], "ridge": 0.1, "measure": 2, "key": 0},
        ),
        "random_feature_curve": Example(
            lg.regression.random_feature_curve,
            {**fit, "sizes": [1], "widths": [3], "ridge": 0.1, "measure": 2, "key": 0},
        ),
        "random_feature_curve.spectrum": Example(
            lg.regression.random_feature_curve, {"net": spectrum(), "sizes": [2], "widths": [3]}
        ),
        "Spectrum": Example(
            lg.regression.Spectrum, {"eigenvalues": np.ones(2), "power": np.array([0.5, 0.2])}
        ),
        "one_pass_sgd": Example(
            lg.regression.one_pass_sgd,
            {"task": spectrum(), "steps": [1, 40], "rate": 0.2, "batch_size": 2, "widths": [20]},
        ),
        "OnePassCurve.frontier": Example(
            lg.regression.one_pass_sgd(
                spectrum(), [4, 16, 64, 256], widths=[2, 4, 8, 16, 32]
            ).frontier,
            {"compute": [500.0, 1000.0]},
        ),
        "scaling_laws": Example(
            lg.regression.scaling_laws,
            {"task": spectrum(80)},
        ),
        "target_spectrum": Example(lg.regression.target_spectrum, {**fit}),
        "learning_rate_curve": Example(
            lg.learning_rate_curve, {"run": run(), "rates": [0.1, 0.2], "width": 4, "seeds": 2}
        ),
        "LearningRateCurve.drift": Example(
            lg.learning_rate_curve(run(), AROUND).drift,
            {
                "widths": [8, 16],
                "networks": lg.learning_rate_curve(run(), AROUND, width=4, seeds=3),
            },
        ),
        "equilibrium": Example(
            lg.training.equilibrium,
            {"run": smooth_run(lg.gd(0.5, weight_decay=0.05)), "doublings": 2, "key": 0},
        ),
        "critical_rates": Example(
            lg.training.critical_rates, {"run": run(lg.standard()), "widths": [4]}
        ),
        "correlator_order": Example(
            lg.finite_width.correlator_order, {"contractions": [(0, 1), (2, 1)]}
        ),
        "linear_correlator": Example(
            lg.finite_width.linear_correlator,
            {
                "net": lg.mlp(1, "linear"),
                "x": np.concatenate([X, X + 0.5]),
                "contractions": [(0, 1)],
                "width": 10,
            },
        ),
        "path_sum": Example(
            lg.finite_width.path_sum,
            {
                "net": lg.mlp(1, "relu"),
                "directions": np.concatenate([X, X + 0.5]),
                "contractions": [(0, 1)],
                "width": 10,
            },
        ),
        "training_hierarchy": Example(
            lg.finite_width.training_hierarchy,
            {
                "net": net(),
                "params": lg.networks.init(net(), lg.ntk(), width=4, inputs=3, key=0),
                "x": X,
                "order": 2,
            },
        ),
        "linear_network_output": Example(
            lg.finite_width.linear_network_output,
            {"net": lg.mlp(1, "linear"), "x": X[:1], "width": 10},
        ),
        "linearize": Example(
            lambda f, params, at, x: lg.networks.linearize(f, params)(at, x),
            {"f": network_function, "params": own_weights(), "at": own_weights(), "x": small32},
        ),
        "log_likelihood": Example(lg.regression.log_likelihood, {**fit, "noise": 0.1}),
        "output_law": Example(
            lg.finite_width.output_law, {"net": lg.mlp(1, "tanh"), "x": X[:1], "width": 10}
        ),
        "as_loss": Example(lg.losses.as_loss, {"spec": "mse"}),
        "low_rank_posterior": Example(
            lg.regression.large.low_rank_posterior, {**fit, "noise": 0.1, "landmarks": 2}
        ),
        "LowRankPosterior.predict": Example(
            lg.regression.large.low_rank_posterior(**fit, noise=0.1, landmarks=2).predict,
            {"x_test": XT},
        ),
        "mean_field": Example(lg.mean_field),
        "measure_exponents": Example(
            lg.scaling.measure_exponents, {"run": run(), "widths": [2, 4, 8], "seeds": 2, "key": 0}
        ),
        "mlp": Example(lg.mlp, {"hidden_layers": 1}),
        "monte_carlo_kernel": Example(
            lg.networks.monte_carlo_kernel, {**kernels, "width": 4, "draws": 2, "key": 0}
        ),
        "mup": Example(lg.mup),
        "nngp_kernel": Example(lg.nngp_kernel, kernels),
        "ntk": Example(lg.ntk),
        "ntk_kernel": Example(lg.ntk_kernel, kernels),
        "train_and_measure": Example(
            lg.networks.train_and_measure,
            {"run": run(), "width": 4, "seeds": 2, "key": 0, "measure": first_weight},
        ),
        "optimal_learning_rate": Example(lg.regression.optimal_learning_rate, {"ntk": GRAM}),
        "nngp_of_function": Example(lg.networks.nngp_of_function, of_function),
        "posterior": Example(lg.posterior, {**fit, "noise": 0.1}),
        "Posterior.predict": Example(lg.posterior(**fit, noise=0.1).predict, {"x_test": XT}),
        "adaptive_posterior": Example(
            lg.regression.adaptive_posterior,
            {**fit, "noise": 0.1, "param": lg.mean_field(), "sites": 64, "replicates": 2},
        ),
        "rescaled_posterior": Example(
            lg.regression.rescaled_posterior,
            {**fit, "x_test": XT, "width": 8, "noise": 0.1},
        ),
        "sample_posterior": Example(
            lg.regression.sample_posterior,
            {
                **fit,
                "x_test": XT,
                "width": 8,
                "noise": 0.1,
                "param": lg.mean_field(),
                "draws": 10,
                "chains": 2,
            },
        ),
        "AdaptivePosterior.predict": Example(
            lg.posterior(**fit, noise=0.1, param=lg.mean_field()).predict, {"x_test": X}
        ),
        "AdaptivePosterior.log_likelihood": Example(
            lg.regression.adaptive_posterior(
                **fit, noise=0.1, param=lg.mean_field()
            ).log_likelihood,
            {"width": 8},
        ),
        "DeepPosterior.predict": Example(
            lg.regression.adaptive_posterior(
                lg.mlp(2, "relu"), X, y, noise=0.5, param=lg.mean_field(0.3), sites=256
            ).predict,
            {"x_test": XT},
        ),
        "DeepLinearPosterior.predict": Example(
            lg.posterior(lg.mlp(2, "linear"), X, y, noise=0.1, param=lg.mean_field()).predict,
            {"x_test": XT},
        ),
        "DeepLinearPosterior.log_likelihood": Example(
            lg.posterior(
                lg.mlp(2, "linear"), X, y, noise=0.1, param=lg.mean_field()
            ).log_likelihood,
            {"width": 8},
        ),
        "posterior_from_kernel": Example(
            lg.regression.posterior_from_kernel, {"kernel": GRAM, "y": y, "noise": 0.1}
        ),
        "keep_programs": Example(lg.keep_programs, {"folder": FOLDER / "programs"}),
        "load": Example(lg.load, {"path": limit().save(FOLDER / "again.nc")}),
        "save": Example(
            lambda path, limit: lg.save(path, limit=limit),
            {"path": FOLDER / "several.nc", "limit": limit()},
        ),
        "lazy_or_rich": Example(
            lg.training.lazy_or_rich, {"run": run(), "width": 4, "seeds": 4, "key": 0}
        ),
        "repeat": Example(lg.repeat, {"layer": lg.Dense(), "times": 2}),
        "residual_mlp": Example(lg.residual_mlp, {"blocks": 2}),
        "response_functions": Example(
            lg.theories.response_functions,
            {"run": bent_run(), "particles": 64, "replicates": 2},
        ),
        "ridge_test_error": Example(
            lg.regression.ridge_test_error, {"features_per_sample": 0.5, "penalty": 0.1}
        ),
        "rmsprop": Example(lg.optimizers.rmsprop, {"lr": 0.1}),
        "sample_kernels": Example(
            lg.finite_width.sample_kernels,
            {"net": net(), "x": X, "width": 10, "draws": 4, "key": 0},
        ),
        "sample_tangent_kernels": Example(
            lg.finite_width.sample_tangent_kernels,
            {"net": net(), "x": X, "width": 10, "draws": 4, "key": 0},
        ),
        "plane_scheme": Example(lg.scaling.plane_scheme, {"q_sigma": "-1/2", "rate_a": 0}),
        "plane_class": Example(lg.scaling.plane_class, {"q_sigma": "-1/2", "rate_a": 0}),
        "plane_map": Example(lg.scaling.plane_map, {"per_unit": 4}),
        "serial": Example(lambda layer: lg.serial(lg.Dense(), layer), {"layer": lg.Dense()}),
        "sgd": Example(lg.sgd, {"lr": 0.1, "batch_size": 1}),
        "solve": Example(lg.solve, {"run": run()}),
        "solve.mean_field": Example(lg.solve, {"run": run(lg.mean_field())}),
        "solve.finite_width": Example(
            solved_at_width,
            {"width": 4, "particles": 4, "replicates": 2, "key": 0, "memory_budget": 1e9},
        ),
        "solve.finite_width_deep": Example(
            solved_by_networks,
            {"width": 4, "networks": 4, "network_width": 8, "particles": 16, "key": 0},
        ),
        "solve_kernel": Example(
            lg.regression.large.solve_kernel, {"matrix": GRAM, "y": y, "noise": 0.1, "rank": 1}
        ),
        "standard": Example(lg.standard),
        "stored_kernel": Example(
            lg.regression.large.stored_kernel, {"path": FOLDER / "kernel.zarr", **kernels}
        ),
        "ntk_of_function": Example(lg.networks.ntk_of_function, of_function),
        "ntk_operator_of_function": Example(lg.networks.ntk_operator_of_function, of_function),
        "taylor_expand": Example(
            lambda f, params, degree, at, x: lg.networks.taylor_expand(f, params, degree)(at, x),
            {
                "f": network_function,
                "params": own_weights(),
                "degree": 2,
                "at": own_weights(),
                "x": small32,
            },
        ),
        "relaxation_times": Example(lg.regression.relaxation_times, {"ntk": GRAM}),
        "token_inputs": Example(lg.token_inputs, {"tokens": [[0, 1], [1, 2]], "vocabulary": 3}),
        "train": Example(lg.train, {"run": run(), "width": 4, "seeds": 2, "key": 0}),
        "whitened_linear_flow": Example(
            lg.theories.whitened_linear_flow, {"times": np.array([0.5, 1.0]), "y": 1.0}
        ),
        "width_corrections": Example(
            lg.finite_width.width_corrections, {"net": net(), "x": X, "width": 10}
        ),
        "width_corrections_in_training": Example(
            lg.training.width_corrections_in_training,
            {"run": smooth_run(), "width": 4, "replicates": 2, "max_replicates": 2},
        ),
        "width_fluctuations": Example(
            lg.finite_width.width_fluctuations,
            {"net": net(), "x": X, "width": 10, "draws": 4, "param": lg.ntk(), "key": 0},
        ),
        "kernel_spectrum": Example(
            lg.finite_width.kernel_spectrum, {"net": net(), "x": X, "width": 10}
        ),
        "corrected_posterior": Example(
            lg.finite_width.corrected_posterior,
            {
                "net": net(),
                "x_train": X,
                "y_train": Y,
                "x_test": XT,
                "width": 10,
                "noise": 0.1,
                "draws": 4,
                "key": 0,
            },
        ),
        "with_positions": Example(lg.with_positions, {"x": np.ones((1, 4, 2))}),
    }
    for name in ("NNGP", "NTK", "KernelFlow"):
        for task, labels in (("Regressor", Y), ("Classifier", np.array([0, 1]))):
            kind = getattr(lg.regression, name + task)

            def fitted(net=None, X=X, y=labels, X_test=XT, estimator=kind, **options):
                made = estimator(net, **options).fit(X, y)
                # Labels of two samples do not tell one classifier from another.
                return getattr(made, "decision_function", made.predict)(X_test)

            constants = tuple(n for n in signature(kind).parameters if n != "net")
            found[name + task] = Example(fitted, {"net": net()}, constants, ("estimator",))
    return found
