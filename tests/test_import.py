"""What `import largen` brings with it."""

import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import pytest

import largen
from largen._hints import ELSEWHERE
from largen._rooms import addresses


def modules_after(code: str) -> set[str]:
    program = f"import sys\n{code}\nprint(*sys.modules)"
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(out.stdout.split())


def test_nothing_heavy_is_imported_before_it_is_used():
    heavy = {"matplotlib", "sklearn", "torch", "diffrax", "optax", "equinox", "xarray", "typer"}
    loaded = modules_after(
        "import largen as lg; lg.Run; lg.mlp(2, 'tanh'); lg.mean_field(); lg.Dataset"
    )
    assert not heavy & loaded


def test_kernels_and_limits_wait_for_no_solver_of_differential_equations():
    """Its import would take as long as the compilation of a kernel."""
    loaded = modules_after("import largen as lg; lg.kernel; lg.solve; lg.train; lg.compare")
    assert not {"matplotlib", "torch", "diffrax"} & loaded


ATTENTION = "lg.serial(lg.Dense(), lg.QKVAttention(), lg.GlobalAvgPool(), lg.Dense())"


OF_OTHERS = {"criticality", "networks", "reading", "regression", "transfer", "plots"}
SMALL = "rtol=0.5, particles=64, replicates=2"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "scaling", "shape", "options"),
    [
        ("lg.mlp(1)", "ntk", "2, 8", ""),
        ("lg.mlp(1)", "mean_field", "2, 8", ""),
        (ATTENTION, "mean_field", "2, 4, 2", ""),
        ("lg.mlp(2)", "mean_field", "2, 8", SMALL),
        ("lg.residual_mlp(np.inf)", "depth_mup", "2, 8", f"{SMALL}, depths=(1, 2)"),
    ],
)
def test_a_run_brings_its_theory_alone(net, scaling, shape, options):
    loaded = modules_after(
        "import largen as lg, numpy as np;"
        f"data = lg.Dataset(np.eye(8)[:2].reshape({shape}), [1.0, 2.0]);"
        f"run = lg.Run({net}, lg.{scaling}(), data, optimizer=lg.gd(0.1), steps=1);"
        f"lg.solve(run, throw=False, {options})"
    )
    assert not {f"largen.{room}" for room in OF_OTHERS} & loaded
    assert 100 < sum(name.startswith("largen.") for name in loaded) <= 175


@pytest.mark.slow
def test_global_configuration_is_left_alone():
    out = subprocess.run(
        [
            sys.executable,
            "-c",
            "import jax; before = dict(jax.config.values); import largen as lg, numpy as np;"
            "lg.kernel(lg.mlp(1), np.eye(3)); print(before == dict(jax.config.values))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.strip() == "True"


def test_every_public_name_exists_and_is_documented():
    assert 40 < len(largen.__all__) <= 60
    found = addresses()
    assert {*largen.__all__} - {"__version__"} < {*found}
    for address in found.values():
        assert pkgutil.resolve_name(address).__doc__, address


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Dropout", "It is largen.layers.Dropout."),
        ("Dens", "Did you mean largen.Dense?"),
        ("empirical_ntk_fn", "Here it is lg.networks.ntk_of_function."),
        ("xyz", "attribute 'xyz'."),
    ],
)
def test_names_that_do_not_exist_lead_to_those_that_do(name, hint):
    with pytest.raises(AttributeError, match=re.escape(hint) + "$"):
        getattr(largen, name)


def test_names_for_those_of_other_libraries_exist():
    assert not {*ELSEWHERE} & {*addresses()}
    for here in ELSEWHERE.values():
        for name in re.findall(r"lg\.([\w.]+)", here):
            if not name.startswith("transfer.torch") or find_spec("torch"):
                assert pkgutil.resolve_name(f"largen.{name}") is not None


def test_no_module_bears_the_name_of_what_its_room_exports():
    """Or the room's attribute would be one or the other, by what was imported last."""
    for room in pkgutil.walk_packages(largen.__path__, "largen.", onerror=lambda name: None):
        if room.ispkg and room.name != "largen.cli":
            try:
                loaded = import_module(room.name)
            except ModuleNotFoundError:  # PyTorch need not be there
                continue
            names = {module.name for module in pkgutil.iter_modules(loaded.__path__)}
            held = {name: value for name, value in vars(loaded).items() if name in names}
            exported = {name for name, value in held.items() if not isinstance(value, ModuleType)}
            assert not exported, f"{room.name}: {exported}"


def test_errors_complete_to_all_of_them():
    here = vars(largen.errors)
    kinds = {n for n, v in here.items() if isinstance(v, type) and issubclass(v, Exception)}
    assert set(dir(largen.errors)) == kinds


def test_unknown_names_are_unknown():
    assert not hasattr(largen, "no_such_name")


@pytest.mark.slow
def test_rooms_are_found_before_any_name_was_used():
    names = "errors", "transfer", "transfer.jax", "regression.large", "theories", "files"
    program = "import largen as lg\n" + "\n".join(f"print(lg.{name}.__name__)" for name in names)
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert out.stdout.split() == [f"largen.{name}" for name in names], out.stderr
    rooms = [name for name in dir(largen) if isinstance(getattr(largen, name), ModuleType)]
    assert {"errors", "kernels", "layers", "networks", "theories", "transfer"} < set(rooms)
    assert {"estimators", "large", "posterior"} < {*dir(largen.regression)}
    assert not hasattr(largen.transfer, "no_such_name")
