"""Large-N limits of neural networks.

One description of a network serves finite networks, kernels and mean-field limits alike.
Start with :func:`mlp`, a parameterization such as :func:`ntk` or :func:`mean_field`, a
:class:`Dataset` and a :class:`Run`; then :func:`solve` it at infinite width, :func:`train` it at
finite width, and :func:`compare` the two.

All other names are in rooms, which are imported when they are first used:

================  ==================================================================
``layers``        layers, and networks made of them
``optimizers``    optimizers of a run
``scaling``       parameterizations, their classification, measured exponents
``losses``        losses of one's own
``networks``      finite networks, and empirical kernels of any JAX function
``theories``      limits and their options, exact solutions
``training``      lazy or rich training, its corrections, large steps
``kernels``       NNGP and NTK
``regression``    Gaussian processes on kernels; ``regression.large`` for many samples
``finite_width``  kernels and predictions at order 1/width
``criticality``   order, chaos and depth scales
``expectations``  activations and their Gaussian expectations
``reading``       PyTorch models as they are, as networks of infinite width
``transfer``      hyperparameters between sizes for PyTorch and JAX models
``sweeps``        losses over rates, widths and seeds; forecasts of wide runs
================  ==================================================================
"""

from largen._rooms import attach
from largen._version import __version__ as __version__

__getattr__, __dir__, __all__ = attach(__name__, __file__)
