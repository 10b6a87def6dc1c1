"""Computation of a figure: its parts, which are kept on disk, then its claims and picture."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import largen
from largen.errors import DamagedFile, InvalidInput
from largen.files import load_dataset, make_folder, save_dataset, save_figure, save_text
from papers.claims import Claim
from papers.images import Images
from papers.record import Figure

if TYPE_CHECKING:
    import xarray

Report = Callable[[str, float], object]
SECONDS = "processor seconds"  # attribute of a part on disk


@dataclass(frozen=True)
class Produced:
    """A computed figure.

    Attributes
    ----------
    figure
        The figure's record.
    found
        The parts' results, by name.
    claims
        The paper's claims with their verdicts.
    files
        Paths of the picture, the data and the summary.
    seconds
        Processor time of the computation, all threads together, including that of parts that were
        already on disk.
    resumed
        The number of parts that were already on disk.
    notes
        The figure's notes; for a fast computation, preceded by its effect on them.
    """

    figure: Figure
    found: dict[str, xarray.Dataset]
    claims: tuple[Claim, ...]
    files: tuple[Path, ...]
    seconds: float
    resumed: int
    notes: tuple[str, ...]


def produce(
    figure: Figure,
    images: Mapping[str, Images],
    folder: Path,
    *,
    fast: bool = False,
    report: Report = lambda text, done: None,
) -> Produced:
    """Compute a figure and write its files into a folder.

    Every part is written to ``folder/parts`` as soon as it is done. Later computations, of this or
    of another figure with the same part, read it from there.

    Parameters
    ----------
    figure
        The figure to compute.
    images
        The sets of images that it needs, by name.
    folder
        The folder for the files; it is created if it does not exist.
    fast
        Whether to use the figure's reduced settings.
    report
        Function called with a description of the current work and the completed fraction of all
        work.
    """
    begin, earlier = time.process_time(), 0.0
    settings = figure.fast if fast else figure.settings
    parts = figure.parts(settings, images)
    kept = make_folder("folder", folder / "parts")
    total, before, resumed = sum(part.cost for part in parts), 0.0, 0
    found: dict[str, xarray.Dataset] = {}
    for part in parts:
        digests = " ".join(images[name].digest for name in sorted(images))
        key = hashlib.sha256(f"{largen.__version__} {digests} {part.key}".encode()).hexdigest()
        path = kept / f"{key[:20]}.nc"
        report(part.name, before / total)
        kept_part = _load(path)
        if kept_part is not None:
            found[part.name] = kept_part
            resumed += 1
            earlier += float(kept_part.attrs.get(SECONDS, 0.0))
        else:
            start, share = before, part.cost

            def inside(done: int, of: int, name=part.name, start=start, share=share) -> None:
                report(name, (start + share * done / max(of, 1)) / total)

            since = time.process_time()
            own = part.compute(inside)
            found[part.name] = own.assign_attrs({SECONDS: time.process_time() - since})
            save_dataset(path, found[part.name])
        before += part.cost
    report("claims and picture", 1.0)
    claims = tuple(figure.claims(settings, found))
    seconds = time.process_time() - begin + earlier
    smaller = "computed fast: widths, depths, steps and samples are fewer than stated here"
    notes = (smaller, *figure.notes) if fast else figure.notes
    files = _write(figure, settings, images, found, claims, notes, folder, seconds, resumed)
    return Produced(figure, found, claims, files, seconds, resumed, notes)


def _load(path: Path) -> xarray.Dataset | None:
    """Return a part from disk; None if it is missing or damaged, and has to be computed again."""
    try:
        data, has_checksum = load_dataset(path)
    except (InvalidInput, DamagedFile):
        return None
    return data if has_checksum else None


def _write(
    figure: Figure,
    settings: Any,
    images: Mapping[str, Images],
    found: dict[str, xarray.Dataset],
    claims: tuple[Claim, ...],
    notes: tuple[str, ...],
    folder: Path,
    seconds: float,
    resumed: int,
) -> tuple[Path, ...]:
    import xarray

    picture, numbers, summary = (folder / f"{figure.name}.{kind}" for kind in ("png", "nc", "json"))
    save_figure(picture, figure.draw(settings, found))
    tree = xarray.DataTree.from_dict({f"/{name}": data for name, data in found.items()})
    save_dataset(numbers, tree)
    content = {
        "figure": figure.name,
        "source": figure.source,
        "settings": repr(settings),
        "images": {name: {"file": i.path, "digest": i.digest} for name, i in images.items()},
        "notes": list(notes),
        "seconds": round(seconds, 1),
        "parts read from disk": resumed,
        "shares": figure.shares,
        "claims": [claim.summary() for claim in claims],
    }
    save_text(summary, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return picture, numbers, summary
