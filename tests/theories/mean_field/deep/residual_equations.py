"""The mean-field equations of linear residual networks, as matrices over times and samples.

With one site for all layers, branch factor c and κ = η₀γ₀/P,

    h^(l+1) = h^l + c[u^l + A^l g^(l+1)] + κρc² Σ_{s<t} ΔΦ^l g^(l+1)
    g^l = g^(l+1) + c z^l,   z^l = r^l + B^l h^l + κρc Σ_{s<t} ΔG^(l+1) h^l

where A and B are responses of the averages. All fields are linear in (u, r, w), so that one linear
system gives them, and iterating it from nothing ends after as many rounds as causality is long.
It shares nothing with the library.
"""

import numpy as np


def solve(phi0, y, blocks, gamma, lr, steps, *, branch, rate, ends=1.0, printed=None):
    """Return f (step, sample), H^l(t, t) and G^l(t, t) of the stream.

    ``ends`` multiplies the rates of read-in and read-out. ``printed`` puts a misprint of Bordelon
    et al. in: "39", B as the response to u^l; "40a", √L times the update in z; "53", the response
    of z in the place of that of h; "70", A and B as responses, without their 1/(η₀γ₀); "147", √L
    times the response A^L in the output.
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
        s[at(0, 0), at(1, 0)] = ends * kappa * past * kernel0 * delta
        e[at(0, 0), at(0, 0)], cov[at(0, 0), at(0, 0)] = eye, kernel0
        s[at(1, blocks), at(0, blocks)] = ends * kappa * past * delta
        e[at(1, blocks), at(1, blocks)], cov[at(1, blocks), at(1, blocks)] = eye, ones
        for l in range(blocks):
            response_scale = lr * gamma if printed == "70" else 1
            c_h = (
                response_scale * branch * a[l] + kappa * rate * branch**2 * past * big_h[l] * delta
            )
            update = blocks**0.5 if printed == "40a" else 1
            c_g = (
                response_scale * branch * b[l]
                + update * kappa * rate * branch**2 * past * big_g[l + 1] * delta
            )
            s[at(0, l + 1), at(0, l)] = s[at(1, l), at(1, l + 1)] = eye
            s[at(0, l + 1), at(1, l + 1)] += past * c_g if printed == "53" else c_h
            s[at(1, l), at(0, l)] += c_g
            e[at(0, l + 1), at(0, l + 1)] = e[at(1, l), at(1, l)] = branch * eye
            cov[at(0, l + 1), at(0, l + 1)], cov[at(1, l), at(1, l)] = big_h[l], big_g[l + 1]
        response = np.linalg.solve(np.eye(len(s)) - s, e)
        total = response @ cov @ response.T
        for l in range(layers):
            big_h[l], big_g[l] = total[at(0, l), at(0, l)], total[at(1, l), at(1, l)]
        for l in range(blocks):
            a[l] = response[at(0, l), at(1, l)]
            b[l] = response[at(1, l + 1), at(0, l if printed == "39" else l + 1)]
        # f = (κ/γ₀) ΣΔΦ + (1/γ₀) ΣA, by Stein's lemma for the read-out, one variable for all times.
        memory = response[at(0, blocks), at(1, blocks)].sum(1)
        memory *= blocks**0.5 if printed == "147" else 1
        f = (ends * kappa * (past * big_h[blocks]) @ delta + memory) / gamma

    def equal(kernels):
        blocks_ = [k.reshape(steps, p, steps, p) for k in kernels]
        return np.stack([[k[t, :, t] for k in blocks_] for t in range(steps)])

    return f.reshape(steps, p), equal(big_h), equal(big_g)
