"""All tensors against the recursion written out with automatic derivatives of quadratures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg

X = np.array([[1.2, 0.3, -0.7, 0.4], [0.2, 1.0, 0.5, -1.1], [-0.6, 0.8, 0.1, 0.9]])
WIDTHS, STD, BIAS = (30, 50, 40), 1.25, 0.3
FUNCTIONS = {"sin": jnp.sin, "gelu": lambda z: jax.nn.gelu(z, approximate=False)}


def tensors(phi, x, nodes):
    P = len(x)
    I, J = np.triu_indices(P)
    t, u = np.polynomial.hermite_e.hermegauss(nodes)
    g, c = (
        np.stack([a.ravel() for a in np.meshgrid(*[each] * P, indexing="ij")], axis=1)
        for each in (t, u / u.sum())
    )
    c = c.prod(axis=1)
    w, b = STD**2, BIAS**2
    slope = jax.vmap(jax.vmap(jax.grad(phi)))
    bend = jax.vmap(jax.vmap(jax.grad(jax.grad(phi))))

    def matrix(s):
        return jnp.zeros((P, P)).at[I, J].set(s).at[J, I].set(s)

    def z(s):
        return g @ jnp.linalg.cholesky(matrix(s)).T

    def products(s):
        value = phi(z(s))
        return w * value[:, I] * value[:, J]

    def M(s):
        return c @ products(s) + b

    def p(s):
        value = slope(z(s))
        return w * (c @ (value[:, I] * value[:, J]))

    def cov(s):
        q = products(s)
        mean = c @ q
        return (q * c[:, None]).T @ q - jnp.outer(mean, mean)

    @jax.jit
    def layer(state, n):
        K, H, m, V, T, mH, A, D, B, F = state
        J1, J2, dC = (f(K) for f in (jax.jacfwd(M), jax.jacfwd(jax.jacfwd(M)), jax.jacfwd(cov)))

        def N(s):
            return M(s) + p(s) * H

        N1, N2, p1 = (f(K) for f in (jax.jacfwd(N), jax.jacfwd(jax.jacfwd(N)), jax.jacfwd(p)))
        at = z(K)
        v, d, e = phi(at), slope(at), bend(at)
        s = products(K)
        h = s + w * d[:, I] * d[:, J] * H
        s, h = s - c @ s, h - c @ h
        VJ = V @ J1.T
        third = jnp.einsum("ai,bj,ck,ijk->abc", J1, J1, J1, T)
        third = third + jnp.einsum("n,na,nb,nc->abc", c, s, s, s) / n**2
        for each in (
            jnp.einsum("aij,ib,jc->abc", J2, VJ, VJ),
            jnp.einsum("ia,bci->abc", VJ, dC) / n,
        ):
            third = third + each + each.transpose(1, 0, 2) + each.transpose(1, 2, 0)
        mixed, q = N1 @ D.T * p(K), matrix(p(K)) / w
        one = jnp.einsum("n,na,nc->ac", c, d, d)[:, :, None] * jnp.eye(P)
        two = jnp.einsum("n,na,nc->ac", c, e, v)[:, :, None] * jnp.eye(P)[:, None]
        bent, H2 = one + two, matrix(H)
        four = jnp.einsum("n,na,nc,nb,nd->acbd", c, d, v, d, v, optimize=True)
        slopes = jnp.einsum("n,na,nb,nc,nd->abcd", c, d, d, d, d, optimize=True)
        return (
            M(K), N(K), J1 @ m + jnp.einsum("aij,ij->a", J2, V) / 2,
            J1 @ V @ J1.T + cov(K) / n, third,
            N1 @ m + p(K) * mH + jnp.einsum("aij,ij->a", N2, V) / 2
            + jnp.sum(p1 * (D + exchanged(F)), axis=1),
            N1 @ V @ N1.T + mixed + mixed.T + p(K)[:, None] * A * p(K)
            + (h * c[:, None]).T @ h / n,
            (N1 @ V + p(K)[:, None] * D) @ J1.T + (h * c[:, None]).T @ s / n,
            w**2 * (slopes * H2[:, :, None, None] * H2 / n
                    + q[:, None, :, None] * q[None, :, None, :] * B),
            w**2 * (four * H2[:, None, :, None] / n
                    + jnp.einsum("acm,bdn,ambn->acbd", bent, bent, F)),
        )  # fmt: skip

    def exchanged(F):
        return F[I[:, None], I, J[:, None], J] + F[I[:, None], J, J[:, None], I]

    with jax.enable_x64(True):
        M2, zero = len(I), np.zeros((P,) * 4)
        K = (b + w * x @ x.T / x.shape[1])[I, J]
        none = np.zeros((M2, M2))
        state = (K, K, 0 * K, none, np.zeros((M2,) * 3), 0 * K, none, none, zero, zero)
        for n in WIDTHS:
            state = layer(state, float(n))
        K, H, m, V, T, mH, A, D, B, F = (np.asarray(each) for each in state)
    crossed = B[I[:, None], J[:, None], I, J] + B[I[:, None], J[:, None], J, I]
    return {
        "kernel": K, "ntk": H, "kernel_shift": m, "ntk_shift": mH, "kernel_covariance": V,
        "kernel_third_cumulant": T, "ntk_covariance": A + crossed, "between_outputs": A,
        "ntk_kernel_covariance": D + exchanged(F),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "inputs", "nodes"),
    [("sin", 2, 30), pytest.param("gelu", 3, 38, marks=pytest.mark.slow)],
)
def test_tensors_of_unequal_layers_with_biases(name, inputs, nodes):
    net = lg.mlp(3, name, weight_std=STD, bias_std=BIAS)
    found = lg.finite_width.width_corrections(net, X[:inputs], width=WIDTHS)
    for what, wanted in tensors(FUNCTIONS[name], X[:inputs], nodes).items():
        seen = getattr(found, what)
        if wanted.ndim == 1:
            seen = seen[np.triu_indices(inputs)]
        assert np.abs(seen - wanted).max() < 1e-6 * np.abs(wanted).max(), what
