"""The closed equations of deep linear networks, as matrices over all times and samples.

H^l = (1−CD)⁻¹(H^(l−1) + C G^(l+1) Cᵀ)(1−CD)⁻ᵀ and its mirror image, with C = A^(l−1) +
κ tril(H^(l−1), −1)Δ and D = B^l + κ tril(G^(l+1), −1)Δ. By causality the last time needs only
earlier ones, so times are added one by one. It shares nothing with the library.

Layers of r_l N neurons, with g = γ₀N ∂f/∂h and means over a layer's own neurons: z^l = Wᵀg/√(r_l N)
gains r_(l+1)/r_l in variance, response and update, with r_(L+1) = 1 for the read-out.
"""

import numpy as np


def solve(phi0, y, layers, gamma, lr, steps, **options):
    """Return f (step, sample) for the squared error, H^l(t, t) and G^l(t, t).

    :func:`matrices`, with the same options, returns all that they are made of.
    """
    p = len(y)
    f, (h, g, _, _) = matrices(phi0, y, layers, gamma, lr, steps, **options)

    def equal(kernels):
        blocks = [k.reshape(steps, p, steps, p) for k in kernels]
        return np.stack([[k[t, :, t] for k in blocks] for t in range(steps)])

    return f, equal(h[1 : layers + 1]), equal(g[1 : layers + 1])


def matrices(
    phi0,
    y,
    layers,
    gamma,
    lr,
    steps,
    *,
    drop_equal_time=False,
    drop_first_response=False,
    ratios=None,
):
    """Return f, and H, G, A, B by layer, from the inputs on, over (step × sample).

    The two switches put misprints of the lecture notes back in: B without its equal-time part,
    and A^(1) = 0 in place of A^(0) = 0.
    """
    f, old = np.zeros((0, len(y))), None
    widths = np.array([1, *(ratios or [1] * layers), 1])
    gains = widths[1:] / widths[:-1]
    for now in range(1, steps + 1):
        f = np.concatenate([f, np.zeros((1, len(y)))])
        f, old = _sweep(
            f, old, now, phi0, y, layers, gamma, lr, drop_equal_time, drop_first_response, gains
        )
    return f, old


def _sweep(  # noqa: PLR0913  (symbols of the printed equations)
    f, old, now, phi0, y, layers, gamma, lr, drop_equal_time, drop_first_response, gains
):
    p, size = len(y), now * len(y)
    kappa = lr * gamma / p
    past = np.kron(np.tril(np.ones((now, now)), -1), np.ones((p, p)))
    eye, ones = np.eye(size), np.ones((size, size))

    def extended(kernel):
        larger = np.zeros((size, size))
        larger[: len(kernel), : len(kernel)] = kernel
        return larger

    empty = np.zeros((0, 0))
    old = old or tuple([empty] * (layers + 2) for _ in range(4))
    h, g, a, b = ([extended(k) for k in kernels] for kernels in old)
    h[0] = np.kron(np.ones((now, now)), phi0)
    g[layers + 1] = ones
    for _ in range(4 * layers + 4):
        delta = (y - f).reshape(-1)
        for l in [*range(1, layers + 1), *range(layers, 0, -1)]:
            c = a[l - 1] + kappa * (past * h[l - 1]) * delta
            d = gains[l] * (b[l] + kappa * (past * g[l + 1]) * delta)
            noise = gains[l] * g[l + 1]
            forward, backward = np.linalg.inv(eye - c @ d), np.linalg.inv(eye - d @ c)
            h[l] = forward @ (h[l - 1] + c @ noise @ c.T) @ forward.T
            g[l] = backward @ (noise + d @ h[l - 1] @ d.T) @ backward.T
            a[l], b[l - 1] = forward @ c, backward @ d
            if drop_equal_time:
                b[l - 1] = b[l - 1] * past
            if drop_first_response and l == 1:
                a[1] = 0 * a[1]
        out = kappa / gamma * ((past * h[layers]) @ delta) + a[layers].sum(1) / gamma
        f = out.reshape(now, p)
    return f, (h, g, a, b)
