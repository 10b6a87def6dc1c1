"""Chaintron, Chizat and Maass, *ResNets of all shapes and sizes* (arXiv 2603.18168)."""
