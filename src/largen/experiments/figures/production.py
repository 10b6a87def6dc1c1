"""Computing a figure: its parts one after the other, kept on disk, then claims and picture."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import largen
from largen.experiments.figures.images import Images
from largen.experiments.figures.record import Claim, Figure
from largen.files import made_folder, written_whole

if TYPE_CHECKING:
    import xarray

Report = Callable[[str, float], object]


@dataclass(frozen=True)
class Produced:
    """A figure that was computed.

    Attributes
    ----------
    figure
        Which.
    found
        The parts' results, by name.
    claims
        What came of the paper's claims.
    files
        Picture, data and summary.
    seconds
        How long it took.
    resumed
        How many parts were already on disk.
    notes
        The figure's; if it was computed fast, led by what that means for them.
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

    Every part is written to ``folder/parts`` as soon as it is done, and read from there the next
    time, by whichever figure needs the same.

    Parameters
    ----------
    figure
        What to compute.
    images
        The sets of images that it needs, by name.
    folder
        Where files go; it is made if need be.
    fast
        Whether to compute less.
    report
        Called with what is being done, and the fraction of all work that is done.
    """
    import xarray

    begin = time.perf_counter()
    settings = figure.fast if fast else figure.settings
    parts = figure.parts(settings, images)
    kept = made_folder("folder", folder / "parts")
    total, before, resumed = sum(part.cost for part in parts), 0.0, 0
    found: dict[str, xarray.Dataset] = {}
    for part in parts:
        digests = " ".join(images[name].digest for name in sorted(images))
        key = hashlib.sha256(f"{largen.__version__} {digests} {part.key}".encode()).hexdigest()
        path = kept / f"{key[:20]}.nc"
        report(part.name, before / total)
        if path.is_file():
            found[part.name] = xarray.load_dataset(path, engine="h5netcdf")
            resumed += 1
        else:
            start, share = before, part.cost

            def inside(done: int, of: int, name=part.name, start=start, share=share) -> None:
                report(name, (start + share * done / max(of, 1)) / total)

            found[part.name] = part.compute(inside)
            with written_whole(path) as draft:
                found[part.name].to_netcdf(draft, engine="h5netcdf")
        before += part.cost
    report("claims and picture", 1.0)
    claims = tuple(figure.claims(settings, found))
    seconds = time.perf_counter() - begin
    smaller = "computed fast: widths, depths, steps and samples are fewer than stated here"
    notes = (smaller, *figure.notes) if fast else figure.notes
    files = _write(figure, settings, images, found, claims, notes, folder, seconds, resumed)
    return Produced(figure, found, claims, files, seconds, resumed, notes)


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
    figure.draw(settings, found).savefig(picture)
    tree = xarray.DataTree.from_dict({f"/{name}": data for name, data in found.items()})
    tree.to_netcdf(numbers, engine="h5netcdf")
    content = {
        "figure": figure.name,
        "source": figure.source,
        "settings": repr(settings),
        "images": {name: {"file": i.path, "digest": i.digest} for name, i in images.items()},
        "notes": list(notes),
        "seconds": round(seconds, 1),
        "parts read from disk": resumed,
        "claims": [claim.summary() for claim in claims],
    }
    summary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return picture, numbers, summary
