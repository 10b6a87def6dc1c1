"""Large-N limits of neural networks.

One description of a network serves finite networks, kernels and mean-field limits alike.
Start with :func:`mlp`, a parameterization such as :func:`ntk` or :func:`mean_field`, a
:class:`Dataset` and a :class:`Run`; then :func:`solve` it at infinite width, :func:`train` it at
finite width, and :func:`compare` the two.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from largen._submodules import submodules
from largen._version import __version__

if TYPE_CHECKING:
    from largen import (
        architectures,
        arrays,
        bibliography,
        cli,
        errors,
        expectations,
        experiments,
        files,
        kernels,
        networks,
        parameterizations,
        plots,
        regression,
        results,
        runs,
        scalars,
        theories,
        transfer,
    )
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
        Graph,
        Layer,
        LayerNorm,
        LocallyConnected,
        MaxPool,
        MultiHeadAttention,
        Product,
        QKVAttention,
        Residual,
        RMSNorm,
        SelfAttention,
        SumPool,
        Upsample,
        mlp,
        repeat,
        residual_mlp,
        serial,
        token_inputs,
        with_positions,
    )
    from largen.criticality import (
        critical_initialization,
        edge_of_chaos,
        fixed_points,
        jacobian_moments,
        phase_diagram,
        propagate,
    )
    from largen.expectations import activation, gaussian_moments
    from largen.experiments import (
        Comparison,
        MeasuredExponents,
        catapult,
        catapult_diagram,
        cite,
        compare,
        convergence_bound,
        gamma_regimes,
        learning_rate_curve,
        measure_exponents,
        predict_training,
        regime,
        scaling_map,
        width_corrections_in_training,
    )
    from largen.finite_width import (
        covariance_sde,
        homogeneous_jacobian,
        homogeneous_limits,
        homogeneous_moments,
        layer_learning_rates,
        linear_output,
        sample_kernels,
        sample_tangent_kernels,
        width_corrections,
        width_fluctuations,
        width_posterior,
    )
    from largen.kernels import kernel, kernel_estimate, kernel_function, nngp, ntk_kernel
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
        classify,
        complete_p,
        depth_mup,
        from_reference,
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
    from largen.regression import (
        critical_learning_rate,
        fit_cross_validation,
        fit_likelihood,
        flow_posterior,
        flow_posterior_from_kernel,
        learning_curve,
        log_likelihood,
        optimal_learning_rate,
        posterior,
        posterior_from_kernel,
        ridge_test_error,
        time_scales,
    )
    from largen.regression.estimators import (
        KernelFlowClassifier,
        KernelFlowRegressor,
        NNGPClassifier,
        NNGPRegressor,
        NTKClassifier,
        NTKRegressor,
    )
    from largen.regression.large import (
        kernel_operator,
        low_rank_posterior,
        solve_kernel,
        stored_kernel,
    )
    from largen.runs import Dataset, Loss, Run, Theory, Trajectory, load, loss, save
    from largen.theories import solve
    from largen.theories.mean_field import (
        deep_linear,
        infinite_depth_one_step,
        kernel_after_one_step,
        response_functions,
        whitened_linear_flow,
    )

# The submodule that defines each public name. A submodule is imported when one of its names is
# first used, so that `import largen` costs little more than `import jax`.
_ROOMS = {
    "architectures": "Activation AvgPool Axes BatchNorm Concatenate Conv ConvTranspose Dense "
    "Dropout Flatten GlobalAvgPool GlobalSumPool Graph Layer LayerNorm LocallyConnected MaxPool "
    "MultiHeadAttention Product QKVAttention RMSNorm Residual SelfAttention SumPool Upsample mlp "
    "repeat residual_mlp serial token_inputs with_positions",
    "criticality": "critical_initialization edge_of_chaos fixed_points jacobian_moments "
    "phase_diagram propagate",
    "expectations": "activation gaussian_moments",
    "experiments": "Comparison MeasuredExponents catapult catapult_diagram cite compare "
    "convergence_bound gamma_regimes learning_rate_curve measure_exponents predict_training "
    "regime scaling_map width_corrections_in_training",
    "kernels": "kernel kernel_estimate kernel_function nngp ntk_kernel",
    "finite_width": "covariance_sde homogeneous_jacobian homogeneous_limits homogeneous_moments "
    "layer_learning_rates linear_output sample_kernels sample_tangent_kernels width_corrections "
    "width_fluctuations width_posterior",
    "networks": "FiniteNetwork apply empirical_ntk finite_network init linearize "
    "monte_carlo_kernel observe output_kernel tangent_kernel tangent_operator taylor_expand train",
    "parameterizations": "Parameterization abc adam classify complete_p depth_mup from_reference "
    "gd gradient_flow langevin mean_field mup ntk rmsprop scaling scaling_class sgd standard",
    "regression": "critical_learning_rate fit_cross_validation fit_likelihood flow_posterior "
    "flow_posterior_from_kernel learning_curve log_likelihood optimal_learning_rate posterior "
    "posterior_from_kernel ridge_test_error time_scales",
    "regression.estimators": "KernelFlowClassifier KernelFlowRegressor NNGPClassifier "
    "NNGPRegressor NTKClassifier NTKRegressor",
    "regression.large": "kernel_operator low_rank_posterior solve_kernel stored_kernel",
    "runs": "Dataset Loss Run Theory Trajectory load loss save",
    "theories": "solve",
    "theories.mean_field": "deep_linear infinite_depth_one_step kernel_after_one_step "
    "response_functions whitened_linear_flow",
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names.split()}

# The submodules themselves, such as `largen.errors`, are attributes as well.
_room, _ROOM_NAMES = submodules(__name__, __path__)

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        from largen.interrupts import interruptible

        # JAX's garbage-collector callbacks can swallow interrupts while modules load as well.
        with interruptible():
            value = getattr(import_module(f"largen.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    return _room(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOM_NAMES})
