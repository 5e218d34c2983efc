"""Compilers that take long: a line says so, and NumPy answers until the code is there."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adarray
from adarray import grad, jit
from adarray.base import telling
from adarray.jitting import JitWarning
from adarray.jitting.tree import build

compiler = pytest.importorskip("adarray_backends.cpu.compiler")
kernels = pytest.importorskip("adarray_backends.cpu.kernels")

pytestmark = pytest.mark.unchecked
X = np.linspace(0.1, 2.0, 7)


class Fake:
    """A compiler that waits for leave, unless it has it; for all units or for some."""

    def __init__(self, folder: Path, real: str) -> None:
        self.folder = folder
        self.go = folder / "go"
        self.path = folder / "cc"
        self._real = real

    def set(self, units: str = "", answers: bool = True, instead: str = "") -> None:
        """Let it wait for units whose source has some text; `instead` is what it does else."""
        wait = f"while [ ! -e {self.go} ]; do sleep 0.02; done"
        chosen = f'for a; do case "$a" in *.c) grep -q "{units}" "$a" && {{ {wait}; }};; esac; done'
        lines = [
            "#!/bin/sh",
            'if [ "$1" = --version ]; then',
            f"{'' if answers else wait}",
            'echo "cc (made for a test) 1.0"; exit; fi',
            instead or chosen,
            f'exec {self._real} "$@"',
        ]
        self.path.write_text("\n".join(lines) + "\n")
        self.path.chmod(0o700)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    """Return a compiler that calls do not wait for, in a cache of its own."""
    real = shutil.which("gcc") or shutil.which("cc")
    if real is None or "serial" not in adarray.backends():
        pytest.skip("no C compiler here")
    result = Fake(tmp_path, real)
    result.set()
    monkeypatch.setenv("ADARRAY_CC", str(result.path))
    monkeypatch.setenv("ADARRAY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compiler, "_known", {})
    monkeypatch.setattr(compiler, "_hung", set())
    monkeypatch.setattr(kernels, "_kernels", {})
    monkeypatch.setattr(build, "ANSWERED", 0.05)
    monkeypatch.setattr(telling, "SILENT", 0.2)
    with adarray.use("serial"):
        yield result
    result.go.touch()  # lets threads of the test end
    for thread in threading.enumerate():
        if thread.name == "adarray compiles":
            thread.join(30)


def _nodes(f: Any) -> list[Any]:
    return [n for e in f.entries for v in e.variants for n in v.tree.nodes()]


def _is_late(f: Any) -> bool:
    return any(n.eager.startswith("it is being compiled") for n in _nodes(f))


def test_numpy_answers_until_the_code_is_there(
    fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    f = jit(lambda x: np.sum(np.exp(x) * x))
    expected = np.sum(np.exp(X) * X)
    for _ in range(5):
        np.testing.assert_allclose(f(X), expected, rtol=1e-14)
    assert _is_late(f)
    (line,) = [r.getMessage() for r in caplog.records]
    assert "compiling <lambda>(float64[7]) has taken" in line
    assert "ADARRAY_VERBOSE=1" in line
    assert "explain" in line
    assert "cc (made for a test) 1.0" in line or str(fake.path) in line  # as far as it has come
    fake.go.touch()
    shown = str(f.explain(X))  # waits
    assert "NumPy runs it meanwhile" not in shown
    assert all(n.executable is not None and not n.eager for n in _nodes(f))
    np.testing.assert_allclose(f(X), expected, rtol=1e-14)
    (entry,) = f.entries
    assert entry.variants[0].fast is not None
    np.testing.assert_allclose(f(X), expected, rtol=1e-14)
    assert len(caplog.records) == 1


def test_calls_wait_where_they_are_told_to(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    f = jit(lambda x: np.sum(np.sin(x) * np.exp(x)), wait=True)
    f(X)
    leave = threading.Timer(1.0, fake.go.touch)  # much later than others are answered
    leave.start()
    np.testing.assert_allclose(f(X), np.sum(np.sin(X) * np.exp(X)), rtol=1e-14)
    leave.join()
    assert not _is_late(f)
    assert all(n.executable is not None for n in _nodes(f))
    (line,) = [r.getMessage() for r in caplog.records]
    assert "NumPy answers" not in line
    with pytest.raises(TypeError, match="jit: wait is 1; pass True or False"):
        jit(np.sin, wait=1)


def test_compiling_for_some_arguments(fake: Fake) -> None:
    def f(x: Any) -> Any:
        x *= 2.0
        return np.sum(np.tanh(x) * x)

    jf = jit(f)
    threading.Timer(0.5, fake.go.touch).start()
    x = X.copy()
    assert jf.compile(x) is None
    np.testing.assert_array_equal(x, X)  # copies were given to it
    assert not _is_late(jf)
    assert all(n.executable is not None for n in _nodes(jf))
    before = jf.cache_info().traces
    np.testing.assert_allclose(jf(x), np.sum(np.tanh(2 * X) * 2 * X), rtol=1e-14)
    assert jf.cache_info().traces == before


def test_a_call_takes_what_was_compiled_meanwhile(fake: Fake) -> None:
    f = jit(lambda x: np.cumsum(np.cos(x)) * 3.0)
    for _ in range(3):
        f(X)
    assert _is_late(f)
    fake.go.touch()
    (node,) = _nodes(f)
    assert node.compiled[1]._job.wait(60)
    np.testing.assert_allclose(f(X), np.cumsum(np.cos(X)) * 3.0, rtol=1e-14)
    assert node.executable is not None
    assert f.entries[0].variants[0].fast is not None


@pytest.mark.filterwarnings("error")
def test_everything_that_calls_can_do(fake: Fake) -> None:
    log = np.zeros(7)

    def written(x: Any) -> Any:
        x[::2] *= 2.0
        log[1:3] += x[:2]
        return x[:3], np.sum(log)

    def branches(x: Any) -> Any:
        return np.sin(x) if np.sum(x) > 5.0 else np.exp(x) / (1 + x)

    f, g, h = jit(written), jit(branches), jit(grad(lambda x: np.sum(np.tanh(x) * x)))
    donated = jit(lambda x, y: (x * 2.0 + y, y - 1.0), donate=0)
    for late in (True, True, True, True, False, False):
        if not late:
            fake.go.touch()
            h.explain(X), g.explain(X), g.explain(X / 9)
        a, b = X.copy(), X.copy()
        before = log.copy()
        (got, total), log[:] = f(a), log
        after = log.copy()
        log[:] = before
        wanted, wanted_total = written(b)
        np.testing.assert_allclose(got, wanted)
        np.testing.assert_allclose(total, wanted_total)
        np.testing.assert_allclose(a, b)
        np.testing.assert_allclose(after, log)
        for x in (X, X / 9):
            np.testing.assert_allclose(g(x), branches(x), rtol=1e-14)
        np.testing.assert_allclose(h(X), X / np.cosh(X) ** 2 + np.tanh(X), rtol=1e-13)
        first, second = donated(X.copy(), X)
        np.testing.assert_allclose(first, X * 3.0)
        np.testing.assert_allclose(second, X - 1.0)
        with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
            jit(lambda x: 1.0 / x)(X * 0.0)


def test_what_calls_raise(fake: Fake) -> None:
    f = jit(lambda x: np.log(x) + 1.0)
    for _ in range(4):
        f(X)
    assert _is_late(f)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero"):
        f(X * 0.0)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        f(X * 0.0)


def test_a_compiler_that_hangs_is_stopped(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "PATIENCE", 0.5)
    f = jit(lambda x: np.exp(x) - 1.0)
    for _ in range(3):
        f(X)
    assert _is_late(f)
    with pytest.warns(JitWarning, match=r"it took over .* seconds, after which nobody waits"):
        f.explain(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(f(X), np.exp(X) - 1.0)
        assert "step by step" not in str(f(X))
    assert not list((fake.folder / "cache" / "adarray-kernels").glob("work-*"))


@pytest.mark.slow
def test_a_compiler_that_hangs_for_one_unit(fake: Fake) -> None:
    fake.set(units="atan2")
    f, g = jit(lambda x: np.arctan2(x, 2.0)), jit(lambda x: x * 3.5 - 1.25)
    for _ in range(3):
        np.testing.assert_allclose(f(X), np.arctan2(X, 2.0), rtol=1e-14)
    g(X)
    g(X)
    g.explain(X)  # waits for its own alone
    assert all(n.executable is not None for n in _nodes(g))
    assert _is_late(f)


def test_a_compiler_that_is_killed(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "ANSWERED", None)
    fake.set(instead="kill -9 $$")
    f = jit(lambda x: np.exp(x) * 0.25)
    f(X)
    with pytest.warns(JitWarning, match=r"it was killed \(SIGKILL; is memory short\?\)"):
        f(X)
    np.testing.assert_allclose(f(X), np.exp(X) * 0.25)


def test_a_compiler_that_does_not_say_what_it_is(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake.set(answers=False)
    monkeypatch.setattr(compiler, "ANSWER", 0.6)
    f = jit(lambda x: np.exp(x) * 0.125)
    for _ in range(3):
        f(X)
    assert _is_late(f)
    assert f"asking {fake.path} what it is" in caplog.text
    with pytest.warns(JitWarning, match=r"has not said within \d+ seconds what it is"):
        f.explain(X)
    np.testing.assert_allclose(f(X), np.exp(X) * 0.125)


def test_several_threads_take_it_once(fake: Fake) -> None:
    f = jit(lambda x: np.sum(np.sqrt(x) * x))
    expected = np.sum(np.sqrt(X) * X)
    f(X), f(X)
    wrong: list[Any] = []

    def work() -> None:
        with adarray.use("serial"):
            got = [f(X) for _ in range(300)]
        wrong.extend(x for x in got if abs(x - expected) > 1e-12)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    fake.go.touch()
    for t in threads:
        t.join()
    assert not wrong
    f.explain(X)
    assert not _is_late(f)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_compiles_for_itself(fake: Fake) -> None:
    f = jit(lambda x: np.sum(np.cbrt(x) * x))
    f(X), f(X)
    assert _is_late(f)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            fake.go.touch()
            f.explain(X)
            right = abs(f(X) - np.sum(np.cbrt(X) * X)) < 1e-12
            code = 0 if right and _nodes(f)[0].executable is not None else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_end_of_the_program_stops_it(fake: Fake) -> None:
    text = """
import numpy as np
from adarray import jit, use
from adarray.base import telling
from adarray.jitting.tree import build
build.ANSWERED, telling.SILENT = 0.05, 0.0
f = jit(lambda x: np.exp(x) * x)
with use("serial"):
    for _ in range(3):
        f(np.ones(3))
print("the end")
"""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "the end\n"
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("adarray: compiling <lambda>(float64[3]) has taken")
    assert not list((fake.folder / "cache" / "adarray-kernels").glob("work-*"))


def test_checks_wait_for_compiled_code(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADARRAY_CHECK", "1")
    threading.Timer(0.5, fake.go.touch).start()
    f = jit(lambda x: np.sum(np.exp(x) * x + 1.0))
    f(X), f(X)
    assert not _is_late(f)


def test_lines_about_everything(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ADARRAY_VERBOSE", "1")
    monkeypatch.setattr(build, "ANSWERED", None)
    monkeypatch.setattr(telling, "SILENT", 60.0)
    fake.go.touch()
    logger = logging.getLogger("adarray")
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    f = jit(lambda x: np.exp(x) * x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logger, "hasHandlers", lambda: False)
        f(X), f(X), f(X)
    lines = capfd.readouterr().err.splitlines()
    assert [line.split("(")[0] for line in lines] == [
        "adarray: recorded <lambda>",
        "adarray: compiled <lambda>",
    ]
    assert "1 of them compiled and 0 from the cache" in lines[1]


def test_long_recordings_are_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from adarray.jitting.recording import recorder

    monkeypatch.setattr(recorder, "SILENT", 0.0)

    def f(x: Any) -> Any:
        for _ in range(3):
            x = np.sin(x)
        return x

    jit(f)(X)
    (record,) = caplog.records
    assert "recording f(float64[7]) has taken" in record.getMessage()
    assert f"the last one in line {f.__code__.co_firstlineno + 2} of {__file__}" in caplog.text
