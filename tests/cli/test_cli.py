import io
import json

import numpy as np
import pytest
import xarray
from rich.console import Console
from typer.testing import CliRunner

import largen
from largen.cli.app import app
from largen.experiments.quickstart import Settings


def invoke(*words):
    return CliRunner().invoke(app, list(words))


def test_version():
    assert invoke("--version").stdout.strip() == f"largen {largen.__version__}"


def test_info_names_versions_and_devices():
    out = invoke("info").stdout
    for word in ("largen", "jax", "device"):
        assert word in out


def test_unknown_command_is_refused():
    assert invoke("quickstop").exit_code == 2


def test_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    result = invoke("quickstart", "--fast", "--output", str(tmp_path / "file"))
    assert result.exit_code == 2
    assert "cannot make the folder" in result.stdout


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["quickstart", "--fast"], "largen.cli.quickstart.quickstart"),
    ],
)
def test_an_interrupt_ends_in_one_line(words, place, tmp_path, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupted)
    result = invoke(*words, "--output", str(tmp_path))
    assert result.exit_code == 130
    # The output, with what goes to stderr, in all versions of click.
    assert result.output.splitlines()[-1].startswith("Interrupted.")
    assert result.output.count("Interrupted") == 1
    assert "Traceback" not in result.output


@pytest.mark.slow
def test_quickstart_measures_both_limits(tmp_path, monkeypatch):
    few = Settings({32: 128, 96: 64, 256: 32}, samples=60, rtol=3e-3)
    monkeypatch.setattr("largen.cli.quickstart.FAST", few)
    result = invoke("quickstart", "--fast", "--output", str(tmp_path))
    assert result.exit_code == 0, result.stdout
    summary = json.loads((tmp_path / "quickstart.json").read_text())
    for case in ("ntk", "mean_field"):
        exponent, error = (summary[k][case]["single"] for k in ("exponents", "errors"))
        assert abs(exponent + 0.5) < 0.1
        assert error < 0.1
        tree = xarray.open_datatree(tmp_path / "quickstart.nc", engine="h5netcdf")
        distances = tree[case]["comparison"]["single"]
        assert (np.diff(distances) < 0).all()
        assert tree[case]["limit"]["f_test"].dims == ("step", "test_sample")
    numbers = largen.load(tmp_path / "quickstart.nc")["ntk"]["comparison"].to_xarray()
    # Networks of all widths start at outputs of one size, and so does the limit.
    np.testing.assert_allclose(numbers["loss"][:, 0], numbers["loss_limit"][0], rtol=0.15)
    assert (tmp_path / "quickstart.png").stat().st_size > 50_000
    assert "quickstart.png" in result.stdout.replace("\n", "")


@pytest.mark.slow
def test_read_prints_the_report_of_a_model(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    (tmp_path / "my_models.py").write_text(
        "from torch import nn\n"
        "def make(n):\n"
        "    return nn.Sequential(nn.Linear(3, n), nn.ReLU(), nn.Linear(n, 1))\n"
        "def pooled(n):\n"
        "    pool = nn.MaxPool1d(7), nn.Flatten()\n"
        "    return nn.Sequential(nn.Conv1d(3, n, 2), *pool, nn.Linear(n, 1))\n"
        "def over_neurons(n):\n"
        "    return nn.Sequential(nn.Linear(3, n), nn.Softmax(-1), nn.Linear(n, 1))\n"
    )
    monkeypatch.chdir(tmp_path)
    told = invoke("read", "my_models:make", "--input", "3")
    assert told.exit_code == 0
    assert "2.weight  n       uniform  0.3333  uniform  0.0104 (n/32)^(-1)" in told.stdout
    told = invoke("read", "my_models:pooled", "--input", "3,8")
    assert told.exit_code == 0
    assert "populations of neurons" in told.stdout
    refused = invoke("read", "my_models:over_neurons", "--input", "3")
    assert refused.exit_code == 2
    assert "softmax" in refused.stdout
    for wrong in ("my_models:other", "my_models", "none_such:make"):
        assert invoke("read", wrong, "--input", "3").exit_code == 2


def test_read_takes_functions_in_jax(tmp_path, monkeypatch):
    (tmp_path / "my_functions.py").write_text(
        "import jax\n"
        "def init(key, width):\n"
        "    one, two = jax.random.split(key)\n"
        "    w = jax.random.normal(one, (3, width))\n"
        "    return {'w': w, 'v': jax.random.normal(two, (width, 1)) / width**0.5}\n"
        "def apply(p, x):\n"
        "    return jax.nn.relu(x @ p['w']) @ p['v']\n"
    )
    monkeypatch.chdir(tmp_path)
    told = invoke("read", "my_functions:init", "--apply", "my_functions:apply", "--input", "3")
    assert told.exit_code == 0
    assert "w       3       normal" in told.stdout


def test_what_cannot_be_read_is_said_in_a_line(tmp_path, monkeypatch):
    (tmp_path / "some_functions.py").write_text("def make(n):\n    return n\n")
    monkeypatch.chdir(tmp_path)
    for words, said in (
        (["some_functions", "--input", "3"], "wanted module:factory"),
        (["some_functions:", "--input", "3"], "wanted module:factory"),
        (["none_such:make", "--input", "3"], "cannot be imported"),
        (["some_functions:other", "--input", "3"], "cannot be imported"),
        (["some_functions:make", "--input", "3,a"], "--input: wanted integers such as 3,32,32"),
        (["some_functions:make", "--input", "3", "--widths", ""], "--widths: wanted integers"),
    ):
        told = invoke("read", *words)
        assert told.exit_code == 2
        assert said in told.stdout


def test_progress_is_a_bar_on_a_terminal_and_lines_in_a_file():
    from largen.cli.work import progress

    seen = io.StringIO()
    with progress(Console(file=seen)) as report:
        for text, done in (("first", 0.0), ("first", 0.2), ("second", 0.5)):
            report(text, done)
    assert seen.getvalue().splitlines() == ["  0%  first", " 50%  second"]
    seen = io.StringIO()
    with progress(Console(file=seen, force_terminal=True)) as report:
        report("first", 0.5)
    assert "first" in seen.getvalue()


def test_values_below_their_error_are_bounds():
    from largen.cli.quickstart import _concise

    assert _concise(0.0203, 0.0011) == "0.0203(11)"
    assert _concise(0.5, 1e-6) == "0.5000(1)"
    assert _concise(0.002, 0.0011) == "< 0.0022"
