"""Distances of networks from their limit, and the data for their figures."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from largen.errors import InvalidInput
from largen.runs import Run, Theory, Trajectory
from largen.runs.losses import mean_loss
from largen.text import shown
from largen.theories import by_name

RESAMPLES = 1000
START_DRAWS = 512  # of outputs at the start, for the mean loss of other losses than the squared one


def distances_of(
    net: Trajectory, prediction: np.ndarray, on: str, draw: np.random.Generator
) -> dict[str, Any]:
    """Return the distances of networks of one size, their errors, and the data for figures."""
    outputs = getattr(net, f"f_{on}")
    distance = (outputs - prediction).reshape(len(outputs), -1).astype(np.float64)
    seeds = len(distance)
    # The estimates below need only the inner products of the networks' distances.
    gram = distance @ distance.T / distance.shape[1]
    counts = draw.multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES)
    distances = dict(zip(("single", "mean"), _squares(gram, np.ones((1, seeds))), strict=True))
    resampled = dict(zip(("single", "mean"), _squares(gram, counts), strict=True))
    size = float(np.sqrt(np.mean(prediction.astype(np.float64) ** 2)))
    numbers: dict[str, Any] = {"seeds": seeds, "output_size": size}
    for kind, (square,) in distances.items():
        enough = seeds > (1 if kind == "single" else 2)
        spread = float(np.std(resampled[kind])) if enough else float("inf")
        root = float(np.sqrt(max(square, 0.0)))
        # d√m = dm/(2√m) where the square is resolved; where it is not, the error is √dm.
        error = min(spread / (2 * root), spread**0.5) if root else spread**0.5
        numbers |= {kind: root, f"{kind}_error": error}
        with np.errstate(divide="ignore", invalid="ignore"):
            numbers[f"{kind}_relative"] = np.float64(root) / size
        numbers |= {f"{kind}_square": float(square), f"{kind}_square_error": spread}
    losses = getattr(net, f"loss_{on}")
    numbers["loss"] = losses.mean(0)
    numbers["loss_low"], numbers["loss_high"] = np.quantile(losses, (0.1, 0.9), axis=0)
    # The outputs after training of the first network and of the limit, for the figure.
    numbers["network"] = outputs[0, -1].reshape(-1)
    numbers["prediction"] = prediction[0, -1].reshape(-1)
    return numbers


def loss_of_limit(limit: Trajectory, run: Run, on: str) -> np.ndarray | None:
    """Return the mean loss of networks in the limit, (step,); None if it is not known.

    In the kernel limit networks start at random outputs, and their mean loss is above the loss of
    their mean: for the squared error ½(f̄ − y)² + ½ Var f of each sample, which is the mean of the
    losses of f̄ ± s with the standard deviation s. For other losses it is that of ``START_DRAWS``
    draws of outputs at the start.
    """
    theory, targets = by_name(limit.theory), getattr(limit, f"y_{on}")
    outputs = getattr(limit, f"f_{on}")
    if not theory.random_outputs:
        return mean_loss(run.loss, outputs, targets, leading=0)
    if run.loss.linear_residual and f"f_{on}_std" in limit:
        std = getattr(limit, f"f_{on}_std")
        both = np.stack([outputs + std, outputs - std])
        return mean_loss(run.loss, both, targets, leading=1).mean(0)
    if theory.initial_outputs is Theory.initial_outputs:
        return None
    starts = theory().initial_outputs(run, START_DRAWS, jax.random.key(0))
    own = limit if limit.run is not None else Trajectory(limit.to_xarray(), run)
    train, test = theory().condition(own, *starts)
    drawn = np.asarray(train if on == "train" else test)
    return mean_loss(run.loss, drawn, targets, leading=1).mean(0)


def between_limits(limit: Trajectory, net: Trajectory, on: str) -> dict[str, Any]:
    """Return the distance of a limit of infinite width and finite depth from another limit."""
    difference = getattr(net, f"f_{on}") - getattr(limit, f"f_{on}")
    square = float(np.mean(difference.astype(np.float64) ** 2))
    root, error = square**0.5, error_of_limit(net, on)
    size = float(np.sqrt(np.mean(np.square(getattr(limit, f"f_{on}"), dtype=np.float64))))
    one = {
        "": root,
        "_error": error,
        "_square": square,
        "_square_error": error * (2 * root + error),
        "_relative": root / size if size else float("nan"),
    }
    both = {f"{kind}{name}": v for kind in ("single", "mean") for name, v in one.items()}
    return {"seeds": 1, "output_size": size, **both}


def mean_shift(
    nets: list[Trajectory], predictions: list[Any], on: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return N times the distance of the mean from the limit, all widths together, and its error.

    N d̄ has the variance N · (N Var f)/S for S networks, so that widths have the weights S/N.
    """
    shifts, errors, weights = [], [], []
    for net, prediction in zip(nets, predictions, strict=True):
        distance = getattr(net, f"f_{on}") - prediction
        seeds, width = len(distance), net.width or 1
        shifts.append(width * distance.mean(0))
        std = distance.std(0, ddof=1) if seeds > 1 else np.full(distance.shape[1:], np.nan)
        errors.append(width * std / np.sqrt(seeds))
        weights.append(seeds / width)
    share = np.array(weights) / np.sum(weights)
    error = np.sqrt(np.tensordot(share**2, np.square(errors), 1))
    return np.tensordot(share, np.array(shifts), 1), error


def _squares(gram: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ⟨d_s²⟩ and the mean of ⟨d_s d_s′⟩ over pairs s ≠ s′, for resampled networks."""
    squares = np.diag(gram)
    single = counts @ squares / counts.sum(1)
    pairs = counts.sum(1) ** 2 - (counts**2).sum(1)
    products = np.einsum("rs,rs->r", counts @ gram, counts) - counts**2 @ squares
    return single, np.where(pairs > 0, products / np.maximum(pairs, 1), np.nan)


def error_of_limit(limit: Trajectory, on: str) -> float:
    """Return the error of the limit's outputs, 0 for predictions given initial outputs."""
    name = f"f_{on}_error"
    if by_name(limit.theory).random_outputs or name not in limit:
        return 0.0
    return float(np.sqrt(np.mean(getattr(limit, name) ** 2)))


def chosen_samples(on: Any, tested: bool) -> str:
    """Return the samples that outputs are compared on: ``"test"`` by default, if there are any."""
    if on is None:
        return "test" if tested else "train"
    if not isinstance(on, str) or on not in (("train", "test") if tested else ("train",)):
        raise InvalidInput(f"on: wanted 'train', or 'test' where there are any, got {shown(on)}.")
    return on


def prediction_for(limit: Trajectory, net: Trajectory, on: str) -> np.ndarray:
    """Return the limit's outputs, conditioned on the networks' initial outputs if they matter."""
    theory = by_name(limit.theory)
    if not theory.random_outputs:
        return getattr(limit, f"f_{on}")[None]
    # A limit read from a file has no run; that of the networks is equivalent.
    limit = limit if limit.run is not None else Trajectory(limit.to_xarray(), net.run)
    train, test = theory().condition(limit, net.f_train[:, 0], net.f_test[:, 0])
    return np.asarray(train if on == "train" else test)
