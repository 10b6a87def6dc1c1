"""The mean-field equations of linear residual networks, as matrices over times and samples.

With one site for all layers, branch factor c and κ = η₀γ₀/P,

    h^(l+1) = h^l + c[u^l + A^l g^(l+1)] + κρc² Σ_{s<t} ΔΦ^l g^(l+1)
    g^l = g^(l+1) + c z^l,   z^l = r^l + B^l h^l + κρc Σ_{s<t} ΔG^(l+1) h^l

where A and B are responses of the averages. All fields are linear in (u, r, w), so that one linear
system gives them, and iterating it from nothing ends after as many rounds as causality is long.
It shares nothing with the library.
"""

import numpy as np


def solve(phi0, y, blocks, gamma, lr, steps, *, branch, rate, update=1.0, read_in=1.0):
    """Return f (step, sample), H^l(t, t) and G^l(t, t) of the stream.

    ``update`` multiplies the update in z: √L puts the printed (40a) of Bordelon et al. in.
    ``read_in`` multiplies the read-in's rate.
    """
    p = len(y)
    size, layers = steps * p, blocks + 1
    kappa = lr * gamma / p
    past = np.kron(np.tril(np.ones((steps, steps)), -1), np.ones((p, p)))
    kernel0, ones = np.kron(np.ones((steps, steps)), phi0), np.ones((size, size))
    a, b = np.zeros((2, blocks, size, size))
    big_h, big_g, f = np.zeros((layers, size, size)), np.zeros((layers, size, size)), np.zeros(size)

    def at(kind, l):
        """Where a field is: h^1 … h^(L+1), g^1 … g^(L+1); u^0 … u^L, r^1 … r^L, w."""
        return slice((kind * layers + l) * size, (kind * layers + l + 1) * size)

    for _ in range(6 * steps * layers):
        delta = np.tile(y, steps) - f
        s, e = np.zeros((2, 2 * layers * size, 2 * layers * size))
        cov = np.zeros_like(s)
        eye = np.eye(size)
        s[at(0, 0), at(1, 0)] = read_in * kappa * past * kernel0 * delta
        e[at(0, 0), at(0, 0)], cov[at(0, 0), at(0, 0)] = eye, kernel0
        s[at(1, blocks), at(0, blocks)] = kappa * past * delta
        e[at(1, blocks), at(1, blocks)], cov[at(1, blocks), at(1, blocks)] = eye, ones
        for l in range(blocks):
            s[at(0, l + 1), at(0, l)] = s[at(1, l), at(1, l + 1)] = eye
            s[at(0, l + 1), at(1, l + 1)] += (
                branch * a[l] + kappa * rate * branch**2 * past * big_h[l] * delta
            )
            s[at(1, l), at(0, l)] += (
                branch * b[l] + update * kappa * rate * branch**2 * past * big_g[l + 1] * delta
            )
            e[at(0, l + 1), at(0, l + 1)] = e[at(1, l), at(1, l)] = branch * eye
            cov[at(0, l + 1), at(0, l + 1)], cov[at(1, l), at(1, l)] = big_h[l], big_g[l + 1]
        response = np.linalg.solve(np.eye(len(s)) - s, e)
        total = response @ cov @ response.T
        for l in range(layers):
            big_h[l], big_g[l] = total[at(0, l), at(0, l)], total[at(1, l), at(1, l)]
        for l in range(blocks):
            a[l] = response[at(0, l), at(1, l)]
            b[l] = response[at(1, l + 1), at(0, l + 1)]
        f = np.diag(total[at(1, blocks), at(0, blocks)]) / gamma

    def equal(kernels):
        blocks_ = [k.reshape(steps, p, steps, p) for k in kernels]
        return np.stack([[k[t, :, t] for k in blocks_] for t in range(steps)])

    return f.reshape(steps, p), equal(big_h), equal(big_g)
