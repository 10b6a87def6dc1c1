"""Which infinite-width limit a choice of scalings gives: exponents, exactly.

One hidden layer of leaky relu under gradient descent (``one_hidden_layer``, ``plane``) follows
Golikov, *Towards a general theory of infinite-width limits of neural classifiers*; networks of
any depth (``scaled_program``, ``recursion``, ``deep``, ``report``) carry the same argument through
the operations. The public
functions are in ``by_exponents``.
"""

from largen.parameterizations.classification.by_exponents import classify, plane_class
from largen.parameterizations.classification.plane import ScalingClass
from largen.parameterizations.classification.report import MEANING, Classification, LayerScaling

__all__ = ["MEANING", "Classification", "LayerScaling", "ScalingClass", "classify", "plane_class"]
