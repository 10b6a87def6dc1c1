"""Whether another value of an argument gives another result: no accepted argument is idle.

``python -m tests.wrong_arguments effects [NAME …]`` prints what came of each; all take some ten
minutes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields, is_dataclass
from inspect import signature
from itertools import zip_longest
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from tests.wrong_arguments.examples import (
    FOLDER,
    GRAM,
    XT,
    YT,
    Example,
    X,
    Y,
    data,
    examples,
    networks,
    other_module,
    own_weights,
    run,
    smooth_run,
)

import largen as lg
from largen.errors import LargenError

TOLERANCE = 1e-9  # relative; results that differ by rounding are the same
SMALL = np.float32


def quartic(f, y):
    """Return another convex loss of real targets."""
    return jnp.sum((f - y) ** 4) / 4


# Other values by the name of the argument; each has to change the result, or to be refused.
OTHER: dict[str, tuple[Any, ...]] = {
    "X": (X + 0.1,), "X_test": (XT + 0.1,), "a": ((0, "1/2", 1),), "activation": ("tanh",),
    "anchor": ("theory",), "gate": ("sigmoid",),
    "apply": (lambda p, x: jnp.sin(x @ p["w"]) @ p["v"] / jnp.sqrt(p["v"].size),),
    "at": (jax.tree.map(lambda w: 2 * w, own_weights()),), "b": ((0, 1, 1),),
    "batch_size": (1, 2), "bend": (0.5,), "beta": (0.5,), "beta1": (0.5,), "beta2": (0.5,),
    "bias": (0.5,), "bias_std": (0.7, [0.4]), "blocks": (3,), "branch": (lg.Dense(), "1/2"),
    "branch_rate": ("1/2",), "c": ("1/2",), "causal": (True,), "chains": (3,), "compare": (False,),
    "compute": ([700.0],), "correlation": (0.5,),
    "contractions": ([(0, 1), (2, 3)],), "covariance": (2 * GRAM, True), "d": ("1/2",),
    "data": (lg.Dataset(2 * X, Y, XT, YT),),
    "dataset": (networks().to_xarray(),), "degree": (1,), "depth": (2, 4),
    "depth_over_width": (0.3,), "depths": ((2, 4),), "difference": ("1/2",), "dilation": (2,),
    "direct": (True,), "directions": (np.eye(4, 3),), "doublings": (0,),
    "distribution": ("sign",), "draws": (6,), "dtype": (np.float64,),
    "eigenvalues": (np.array([1.0, 0.3]),), "eps": (0.1,), "excess": (-1.2,),
    "f": (lambda p, x: jnp.sin(x @ p["w"]) @ p["v"], np.array([0.3, 0.4])), "f_test": (1.0,),
    "extra": ({"mine": (("step",), np.zeros(3))},), "f_train": (1.0,),
    "factors": (3, [0.1, 0.4, 0.2]), "factor": ((3, 3),), "features_per_sample": (2.0,),
    "fit_noise": (False,),
    "neurons": (128,), "along": (None,),
    "nodes": ({"h": (lg.Dense(), "x"), "f": (lg.Activation("tanh"), "h")},),
    "fluctuations": (True,), "fourth_moment": (1.8,), "function": ("erf",), "gain": (False,),
    "gamma": (2.0,), "gammas": ([0.5, 2.0],), "gaussian": (False,),
    "groups": (2,), "growth": (1.0,), "heads": (2,),
    "hidden_layers": (2,), "init_std": ({"0.weight": 0.5},), "initial": (0.2,), "inputs": (5,),
    "kernel": (2 * GRAM, "ntk"), "key": (1,), "key_size": (4,), "keys": (lg.Dense(weight_std=2.0),),
    "folder": (FOLDER / "other programs",),
    "kind": ("nngp", "ntk", "ntk-gp", "bayesian", "linearized"), "landmarks": (1,),
    "layer": (lg.Dense(weight_std=2.0), 3), "layers": (3,), "layers_per_block": (2,),
    "length_scale": (3.0,), "level": (0.5,), "levels": ([0.5],), "limit": (lg.solve(run(steps=3)),),
    "logit_scale": (3.0,), "loss": ("logistic", "huber", quartic), "lr": (0.2, 0.3),
    "make": (other_module,),
    "matrix": (2 * GRAM,),
    "mask": (np.array([True, False]),), "mask1": (np.array([True, False]),),
    "mask2": (np.array([True, False]),), "max_steps": (1,), "measure": (lambda n, a, b, x: b,),
    "mechanism": ("relu",), "moments": ((1.8, 27 / 7, 9.0),), "momentum": (0.5,),
    "name": ("other",),
    "net": (lg.mlp(1, "tanh"), lg.mlp(2, "linear"), lg.mlp(1, "linear", weight_std=2.0), 3),
    "nets": (lg.train(run(), width=4, seeds=2, key=1),), "network": ("residual",),
    "networks": (3,), "network_width": (16,),
    "noise": (0.3,), "noise_std": (0.5,), "normalize_y": (False,),
    "notes": (("a note",),), "ntk": (2 * GRAM,), "offset": (True,),
    "on": ("train", "test"), "optimize": (True,),
    "optimizer": (lg.gd(0.2), lg.adam(0.1), lg.gradient_flow(2.0)), "order": ("NCHW", "epochs"),
    "outputs": (1, 2), "over_space": (True,), "padding": ("SAME", "VALID", "CIRCULAR"),
    "param": (lg.standard(), lg.mup(), lg.mean_field(2.0), lg.ntk().with_rates({"input": 0.5}),
              lg.ntk().with_distribution("sign")),
    "params": (lg.networks.init(lg.mlp(1, "relu"), lg.ntk(), width=4, inputs=3, key=5),),
    "particles": (128, 512), "penalty": (0.3,), "per_unit": (3,),
    "pilot_width": (2,), "pilots": (9,), "points": (51,), "power": (np.array([0.5, 0.9]),),
    "prior": (2 * GRAM,), "q1": (2.0,), "q12": (0.2,), "q2": (2.0,), "q_sigma": ("-3/4",),
    "quadratic": (False,), "queries": (lg.Dense(weight_std=2.0),), "rank": (2,),
    "rate": (0.3, (0, 1)), "rate_a": ("1/2",), "rate_v": ("1/2",), "rate_w": ("1/2",),
    "rates": (2.0, {"hidden": 0.2}, [0.05, 0.3], {"w": 2.0, "v": 1.0}), "relative": (True,),
    "read_in": (False,), "read_out": (False,), "reason": ("other",),
    "record": ("feature_kernel", "ntk"),
    "record_at": ([1],), "record_pairs": (((0, 1),),), "reference": (lg.ntk(),),
    "repeats": (4,), "replicates": (3,),
    "results": (networks(),), "ridge": (0.3,), "run": (run(steps=3),),
    "sample_neurons": (2,), "sample_shape": ((3, 1),), "samples": (6,),
    "sampling": ("independent", "finite_width"), "scale": (2.0,), "scaling": ("mup",),
    "schedule": (lambda step: 0.5 + 0 * step, [0.5, 0.25]), "seed": (1,), "seeds": (3,),
    "shared": (False, True), "shortcut": (lg.Dense(),), "signal": (2.0,),
    "sites": (16,), "sizes": ([2],), "skip_factor": (0.5,), "slopes": ((1, -2),),
    "spec": ("erf", "logistic"), "start": ((0.3, 1.0),), "std": (2.0, False),
    "still": (1e-9,), "std_in": ("init_std",), "step": (2,), "steps": (3,), "strides": (3, (2, 1)),
    "temperature": (0.3,),
    "theory": ("mean field, one hidden layer",), "theta": ({"input": "1/2"},), "time": (2.0,),
    "times": (3, np.array([0.5, 2.0])), "tokens": ([[1, 1], [0, 2]],),
    "tap_variances": (((0.4, 0.3), (0.2, 0.1)),),
    "task": (lg.regression.Spectrum(np.arange(1, 91.0) ** -1.3, np.arange(1, 91.0) ** -1.5),),
    "values": (lg.Dense(weight_std=2.0),), "variance": (2.0, False), "variances": ([2.0],),
    "vocabulary": (4,), "weight_decay": (0.3,), "weight_std": (1.2, [0.9]),
    "weights": (np.array([1.0, 2.0]), "orthogonal"), "width": (6, 16), "width_ratio": (2,),
    "width_ratios": ([2],), "widths": ([8, 16, 32], 20, [8]), "window": ((1, 1),),
    "x": (X + 0.1, (X + 0.1).astype(SMALL), np.ones((1, 3, 2))),
    "x1": (X + 0.1, (X + 0.1).astype(SMALL)), "x2": (XT, XT.astype(SMALL)),
    "x_test": (XT + 0.1,), "x_train": (X + 0.1,),
    "y": (Y + 0.3, 2.0), "y_test": (YT + 1.0,), "y_train": (Y + 0.3,),
}  # fmt: skip

# Arguments that change no number of a result, and why.
QUIET = {
    "ax": "where a picture is drawn",
    "block": "the size of the parts of a computation",
    "checkpoint": "a file to go on from",
    "devices": "where it is computed",
    "jobs": "the number of processes",
    "kernel_rtol": "the largest error that is accepted",
    "max_particles": "a limit that is not reached",
    "max_replicates": "a limit that is not reached",
    "memory_budget": "a limit that is not reached",
    "method": "another way to the same numbers",
    "name": "a name",
    "path": "a file",
    "progress": "what is shown meanwhile",
    "rtol": "the largest error that is accepted",
    "throw": "what happens in case of a failure",
    "what": "which panel of a picture is drawn",
}


# Values that are accepted and change nothing in the example's call, and why.
HEADS = "draws of heads of attention, which this network lacks"
SAME_PRIOR = "the parameterizations have the same kernel of outputs"
IDLE = {
    "NNGPClassifier.param": SAME_PRIOR,
    "NNGPRegressor.param": SAME_PRIOR,
    "NTKClassifier.kind": "the default",
    "NTKRegressor.kind": "the default",
    "Parameterization.net": "activations are not in the rules",
    "Parameterization.optimizer": "gradient descent has one set of rules, gradient flow as well",
    "Trajectory.run": "kept as it is, beside the numbers",
    "adam.batch_size": "as large as the training set",
    "adam.seed": "the draw of minibatches, without batch_size",
    "apply.param": "rates and distributions are not in the function that is computed",
    "cite.results": "both results have the same papers",
    "classify.net": "deeper networks have the same class",
    "classify.optimizer": "gradient flow has the class of gradient descent",
    "compare.on": "the default is chosen by the data",
    "empirical_ntk.param": "Θ does not depend on γ, and is of given parameters",
    "feedback_alignment.batch_size": "as large as the training set",
    "feedback_alignment.seed": "the draw of minibatches, without batch_size",
    "fit_likelihood.param": SAME_PRIOR,
    "hebbian.batch_size": "as large as the training set",
    "hebbian.seed": "the draw of minibatches, without batch_size",
    "init.net": "the same matrices are drawn for all activations and weight_std in lg.ntk()",
    "init.outputs": "one output has the same matrices with and without its axis",
    "init.param": "weights are standard Gaussian in lg.ntk() and lg.mean_field()",
    "input_gradients.param": "kernels at initialisation are those of γf, where f vanishes",
    "jacobian_moments.bias_std": "slopes of relu do not depend on the variance",
    "jacobian_moments.variance": "slopes of relu do not depend on the variance",
    "kernel.param": "kernels at initialisation are those of γf, where f vanishes",
    "averaged_kernel.param": "kernels at initialisation are those of γf, where f vanishes",
    "averaged_kernel.replicates": HEADS,
    "kernel_of_stds.param": "kernels at initialisation are those of γf, where f vanishes",
    "kernel_operator.param": "kernels at initialisation are those of γf, where f vanishes",
    "kernel_spectrum.param": "networks at initialisation are the same functions, rates aside",
    "langevin.batch_size": "as large as the training set",
    "langevin.seed": "the draw of minibatches, without batch_size",
    "learning_rate_curve.on": "the default is chosen by the data",
    "linear_training.params.key": "the start is given",
    "log_likelihood.param": SAME_PRIOR,
    "low_rank_posterior.key": "all samples are landmarks",
    "low_rank_posterior.param": SAME_PRIOR,
    "measure_exponents.on": "the default is chosen by the data",
    "monte_carlo_kernel.param": "kernels at initialisation are those of γf, where f vanishes",
    "nngp_kernel.param": "a kernel of outputs has no rates, and is that of γf, where f vanishes",
    "ntk_kernel.param": "Θ does not depend on γ",
    "posterior.kind": "the default",
    "network_diagram.param": "signals at initialisation have no rates, and no read-out",
    "propagate.param": "signals at initialisation have no rates, and no read-out",
    "lazy_or_rich.on": "the default is chosen by the data",
    "random_feature_curve.param": SAME_PRIOR,
    "random_feature_curve.spectrum.key": "a spectrum has no samples to draw",
    "rmsprop.batch_size": "as large as the training set",
    "rmsprop.seed": "the draw of minibatches, without batch_size",
    "output_law.param": "networks at initialisation are the same functions, rates aside",
    "training_hierarchy.param": "distributions are not in the function that is computed",
    "sample_kernels.param": "networks at initialisation are the same functions, rates aside",
    "sample_posterior.param": "lg.mup() has the posterior of lg.mean_field()",
    "save.limit": "it is in the file",
    "solve.mean_field.theory": "the one that is chosen",
    "solve_kernel.shared": "there is a single column of targets",
    "stored_kernel.param": "kernels at initialisation are those of γf, where f vanishes",
    "taylor_expand.degree": "it is taken at the point of the expansion",
    "theories.FeedbackKernelLimit.draws": HEADS,
    "theories.FeedbackKernelLimit.key": HEADS,
    "theories.KernelLimit.draws": HEADS,
    "theories.KernelLimit.key": HEADS,
    "read.x": "samples of one shape are read alike",
    "read.jax.x": "samples of one shape are read alike",
}
QUICK = (
    "AvgPool", "Conv", "Dense", "Loss", "Parameterization", "Parameterization.shift", "abc",
    "from_reference", "gaussian_moments", "homogeneous_limits", "mlp", "ridge_test_error",
    "sample_kernels", "width_corrections",
)  # fmt: skip


ALIGNS = lg.optimizers.feedback_alignment(0.1)


def users() -> dict[str, Callable[[Any], Any]]:
    """Return what uses the records of names that are records."""
    found: dict[str, Callable[[Any], Any]] = {
        name: lambda made: lg.train(run(optimizer=made, steps=8), width=4, seeds=2, key=0).f_train
        for name in ("adam", "feedback_alignment", "gd", "hebbian", "langevin", "rmsprop", "sgd")
    }
    flow = {"times": [0.5, 1.0], "steps": None}
    found["gradient_flow"] = lambda made: lg.solve(run(optimizer=made, **flow)).f_train
    moving = {"theories.MeanField": smooth_run(), "theories.KernelLimit": run()}
    moving["theories.DeepMeanField"] = smooth_run()
    adapted = lg.Run(lg.mlp(2, "erf"), lg.mup(), data(), optimizer=lg.adam(0.1), steps=2)
    moving["theories.AdaptiveMeanField"] = adapted
    moving["theories.AdaptiveKernelLimit"] = adapted.with_changes(param=lg.ntk())
    moving["theories.FeedbackMeanField"] = adapted.with_changes(optimizer=ALIGNS)
    moving["theories.FeedbackKernelLimit"] = run(optimizer=ALIGNS)
    found |= {name: lambda made, of=of: lg.solve(of, theory=made) for name, of in moving.items()}
    found["kernel_of_stds"] = lambda made: made({"0.weight_std": 1.3})
    for name in ("complete_p", "depth_mup", "mean_field", "mup", "ntk", "standard", "abc"):
        found[name] = lambda made: [
            made.table(lg.residual_mlp(2, bias_std=1.0), each, width=8, inputs=3)
            for each in (lg.gd(0.1), lg.adam(0.1))
        ]
    return found


def seen(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the numbers and the words of a result."""
    if isinstance(value, (np.ndarray, jax.Array, np.generic, int, float, complex)):
        array = np.asarray(value)
        yield str(array.dtype), array.shape
        yield array
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield str(key)
            yield from seen(entry, depth + 1)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from seen(entry, depth + 1)
    elif isinstance(value, xarray.DataArray):
        yield from seen(value.values, depth + 1)
    elif isinstance(value, xarray.Dataset):
        for name, array in value.variables.items():
            yield str(name)
            yield from seen(np.asarray(array), depth + 1)
        yield from seen(dict(value.attrs), depth + 1)
    elif hasattr(value, "to_xarray"):
        yield from seen(value.to_xarray(), depth + 1)
    elif hasattr(value, "__matmul__") and hasattr(value, "shape"):
        yield from seen(value @ np.eye(value.shape[1], dtype=SMALL), depth + 1)
    elif is_dataclass(value) and depth < 6 and not isinstance(value, type):
        yield type(value).__name__
        for field in fields(value):
            yield from seen(getattr(value, field.name), depth + 1)
    else:
        yield re.sub(r"0x[0-9a-f]+", "", str(value))


def same(one: Any, other: Any) -> bool:
    """Whether two results do not differ by more than rounding."""
    for a, b in zip_longest(seen(one), seen(other)):
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            if a.dtype.kind not in "fc":
                if not np.array_equal(a, b):
                    return False
            elif not np.allclose(a, b, rtol=TOLERANCE, atol=1e-12, equal_nan=True):
                return False
        elif type(a) is not type(b) or isinstance(a, np.ndarray) or a != b:
            return False
    return True


def outcomes_of(
    name: str, example: Example, use: Callable[[Any], Any]
) -> Iterator[tuple[str, str, str]]:
    """Yield (argument, value, "changed", "idle" or the words of a refusal)."""
    maker = example.call.__init__ if isinstance(example.call, type) else example.call
    given = {n: p.default for n, p in signature(maker).parameters.items()} | example.arguments
    first = use(example.call(**example.arguments))
    for argument in example.parameters():
        if argument in QUIET:
            continue
        values = OTHER.get(argument, ())
        if not values:
            yield argument, "", "FAULT: no other value is listed"
        for number, value in enumerate(values):
            if argument in given and same(given[argument], value):
                continue
            try:
                again = use(example.call(**{**example.arguments, argument: value}))
                idle = same(first, again)  # products of an operator are computed here
            except LargenError as error:
                yield argument, str(number), f"{type(error).__name__}: {error}"[:150]
            except Exception as error:
                yield argument, str(number), f"FAULT {type(error).__name__}: {error}"[:150]
            else:
                yield argument, str(number), "idle" if idle else "changed"


def everything(names: Collection[str] = ()) -> Iterator[tuple[str, str, str, str]]:
    """Yield (name, argument, number of the value, outcome) of some names, or of all."""
    using = users()
    for name, example in examples().items():
        if not names or name in names:
            for row in outcomes_of(name, example, using.get(name, lambda made: made)):
                yield name, *row
