"""``python -m adarray``: info and demo."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adarray
import adarray.__main__ as command
from adarray import backend
from adarray.demo import data, network, report
from adarray.demo import run as running
from adarray.demo import train as training
from adarray.demo.train import CHECK_LIMIT, TrainingRun, gradient_error, train
from adarray.errors import BackendError
from adarray.jitting import JitWarning

QUICK = ["demo", "--epochs", "4", "--hidden", "16"]


@pytest.fixture
def _small_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the data of the package, and other sizes that take no time."""
    monkeypatch.delenv(data.DATA_VARIABLE, raising=False)
    monkeypatch.setattr(running, "HIDDEN", (4, 8))
    monkeypatch.setattr(training, "SAMPLE_S", 0.0)


class FakeBackend:
    """A backend made of one engine, or of the error that it raises."""

    def __init__(self, engine: Any = None, error: str | None = None) -> None:
        self.name = "fake"
        self._engine = engine
        self._error = error

    def engine(self, **options: Any) -> Any:
        if self._error is not None:
            raise BackendError(self._error)
        return self._engine

    def info(self) -> dict[str, str]:
        return {"status": "available", "colour": "green"}


def install(monkeypatch: pytest.MonkeyPatch, result: FakeBackend) -> None:
    monkeypatch.setitem(backend._loaded, "fake", result)
    names = [*adarray.backends(), "fake"]
    monkeypatch.setattr(adarray, "backends", lambda: names)


# -- the command line -----------------------------------------------------------------


def test_alone_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 0
    told = capsys.readouterr().out
    assert "info" in told
    assert "demo" in told


def test_runs_as_a_module() -> None:
    arguments = [sys.executable, "-P", "-m", "adarray", "--version"]
    told = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert told.stdout == f"adarray {adarray.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--epochs", "0"], "argument --epochs: '0' is not a whole number above 0"),
        (["demo", "--hidden", "many"], "argument --hidden: 'many' is not a whole number above 0"),
        (["dmeo"], "argument command: invalid choice: 'dmeo' (choose from "),
    ],
)
def test_wrong_arguments(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


# -- info -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["demo", "bench"])
def test_a_folder_that_cannot_be_is_refused_before_anything_runs(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SystemExit) as stop:
        command.main([name, "--output", str(tmp_path / "file")])
    assert stop.value.code == 2
    told = capsys.readouterr()
    assert f"argument --output: '{tmp_path / 'file'}' cannot be made a folder" in told.err
    assert not told.out


def test_an_interrupted_command_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "demo", interrupted)
    assert command.main(["demo", "--output", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "\ndemo: interrupted\n"


@pytest.mark.usefixtures("_no_cache")
def test_info_sections(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [x for x in lines if not x.startswith(" ")] == list(command.SECTIONS)
    assert f"  numpy {np.__version__}" in lines
    assert any(x.startswith("  numpy: available") for x in lines)
    for name in adarray.backends():
        assert any(x.startswith((f"  {name}: available", f"  {name}: not av")) for x in lines)


@pytest.mark.usefixtures("_no_cache")
def test_info_tells_why_a_backend_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, FakeBackend(error="backend 'fake': no such device; buy one"))
    command.info()
    told = capsys.readouterr().out
    assert "  fake: not available: backend 'fake': no such device; buy one\n" in told


@pytest.mark.usefixtures("_no_cache")
def test_info_survives_a_broken_backend(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = FakeBackend()
    monkeypatch.setattr(broken, "info", lambda: {}["status"])
    install(monkeypatch, broken)
    assert command.info() == 0
    assert "  fake: broken: KeyError: 'status'\n" in capsys.readouterr().out


@pytest.mark.usefixtures("_no_cache")
def test_info_shows_facts_of_a_backend(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, FakeBackend())
    command.info()
    assert "  fake: available (colour: green)\n" in capsys.readouterr().out


def test_info_without_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    (line,) = command._compilers()
    assert line == (
        "none on PATH (tried $CC, cc, gcc, clang): install one, then install adarray again "
        "to build the compiled backends"
    )


def test_info_asks_each_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, text in (("mycc", "#!/bin/sh\necho mycc 7.1\necho more\n"), ("gcc", "not a program")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "mycc -pipe")
    mine, other = command._compilers()
    assert mine == f"mycc: mycc 7.1 ({tmp_path / 'mycc'})"
    assert other.startswith("gcc: cannot be run (")


def test_info_shows_thread_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    usable, *rest = command._threads()
    assert re.fullmatch(r"usable by this process: \d+ \(the machine has \d+\)", usable)
    assert "OMP_NUM_THREADS=3" in rest


# -- the network and its data -----------------------------------------------------------


def test_network_is_plain_numpy() -> None:
    imported = set()
    for node in ast.walk(ast.parse(inspect.getsource(network))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert imported - sys.stdlib_module_names == {"numpy"}


def test_small_set() -> None:
    digits = data.load_small()
    assert digits.x_train.shape == (1438, 64)
    assert digits.x_test.shape == (359, 64)
    assert digits.x_train.dtype == np.float32
    assert digits.x_train.min() == 0
    assert digits.x_train.max() == 1
    assert set(digits.y_test.tolist()) == set(range(10))


def test_mnist_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    images, labels = np.full((5, 28, 28), 255, np.uint8), np.arange(5, dtype=np.uint8)
    np.savez(
        tmp_path / "mnist" / "mnist.npz",
        x_train=images, y_train=labels, x_test=images[:2], y_test=labels[:2],
    )  # fmt: skip
    monkeypatch.setenv(data.DATA_VARIABLE, str(tmp_path))
    digits = data.load()
    assert digits.name == "MNIST 28x28"
    assert digits.x_train.shape == (5, 784)
    assert (digits.x_train == 1).all()
    assert digits.y_test.tolist() == [0, 1]


def test_missing_mnist_is_explained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(data.DATA_VARIABLE, str(tmp_path))
    assert command.main(QUICK) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"demo: {tmp_path}/mnist/mnist.npz cannot be read as MNIST (")
    assert "ADARRAY_DATA must name a folder with mnist/mnist.npz" in told


def test_gradient_agrees_with_differences() -> None:
    digits = data.load_small()
    assert gradient_error([64, 32, 32, 10], digits, seed=1) < 1e-6


def test_network_learns() -> None:
    digits = data.load_small()
    run = train("numpy", digits, hidden=64, epochs=20, seed=3, progress=lambda steps, *_: steps)
    assert run.accuracy > 0.95
    assert len(run.losses) == len(run.seconds) == 20 * (1438 // 64)
    assert run.losses[-1] < 0.1 * run.losses[0]


# -- the demo -----------------------------------------------------------------------------


@pytest.mark.usefixtures("_small_set")
def test_demo_on_every_backend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new"
    assert command.main([*QUICK, "--output", str(folder)]) == 0
    told = capsys.readouterr().out
    for name in adarray.backends():
        row = re.search(rf"^{name} +[\d.]+ ms +[\d.]+ +([\d.]+)%$", told, re.MULTILINE)
        skipped = f"skipped {name}: backend '{name}'" in told
        assert skipped or (row is not None and float(row[1]) > 80), name
        if not skipped and name != "numpy":
            assert re.search(rf"^{name}, jit +[\d.]+ ms ", told, re.MULTILINE)
            assert re.search(rf"^{name}, jit +[\d.]+ +[\d.]+$", told, re.MULTILINE)
    if report._optional("matplotlib") is None:
        assert "matplotlib is not installed: no picture (pip install 'adarray[demo]')" in told
    else:
        assert {p.name for p in folder.iterdir()} == {"adarray_demo.png", "adarray_demo.svg"}


@pytest.mark.usefixtures("_small_set")
def test_demo_goes_on_without_a_backend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, FakeBackend(error="backend 'fake': no such device; buy one"))
    names = ["--backend", "fake", "--backend", "numpy"]
    assert command.main([*QUICK, *names, "--output", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "\nskipped fake: backend 'fake': no such device; buy one\n" in told
    assert "NumPy, forward alone" in told


@pytest.mark.usefixtures("_small_set")
def test_demo_without_any_backend(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([*QUICK, "--backend", "abacus"]) == 1
    told = capsys.readouterr()
    assert "skipped abacus: backend 'abacus': there is none of that name" in told.out
    assert told.err.startswith("demo: no backend to run on; `python -m adarray info` says why")


@pytest.mark.usefixtures("_small_set")
def test_demo_fails_at_a_wrong_gradient(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Wrong:
        name, threads = "fake", 1

        def pointwise(self, op: Any, values: Any) -> Any:
            return NotImplemented

        def derivative(self, op: Any, operand: int, g: Any, saved: Any) -> Any:
            return 1.01 * op.rules[operand](g, *saved) if op.name == "exp" else NotImplemented

        def call(self, op: Any, values: Any, params: Any) -> Any:
            return NotImplemented

    install(monkeypatch, FakeBackend(Wrong()))
    names = ["--backend", "fake", "--backend", "numpy"]
    assert command.main([*QUICK, *names, "--output", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert re.search(
        r"\nFAILED fake: ArithmeticError: demo: on backend 'fake' the gradient differs from "
        rf"central differences by \S+ \(relative\), more than {CHECK_LIMIT:.0e}\n",
        told,
    )
    assert re.search(r"^numpy +\d", told, re.MULTILINE)


def _run(name: str, seconds: float, compiled: bool = False) -> TrainingRun:
    sizes = {4: seconds, 8: 2 * seconds}
    return TrainingRun(name, compiled, 1e-9, [2.0, 1.0], [seconds, 2 * seconds], 0.985, sizes)


RUNS = [_run("numpy", 0.005), _run("serial", 0.0004, compiled=True)]


def test_table() -> None:
    assert report.table(RUNS, 0.0005) == (
        "                      loss and gradient  NumPy's forward = 1  test accuracy\n"
        "--------------------  -----------------  -------------------  -------------\n"
        "NumPy, forward alone           0.500 ms                  1.0\n"
        "numpy                          5.000 ms                 10.0         98.50%\n"
        "serial, jit                    0.400 ms                 0.80         98.50%"
    )


def test_table_of_sizes() -> None:
    assert report.sizes_table(RUNS, {4: 0.0005, 8: 0.0005}) == (
        "hidden units                  4      8\n"
        "------------------------  -----  -----\n"
        "NumPy, forward alone, ms  0.500  0.500\n"
        "numpy                      10.0   20.0\n"
        "serial, jit                0.80    1.6"
    )


@pytest.mark.usefixtures("_small_set")
def test_a_gradient_that_jit_cannot_compile_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def refuse(f: Any) -> Any:
        def call(*args: Any) -> Any:
            warnings.warn("jit: no compiler", JitWarning, stacklevel=2)
            return f(*args)

        return call

    monkeypatch.setattr(adarray, "jit", refuse)
    assert command.main([*QUICK, "--backend", "serial", "--output", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "\nskipped serial, jit: jit: no compiler\n" in told
    assert "\nserial, jit  " not in told


def test_without_optional_modules(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "_optional", lambda name: None)
    assert report.missing() == [
        "tqdm is not installed: plain lines instead of progress bars (pip install 'adarray[demo]')",
        "matplotlib is not installed: no picture (pip install 'adarray[demo]')",
    ]
    assert list(report.progress(range(8), 8, "numpy")) == list(range(8))
    assert capsys.readouterr().err.splitlines() == [
        f"      numpy: {k} of 8 steps" for k in (2, 4, 6, 8)
    ]
    assert report.picture(RUNS, {4: 1.0, 8: 1.0}, "title", tmp_path) == []
    assert list(tmp_path.iterdir()) == []
