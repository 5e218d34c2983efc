"""What the tests share: which backends there are, and which of them work here."""

from __future__ import annotations

import functools
import os
from typing import Any

import pytest

import adarray
from adarray.errors import BackendError
from adarray.testing._ops import use_all_sizes

# Runs the suite's functions under `adarray.jit` too (see tests/support/under_jit.py).
UNDER_JIT = bool(os.environ.get("ADARRAY_JIT"))
if UNDER_JIT:
    import under_jit

    under_jit.install()
    # These call `jit` themselves, and look at what it compiles.
    collect_ignore = ["jit", "unit/test_asv_jit.py"]


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


def backend_params() -> list[Any]:
    """Return the installed backends as test parameters; one that cannot work is skipped visibly."""
    params = []
    for name in adarray.backends():
        reason = reason_not_to_use(name)
        marks = [] if reason is None else [pytest.mark.skip(reason=reason)]
        if name == "cuda":
            marks.append(pytest.mark.gpu)
        params.append(pytest.param(name, marks=marks))
    return params


@pytest.fixture(autouse=True)
def _unchecked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no checks run beside what a test counts: runs, kernels, memory."""
    if request.node.get_closest_marker("unchecked"):
        monkeypatch.delenv("ADARRAY_CHECK", raising=False)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that takes `backend` on each installed backend."""
    own = {m.args[0] for m in metafunc.definition.iter_markers("parametrize")}
    if "backend" in metafunc.fixturenames and not any("backend" in str(names) for names in own):
        metafunc.parametrize("backend", backend_params())
