"""Results in notebooks: a real kernel runs cells, and their outputs are looked at."""

import warnings
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="notebooks are run with the group docs")
nbclient = pytest.importorskip("nbclient", reason="notebooks are run with the group docs")
pytest.importorskip("ipykernel", reason="notebooks are run with the group docs")

SHIPPED = Path(__file__).parents[1] / "notebooks" / "ten_minutes.ipynb"
FOUND = "import numpy as np, largen as lg\nfound = lg.kernel(lg.mlp(1, 'erf'), np.eye(3))"
# Cells, with the numbers of pictures that pyplot's backend of notebooks shows, and others.
CELLS = {
    FOUND: (0, 0),
    "found.plot()": (1, 1),
    "found.plot();": (1, 0),
    "figure = found.plot()": (1, 0),
    "figure": (1, 1),
    "found.plot(what='ntk'); found.plot('both.png')": (2, 1),
    "found": (0, 0),
    "import matplotlib.pyplot as plt\nleft = plt.subplots()[1]\nfound.plot(ax=left);": (1, 0),
}


def run(notebook, folder, monkeypatch):
    """Run a notebook, and return the formats of the outputs of each cell of code."""
    monkeypatch.delenv("MPLBACKEND", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries that run it
        client = nbclient.NotebookClient(
            notebook, timeout=500, kernel_name="python3", resources={"metadata": {"path": folder}}
        )
        client.execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [[set(output.get("data", ())) for output in cell.outputs] for cell in cells]


@pytest.mark.parametrize("backend", ["inline", pytest.param("agg", marks=pytest.mark.slow)])
def test_each_picture_is_shown_once(backend, tmp_path, monkeypatch):
    cells = list(CELLS)
    if backend == "agg":
        cells[0] = f"import matplotlib\nmatplotlib.use('agg')\n{FOUND}"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    shown = run(notebook, tmp_path, monkeypatch)
    pictures = [sum("image/png" in formats for formats in outputs) for outputs in shown]
    assert pictures == [numbers[backend == "agg"] for numbers in CELLS.values()]
    assert [len(outputs) for outputs in shown[1:6]] == pictures[1:6]  # nothing else is there
    assert shown[6] == [{"text/html", "text/plain"}]  # a result itself is its table


@pytest.mark.slow
def test_the_shipped_notebook_has_pictures(tmp_path, monkeypatch):
    notebook = nbformat.read(SHIPPED, as_version=4)
    shown = run(notebook, tmp_path, monkeypatch)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    drawing = [outputs for source, outputs in zip(code, shown, strict=True) if ".plot(" in source]
    assert len(drawing) > 1
    for outputs in drawing:
        assert any("image/png" in formats for formats in outputs)
