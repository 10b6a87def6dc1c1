"""Large-N limits of neural networks.

One description of a network, many readings of it: finite networks, kernels, mean-field limits.
Start with :func:`mlp`, a parameterization such as :func:`ntk` or :func:`mean_field`, a
:class:`Dataset` and a :class:`Run`; then :func:`solve` it at infinite width, :func:`train` it at
finite width, and :func:`compare` the two.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from largen._version import __version__

if TYPE_CHECKING:
    from largen.architectures import (
        Activation,
        AvgPool,
        Axes,
        BatchNorm,
        Concatenate,
        Conv,
        ConvTranspose,
        Dense,
        Dropout,
        Flatten,
        GlobalAvgPool,
        GlobalSumPool,
        Layer,
        LayerNorm,
        LocallyConnected,
        MaxPool,
        MultiHeadAttention,
        Product,
        Residual,
        RMSNorm,
        SelfAttention,
        SumPool,
        mlp,
        repeat,
        residual_mlp,
        serial,
        token_inputs,
        with_positions,
    )
    from largen.dmft import (
        deep_linear,
        kernel_after_one_step,
        response_functions,
        whitened_linear_flow,
    )
    from largen.expectations import activation, gaussian_moments
    from largen.experiments import (
        Comparison,
        MeasuredExponents,
        compare,
        gamma_regimes,
        measure_exponents,
        scaling_map,
    )
    from largen.kernels import kernel, kernel_estimate, kernel_function, nngp, ntk_kernel
    from largen.kernels.estimators import (
        KernelFlowClassifier,
        KernelFlowRegressor,
        NNGPClassifier,
        NNGPRegressor,
        NTKClassifier,
        NTKRegressor,
    )
    from largen.kernels.large import low_rank_posterior, solve_kernel, stored_kernel
    from largen.kernels.prediction import (
        critical_learning_rate,
        fit_cross_validation,
        fit_likelihood,
        flow_posterior,
        log_likelihood,
        optimal_learning_rate,
        posterior,
        time_scales,
    )
    from largen.networks import (
        FiniteNetwork,
        apply,
        empirical_ntk,
        finite_network,
        init,
        linearize,
        monte_carlo_kernel,
        observe,
        output_kernel,
        tangent_kernel,
        tangent_operator,
        taylor_expand,
        train,
    )
    from largen.parameterizations import (
        Parameterization,
        abc,
        adam,
        complete_p,
        depth_mup,
        gd,
        gradient_flow,
        langevin,
        mean_field,
        mup,
        ntk,
        rmsprop,
        scaling,
        scaling_class,
        sgd,
        standard,
    )
    from largen.runs import Dataset, Loss, Run, Theory, Trajectory, loss
    from largen.theories import solve

# Where each public name lives. A room is imported when one of its names is first used, so that
# `import largen` costs little more than `import jax`.
_ROOMS = {
    "architectures": "Activation AvgPool Axes BatchNorm Concatenate Conv ConvTranspose Dense "
    "Dropout Flatten GlobalAvgPool GlobalSumPool Layer LayerNorm LocallyConnected MaxPool "
    "MultiHeadAttention Product RMSNorm Residual SelfAttention SumPool mlp repeat residual_mlp "
    "serial token_inputs with_positions",
    "dmft": "deep_linear kernel_after_one_step response_functions whitened_linear_flow",
    "expectations": "activation gaussian_moments",
    "experiments": "Comparison MeasuredExponents compare gamma_regimes measure_exponents "
    "scaling_map",
    "kernels": "kernel kernel_estimate kernel_function nngp ntk_kernel",
    "kernels.estimators": "KernelFlowClassifier KernelFlowRegressor NNGPClassifier NNGPRegressor "
    "NTKClassifier NTKRegressor",
    "kernels.large": "low_rank_posterior solve_kernel stored_kernel",
    "kernels.prediction": "critical_learning_rate fit_cross_validation fit_likelihood "
    "flow_posterior log_likelihood optimal_learning_rate posterior time_scales",
    "networks": "FiniteNetwork apply empirical_ntk finite_network init linearize "
    "monte_carlo_kernel observe output_kernel tangent_kernel tangent_operator taylor_expand train",
    "parameterizations": "Parameterization abc adam complete_p depth_mup gd gradient_flow "
    "langevin mean_field mup ntk rmsprop scaling scaling_class sgd standard",
    "runs": "Dataset Loss Run Theory Trajectory loss",
    "theories": "solve",
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names.split()}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"largen.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'largen' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
