"""Which posterior an estimator is: Bayesian, of trained networks, or at a time of training.

The constructors are without types, since the contract of scikit-learn wants whatever is given to
be kept, and checked by ``fit``.
"""

from __future__ import annotations

from typing import Any

from largen.architectures import Layer
from largen.errors import InvalidInput
from largen.kernels.estimators.samples import condition, default_network, weights_of
from largen.kernels.estimators.tasks import KernelEstimator
from largen.kernels.masked import Masked
from largen.kernels.prediction import (
    Posterior,
    fit_cross_validation,
    fit_likelihood,
    flow_posterior,
)


class Bayesian(KernelEstimator):
    """Inference with the network as prior."""

    net_: Layer
    noise_: Any

    def __init__(
        self,
        net: Any = None,
        *,
        noise: Any = 1e-2,
        param: Any = None,
        optimize: Any = False,
        sample_shape: Any = None,
    ):
        self.net = net
        self.noise = noise
        self.param = param
        self.optimize = optimize
        self.sample_shape = sample_shape

    def _condition(self, given: Masked, targets: Any, sample_weight: Any) -> Posterior:
        self.net_ = default_network() if self.net is None else self.net
        self.noise_ = self.noise
        if self.optimize:
            fitted = fit_likelihood(
                self.net_, given.x, targets, noise=self.noise, mask=given.mask, param=self.param
            )
            self.net_, self.noise_ = fitted.net, fitted.noise
        return condition(
            self.net_, given, targets, sample_weight, self.noise_, kind="nngp", param=self.param
        )


class Trained(KernelEstimator):
    """Networks that were trained for ever, or another kernel's posterior."""

    net_: Layer
    noise_: Any
    _kinds = ("ntk", "ntk-gp")

    def __init__(
        self,
        net: Any = None,
        *,
        noise: Any = 1e-2,
        param: Any = None,
        kind: Any = "ntk",
        optimize: Any = False,
        sample_shape: Any = None,
    ):
        self.net = net
        self.noise = noise
        self.param = param
        self.kind = kind
        self.optimize = optimize
        self.sample_shape = sample_shape

    def _condition(self, given: Masked, targets: Any, sample_weight: Any) -> Posterior:
        if self.kind not in self._kinds:
            wanted = " or ".join(map(repr, self._kinds))
            raise InvalidInput(f"kind: wanted {wanted}, got {self.kind!r}.")
        self.net_ = default_network() if self.net is None else self.net
        self.noise_ = self.noise
        if self.optimize:
            kind = "nngp" if self.kind == "nngp" else "ntk"
            fitted = fit_cross_validation(
                self.net_, given.x, targets, noise=self.noise, kind=kind, mask=given.mask,
                param=self.param,
            )  # fmt: skip
            self.net_, self.noise_ = fitted.net, fitted.noise
        return condition(
            self.net_, given, targets, sample_weight, self.noise_, kind=self.kind, param=self.param
        )


class Flow(KernelEstimator):
    """Networks that were trained until some time."""

    net_: Layer
    time_: Any

    def __init__(
        self,
        net: Any = None,
        *,
        time: Any = 100.0,
        param: Any = None,
        optimize: Any = False,
        sample_shape: Any = None,
    ):
        self.net = net
        self.time = time
        self.param = param
        self.optimize = optimize
        self.sample_shape = sample_shape

    def _condition(self, given: Masked, targets: Any, sample_weight: Any) -> Posterior:
        self.net_ = default_network() if self.net is None else self.net
        self.time_ = self.time
        if self.optimize:
            fitted = fit_cross_validation(
                self.net_, given.x, targets, time=self.time, mask=given.mask, param=self.param
            )
            self.net_, self.time_ = fitted.net, fitted.time
        weights = None if sample_weight is None else weights_of(sample_weight, len(targets))
        return flow_posterior(
            self.net_, given.x, targets, time=self.time_, weights=weights, mask=given.mask,
            param=self.param,
        )  # fmt: skip
