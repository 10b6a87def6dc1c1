"""Computes figures of papers and keeps what came out beside the gallery's page.

``python docs/run_gallery.py --data FOLDER`` runs ``python -m papers`` for each figure, one after
the other. A figure that takes more than ``--seconds`` of processor time is computed again with its
reduced settings (``--fast``), and is left out if these take too long as well. Summaries and small
pictures go to ``docs/gallery/``, where ``docs/make_gallery.py`` reads them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from datetime import date
from pathlib import Path

from PIL import Image

from papers.registry import FIGURES

KEPT = Path(__file__).with_name("gallery")
WIDTH = 900  # pixels of a kept picture
SIZE = 60_000  # bytes, at most


def compute(name: str, data: str, folder: Path, fast: bool, seconds: int) -> bool:
    """Run one figure as a process of its own; return whether it ended in order and in time."""
    command = [sys.executable, "-m", "papers", name, "--data", data, "--output", str(folder)]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    done = subprocess.run(
        [*command, *(["--fast"] if fast else [])],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode > 0:  # an error; negative is the limit of processor time
        print(done.stdout[-800:], done.stderr[-800:], flush=True)
    return done.returncode == 0


def keep_picture(source: Path, target: Path) -> None:
    """Write a picture small enough for a page: fewer pixels and colours until it is."""
    picture = Image.open(source).convert("RGB")
    for width, colours in ((WIDTH, 128), (WIDTH, 48), (700, 48), (560, 32), (420, 24), (320, 16)):
        width = min(width, picture.width)
        small = picture.resize((width, round(picture.height * width / picture.width)), 1)
        small.quantize(colours).save(target, optimize=True)
        if target.stat().st_size <= SIZE:
            return


def keep(name: str, folder: Path, fast: bool) -> None:
    """Copy a figure's summary, without paths of the machine, and its picture."""
    summary = json.loads((folder / f"{name}.json").read_text())
    for images in summary["images"].values():
        images["file"] = Path(images["file"]).name
    summary |= {"fast": fast, "date": date.today().isoformat()}
    text = json.dumps(summary, indent=1, ensure_ascii=False)
    (KEPT / f"{name}.json").write_text(text + "\n")
    keep_picture(folder / f"{name}.png", KEPT / f"{name}.png")


def main() -> None:
    """Compute the figures that are named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="such as 004-1; all without it")
    parser.add_argument("--data", default="digits", help="folder of images, or 'digits'")
    parser.add_argument("--seconds", type=int, default=400, help="of processor time, of a run")
    parser.add_argument("--fast", action="store_true", help="reduced settings from the start")
    parser.add_argument("--output", type=Path, default=Path("figures"), help="folder of the runs")
    chosen = parser.parse_args()
    KEPT.mkdir(exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in chosen.names or FIGURES:
        for fast in (True,) if chosen.fast else (False, True):
            # Parts are shared by figures of one setting, and kept apart from the other's.
            folder = chosen.output / ("fast" if fast else "whole")
            if compute(name, chosen.data, folder, fast, chosen.seconds):
                keep(name, folder, fast)
                print(f"{name}: computed{' with reduced settings' if fast else ''}", flush=True)
                break
        else:
            print(f"{name}: not computed", flush=True)


if __name__ == "__main__":
    main()
