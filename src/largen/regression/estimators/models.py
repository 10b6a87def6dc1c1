"""The posterior of an estimator: Bayesian, of trained networks, or at a finite training time.

The parameters have no types, since scikit-learn's contract requires the constructor to keep any
value and ``fit`` to check it.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from largen.architectures import Layer
from largen.bibliography import cites
from largen.errors import InvalidInput, one_of
from largen.regression import (
    KernelPosterior,
    Posterior,
    fit_cross_validation,
    fit_likelihood,
    flow_posterior,
    flow_posterior_from_kernel,
    posterior_from_kernel,
)
from largen.regression.conditioning import Relaxation
from largen.regression.estimators.samples import (
    check_noise,
    check_time,
    default_network,
    noise_of_one,
    weights_of,
)
from largen.regression.estimators.tasks import KernelEstimator
from largen.regression.gaussian_process import fixed_posterior
from largen.scalars import flag

_OF_NETWORKS = ("net", "depth", "activation", "param", "sample_shape")


@dataclass(eq=False, repr=False)
class OfNetworks(KernelEstimator):
    """Parameters that determine the kernel."""

    net: Any = None
    _: KW_ONLY
    depth: Any = None
    activation: Any = None
    kernel: Any = "network"
    param: Any = None
    optimize: Any = False
    sample_shape: Any = None

    def _network(self) -> Layer | None:
        """Return the network whose kernel is used; None for a precomputed kernel."""
        if self._precomputed:
            for name in _OF_NETWORKS:
                if getattr(self, name) is not None:
                    raise InvalidInput(f"{name}: belongs to the kernel of a network, which "
                                       "kernel='precomputed' does not have.")  # fmt: skip
            if flag("optimize", self.optimize):
                raise InvalidInput("optimize: fits constants of a network, and with "
                                   "kernel='precomputed' there is none; noise='auto' fits the "
                                   "noise.")  # fmt: skip
            return None
        if self.net is None:
            return default_network(self.depth, self.activation)
        for name in ("depth", "activation"):
            if getattr(self, name) is not None:
                raise InvalidInput(f"{name}: belongs to the default network, and net is given.")
        return self.net


class Noisy(OfNetworks):
    """Estimators with a noise or a ridge, and their attributes after ``fit``."""

    noise: Any

    def _of_noise(
        self, given: Any, targets: Any, sample_weight: Any, kind: str, fit: Any
    ) -> Posterior | KernelPosterior:
        """Return the posterior of a kind, and store its network and noise after the ``fit``."""
        check_noise(self.noise)
        weights = weights_of(sample_weight, len(targets))
        self.net_ = net = self._network()
        if net is None:
            of_kernel = "ntk" if kind == "ntk" else "gp"
            conditioned = posterior_from_kernel(
                given, targets, kind=of_kernel, noise=self.noise, weights=weights
            )
        else:
            options: dict[str, Any] = {"mask": given.mask, "param": self.param}
            noise = self.noise
            if flag("optimize", self.optimize) and np.any(targets):  # constant ones fit any net
                if isinstance(noise, str):
                    start = fixed_posterior(net, given.x, targets, kind, noise, **options)
                    noise = float(start.noise)
                fitted = fit(net, given.x, targets, noise=noise, kind=kind, **options)
                self.net_ = net = fitted.net
                noise = fitted.noise
            conditioned = fixed_posterior(net, given.x, targets, kind, noise, weights, **options)
        self.noise_ = noise_of_one(conditioned.noise, weights)
        return conditioned


@cites("lee2018deep", "bahri2022les")
@dataclass(eq=False, repr=False, kw_only=True)
class Bayesian(Noisy):
    """Inference with the network as prior, and Gaussian noise in the targets."""

    noise: Any = "auto"

    @property
    def _noise_of_targets(self) -> float:
        return float(self.noise_)

    def _condition(
        self, given: Any, targets: Any, sample_weight: Any
    ) -> Posterior | KernelPosterior:
        return self._of_noise(given, targets, sample_weight, "nngp", fit_likelihood)


@cites("jacot2018neural", "lee2019wide", "bahri2022les")
@dataclass(eq=False, repr=False, kw_only=True)
class Trained(Noisy):
    """Networks trained for an infinite time, or the posterior of a precomputed kernel."""

    noise: Any = "auto"
    kind: Any = "ntk"

    _kinds = ("ntk", "ntk-gp")

    @property
    def _noise_of_targets(self) -> float:
        # The ridge of trained networks is a penalty; in the Bayesian reading it is noise.
        return 0.0 if self.kind == "ntk" else float(self.noise_)

    def _condition(
        self, given: Any, targets: Any, sample_weight: Any
    ) -> Posterior | KernelPosterior:
        kind = one_of("kind", self.kind, self._kinds)
        fit = fit_likelihood if kind == "ntk-gp" else fit_cross_validation
        return self._of_noise(given, targets, sample_weight, kind, fit)


@cites("jacot2018neural", "lee2019wide", "bahri2022les")
@dataclass(eq=False, repr=False, kw_only=True)
class Flow(OfNetworks):
    """Networks trained until a finite time."""

    time: Any = "auto"

    @property
    def _noise_of_targets(self) -> float:
        return 0.0  # the distribution of trained networks does not describe targets

    def _condition(
        self, given: Any, targets: Any, sample_weight: Any
    ) -> Posterior | KernelPosterior:
        check_time(self.time)
        weights = weights_of(sample_weight, len(targets))
        self.net_ = self._network()
        if self.net_ is None:
            conditioned = flow_posterior_from_kernel(
                given, targets, time=self.time, weights=weights
            )
            if isinstance(conditioned.given, Relaxation):
                self.time_ = float(conditioned.given.times[0])
            return conditioned
        options: dict[str, Any] = {"mask": given.mask, "param": self.param}
        time = self.time
        if flag("optimize", self.optimize) and np.any(targets):
            if isinstance(time, str):
                time = flow_posterior(self.net_, given.x, targets, time=time, **options).time
            fitted = fit_cross_validation(self.net_, given.x, targets, time=time, **options)
            self.net_, time = fitted.net, fitted.time
        conditioned = flow_posterior(
            self.net_, given.x, targets, time=time, weights=weights, **options
        )
        self.time_ = conditioned.time
        return conditioned
