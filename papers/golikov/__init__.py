"""Figures of Golikov's *Towards a general theory of infinite-width limits of neural classifiers*.

The procedure is that of its App. A: a reference network of width N* = 128, with given initial
standard deviations and raw rates, which a scaling extends to other widths. Settings that the paper
leaves open are PyTorch's defaults at its time: affine maps without biases start uniform within
±1/√fan_in (Kaiming-uniform with gain √(1/3); with gain √2 the initial function of the reference
network is large, and the mean-field limit is no longer the closest), the slope of leaky relu is
0.01, and RMSProp's average has the factor 1 − β.
"""
