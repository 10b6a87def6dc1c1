"""Theories of wide networks, each a dataclass of options, and the choice among them.

=================  ===============================================================
``kernel_limit``   features stay fixed: :class:`KernelLimit`, and to order 1/width
                   :class:`FiniteWidth`; under adaptive optimizers
                   :class:`AdaptiveKernelLimit`, a limit of mean fields
``mean_field``     features move: :class:`MeanField`, :class:`DeepMeanField`,
                   :class:`InfiniteDepth`, :class:`AttentionMeanField`,
                   :class:`AdaptiveMeanField`
``chains``         networks as chains of affine maps, for the mean-field limits
``registry``       the registered theories
``select``         :func:`solve`: the choice among them
=================  ===============================================================
"""

from largen._rooms import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
