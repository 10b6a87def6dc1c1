"""Networks of one hidden layer with one sample at rest, exactly at any width."""

import numpy as np


def at_width(phi, gamma, noise, y, width, shift=None, loss=None):
    """Return mean and variance of f, and log p(y), of networks with one sample of one input.

    Of another loss than ½(f − y)², γ₀α is given as ``shift``, and log E exp(−(Nγ₀²/κ) ℓ(f)) is
    returned.

    γ₀N f is a sum of independent zφ, whose density is an inverse Fourier transform; along a contour
    through the posterior's saddle it is accurate far in the tails.
    """
    h = np.linspace(-12, 12, 1201)
    prior = np.exp(-(h**2) / 2)
    prior /= prior.sum()
    square = phi(h) ** 2
    shift = adaptive_dual(phi, gamma, noise, y) if shift is None else shift
    t = np.linspace(-60, 60, 4001) / np.sqrt(width)
    cumulants = np.log(np.exp((shift + 1j * t[:, None]) ** 2 * square / 2) @ prior)
    log_mean = np.log(np.exp(shift**2 * square / 2) @ prior)
    f = np.linspace(-1.0, 3.0, 3001) * y
    sums = gamma * width * f
    waves = np.exp(width * (cumulants - log_mean)[None] - 1j * t[None] * sums[:, None])
    density = np.maximum(waves.real.sum(1) * (t[1] - t[0]) / (2 * np.pi), 0) * gamma * width
    unit = gamma**2 * width / noise
    cost = (f - y) ** 2 / 2 if loss is None else loss(f)
    logs = width * log_mean - shift * sums - unit * cost
    posterior = density * np.exp(logs - logs.max())
    total = posterior.sum()
    mean = posterior @ f / total
    log_p = np.log(total * abs(f[1] - f[0])) + logs.max()
    log_p += np.log(unit / (2 * np.pi)) / 2 if loss is None else 0.0
    return mean, posterior @ (f - mean) ** 2 / total, log_p


def adaptive_dual(phi, gamma, noise, y):
    """Return γ₀α of one sample, by bisection."""
    h = np.linspace(-12, 12, 1201)
    low, high = 0.0, gamma * y / noise
    for _ in range(80):
        shift = (low + high) / 2
        w = np.exp(-(h**2) / 2 + shift**2 * phi(h) ** 2 / 2)
        f = shift / gamma * (w @ phi(h) ** 2) / w.sum()
        low, high = (shift, high) if y - noise * shift / gamma > f else (low, shift)
    return (low + high) / 2
