"""Two-layer networks of finite width in plain NumPy, by backpropagation written out.

The canonical mean-field form: h = σ_w Wx/√D + σ_b b, f = σ_w w·φ(h)/(γ₀N) + σ_b b'/(γ₀√N), raw
rate η₀γ₀²N, standard Gaussian weights. It shares nothing with the library but the run.
"""

import numpy as np
from scipy.special import expit, log_softmax, ndtr

SQRT2PI = np.sqrt(2 * np.pi)
ACTIVATIONS = {
    "tanh": (np.tanh, lambda h: 1 - np.tanh(h) ** 2),
    "relu": (lambda h: np.maximum(h, 0), lambda h: 1.0 * (h > 0)),
    "linear": (lambda h: h, np.ones_like),
    "gelu": (lambda h: h * ndtr(h), lambda h: ndtr(h) + h * np.exp(-(h**2) / 2) / SQRT2PI),
}


def residual(loss, f, y):
    """Return −∂ℓ/∂f for outputs (sample, output)."""
    if loss == "mse":
        return y.reshape(f.shape) - f
    if loss == "logistic":
        y = y.reshape(f.shape)
        return y * expit(-y * f)
    return np.eye(f.shape[1])[y] - np.exp(log_softmax(f, axis=1))


def train(run, width, rng, activation, *, weight_std=1.0, bias_std=0.0, symmetric=False, g_power=0):
    """Train a network and return outputs (step, training and test sample, output).

    ``symmetric`` starts from f = 0: hidden neurons in pairs of opposite read-out.
    ``g_power`` multiplies the features' rate by γ₀ to that power: a mistake, on purpose.
    """
    phi, slope = ACTIVATIONS[activation]
    x, y = run.data.x.astype(float), run.data.y_train
    p, d = run.data.x_train.shape
    gamma, optimizer = run.param.gamma, run.optimizer
    outputs = int(np.prod(run.output_shape, dtype=int))
    w, v = rng.normal(size=(width, d)), rng.normal(size=(outputs, width))
    b, c = rng.normal(size=width), rng.normal(size=outputs)
    if symmetric:
        half = width // 2
        w[half:], b[half:], v[:, half:], c = w[:half], b[:half], -v[:, :half], 0 * c
    theta = [w, b, v, c]
    velocity = [np.zeros_like(part) for part in theta]
    decay = optimizer.weight_decay / (gamma**2 * width)
    trajectory = []
    for step in range(run.steps + 1):
        w, b, v, c = theta
        h = weight_std * x @ w.T / np.sqrt(d) + bias_std * b
        f = weight_std * phi(h) @ v.T / (gamma * width) + bias_std * c / (gamma * np.sqrt(width))
        trajectory.append(f)
        if step == run.steps:
            break
        batch = np.arange(p) if run.batches is None else run.batches[step]
        delta = residual(run.loss.name, f[batch], y[batch]) / len(batch)
        rate = run.rates[step] * gamma**2 * width
        back = weight_std * delta @ v / (gamma * width) * slope(h[batch]) * gamma**g_power
        gradient = [
            -weight_std * back.T @ x[batch] / np.sqrt(d),
            -bias_std * back.sum(0),
            -weight_std * delta.T @ phi(h[batch]) / (gamma * width),
            -bias_std * delta.sum(0) / (gamma * np.sqrt(width)),
        ]
        velocity = [
            optimizer.momentum * u - rate * (g + decay * t)
            for u, g, t in zip(velocity, gradient, theta, strict=True)
        ]
        theta = [t + u for t, u in zip(theta, velocity, strict=True)]
    return np.array(trajectory)
