"""Models for the experiments on hyperparameter transfer.

They are plain PyTorch modules with a width and a depth, independent of parameterization and plan.
"""

from largen.transfer.torch.models.conv_resnet import ConvResNet
from largen.transfer.torch.models.residual_mlp import ResidualMLP
from largen.transfer.torch.models.transformer import CharacterGPT, ViT

__all__ = ["CharacterGPT", "ConvResNet", "ResidualMLP", "ViT"]
