"""What the tests share: which are run, which backends there are, and which of them work here."""

from __future__ import annotations

import functools
import gc
import os
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
# Before NumPy is loaded. Test runs take all cores by processes: the threads of NumPy's and SciPy's
# BLAS would wait for each other, spinning, in every small solve (adarray's own BLAS does not read
# this), and so would those of OpenMP, of which some are enough.
for _variable, _value in {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": str(min(4, _CORES)),
    "OMP_WAIT_POLICY": "passive",
}.items():
    os.environ.setdefault(_variable, _value)

import adarray
from adarray.errors import BackendError
from adarray.jitting.tree import build, trial
from adarray.testing._ops import use_all_sizes

# Tests look at what is compiled, however busy the machine is.
build.ANSWERED = None
trial.SUSPECT = None  # nor how fast it is

# Runs the suite's functions under `adarray.jit` too (see tests/support/under_jit.py).
UNDER_JIT = bool(os.environ.get("ADARRAY_JIT"))
if UNDER_JIT:
    import under_jit

    under_jit.install()
    # These call `jit` themselves, and look at what it compiles.
    collect_ignore = ["jitting", "test_profiling.py", "asv_bench/test_asv_jit.py"]


# What pyproject.toml selects, and how the rest is run.
SELECTIONS = {
    "not slow": "the core, which leaves out tests marked slow; all: pytest -m 'slow or not slow'",
    "slow or not slow": "all",
    "": "all",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer samples of tests that have many sets of parameters, and parts of all tests."""
    parser.addoption(
        "--sample", type=int, default=1, metavar="K",
        help="run one of K of the sets of parameters of each test, always the same",
    )  # fmt: skip
    parser.addoption(
        "--part", type=part, default=(1, 1), metavar="I/N",
        help="run the I-th of N parts of the test functions, always the same",
    )  # fmt: skip


def part(text: str) -> tuple[int, int]:
    """Return which part of how many, of the form I/N."""
    number, _, count = text.partition("/")
    chosen = int(number), int(count)
    if not 1 <= chosen[0] <= chosen[1]:
        raise ValueError(f"--part takes I/N with I from 1 to N, not {text!r}")
    return chosen


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _checksum(text: str) -> int:
    return zlib.crc32(text.encode())


def one_of(share: int, items: list[pytest.Item]) -> set[pytest.Item]:
    """Return one of `share` of the sets of parameters of each test function, always the same."""
    families: dict[str, list[pytest.Item]] = {}
    for item in items:
        families.setdefault(_function(item), []).append(item)
    chosen: set[pytest.Item] = set()
    for family in families.values():
        # By a checksum: every K-th would be the same backend throughout.
        family.sort(key=lambda item: _checksum(item.nodeid))
        chosen.update(family[: -(-len(family) // share)])
    return chosen


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Apply ``sampled``, let the markers choose, then apply ``--sample`` and ``--part``."""
    sampled: dict[int, list[pytest.Item]] = {}
    for item in items:
        marker = item.get_closest_marker("sampled")
        if marker is not None and item.get_closest_marker("slow") is None:
            sampled.setdefault(marker.args[0], []).append(item)
    for share, members in sampled.items():
        core = one_of(share, members)
        for item in members:
            if item not in core:
                item.add_marker("slow")
    yield
    share = config.getoption("--sample")
    number, parts = config.getoption("--part")
    if share * parts > 1:
        run = {i for i in one_of(share, items) if _checksum(_function(i)) % parts == number - 1}
        config.hook.pytest_deselected(items=[item for item in items if item not in run])
        items[:] = [item for item in items if item in run]


def pytest_collection_finish() -> None:
    """Let the collector visit new objects only: what pytest has collected is a million of them."""
    with adarray.intercept():  # finds the functions of the modules that are loaded
        pass
    gc.collect()
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is run, and on which backends nothing is."""
    expression = config.option.markexpr
    chosen = SELECTIONS.get(expression, f"those that are {expression!r}")
    share = config.getoption("--sample")
    if share > 1:
        chosen += f"; one of {share} of the parameters of each"
    number, parts = config.getoption("--part")
    if parts > 1:
        chosen += f"; part {number} of {parts}"
    reasons = {name: reason_not_to_use(name) for name in adarray.backends()}
    return [
        f"tests: {chosen}",
        f"backends: {', '.join(name for name, reason in reasons.items() if reason is None)}",
        *(f"skipped: {reason}" for reason in reasons.values() if reason is not None),
    ]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Start no workers for single files, which they would take longer to import than to run."""
    named = [Path(argument.partition("::")[0]) for argument in config.args]
    return 0 if len(named) <= 2 and all(path.is_file() for path in named) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give what is skipped without a backend one place, which makes it one line of the summary."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if any(reason == reason_not_to_use(name) for name in adarray.backends()):
            report.longrepr = (__file__, 0, report.longrepr[2])
            report.keywords = {k: v for k, v in report.keywords.items() if k != "skip"}
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many functions were compiled, and why others were not."""
    if UNDER_JIT:
        for line in under_jit.summary():
            terminalreporter.write_line(line)


@functools.cache
def reason_not_to_use(backend: str) -> str | None:
    """Return why a backend cannot be used here, None if it can."""
    try:
        with use_all_sizes(backend):
            return None
    except BackendError as error:
        return str(error)


def backend_params(slow: frozenset[str] = frozenset()) -> list[Any]:
    """Return the installed backends as test parameters; one that cannot work is skipped visibly.

    Tests on those named in `slow` are not of the core.
    """
    params = []
    for name in adarray.backends():
        reason = reason_not_to_use(name)
        marks = [] if reason is None else [pytest.mark.skip(reason=reason)]
        if name == "cuda":
            marks.append(pytest.mark.gpu)
        if name in slow:
            marks.append(pytest.mark.slow)
        params.append(pytest.param(name, marks=marks))
    return params


@pytest.fixture(autouse=True)
def _unchecked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no checks run beside what a test counts: runs, kernels, memory."""
    if request.node.get_closest_marker("unchecked"):
        monkeypatch.delenv("ADARRAY_CHECK", raising=False)


@pytest.fixture
def _no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let `info` count no kernels of the user: they may be many."""
    monkeypatch.setenv("ADARRAY_CACHE_DIR", str(tmp_path))


@pytest.fixture
def _young_heap() -> None:
    """Let `gc.collect` visit objects of this test only."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def _host_memory(backend: str) -> None:
    """Skip a backend whose arrays are on a device: the test measures what the host holds."""
    engine = adarray.use(backend)._engine
    if engine is not None and engine.device is not None:
        pytest.skip("arrays are in the memory of a device")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that takes `backend` on each installed backend."""
    own = {m.args[0] for m in metafunc.definition.iter_markers("parametrize")}
    if "backend" in metafunc.fixturenames and not any("backend" in str(names) for names in own):
        slow = {name for m in metafunc.definition.iter_markers("slow_on") for name in m.args}
        metafunc.parametrize("backend", backend_params(frozenset(slow)))
