"""Models for the experiments on hyperparameter transfer.

They are plain PyTorch modules with a width and a depth, independent of parameterization and plan.
"""

from examples.models.conv_resnet import ConvResNet
from examples.models.residual_mlp import ResidualMLP
from examples.models.transformer import CharacterGPT, ViT

__all__ = ["CharacterGPT", "ConvResNet", "ResidualMLP", "ViT"]
