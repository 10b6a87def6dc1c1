"""A model that has been read: a network, with the laws of its weights."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any, cast

import numpy as np

from largen.architectures import Graph, Layer, Sequence
from largen.arrays import is_traced, samples
from largen.bibliography import cites
from largen.errors import InvalidInput, NoRule, NotGaussian, NoTheory
from largen.kernels import Kernels, kernel
from largen.kernels.rules import natures
from largen.parameterizations import ntk
from largen.programs import join_elementwise, program_of
from largen.programs.builder import Builder
from largen.programs.signals import Signal
from largen.reading.check import Check, compared
from largen.reading.family import Family
from largen.reading.laws import Parameter
from largen.reading.moments import first_difference, uniform_biases
from largen.reading.nodes import Nodes
from largen.reading.population import Population, population_of, sampled
from largen.reading.questions import Questions
from largen.reading.rates import at_rates
from largen.reading.read_in import ReadIn, kernels_behind
from largen.reading.refusals import refused
from largen.reading.report import report
from largen.reading.weight import Weight
from largen.runs import KernelEstimate
from largen.scalars import integer, sequence
from largen.text import shown

LARGE_EXCESS = 0.01  # smallest excess kurtosis of which kernels warn


@dataclass(frozen=True, eq=False, repr=False)
class Model(Questions, Sequence):
    """A model as a network of :mod:`largen`, made by :func:`largen.read`.

    It is a layer, which other functions take as they take networks. ``print`` shows what was read.

    Attributes
    ----------
    layers
        The network of the limit, one layer; none if there is no limit, of which ``why_not`` says
        why.
    name
        The class of the model, or the name of its forward pass.
    weights
        Its affine maps.
    """

    layers: tuple[Layer, ...]
    name: str
    weights: tuple[Weight, ...]
    why_not: str
    nodes: Nodes
    widths: tuple[int, ...]
    sample: tuple[int, ...]
    family: Family
    unread: str = ""  # why no network of operations was read, "" if there is one

    # Layers are equal if their fields are; two models are the same only as objects.
    __eq__ = object.__eq__  # pyright: ignore[reportAssignmentType]
    __hash__ = object.__hash__

    def lower(self, program: Builder, value: int) -> int:
        """Append the operations of the network of the limit.

        Raises
        ------
        NoTheory
            If there is no limit, or preactivations of the read-in are not Gaussian.
        """
        self._check_limit()
        for weight in self.not_gaussian:
            if abs(weight.excess) > LARGE_EXCESS:
                raise NoTheory(
                    f"lg.read: {weight.node}: sums of {weight.fan_in} {weight.law.kind} weights "
                    "are not Gaussian. net.kernel(x) has their law; net.layer, which this "
                    "function takes, is the network with Gaussian ones of the same variance."
                )
        return super().lower(program, value)

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the shape of the output."""
        self._check_limit()
        return super().signal_behind(signal)

    @property
    def inputs(self) -> int | tuple[int, ...]:
        """The shape of a sample, as networks take it: a number for samples without positions."""
        return self.sample[0] if len(self.sample) == 1 else self.sample

    def _check_limit(self) -> None:
        if self.why_not:
            raise NoTheory(f"lg.read: {self.why_not}")
        if self.unread:
            raise NoTheory(f"{self.unread} net.kernel(x) runs the model at populations of neurons.")

    @cached_property
    def sampler(self) -> Any:
        """Populations of neurons of the model."""
        small, large = self.widths
        return self.family.sampler((small, large))

    @property
    def layer(self) -> Graph:
        """The network of the limit of infinite width, an :class:`largen.layers.Graph`."""
        self._check_limit()
        (graph,) = self.layers
        return cast(Graph, graph)

    def at(self, width: int) -> Graph:
        """Return the network with the constants σ_w and σ_b that the model has at a width.

        Its kernels are the leading order in 1/width with these constants: biases that vanish with
        the width, as those of ``torch.nn.Linear``, are still there.

        Parameters
        ----------
        width
            The argument of the function that makes the model.

        Raises
        ------
        InvalidInput
            If the model was read from one module, whose width is the only one.
        """
        width = integer("width", width, at_least=1)
        if not self.widths:
            raise InvalidInput(
                "width: the model was read from one module, whose constants are those of "
                "net.kernel(x); lg.read(make, x) with a function of the width has others."
            )
        nodes, parameters = self.nodes_at(width)
        return nodes.graph({name: m.variances(parameters) for name, m in nodes.maps.items()})

    def nodes_at(self, width: int | None) -> tuple[Nodes, Mapping[str, Parameter]]:
        """Return the nodes and parameters at a width; those of a single module for None."""
        if width is None:
            return self.nodes, self.family.at(None)
        nodes = self.family.nodes(width)
        if found := self.nodes.difference(nodes):
            raise refused(found, f"operations or constants at width {width} differ from those read")
        return nodes, self.family.at(width)

    @cites("jacot2018neural", "lee2018deep", "bahri2022les")
    def kernel(
        self,
        x1: Any,
        x2: Any = None,
        *,
        width: int | None = None,
        rates: Any = None,
        method: str | Population | None = None,
        rtol: float | None = None,
        throw: bool = True,
    ) -> Kernels | KernelEstimate:
        """Return NNGP and NTK of the model, in the limit or with the constants of a width.

        They are those of :func:`largen.kernel` in :func:`largen.ntk`: the NTK is
        Θ = Σ_k Var(θ_k) ⟨∂f/∂θ_k, ∂f'/∂θ_k⟩ over the parameters θ_k of the module, with the
        variances that they have at initialisation, or Σ_k ρ_k ⟨∂f/∂θ_k, ∂f'/∂θ_k⟩ with rates ρ_k.

        Parameters
        ----------
        x1, x2
            Samples in the layout of the module, such as (n, channels, height, width).
        width
            None for the limit of infinite width. A number for the leading order with the
            constants that the model has at this width.
        rates
            ρ_k: a number for all parameters, such as 1 for a module that is trained as it is, or
            numbers by the name of the parameter, 1 for those that are missing, those of
            normalisations of PyTorch modules included. Frozen parameters (``requires_grad`` is
            False) have the rate 0 unless they are named. With a width, because this kernel grows
            with it.
        method
            ``"recursion"``: exact, over the operations that were read, as :class:`Kernels`.
            ``"population"``, or :class:`largen.reading.Population` with its numbers: the model's
            own forward pass at representative neurons, as a :class:`KernelEstimate` with standard
            errors. By default the second where an operation has no exact rule.
        rtol, throw
            As in :func:`largen.kernel`. Populations whose error is larger are a failure.

        Raises
        ------
        InvalidInput
            For samples of another shape than the one that was read; for rates that are negative, of
            no parameter of an affine map or a normalisation, or without a width.
        NoTheory
            If there is no limit, or no rule for what an operation reads; the message names the
            module.

        Examples
        --------
        >>> import largen as lg, numpy as np, torch
        >>> def make(n):
        ...     net = torch.nn.Sequential(
        ...         torch.nn.Linear(3, n, bias=False), torch.nn.ReLU(), torch.nn.Linear(n, 1)
        ...     )
        ...     torch.nn.init.kaiming_normal_(net[0].weight)
        ...     return net
        >>> net = lg.read(make, np.eye(3))
        >>> net.kernel(np.eye(3)).nngp.round(4)  # σ_w² is 2 in the first layer, and 1/3 behind
        array([[0.1111, 0.0354, 0.0354],
               [0.0354, 0.1111, 0.0354],
               [0.0354, 0.0354, 0.1111]])
        >>> float(net.kernel(np.eye(3), width=64).nngp[0, 0].round(4))  # with the bias 1/(3n)
        0.1163
        """
        width = None if width is None else integer("width", width, at_least=1)
        if rates is not None and width is None and self.widths:
            raise InvalidInput(
                "rates: the kernel of given rates grows with the width; wanted a width as "
                "well, such as net.kernel(x, width=64, rates=1.0)."
            )
        how = population_of(method, bool(self.unread))
        one, two = self.input("x1", x1), None if x2 is None else self.input("x2", x2)
        no_limit = width is None and self.why_not
        if how is not None:
            if no_limit:
                self._check_limit()
            return sampled(self, how, one, two, width, rates, rtol, throw)
        try:
            return self._recursion(one, two, width, rates, rtol, throw)
        except (NoTheory, NoRule) as error:
            if method is not None or not self.widths or no_limit:
                raise
            try:
                return sampled(self, Population(), one, two, width, rates, rtol, throw)
            except NoRule:
                raise error from None

    def _recursion(
        self, one: np.ndarray, two: np.ndarray | None, width: int | None, rates: Any,
        rtol: float | None, throw: bool,
    ) -> Kernels:  # fmt: skip
        net, param = self.layer if width is None else self.at(width), ntk()
        if rates is not None:
            net, param = at_rates(*self.nodes_at(width), rates, self.family.frozen)
        with self.named():
            read_ins = self.not_gaussian
            if len(read_ins) == 1 and len(self.sample) == 1:
                law = ReadIn(read_ins[0].law, read_ins[0].bias_law)
                if law.known:
                    found = kernels_behind(net, law, one, two, param, rtol, throw)
                    if found is not None:
                        return found
            self.warn_of_read_ins(within=2)
            return kernel(net, one, two, param=param, rtol=rtol, throw=throw)

    @property
    def not_gaussian(self) -> tuple[Weight, ...]:
        """The maps whose preactivations are not Gaussian where a function acts on them."""
        found = (w for w in self.weights if w.excess and self.nodes.felt(w.node))
        return tuple(w for w in found if w.map.reads_data or abs(w.excess) > LARGE_EXCESS)

    def warn_of_read_ins(self, within: int = 1) -> None:
        """Warn of the maps in ``not_gaussian`` whose excess kurtosis is large.

        ``within``: the number of calls between the user's line and this one.
        """
        for weight in self.not_gaussian:
            if abs(weight.excess) > LARGE_EXCESS:
                warnings.warn(
                    f"lg.read: {weight.node}: sums of {weight.fan_in} {weight.law.kind} weights "
                    f"are not Gaussian (excess kurtosis about {weight.excess:.2g}), and these "
                    "kernels take them to be; a normal initialisation, or vectors of up to 64 "
                    "inputs with a function behind the first layer, have none of this error.",
                    NotGaussian,
                    stacklevel=2 + within,
                )

    def check(
        self,
        x: Any = None,
        *,
        widths: Any = (64, 128, 256),
        seeds: int = 64,
        key: int = 0,
    ) -> Check:
        """Hold the reading against the model itself: its construction, at several widths.

        At each width, ``seeds`` modules are made, and K = ⟨f(x) f(x')⟩ and
        Θ = Σ_k Var(θ_k) ∂f/∂θ_k ∂f'/∂θ_k are computed from their outputs and gradients. What
        differs from the kernels with the constants of the width has to vanish as 1/width.

        Parameters
        ----------
        x
            Samples; by default those with which the model was read.
        widths
            The widths, two or more.
        seeds
            The number of modules of each width, at least 8.
        key
            Where seeds begin.

        Raises
        ------
        InvalidInput
            If the model was read from one module, which has no other widths.

        Examples
        --------
        >>> import largen as lg, numpy as np
        >>> from torch import nn
        >>> make = lambda n: nn.Sequential(nn.Linear(3, n), nn.Identity(), nn.Linear(n, 2))
        >>> lg.read(make, np.eye(3)).check(widths=(16, 32), seeds=40).agrees
        True
        """
        if not self.widths:
            raise InvalidInput(
                "net: it was read from one module; lg.read(make, x) with a function of the width "
                "has several to compare."
            )
        given = sequence("widths", widths, "two or more widths")
        chosen = tuple(integer("widths", n, at_least=1) for n in given)
        if len(set(chosen)) < max(2, len(chosen)):
            raise InvalidInput(f"widths: wanted two or more different ones, got {shown(widths)}.")
        seeds, key = integer("seeds", seeds, at_least=8), integer("key", key, at_least=0)
        samples = self.input("x", self.family.x if x is None else x)
        (last,) = (weight.map for weight in self.weights if weight.map.last)
        drawn = [
            self.family.kernels(last, samples, n, range(key + i * seeds, key + (i + 1) * seeds))
            for i, n in enumerate(chosen)
        ]
        theory = [self.kernel(samples, width=chosen[0])]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGaussian)  # said above, of the first width
            theory += [self.kernel(samples, width=n) for n in chosen[1:]]
            limit = None if self.why_not else self.kernel(samples)
        found = compared(chosen, drawn, theory, limit)
        if found.agrees:
            return found
        first = first_difference(self, samples, chosen, [moments for _, _, moments in drawn])
        return found._replace(first=first, uniform=uniform_biases(self, samples, max(chosen)))

    def input(self, name: str, x: Any, *, no_rows: bool = False) -> np.ndarray:
        """Return samples, given as a tensor or an array, as an array of floats after a check."""
        if is_traced(x):
            raise InvalidInput(f"{name}: wanted numbers, got a traced array; call it outside jit.")
        array = np.asarray(samples(name, x, no_rows=no_rows))
        if array.shape[1:] != self.sample:
            raise InvalidInput(
                f"{name}: wanted samples of shape {self.sample}, with which the model was read, "
                f"got shape {array.shape}."
            )
        if not self.family.takes_integers:
            return array
        if np.any(array != np.round(array)):
            raise InvalidInput(
                f"{name}: wanted integers, such as token ids, since the model was read with "
                "integers; got numbers that are not."
            )
        return array.astype(np.int64)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Put the names of nodes in the place of positions in the messages of errors."""
        try:
            yield
        except (NoTheory, NoRule) as error:
            said = re.sub(r"Graph\(\{.*\}\)", self.name, str(error))
            raise NoTheory(f"lg.read: {self._refused_node()}{said}") from error

    def _refused_node(self) -> str:
        """Return the first node without a kernel, as the beginning of a message."""
        if self.why_not or self.unread:
            return ""
        program = join_elementwise(program_of(self.layer, self.inputs))
        names = self.nodes.paths()
        for end in range(1, len(program.operations)):
            try:
                natures(program.between(0, end))
            except (NoTheory, NoRule):
                return f"{names.get(program.sources[end].path, self.name)}: "
        return ""

    def __repr__(self) -> str:
        return f"read({self.name})"

    def __str__(self) -> str:
        return report(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(report(self))}</pre>"
