"""Hints for names that do not exist: where they are, or what they are called here."""

from __future__ import annotations

from difflib import get_close_matches

from largen._rooms import addresses

# What a name of another library is called in largen: neural-tangents first, then mup.
ELSEWHERE = {
    "stax": 'lg.serial(lg.Dense(), lg.Activation("relu"), …) and lg.layers',
    "Relu": 'lg.Activation("relu")',
    "Erf": 'lg.Activation("erf")',
    "Gelu": 'lg.Activation("gelu")',
    "Sin": 'lg.Activation("sin")',
    "ABRelu": "lg.Activation(lg.expectations.leaky_relu(…))",
    "LeakyRelu": 'lg.Activation("leaky_relu")',
    "ElementwiseNumerical": "lg.Activation(function)",
    "Identity": "lg.serial()",
    "FanOut": "lg.Residual(branch, shortcut) or lg.layers.Graph",
    "FanInSum": "lg.Residual(branch, shortcut) or lg.layers.Graph",
    "FanInConcat": "lg.layers.Concatenate",
    "FanInProd": "lg.layers.Product",
    "GlobalSelfAttention": "lg.layers.SelfAttention",
    "ImageResize": "lg.layers.Upsample",
    "ConvLocal": "lg.layers.LocallyConnected",
    "batch": "lg.kernel, which computes in tiles: see memory_budget= and devices=; or "
    "lg.regression.large for matrices on disk",
    "kernel_fn": "lg.kernel",
    "nngp": "lg.nngp_kernel",
    "cross_entropy": 'loss="cross_entropy" of lg.Run',
    "mse": 'loss="mse" of lg.Run',
    "logistic": 'loss="logistic" of lg.Run',
    "relu": 'lg.Activation("relu"), or lg.mlp(3, "relu")',
    "tanh": 'lg.Activation("tanh"), or lg.mlp(3, "tanh")',
    "gelu": 'lg.Activation("gelu"), or lg.mlp(3, "gelu")',
    "empirical_ntk_fn": "lg.networks.ntk_of_function",
    "empirical_nngp_fn": "lg.networks.nngp_of_function",
    "empirical_kernel_fn": "lg.networks.ntk_of_function and lg.networks.nngp_of_function",
    "monte_carlo_kernel_fn": "lg.networks.monte_carlo_kernel",
    "predict": "lg.posterior, lg.regression.flow_posterior and lg.solve, and for networks of a "
    "width lg.training.predict_networks",
    "gradient_descent": "lg.solve",
    "gradient_descent_mse": "lg.regression.flow_posterior_from_kernel",
    "gradient_descent_mse_ensemble": "lg.posterior and lg.regression.flow_posterior",
    "gp_inference": "lg.regression.posterior_from_kernel",
    "max_learning_rate": "lg.regression.critical_learning_rate",
    "MuReadout": "lg.transfer.torch, whose plans leave the model as it is",
    "MuSharedReadout": "lg.transfer.torch, whose plans leave the model as it is",
    "MuAdam": "plan.param_groups of lg.transfer.torch, for any optimizer",
    "MuAdamW": "plan.param_groups of lg.transfer.torch, for any optimizer",
    "MuSGD": "plan.param_groups of lg.transfer.torch, for any optimizer",
    "set_base_shapes": "scale of lg.transfer.torch",
    "make_base_shapes": "scale of lg.transfer.torch",
    "get_coord_data": "coordinate_check of lg.transfer.torch",
}


def hint(name: str) -> str:
    """Return a sentence about a public name that was looked for where it is not, or nothing.

    >>> hint("Dropout"), hint("Relu")
    (' It is largen.layers.Dropout.', ' Here it is lg.Activation("relu").')
    """
    known = addresses()
    if name in known:
        return f" It is {known[name]}."
    if name in ELSEWHERE:
        return f" Here it is {ELSEWHERE[name]}."
    lower = {public.lower(): public for public in known}
    close = get_close_matches(name.lower(), lower, n=1)
    return f" Did you mean {known[lower[close[0]]]}?" if close else ""
