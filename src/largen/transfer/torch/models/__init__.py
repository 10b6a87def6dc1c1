"""Models whose hyperparameters are transferred in the experiments.

Plain PyTorch modules with a width and a depth: none of them knows of schemes or of plans.
"""

from largen.transfer.torch.models.conv_resnet import ConvResNet
from largen.transfer.torch.models.residual_mlp import ResidualMLP
from largen.transfer.torch.models.transformer import CharacterGPT, ViT

__all__ = ["CharacterGPT", "ConvResNet", "ResidualMLP", "ViT"]
