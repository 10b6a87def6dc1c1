"""How exact kernels are: largen beside the formulas of neural-tangents 0.6.5, against references.

    python benchmarks/accuracy_of_kernels.py                   # a minute; prints the table
    python benchmarks/accuracy_of_kernels.py --output FILE.csv # and writes it

neural-tangents does not import on current JAX, so that its formulas stand here in NumPy: those of
``stax.Relu`` and ``stax.ElementwiseNumerical`` in ``_src/stax/elementwise.py``. The references use
neither: arc-cosine kernels with 40 digits (mpmath), and the trapezoidal rule in the plane, whose
error for tanh at these variances is below rounding.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from mpmath import mp, mpf
from numpy.polynomial.hermite import hermgauss

import largen as lg

WEIGHT_STD = 2**0.5
DEGREE = 25  # of ElementwiseNumerical: "a good place to start", its documentation says
DEPTHS, SIZES = (3, 30, 100), (1.0, 2.0, 3.0)


def inputs():
    """Rows of the size of digits, each with a second and a third that nearly coincide with it."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 784))
    near = [x + distance * rng.standard_normal(x.shape) for distance in (1e-3, 1e-4)]
    return np.vstack([x, *near])


def relu_of_neural_tangents(x, depth):
    """NTK by √(K₁₁K₂₂ − K₁₂²) and arctan2, in the precision of x."""
    weight = x.dtype.type(WEIGHT_STD**2)
    k = weight * (x @ x.T) / x.dtype.type(x.shape[1])
    ntk, own = k, np.diagonal(k)
    for _ in range(depth):
        root = np.sqrt(np.maximum(np.outer(own, own) - k**2, 0))
        slope = (1 - np.arctan2(root, k) / x.dtype.type(np.pi)) / 2
        k = weight * (root / x.dtype.type(2 * np.pi) + slope * k)
        own = weight * own / 2
        ntk = k + weight * slope * ntk
    return ntk


def relu_with_many_digits(x, depth):
    """NTK by the arc-cosine kernels of Cho and Saul, with 40 digits."""
    found = np.empty((len(x), len(x)))
    with mp.workdps(40):
        weight = mpf(WEIGHT_STD) ** 2
        rows = [[mpf(float(entry)) for entry in row] for row in x]

        def dot(i, j):
            return weight * mp.fdot(rows[i], rows[j]) / x.shape[1]

        for i in range(len(x)):
            for j in range(len(x)):
                k, ntk, size = dot(i, j), dot(i, j), mp.sqrt(dot(i, i) * dot(j, j))
                for _ in range(depth):
                    angle = mp.acos(max(min(k / size, mpf(1)), mpf(-1)))
                    slope = (mp.pi - angle) / (2 * mp.pi)
                    k = weight * (size * mp.sin(angle) / (2 * mp.pi) + slope * k)
                    size = weight * size / 2
                    ntk = k + weight * slope * ntk
                found[i, j] = float(ntk)
    return found


def over_plane(function, nodes, weights, q1, q2, q12):
    """E[f(u)f(v)] by a product rule over z₁ and z₂, with

    u = √q₁ z₁ and v = (q₁₂z₁ + √(q₁q₂ − q₁₂²) z₂)/√q₁.
    """
    u = np.sqrt(q1) * nodes
    v = (q12 * nodes[:, None] + np.sqrt(max(q1 * q2 - q12**2, 0)) * nodes) / np.sqrt(q1)
    return weights @ (function(u)[:, None] * function(v)) @ weights


def slope_of_tanh(t):
    return 1 / np.cosh(t) ** 2


def of_tanh(x, weight_std, nodes, weights):
    """NNGP and NTK of one hidden layer by a product rule."""
    k = weight_std**2 * (x @ x.T) / x.shape[1]
    nngp, ntk = np.empty_like(k), np.empty_like(k)
    for i, j in np.ndindex(k.shape):
        pair = nodes, weights, k[i, i], k[j, j], k[i, j]
        nngp[i, j] = weight_std**2 * over_plane(np.tanh, *pair)
        ntk[i, j] = nngp[i, j] + weight_std**2 * over_plane(slope_of_tanh, *pair) * k[i, j]
    return nngp, ntk


def gauss_hermite():
    """The rule of ``ElementwiseNumerical``."""
    nodes, weights = hermgauss(DEGREE)
    return np.sqrt(2) * nodes, weights / np.sqrt(np.pi)


def trapezoidal(step=1 / 48, reach=12.0):
    nodes = np.arange(-reach, reach + step / 2, step)
    return nodes, step * np.exp(-(nodes**2) / 2) / np.sqrt(2 * np.pi)


def relative(got, want):
    """Largest error of an entry, relative to √(K(x, x) K(x', x'))."""
    size = np.sqrt(np.outer(np.diagonal(want), np.diagonal(want)))
    return np.abs((np.asarray(got, np.float64) - want) / size).max()


def rows():
    """Return the name of each kernel, and the errors of neural-tangents' formulas and of largen."""
    x, single = inputs(), inputs().astype(np.float32)
    for depth in DEPTHS:
        want = relu_with_many_digits(single, depth)
        net = lg.mlp(depth, "relu", weight_std=WEIGHT_STD)
        theirs, ours = relu_of_neural_tangents(single, depth), lg.ntk_kernel(net, single)
        yield f"NTK, relu, {depth} layers, float32", relative(theirs, want), relative(ours, want)
    for size in SIZES:
        theirs, wanted = (of_tanh(x, size, *rule) for rule in (gauss_hermite(), trapezoidal()))
        ours = lg.kernel(lg.mlp(1, "tanh", weight_std=size), x)
        for name, want, their, our in zip(("NNGP", "NTK"), wanted, theirs, ours, strict=True):
            kernel = f"{name}, tanh, σ_w = {size:g}, float64"
            yield kernel, relative(their, want), relative(our, want)


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, help="a CSV file for the table")
    output = parser.parse_args().output
    print(f"{'largest error, relative':36}{'neural-tangents':>16}{'largen':>12}")
    found = []
    for name, theirs, ours in rows():
        print(f"{name:36}{theirs:16.1e}{ours:12.1e}", flush=True)
        found.append((name, f"{theirs:.1e}", f"{ours:.1e}"))
    if output:
        with output.open("w", newline="") as file:
            csv.writer(file).writerows([("kernel", "neural-tangents", "largen"), *found])


if __name__ == "__main__":
    main()
