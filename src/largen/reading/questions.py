"""What people ask of a model, each answered by another room of the library."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from largen.criticality import Propagation, propagate
from largen.errors import InvalidInput, NoTheory, one_of
from largen.finite_width import (
    WidthCorrections,
    WidthFluctuations,
    width_corrections,
    width_fluctuations,
)
from largen.parameterizations.classification import Classification
from largen.reading.depth import Depth, depth_of
from largen.reading.nodes import law_of
from largen.reading.powers import classified
from largen.regression import Prediction, critical_learning_rate, posterior_from_kernel
from largen.regression.checks import noise_variance, training_targets
from largen.scalars import real

if TYPE_CHECKING:
    from largen.reading.model import Model


class Questions:
    """The questions to a model that has been read."""

    @property
    def gaussian(self) -> bool:
        """Whether all weights behind the data have the fourth moment of Gaussian ones."""
        return not any(w.law.excess for w in _model(self).weights if not w.map.reads_data)

    def propagation(self, x: Any = None, *, width: int | None = None) -> Propagation:
        """Return variances, correlations and gradients of the model, module by module.

        Those of :func:`largen.criticality.propagate`, with the names of the modules.

        Parameters
        ----------
        x
            Samples in the layout of the module; by default those with which it was read.
        width
            None for the limit, a number for the constants that the model has at this width.

        Raises
        ------
        InvalidInput
            For samples of another shape than the one that was read.
        NoTheory
            If there is no limit, or a function has no kernel.

        Examples
        --------
        >>> import largen as lg, numpy as np
        >>> from torch import nn
        >>> make = lambda n: nn.Sequential(nn.Linear(3, n), nn.LayerNorm(n), nn.Linear(n, 2))
        >>> lg.read(make, np.eye(3)).propagation().layers
        ('0', '1', '2')
        """
        net = _model(self)
        graph = net.layer if width is None else net.at(width)
        with net.named():
            return propagate(graph, _samples(net, x))

    def depth(self, x: Any = None, *, width: int | None = None) -> Depth:
        """Return what the repeated blocks of the model do to signals and gradients.

        The longest run of blocks of equal operations is looked for in :meth:`propagation`.

        Parameters
        ----------
        x, width
            As in :meth:`propagation`.

        Raises
        ------
        NoTheory
            If no operations are repeated, or as :meth:`propagation` does.

        Examples
        --------
        >>> import largen as lg, numpy as np
        >>> from torch import nn
        >>> def make(n):
        ...     blocks = [m for _ in range(3) for m in (nn.ReLU(), nn.Linear(n, n, bias=False))]
        ...     return nn.Sequential(nn.Linear(3, n), *blocks, nn.ReLU(), nn.Linear(n, 2))
        >>> found = lg.read(make, np.eye(3)).depth()
        >>> found.blocks, found.gradients.round(4)  # σ_w² E[φ'²] = 1/3 · 1/2
        (('2', '4', '6'), array([0.1667, 0.1667, 0.1667]))
        """
        return depth_of(self.propagation(x, width=width))

    def classify(self, optimizer: Any = None) -> Classification:
        """Return the class of the model's initialisation with an optimizer, at one rate for all.

        Powers of the width in the laws of weights and in factors of the forward pass are those that
        were read; the verdict is that of :func:`largen.scaling.classify`: lazy (``kernel``), rich
        (``feature learning``, ``maximal``), or ``unstable`` at rates that do not fall with the
        width.

        Parameters
        ----------
        optimizer
            As in :func:`largen.scaling.classify`; gradient descent by default.

        Raises
        ------
        InvalidInput
            If the model was read from one module, which says nothing of powers.
        NoTheory
            For operations without a rule there, such as normalisations.

        Examples
        --------
        >>> import largen as lg, numpy as np
        >>> from torch import nn
        >>> make = lambda n: nn.Sequential(nn.Linear(3, n), nn.Tanh(), nn.Linear(n, 2))
        >>> found = lg.read(make, np.eye(3)).classify("gd")
        >>> found.kind, found.stable_rate
        ('unstable', Fraction(1, 1))
        """
        net = _model(self)
        with net.named():
            return classified(net, optimizer)

    def critical_rate(
        self, x: Any = None, *, width: int | None = None, momentum: float = 0.0
    ) -> float:
        """Return the rate above which full-batch gradient descent diverges at a width.

        2(1 + β)P/λ_max for the loss (1/P) Σ ½(f − y)² of one output and one rate for all parameters
        of affine maps that are not frozen: :func:`largen.regression.critical_learning_rate` of
        ``net.kernel(x, width=width, rates=1.0)``. The loss ``nn.MSELoss`` of C outputs has
        gradients 2/C times as large, and its critical rate is C/2 times this one.

        Parameters
        ----------
        x
            The P training samples; by default those with which the model was read.
        width
            The width; None for a model that was read from one module.
        momentum
            β of heavy-ball momentum.

        Raises
        ------
        InvalidInput
            Without a width, for a model that has several; for samples of another shape.
        NoTheory
            If there is no limit, or a function has no kernel.

        Examples
        --------
        >>> import largen as lg, numpy as np
        >>> from torch import nn
        >>> make = lambda n: nn.Sequential(nn.Linear(3, n), nn.Identity(), nn.Linear(n, 1))
        >>> net = lg.read(make, np.eye(3))
        >>> [round(net.critical_rate(width=n), 3) for n in (64, 128)]
        [0.183, 0.098]
        """
        momentum = real("momentum", momentum, at_least=0)
        kernels = _model(self).kernel(_samples(_model(self), x), width=width, rates=1.0)
        return critical_learning_rate(kernels.ntk, momentum=momentum)

    def corrections(self, x: Any = None, *, width: int) -> WidthCorrections:
        """Return how far a width is from infinite: kernels at initialisation to order 1/width.

        :func:`largen.finite_width.width_corrections` with the constants of this width and the
        excess kurtosis of the weights, for fully connected networks without normalisation.

        Parameters
        ----------
        x
            At most eight samples, two with residual branches; by default the first two of those
            with which the model was read.
        width
            The width.

        Raises
        ------
        InvalidInput
            For too many samples, or a model that was read from one module.
        NoTheory
            For other networks.

        Examples
        --------
        >>> import largen as lg, numpy as np
        >>> from torch import nn
        >>> make = lambda n: nn.Sequential(
        ...     nn.Linear(3, n), nn.ReLU(), nn.Linear(n, n), nn.ReLU(), nn.Linear(n, 2))
        >>> lg.read(make, np.eye(3)).corrections(width=100).widths
        (100, 100)
        """
        net = _model(self)
        if len(net.sample) > 1:
            raise NoTheory(
                "lg.read: samples have positions; corrections are of dense layers, and "
                "net.fluctuations has those of convolutions."
            )
        graph = net.at(width)
        given = _samples(net, x)[: 2 if x is None else None]
        net.warn_of_read_ins()
        with net.named():
            neurons, excess = _neurons(net, width), _excess(net, width)
            return width_corrections(graph, given, width=neurons, excess=excess)

    def fluctuations(
        self, x: Any = None, *, width: int, draws: int = 4000, key: Any = 0
    ) -> WidthFluctuations:
        """Return kernels of many samples at order 1/width, with draws of how they fluctuate.

        :func:`largen.finite_width.width_fluctuations` with the constants of this width, for models
        of affine maps, convolutions, activations, linear pooling and residual branches. Of weights
        that are not Gaussian, such as the uniform ones of ``torch.nn.Linear``, kernels fluctuate in
        the same way; shifts, and draws of the NTK, are then None.

        Parameters
        ----------
        x
            Samples in the layout of the module, with at most 512 positions in all; by default those
            with which the model was read.
        width
            The width.
        draws, key
            As in :func:`largen.finite_width.width_fluctuations`.

        Raises
        ------
        InvalidInput
            For too many samples, or a model that was read from one module.
        NoTheory
            For other models.

        Examples
        --------
        >>> import largen as lg, numpy as np
        >>> from torch import nn
        >>> make = lambda n: nn.Sequential(
        ...     nn.Linear(3, n), nn.ReLU(), nn.Linear(n, n), nn.ReLU(), nn.Linear(n, 2))
        >>> lg.read(make, np.eye(3)).fluctuations(width=100).kernel_samples.shape
        (4000, 3, 3)
        """
        net = _model(self)
        graph, given, neurons = net.at(width), _samples(net, x), _neurons(net, width)
        net.warn_of_read_ins()
        options: dict[str, Any] = {"draws": draws, "gaussian": net.gaussian, "key": key}
        with net.named():
            return width_fluctuations(graph, given, width=neurons, **options)

    def predict(
        self,
        x: Any,
        y: Any,
        x_test: Any,
        *,
        width: int | None = None,
        kind: str = "nngp",
        noise: Any = 0.0,
    ) -> Prediction:
        """Return what infinitely many neurons predict at new samples.

        :func:`largen.regression.posterior_from_kernel` of ``net.kernel``, which has the law of a
        read-in that is not Gaussian.

        Parameters
        ----------
        x, x_test
            Training and test samples in the layout of the module.
        y
            Targets, (sample,) or (sample, output).
        width
            None for the limit, a number for the constants that the model has at this width.
        kind
            As in :func:`largen.posterior`: ``"nngp"`` for Bayesian inference, ``"ntk"`` for
            training by gradient flow. Its variance is that over initialisations in the limit, of
            random outputs at the start; at a width it is None. There the fluctuations of tangent
            kernels, of order 1/width, add to it, and may be most of it: 0.172 of a standard
            deviation of 0.175 in trained networks of width 128 on digits, where outputs at the
            start make 0.045.
        noise
            The variance of the targets' noise.

        Raises
        ------
        InvalidInput
            For samples of another shape, or targets of another number.
        NumericalFailure
            If the kernel is singular.

        Examples
        --------
        >>> import largen as lg, numpy as np
        >>> from torch import nn
        >>> make = lambda n: nn.Sequential(nn.Linear(3, n), nn.Identity(), nn.Linear(n, 1))
        >>> net = lg.read(make, np.eye(3))
        >>> net.predict(np.eye(3), np.arange(3.0), np.eye(3)[:1], kind="ntk").mean.round(6) + 0
        array([0.])
        """
        net = _model(self)
        one_of("kind", kind, ("nngp", "ntk"))
        train, test = net.input("x", x), net.input("x_test", x_test, no_rows=True)
        y = training_targets(y, len(train))
        if not isinstance(noise, str):
            noise_variance(noise, len(train))
        both = net.kernel(np.concatenate([train, test]), width=width)
        nngp, tangent = np.asarray(both.nngp), np.asarray(both.ntk)
        n = len(train)
        own, cross, variance = nngp[:n, :n], nngp[n:, :n], np.diagonal(nngp)[n:]
        if kind == "nngp":
            found = posterior_from_kernel(own, y, noise=noise)
            return found.predict(cross, variance)
        found = posterior_from_kernel(tangent[:n, :n], y, kind=kind, noise=noise, prior=own)
        if width is not None:  # the variance of the limit is not that of networks of a width
            return found.predict(tangent[n:, :n])
        return found.predict(tangent[n:, :n], variance, prior_cross=cross)


def _model(asked: Questions) -> Model:
    return cast("Model", asked)


def _samples(net: Model, x: Any) -> np.ndarray:
    return net.input("x", net.family.x if x is None else x)


def _excess(net: Model, width: int) -> list[float]:
    """Return the excess kurtosis of the weights of all maps, the read-in first."""
    nodes, parameters = net.nodes_at(width)
    return [law_of(each.weight, parameters).excess for each in nodes.maps.values()]


def _neurons(net: Model, width: int) -> int:
    """Return the number N of which the numbers of neurons are multiples by ``width_ratio``."""
    nodes, parameters = net.nodes_at(width)
    first = next(each for each in nodes.maps.values() if not each.last)
    number = Fraction(parameters[first.weight].shape[first.fan_out]) / first.ratio
    if number.denominator > 1:
        raise InvalidInput(f"width: {number} neurons at width {width} are no integer.")
    return int(number)
