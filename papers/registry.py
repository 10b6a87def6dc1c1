"""The figures by name. A new one is a module with a ``FIGURE``, and a line here."""

from __future__ import annotations

from importlib import import_module

from largen.errors import one_of
from papers.record import Figure

# Name: the module, and what `python -m papers` lists.
FIGURES: dict[str, tuple[str, str]] = {
    "000-5": ("lectures.section_5", "mean-field equations of one hidden layer and of several"),
    "000-6": ("lectures.section_6", "linear networks with one hidden layer along training"),
    "001-1": ("bordelon.figure_1", "residual network: best rates of μP and depth-μP"),
    "001-2": ("bordelon.figure_2", "residual network with batch normalisation"),
    "001-3": ("bordelon.figure_3", "vision transformers under Adam"),
    "001-4": ("bordelon.figure_4", "learning curves: momentum and γ₀ at two depths"),
    "001-5": ("bordelon.figure_5", "networks approach the limit of infinite width and depth"),
    "001-6": ("bordelon.figure_6", "tangent kernels of growing depth at initialisation"),
    "001-7": ("bordelon.figure_7", "linear residual networks of infinite depth after one step"),
    "001-B1": ("bordelon.figure_b1", "depth against width at one rate"),
    "001-B2": ("bordelon.figure_b2", "best rates in the standard parameterization"),
    "001-B3": ("bordelon.figure_b3", "learning curves: rates at two depths"),
    "001-B4": ("bordelon.figure_b4", "residual network with layer normalisation"),
    "001-B6": ("bordelon.figure_b6", "rates and depths without normalisation"),
    "001-B7": ("bordelon.figure_b7", "variance and errors against width and depth"),
    "001-B8": ("bordelon.figure_b8", "learning curves: weight decay at several depths"),
    "001-H": ("bordelon.order_of_limits", "fluctuations: their growth with the depth, or none"),
    "001-I": ("bordelon.error_terms", "errors of width, depth and ensembles, and how they add"),
    "001-M1": ("bordelon.figure_m1", "branches 1/L and 1/√L that begin at zero"),
    "001-T1": ("bordelon.table_1", "residual networks: three rows of scalings, N and L"),
    "002-1.5": ("hanin.ridge", "ridge regression: samples and features to infinity together"),
    "002-1.6": ("hanin.effective_depth", "deep linear networks: depth over width"),
    "002-2.2": ("hanin.first_step", "averages over neurons, learning rates of the first step"),
    "002-2.3": ("hanin.shaping", "fourth cumulants, shaped activations and their equation"),
    "002-3.2": ("hanin.positive_kernel", "losses and the tangent kernel's smallest eigenvalue"),
    "003-1": ("hanin.figure_1", "phase diagram of tanh networks"),
    "003-1.7": ("hanin.correlations", "depth scales in order, in chaos and between them"),
    "003-2": ("hanin.figure_2", "depth over width: moments of relu networks"),
    "003-4.2": ("hanin.cumulants", "fourth cumulants at finite width, Theorem 4.2"),
    "003-5.1": ("hanin.paths", "Jacobians and tangent kernels of relu networks, Theorem 5.1"),
    "004-1": ("golikov.figure_1", "one hidden layer: loss against width, exponents, limits"),
    "004-2": ("golikov.figure_2", "two and three hidden layers, gradient descent and RMSProp"),
    "004-3": ("golikov.figure_3", "increments of weights against width"),
    "004-4": ("golikov.figure_4", "terms of the output against width"),
    "004-5": ("golikov.figure_5", "limits at a stated and at a small rate"),
    "004-6": ("golikov.figure_6", "minibatches, more samples, more steps"),
    "004-7": ("golikov.figure_7", "ten classes instead of two"),
    "1606.05340-chaos": ("further.poole", "lengths of curves and correlations, order and chaos"),
    "1611.01232-depth": ("further.schoenholz", "depth scales and gradients of tanh networks"),
    "1812.05994-log": ("further.hanin_nica", "logarithms of Jacobians of relu networks"),
    "1812.07956-lazy": ("further.chizat", "lazy training: the output's scale"),
    "1902.06720-linear": ("further.lee", "networks and their linear models"),
    "1909.11304-order": ("further.dyer", "the tangent kernel's change, of order 1/N"),
    "2003.02218-catapult": ("further.lewkowycz", "large steps: the loss grows, the kernel falls"),
    "2010.12859-stable": ("further.hayou", "residual networks with branches L^(−1/2)"),
    "2011.14522-dichotomy": ("further.yang_hu", "movement of features with the width"),
    "2110.03922-modes": ("laws.simon", "learnabilities of modes, and errors from eigenvalues"),
    "2205.09653-kernels": ("further.field_theory", "self-consistent kernels of feature learning"),
    "2209.04882-scale": ("rest.pacelli", "as many samples as neurons: a scale of the kernel"),
    "2305.07810-depth": ("further.jelassi", "largest rate of maximal updates against the depth"),
    "2402.01092-dynamics": ("laws.dynamics", "random features in samples, width and time"),
    "2405.10761-likeliest": ("rest.fischer", "kernels of finite networks, and the likeliest one"),
    "2405.15074-phases": ("laws.phases", "errors against compute, in seven phases"),
    "2406.16689-coding": ("rest.van_meegen", "coding schemes of linear, erf and relu networks"),
    "2502.07998-adapted": ("rest.lauditi", "regression with adapted kernels, at rest"),
    "2508.11522-table": ("unlimited.table", "gelu: corrections of order 1/width beside samples"),
    "2510.14878-covariance": ("laws.karkada", "learning curves from the covariance alone"),
    "2603.18168-rate": ("chaintron.rate", "the three terms of 1/L + √(D/(LM)) + 1/√D"),
}


def figure(name: str) -> Figure:
    """Return the record of a figure.

    Raises
    ------
    InvalidInput
        If there is no figure of this name.

    Examples
    --------
    >>> figure("004-1").source
    'Golikov, Towards a general theory of infinite-width limits of neural classifiers, Figure 1'
    """
    module, _ = FIGURES[one_of("figure", name, FIGURES)]
    return import_module(f"papers.{module}").FIGURE
