"""Writes ``evidence/index.md`` from the files that the measuring commands have written there."""

from __future__ import annotations

import ast
import csv
import json
from collections import Counter
from pathlib import Path

from largen.theories import FiniteWidth, registered

ROOT = Path(__file__).parents[1]
KEPT = Path(__file__).with_name("evidence")
# Where the tests of each theory are, and what else is held against finite networks.
TESTS = {
    "kernel": "tests/theories/kernel_limit",
    "kernel, adaptive": "tests/theories/mean_field/adaptive_deep/test_kernel_limit.py",
    "kernel, pseudo-gradients": "tests/theories/mean_field/test_feedback_alignment.py",
    "mean field, one hidden layer": "tests/theories/mean_field/test_*.py",
    "mean field, deep": "tests/theories/mean_field/deep",
    "mean field, adaptive": "tests/theories/mean_field/adaptive_deep/test_adaptive_deep.py",
    "mean field, infinite depth": "tests/theories/mean_field/infinite_depth",
    "mean field, branches and attention": "tests/theories/mean_field/transformer",
    "mean field, pseudo-gradients": "tests/theories/mean_field/test_feedback_alignment.py",
    "kernel, order 1/width": "tests/theories/test_finite_width_*.py",
}
ROOMS = {
    "expectations": "tests/expectations",
    "kernels": "tests/kernels",
    "predictions from kernels": "tests/regression",
    "criticality": "tests/criticality",
    "finite width": "tests/finite_width",
    "parameterizations": "tests/parameterizations",
    "finite networks": "tests/networks",
    "transfer": "tests/transfer",
}
PAGES = ["optimal_rates"]  # with a page of their own
THREE_WAYS = """# Evidence

Every theoretical result is asserted in three ways:

1. against a closed form or an exact case: linear networks, one step of training, a single sample,
   kernels with forty digits;
2. against an independent numerical route, written apart from the package: the equations as the
   papers print them (with their misprints corrected), Monte Carlo sampling, fine quadrature;
3. against finite networks, which import no theory: the predicted power of the width (or depth) is
   fitted, and the distance from the limit is compared with its standard error. Statistical tests
   have fixed keys, and |z| below 4 to 6, by the number of entries that are compared.

All numbers on this page are read from files in `docs/evidence/`, which the commands beside them
write; `make docs` puts them on the page.
"""


def tests_in(pattern: str) -> tuple[int, int]:
    """Return the number of test functions in files or a folder, and of slow ones among them."""
    path = ROOT / pattern
    files = path.rglob("test_*.py") if path.is_dir() else path.parent.glob(path.name)
    every = slow = 0
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                every += 1
                slow += any("slow" in ast.unparse(mark) for mark in node.decorator_list)
    return every, slow


def theories() -> list[str]:
    """Return the table of tests, by theory and by part of the package."""
    names = [theory.name for theory in (*registered(), FiniteWidth)]
    lines = ["## Where each theory is tested", "", "| subject | tests | functions | of them slow |"]
    lines.append("|---|---|---|---|")
    for subject, pattern in {**{name: TESTS[name] for name in names}, **ROOMS}.items():
        every, slow = tests_in(pattern)
        lines.append(f"| {subject} | `{pattern}` | {every} | {slow} |")
    return [
        *lines,
        "",
        "`make test` runs the quick ones, `make test-slow` the others, which are statistical and",
        "take seconds to minutes each. What all theories keep to (status, axes, error estimates,",
        "refusals, `rtol`, interrupts, memory) is asked of each by",
        "`tests/test_theory_contracts.py`.",
        "",
    ]


def section(title: str, command: str, words: str, body: list[str]) -> list[str]:
    """Return a section: what is measured, the command, and the table, or that there is none."""
    missing = ["*Not measured for this page: the command above writes the file.*"]
    return [f"## {title}", "", words, "", "```", command, "```", "", *(body or missing), ""]


def loaded(name: str) -> dict | None:
    """Return the content of a JSON file, if it is there."""
    path = KEPT / name
    return json.loads(path.read_text()) if path.exists() else None


def table(name: str) -> list[str]:
    """Return a CSV file as a table; nothing if there is none."""
    path = KEPT / name
    if not path.exists():
        return []
    with path.open() as file:
        head, *rows = csv.reader(file)
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def precision() -> list[str]:
    """Return the work-precision diagram and its table."""
    rows = table("work_precision.csv")
    if not rows:
        return []
    picture = ["![Error against processor seconds](work_precision.svg)", ""]
    return [*picture, ":::{dropdown} The numbers", *rows, ":::"]


def properties() -> list[str]:
    """Return what came of runs drawn at random."""
    found = loaded("properties.json")
    if not found:
        return []
    rows = [(name, value) for name, value in found.items() if name != "z"]
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]


def on_device() -> list[str]:
    """Return the accuracy and the speeds on an accelerator."""
    found = loaded("on_device.json")
    if not found:
        return []
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    lines = [f"Measured on {found['device']} with {versions}.", ""]
    lines += ["| call | float32 | float64 |", "|---|---|---|"]
    lines += [
        f"| {row['call']} | {row['float32']:.1e} | {row['float64']:.1e} |"
        for row in found["numbers"]
    ]
    heads = ["call", "dtype", "first", "again", "again on the CPU", "failed"]
    lines += ["", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in found["speeds"]:
        cells = (f"{x:.3g} s" if isinstance(x := row.get(h, ""), float) else x for h in heads)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def coverage() -> list[str]:
    """Return the table of lines and branches that tests reach, and the files with most left."""
    found = loaded("coverage.json")
    if not found:
        return []
    lines = [f"Measured {found['date']}, by {found['tests']}.", ""]
    lines += ["| room | lines | branches |", "|---|---|---|"]
    for room, counts in sorted(found["rooms"].items()):
        cells = [
            f"{counts[f'covered_{what}'] / counts[total]:.1%} of {counts[total]}"
            if counts[total]
            else "none"
            for what, total in (("lines", "num_statements"), ("branches", "num_branches"))
        ]
        lines.append(f"| {room} | {' | '.join(cells)} |")
    lines += ["", "The files with most lines that no test reaches:", ""]
    lines += ["| file | lines |", "|---|---|"]
    lines += [f"| `{file}` | {count} |" for file, count in found.get("left", {}).items()]
    return lines


def mutation() -> list[str]:
    """Return how many mutants were caught, and the table of the survivors with a word on each.

    The word is the key ``why``, written into the file by whoever looked at the survivor.
    """
    found = loaded("mutation.json")
    if not found:
        return []
    mutants = found["mutants"]
    survivors = [mutant for mutant in mutants if not mutant["caught"]]
    since = sum(mutant.get("why", "").startswith("a test") for mutant in survivors)
    alike = sum(mutant.get("why", "").startswith("no difference") for mutant in survivors)
    lines = [
        f"{found['date']}, seed {found['seed']}: **{len(mutants) - len(survivors)} of "
        f"{len(mutants)} caught** by the quick tests of their rooms, {since} more by tests of "
        f"other rooms or that have been added since; {alike} make no difference.",
        "",
        "| room | place | change | why it survived |",
        "|---|---|---|---|",
    ]
    for mutant in survivors:
        change = mutant["change"].replace("|", "\\|")
        why = mutant.get("why", "not explained")
        lines.append(f"| {mutant['room']} | `{mutant['place']}` | `{change}` | {why} |")
    return lines


def false_alarms() -> list[str]:
    """Return the shares of coordinate checks that fail under right plans."""
    found = loaded("false_alarms.json")
    if not found:
        return []
    lines = [f"Measured {found['date']}.", ""]
    lines += ["| networks under a right plan | networks of each size in a check | failed | 95 % |"]
    lines += ["|---|---|---|---|"]
    for name, case in found["cases"].items():
        for seeds, own in case["checks"].items():
            low, high = own["interval"]
            share = f"{own['failed']} of {own['checks']}"
            lines.append(f"| {name} | {seeds} | {share} | {low:.1%} to {high:.1%} |")
    return lines


def intervals() -> list[str]:
    """Return how often intervals of mean-field solutions contain the value."""
    found = loaded("intervals.json")
    if not found:
        return []
    lines = [f"Measured {found['date']}.", ""]
    lines += ["| problem | keys | 95 % intervals that contain the value | ± 1.96 errors that do |"]
    lines += ["|---|---|---|---|"]
    for name, case in found["cases"].items():
        shares = [case["inside"][kind] for kind in ("margin", "error")]
        cells = " | ".join(f"{share:.1%} ± {error:.1%}" for share, error in shares)
        lines.append(f"| {name} | {case['keys']} | {cells} |")
    return lines


def every_model() -> list[str]:
    """Return how many models have which verdict, and those that are not flat."""
    path = KEPT / "every_model.csv"
    if not path.exists():
        return []
    with path.open() as file:
        rows = list(csv.DictReader(file))
    counts = Counter(row["verdict"] for row in rows)
    built = sum(counts[verdict] for verdict in ("flat", "undecided", "not flat", "refused"))
    lines = [f"| of {built} that can be built and were audited | |", "|---|---|"]
    for verdict in ("flat", "undecided", "not flat", "refused"):
        lines.append(f"| {verdict} | {counts[verdict]}, {counts[verdict] / built:.0%} |")
    lines += ["", f"Of {len(rows)} in all, {counts['not built']} were not built."]
    lines += ["", "| model | verdict | width | depth | why |", "|---|---|---|---|---|"]
    for row in rows:
        if row["verdict"] not in ("flat", "not built"):
            why = row["notes"].replace("|", "\\|").replace("*", "\\*")
            cells = (row["model"], row["verdict"], row["width"], row["depth"], why)
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def page() -> str:
    """Return the page."""
    lines = [THREE_WAYS, *theories()]
    lines += section(
        "Accuracy of kernels",
        "python benchmarks/accuracy_of_kernels.py --output docs/evidence/accuracy_of_kernels.csv",
        "Largest errors of kernels, relative to √(K(x, x) K(x′, x′)), of the formulas of "
        "neural-tangents 0.6.5 and of largen, against 40 digits (relu) and a fine rule in the "
        "plane (tanh); some of the 18 samples nearly coincide.",
        table("accuracy_of_kernels.csv"),
    )
    lines += section(
        "Work and precision of the solvers",
        "python benchmarks/work_precision.py --output docs/evidence",
        "Error of the whole trajectory of outputs against processor seconds, without "
        "compilation, beside the mean over an ensemble of networks, which is a solver of the "
        "limit as well. Each point is one draw, so that errors scatter.",
        precision(),
    )
    lines += section(
        "Intervals of the solvers",
        "python benchmarks/intervals.py",
        "How often `f ± f_margin` contains the value, over keys and outputs, in small problems "
        "with four or eight replicates. Errors `f_error` are standard errors; of so few replicates "
        "they are uncertain themselves, which the last column leaves out.",
        intervals(),
    )
    lines += section(
        "Typical costs",
        "python benchmarks/costs.py --output docs/evidence/costs.csv",
        "Processor seconds of all threads, each row in a process of its own. The first call "
        "compiles; the second has other numbers of the same sizes.",
        table("costs.csv"),
    )
    lines += section(
        "On an accelerator",
        "benchmarks/on_device.sh docs/evidence/on_device.json",
        "Numbers on the first accelerator that JAX sees, against those of the CPU in float64, "
        "relative to the largest entry; and seconds on the clock of the first call, which "
        "compiles, and of a second one with other numbers of the same sizes.",
        on_device(),
    )
    lines += section(
        "Convolutional kernels beside neural-tangents",
        "python benchmarks/bench_planes.py --peer PYTHON --sizes 8 16 32 --samples 16 --repeats 2 "
        "--output docs/evidence/planes.csv",
        "NNGP and NTK of three convolutions with global pooling in float64, by planes of "
        "displacement, from all pairs of positions at once, and by neural-tangents 0.6.5 in one "
        "call, without `nt.batch`, which would lower its memory. Memory is the peak of a call with "
        "the compiled program, which is most of it where images are small.",
        table("planes.csv"),
    )
    lines += section(
        "Five data sets, beside a Gaussian process and boosted trees",
        "python benchmarks/tables.py mnist.npz fashion_mnist.npz --samples 1000 5000",
        "Defaults of all methods, features standardised; the score is R² of `diabetes` and the "
        "fraction of right classes elsewhere, on samples that were held out. Processor seconds of "
        "fit and prediction include compilation, most of the time of largen on small tables, where "
        "scikit-learn answers at once. Kernels are not the best tool where they score no better, "
        "for columns of different kinds or with gaps, and for very many rows: their time grows "
        "with the square and cube of the rows, that of trees in proportion. Rows that are absent "
        "were not measured, and other work on the machine raised the times.",
        table("tables.csv"),
    )
    lines += section(
        "Many samples",
        "python benchmarks/many_samples.py fashion_mnist.npz --samples 1000 2000 4000 8000 16000 "
        "100000 --output docs/evidence/many_samples.csv",
        "Predictions for 2000 test images of Fashion-MNIST from up to 10⁵ training images: 8000 of "
        "the data set, their mirror images, and both moved by one pixel in eight directions. The "
        "exact solution, one of low rank, and conjugate gradients on a kernel that is never "
        "stored, to a residual of rtol. Rows that are absent were not measured. Processor seconds "
        "of a process, its compilation included, those foretold from the rows above, and seconds "
        "of one product with the kernel. Other work on the machine raised them, and wall-clock "
        "time far more; rows of low rank from 2000 to 16000 samples were measured a second time, "
        "apart from the others. Memory is the peak of the process.",
        table("many_samples.csv"),
    )
    lines += section(
        "CIFAR-10 by a Myrtle-like kernel",
        "python benchmarks/myrtle.py cifar10_8x8.npz --folder kernels --train 4000 --test 500 "
        "--output docs/evidence/myrtle.csv",
        "Images of CIFAR-10, averaged to 8 × 8 positions, classified by the kernels of a "
        "convolutional network with averages in between and of a fully connected one, which are "
        "stored block by block; the same command with 1000 and 500 images has the first rows. "
        "Other work on the machine raised the wall-clock times, and the kernels of 4000 images "
        "among themselves are those of a call that was killed later. Published accuracies for as "
        "few images of this size are not at hand.",
        table("myrtle.csv"),
    )
    lines += section(
        "Runs drawn at random",
        "python -m tests.properties --cases 1000 --output docs/evidence/properties.json",
        "Architectures, parameterizations and optimizers are drawn at random; each limit is "
        "compared with networks of two widths, extrapolated in the width. With the right errors, "
        "z-scores have a root mean square of 1, and of a thousand hardly one is beyond 4. The one "
        "that is (954) has 0.95 of the largest stable rate: a fifth of its networks of width 512 "
        "start beyond the edge of stability, where no expansion in 1/width holds; at four fifths "
        "of the rate its score is 0.4.",
        properties(),
    )
    lines += section(
        "Rates tuned on a small GPT",
        "python -m examples.characters TEXT --widths 64 128 256 512 --depths 2 4 8 16 --rates -9 "
        "-8 -7 -6 -5 -4 --steps 200 --batch-size 16 --seeds 3 --schemes complete_p",
        "The best learning rate of a transformer on the characters of plays, by Adam under "
        "complete-P, its interval over seeds, the loss on text that was held out, and the ratio of "
        "the loss at the best rate of the smallest model to the loss at the shape's own best rate. "
        "Where two minima are equally low, as at the widths 256 and 512, the interval has both.",
        ["![Loss against rate](characters.png)", "", *table("characters.csv")],
    )
    lines += section(
        "A base tuned in several constants",
        "python -m examples.tuned_base gpt vit mlp --text TEXT",
        "A small tied GPT with GPT-2's initial values on the characters of plays, a vision "
        "transformer and a residual MLP on digits, 80 steps: the loss on samples that were held "
        "out, with its standard error over three seeds. The constants were searched at the small "
        "width; nothing was tuned at the large one but the rate of the standard scheme. For the "
        "residual MLP the three recipes are equal within two or three errors.",
        table("tuned_base.csv"),
    )
    lines += section(
        "Fluctuations at infinite width and depth",
        "python benchmarks/fluctuations.py",
        "N Var f of a residual tanh network in training, summed over samples and steps: by "
        "`lg.solve(run, fluctuations=True)` at infinitely many blocks, mean over four keys, over "
        "that of wide and deep networks. Its intervals take errors of all outputs as one.",
        table("fluctuations.csv"),
    )
    lines += section(
        "False alarms of the coordinate check",
        "python benchmarks/false_alarms.py",
        "How often a check in width or depth fails although the plan is right: at most one time in "
        "twenty is meant.",
        false_alarms(),
    )
    lines += section(
        "Every architecture of transformers",
        "python -m tools.audit --every --limit 300 -o table.csv",
        "Plans by complete-P and Adam for every architecture of transformers 5.24 for text, vision "
        "and speech, with guessed configurations of width 64 and depth 2, and the slopes of the "
        "outputs' change over a factor of four in width and in depth, with four networks of each "
        "size, or eight where four left a verdict undecided, or sixteen where a row says so. "
        "Without names or any other help. "
        "Models that cannot be built want fields that were not guessed, or have no width. Where "
        "layers are of several kinds, the first two take turns. Rows marked 'earlier run' are of "
        "models that were not audited again since their configuration was guessed better.",
        every_model(),
    )
    lines += section(
        "Mutants",
        "python -m tests.mutation --mutants 216 --seed 1 --output docs/evidence/mutation.json",
        "One operator, sign or number of a formula is changed at a time, and what a change of its "
        "file would run is run. A mutant that survives is a change that means nothing, or a test "
        "that is missing. The numbers here are older: of mutants of six rooms, and of the quick "
        "tests of each.",
        mutation(),
    )
    lines += section(
        "Coverage",
        "python -m tests.coverage --output docs/evidence/coverage.json",
        "Lines and branches that tests reach, those of processes that tests start included.",
        coverage(),
    )
    lines += ["## Longer measurements", "", "```{toctree}", *PAGES, "```", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    (KEPT / "index.md").write_text(page())
