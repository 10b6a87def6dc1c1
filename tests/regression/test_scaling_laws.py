"""One pass of SGD against its recursion and simulations; exponents against curves and papers."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import largen as lg
from largen.errors import InvalidInput
from largen.regression.learning_curves.descent import largest_rate
from largen.regression.learning_curves.power_laws import Laws, in_compute, in_steps

I = np.arange(1, 201.0)
VALUES, POWER, SIGMA2 = I**-1.5, I**-1.6, 0.05
TASK = lg.regression.Spectrum(VALUES, POWER, noise=SIGMA2)


def recursion(steps, rate, batch, values=VALUES, power=POWER, noise=SIGMA2):
    missing, errors = power / values, []
    for step in range(max(steps) + 1):
        error = np.sum(values * missing) + noise
        if step in steps:
            errors.append(error)
        shrunk = (1 - rate * values) ** 2 + rate**2 / batch * values**2
        missing = shrunk * missing + rate**2 / batch * values * error
    return np.array(errors)


def power_law_task(a, b, modes=20000):
    i = np.arange(1, modes + 1.0)
    return lg.regression.Spectrum(i**-a, i**-b)


@pytest.mark.parametrize(("rate", "batch"), [(0.5, 4), (1.2, 4), (0.3, 1), (1.5, 64)])
def test_all_steps_are_those_of_the_recursion(rate, batch):
    steps = [0, 1, 2, 7, 31, 32, 33, 34, 100, 1000]
    found = lg.regression.one_pass_sgd(TASK, steps, rate=rate, batch_size=batch)
    np.testing.assert_allclose(found.mse_test, recursion(steps, rate, batch), rtol=1e-8)


@pytest.mark.parametrize("batch", [1, 4, 1000])
def test_beyond_the_largest_rate_the_recursion_diverges(batch):
    most = lg.regression.one_pass_sgd(TASK, [1], batch_size=batch).largest_rate
    below, above = (recursion([4000, 8000], f * most, batch) for f in (0.98, 1.02))
    assert below[1] < 1.01 * below[0]
    assert above[1] > 2 * above[0]
    with pytest.raises(InvalidInput, match="rate: errors grow without bound from"):
        lg.regression.one_pass_sgd(TASK, [1], rate=most, batch_size=batch)


def test_large_batches_are_gradient_descent_and_one_mode_has_a_closed_form():
    assert largest_rate(VALUES, 10**9) == pytest.approx(2 / VALUES[0], rel=1e-6)
    for batch in (1, 3):  # (1 − η)² + η²(1/B + 1/B) < 1
        assert largest_rate(np.ones(1), batch) == pytest.approx(2 / (1 + 2 / batch))


def descended(k, rate, batch, steps, rng):
    features = np.sqrt(VALUES)[:, None] * rng.standard_normal((len(VALUES), k)) / np.sqrt(k)
    w, target, errors = np.zeros(k), np.sqrt(POWER), []
    for step in range(max(steps) + 1):
        if step in steps:
            errors.append(np.sum((target - features @ w) ** 2) + SIGMA2)
        x = rng.standard_normal((batch, len(VALUES)))
        z = x @ features
        y = x @ target + np.sqrt(SIGMA2) * rng.standard_normal(batch)
        w = w + rate / batch * z.T @ (y - z @ w)
    return errors


def test_descent_on_random_features():
    """z-scores of descent in fact; what is missing of the kernel itself is far from it."""
    rng, steps, scores, without = np.random.default_rng(0), [5, 40, 400], [], []
    for k, rate, batch in ((40, 0.4, 8), (100, 0.5, 4)):
        found = [descended(k, rate, batch, steps, rng) for _ in range(40)]
        mean, error = np.mean(found, 0), np.std(found, 0, ddof=1) / np.sqrt(40)
        said = lg.regression.one_pass_sgd(TASK, steps, rate=rate, batch_size=batch, widths=[k])
        scores.append((said.mse_test[0] - mean) / error)
        infinite = lg.regression.one_pass_sgd(TASK, steps, rate=rate, batch_size=batch).mse_test
        without.append((infinite[-1] - mean[-1]) / error[-1])
    assert np.abs(scores).max() < 3.5
    assert np.max(without) < -5
    wide = lg.regression.one_pass_sgd(TASK, steps, rate=0.4, widths=[10**9]).mse_test[0]
    np.testing.assert_allclose(wide, recursion(steps, 0.4, 1), rtol=1e-6)


def test_the_largest_rate_of_features_is_that_of_their_spectrum():
    """Of 300 features, whose eigenvalues are those of draws."""
    rng, k, batch, found = np.random.default_rng(1), 300, 3, []
    for _ in range(30):
        drawn = np.sqrt(VALUES)[:, None] * rng.standard_normal((len(VALUES), k)) / np.sqrt(k)
        found.append(1 / largest_rate(np.linalg.eigvalsh(drawn @ drawn.T)[::-1], batch))
    off = np.mean(found) - 1 / largest_rate(VALUES, batch, k)
    assert abs(off) < 3.5 * np.std(found, ddof=1) / np.sqrt(30)
    flat = np.ones(400)  # the edge of a Marchenko-Pastur law
    edge = (1 + np.sqrt(400 / 100)) ** 2
    assert largest_rate(flat, 10**9, 100) == pytest.approx(2 / edge, rel=1e-4)


PAPER = {  # of α, β: the exponents of width and error in compute where two parts are equal
    "Ia": lambda a, b: (1 / (2 * a + 1), (1 - 1 / (2 * a + 1)) * (1 + b / a - 1 / (2 * a))),
    "Ib": lambda a, b: (1 / 2, a + b - 1 / 2),
    "II": lambda a, b: ((b / a) / (1 + b / a), (2 * a + 2 * b - 1) / (2 * (a + b))),
    "III": lambda a, b: (1 / 2, (4 * a - 1) / (4 * a)),
    "Ic": lambda a, b: (
        (2 * a + 2 * b - 1) / (2 * (3 * a + 2 * b - 1 - 2 * a * b)),
        a * (2 * a + 2 * b - 1) / (3 * a + 2 * b - 1 - 2 * a * b)),
    "IVa": lambda a, b: (1 / 2, a),
    "IVb": lambda a, b: (
        (a - b) / (2 * a * b + a - 2 * b), (1 - 2 * a - 2 * b) * (2 * a - 1)
        / (2 * (2 * a * b + a - 2 * b)) * -1),
}  # fmt: skip


@pytest.mark.parametrize(
    ("phase", "alpha", "beta"),
    [("Ia", 0.8, 0.3), ("Ia", 1.5, 0.49), ("Ib", 0.4, 0.3), ("II", 0.9, 0.7), ("II", 2.0, 1.2),
     ("III", 0.7, 1.5), ("III", 0.9, 1.0), ("IVa", 0.4, 0.8), ("IVb", 0.27, 0.9),
     ("Ib", 0.22, 0.4), ("Ic", 0.2, 0.7), ("Ic", 0.24, 1.5)],
)  # fmt: skip
def test_compute_is_spent_as_in_the_phases_of_the_paper(phase, alpha, beta):
    found = in_compute(Laws(2 * alpha, 2 * alpha + 2 * beta))
    width, error = PAPER[phase](alpha, beta)
    assert found.phase == phase
    assert found.width == pytest.approx(width, abs=1e-12)
    assert found.error == pytest.approx(error, abs=1e-12)


@pytest.mark.parametrize(("alpha", "beta"), [(0.9, 0.7), (0.7, 1.5), (0.4, 0.8)])
def test_errors_fall_with_compute_as_the_phases_say(alpha, beta):
    """II, III and IVa: with t = C/k steps on the predicted number k of features of 4k modes."""
    a, b = 2 * alpha, 2 * alpha + 2 * beta
    law = in_compute(Laws(a, b))

    def slope(x):
        compute, errors = np.array([2000.0, 8000.0]) ** (1 / law.width), []
        for c in compute:
            k = c**x
            i = np.arange(1, int(4 * k) + 1.0)
            task = lg.regression.Spectrum(i**-a, i**-b)
            found = lg.regression.one_pass_sgd(task, [round(c / k)], widths=[round(k)])
            errors.append(found.mse_test.item())
        return -np.diff(np.log(errors)).item() / np.diff(np.log(compute)).item()

    assert slope(law.width) == pytest.approx(law.error, rel=0.04)
    assert slope(law.width - 0.1) < 0.95 * law.error


def test_noise_of_slow_spectra_does_not_grow_in_time():
    """For a < 1/2 it stays below what features lack, until all is learned."""
    assert in_steps(Laws(0.4, 1.6)) == pytest.approx(1.5)
    assert in_steps(Laws(0.8, 2.4)) == pytest.approx(2 - 1 / 0.8)


@pytest.mark.parametrize(("a", "b"), [(1.5, 1.8), (1.3, 2.0), (1.2, 3.8), (2.0, 2.5)])
def test_exponents_of_power_laws_are_those_of_their_curves(a, b):
    task = power_law_task(a, b)
    laws = lg.regression.scaling_laws(task).exponents
    assert laws["eigenvalue_decay"] == pytest.approx(a, abs=0.01)
    assert laws["power_decay"] == pytest.approx(b, abs=0.01)
    n = [100, 200]
    slopes = {}
    found = lg.regression.random_feature_curve(task, sizes=n, widths=[10**9]).mse_test[:, 0]
    slopes["samples"] = -np.log2(found[1] / found[0])
    found = lg.regression.random_feature_curve(task, sizes=[10**9], widths=n).mse_test[0]
    slopes["width"] = -np.log2(found[1] / found[0])
    found = lg.regression.one_pass_sgd(task, [300, 600], batch_size=16).mse_test
    slopes["steps"] = -np.log2(found[1] / found[0])
    for name, slope in slopes.items():  # corrections to power laws fall slowly
        assert slope == pytest.approx(laws[name], rel=0.1), name


@pytest.mark.slow
def test_the_frontier_has_the_exponents_of_its_phase():
    task = power_law_task(1.5, 1.8, 10000)
    widths, steps = np.geomspace(16, 512, 8).astype(int), np.geomspace(16, 60000, 9).astype(int)
    curve = lg.regression.one_pass_sgd(task, steps, widths=widths)
    found = curve.frontier([3e4, 1e5, 3e5])
    slope = np.polyfit(np.log(found.compute), np.log(found.mse_test), 1)[0]
    grown = np.polyfit(np.log(found.compute), np.log(found.width), 1)[0]
    laws = lg.regression.scaling_laws(task)
    assert laws.phase == "Ia"
    assert -slope == pytest.approx(laws.exponents["compute"], abs=0.02)
    assert grown == pytest.approx(laws.exponents["compute_width"], abs=0.03)
    np.testing.assert_allclose(found.width * found.steps, found.compute)
    with pytest.raises(InvalidInput, match="compute: 4 widths or more take 10 products"):
        curve.frontier([10.0])
    with pytest.raises(InvalidInput, match=r"compute: for 3e.06 products the best .* pass larger"):
        curve.frontier([3e6])
    assert "features" in str(curve)
    with pytest.raises(InvalidInput, match="compute: wanted a curve of 4 widths"):
        lg.regression.one_pass_sgd(task, [1, 2, 4, 8]).frontier([100.0])


def test_samples_of_power_laws_have_their_exponents():
    """Modes beyond those that are drawn act as a ridge."""
    M, modes, a, b = 800, 4000, 1.5, 1.6
    rng, i, found = np.random.default_rng(0), np.arange(1, 4001.0), []
    for _ in range(3):
        x = rng.standard_normal((M, modes))
        kernel = (x * i**-a) @ x.T + modes ** (1 - a) / (a - 1) * np.eye(M)
        task = lg.regression.target_spectrum(kernel, y=x @ i ** (-b / 2))
        found.append(lg.regression.scaling_laws(task))
    for name, exponent in (("eigenvalue_decay", a), ("power_decay", b)):
        errors = np.array([f.errors[name] for f in found])
        scores = np.array([f.exponents[name] for f in found]) - exponent
        assert (np.abs(scores) < 3 * errors + 0.01).all()
        assert (errors < 0.1).all()


def test_descent_on_the_kernel_of_digits():
    """Features of a real kernel are not Gaussian; samples are drawn from the pool."""
    x, labels = load_digits(return_X_y=True)
    x = ((x - x.mean(0)) / np.sqrt(np.mean((x - x.mean(0)) ** 2)))[:900]
    y = np.where(labels > 4, 1.0, -1.0)[:900]
    kernel = lg.ntk_kernel(lg.mlp(1, "relu"), x)
    task, steps, batch = lg.regression.target_spectrum(kernel, y=y), [2, 10, 50], 8
    said = lg.regression.one_pass_sgd(task, steps, batch_size=batch)
    rate, rng, errors = float(said.data["rate"]), np.random.default_rng(0), []
    for _ in range(30):
        f, found = np.zeros(len(y)), []
        for step in range(max(steps) + 1):
            if step in steps:
                found.append(np.mean((y - f) ** 2))
            rows = rng.integers(len(y), size=batch)
            f = f + rate / batch * kernel[:, rows] @ (y[rows] - f[rows])
        errors.append(found)
    mean, error = np.mean(errors, 0), np.std(errors, 0, ddof=1) / np.sqrt(30)
    assert (np.abs(said.mse_test - mean) < 0.05 * mean + 3 * error).all()
    with pytest.raises(InvalidInput, match="steps: 800 samples are more than half of the 900"):
        lg.regression.one_pass_sgd(task, [100], batch_size=8)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("task: wanted at least 64", lambda: lg.regression.scaling_laws(
            lg.regression.Spectrum(np.ones(3), np.ones(3)))),
        ("task: the targets have no power", lambda: lg.regression.scaling_laws(
            lg.regression.Spectrum(VALUES, 0 * POWER))),
        ("steps: wanted different", lambda: lg.regression.one_pass_sgd(TASK, [1, 1])),
        ("batch_size: ", lambda: lg.regression.one_pass_sgd(TASK, [1], batch_size=0)),
        ("rate: ", lambda: lg.regression.one_pass_sgd(TASK, [1], rate=-1.0)),
    ],
)  # fmt: skip
def test_wrong_arguments(message, call):
    with pytest.raises(InvalidInput, match=message):
        call()
