"""Options of the tests, and what is set before any import of largen."""

import os
import signal
import subprocess
import sys
import time
from datetime import date

# One thread for PyTorch and BLAS, read when they load: arrays are small here, and tests run
# beside each other; threads that wait for each other take most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts what runs in the background with SIGINT ignored, and so are the commands that tests
# start then: a test that interrupts one would wait for it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import hypothesis
import pytest
import tests.typecheck  # loaded here, so that the hook finds it by name
from jaxtyping import install_import_hook
from tests.compiled import forget_programs

pytest_plugins = ["tools.selection.plugin"]
os.environ.setdefault("MPLBACKEND", "agg")

# No test is timed: a busy machine makes no difference.
hypothesis.settings.register_profile("largen", deadline=None)
hypothesis.settings.load_profile("largen")

# XLA's older code generator for the CPU compiles in half the time, and tests mostly wait for the
# compiler. Long loops over pairs of samples run slower by half with it: users have the newer one,
# and so have `make test-oldest` and `make test-newest`.
QUICKLY = "JAX_DISABLE_MOST_OPTIMIZATIONS"  # of commands that tests start
QUICK_TO_COMPILE = "--xla_cpu_use_fusion_emitters=false"


BEGAN = time.monotonic()
FIRST = "LARGEN_FIRST_TEST"  # a number by which processes agree on the test to begin with


def pytest_addoption(parser):
    """Add the options of compiling as users do, of shapes, and of a time for the tests."""
    parser.addoption(
        "--default-compiler", action="store_true", help="compile as XLA does by default"
    )
    parser.addoption(
        "--without-shapes",
        action="store_true",
        help="do not check annotated shapes at every call, a third of the time of the tests",
    )
    parser.addoption(
        "--within",
        type=float,
        metavar="SECONDS",
        help="start no test later than this: those left over are reported as skipped. The first "
        "test is another one each day.",
    )
    parser.addoption(
        "--daily", action="store_true", help="run long draws as well, by a seed of the day"
    )
    parser.addoption(
        "--one-case", action="store_true", help="run one case of each slow test: the middle one"
    )


def pytest_configure(config):
    """Install the checks of shapes, and choose the code generator: XLA reads its flags once."""
    os.environ.setdefault(FIRST, str(date.today().toordinal()))
    if not config.getoption("--without-shapes"):
        install_import_hook("largen", f"{tests.typecheck.__name__}.typecheck")
    flags = os.environ.get("XLA_FLAGS", "")
    if config.getoption("--default-compiler"):
        return
    os.environ.setdefault(QUICKLY, "1")
    if QUICK_TO_COMPILE in flags:
        return
    with_it = os.environ | {"XLA_FLAGS": f"{flags} {QUICK_TO_COMPILE}".strip()}
    # A flag that XLA does not know ends the process: another one finds out.
    known = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"], env=with_it, capture_output=True
    )
    if known.returncode == 0:
        os.environ.update(with_it)


def pytest_collection_modifyitems(config, items):
    """Leave out draws of the day, and cases; begin with another test each day if time is short."""
    if not config.getoption("daily"):
        of_the_day = [item for item in items if item.get_closest_marker("daily")]
        config.hook.pytest_deselected(items=of_the_day)
        items[:] = [item for item in items if item not in of_the_day]
    if config.getoption("one_case"):
        left_out = further_cases(items)
        config.hook.pytest_deselected(items=[*left_out.values()])
        items[:] = [item for item in items if item.nodeid not in left_out]
    if config.getoption("within") is not None and items:
        first = 97 * int(os.environ[FIRST]) % len(items)
        items[:] = items[first:] + items[:first]


def further_cases(items):
    """Return the cases of slow tests by name, without the middle one of each test."""
    cases: dict[str, list] = {}
    for item in items:
        if item.get_closest_marker("slow"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return {
        item.nodeid: item
        for own in cases.values()
        for place, item in enumerate(own)
        if place != len(own) // 2
    }


STARTS: dict[str, dict] = {}  # of the generators that modules draw their data from


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip a test that is too late; let generators begin where importing the module has left them.

    The data of a test are then the same with any others before it, in any process.
    """
    within = item.config.getoption("within")
    if within is not None and time.monotonic() - BEGAN > within:
        pytest.skip(f"not run: {within:g} s are over")
    generator = getattr(getattr(item, "module", None), "RNG", None)
    if generator is not None:
        bits = generator.bit_generator
        bits.state = STARTS.setdefault(item.module.__name__, bits.state)


@pytest.fixture(autouse=True, scope="module")
def _forget_compiled_programs():
    """Let go of compiled programs before a process has more of them than it may map."""
    yield
    forget_programs()


@pytest.fixture(autouse=True)
def _compile_quickly(request, monkeypatch):
    """Compile without the compiler's optimizations, which take a third of the time of the tests.

    But for rounding they change nothing that is computed. Slow tests with the mark ``long_loops``,
    which compute for longer than they compile, have all of them, as users do.
    """
    import jax

    long = "slow" in request.keywords and "long_loops" in request.keywords
    as_users = long or request.config.getoption("--default-compiler")
    jax.config.update("jax_disable_most_optimizations", not as_users)
    if as_users:
        monkeypatch.delenv(QUICKLY, raising=False)
