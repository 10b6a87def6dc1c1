"""Figures of Bordelon et al., *Depthwise hyperparameter transfer in residual networks* (2023).

The computations are reduced to the scale of a laptop: CIFAR-10 at 8 × 8 pixels (averages over
4 × 4), without augmentation, for one or two epochs of a few thousand images. The base shape, at
which all schemes agree, is the smallest one. Losses are measured on training images after the
last step, as in the paper.
"""
