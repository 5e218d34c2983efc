"""Backends of others that do what they should not: the rest of adarray stays usable."""

from __future__ import annotations

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adarray
from adarray import BackendError, backend
from adarray.__main__ import main
from adarray.base.runtime import MODE


class Fatal(BaseException):
    pass


class Exits:
    def __init__(self) -> None:
        sys.exit("goodbye")


class RaisesFatal:
    def __init__(self) -> None:
        raise Fatal("no reason")


def gives_an_int() -> int:
    return 7


class Whole:
    def engine(self) -> Any:
        return None

    def info(self) -> Any:
        return {}


class ExitsLater(Whole):
    def engine(self) -> Any:
        sys.exit(3)


class GivesAnInt(Whole):
    def engine(self) -> Any:
        return 7


class Plain:
    """An engine of the three methods, which leaves everything to NumPy."""

    name: Any = "odd"
    threads: Any = 1

    def pointwise(self, op: Any, values: Any) -> Any:
        return NotImplemented

    def derivative(self, op: Any, operand: int, g: Any, saved: Any) -> Any:
        return NotImplemented

    def call(self, op: Any, values: Any, params: Any) -> Any:
        return NotImplemented


class HasNoName(Whole):
    def engine(self) -> Any:
        result = Plain()
        result.name = None
        return result


class CountsInWords(Whole):
    def engine(self) -> Any:
        result = Plain()
        result.threads = "two"
        return result


class CompilesByItself(Whole):
    class Engine(Plain):
        def executable(self, plan: Any, precise: bool = False, rerun: Any = None) -> Any:
            return None

    def engine(self) -> Any:
        return self.Engine()


class EntersByItself(Whole):
    class Engine(Plain):
        def enter(self) -> Any:
            return None

    def engine(self) -> Any:
        return self.Engine()


class TellsAnInt(Whole):
    def info(self) -> Any:
        return 7


class TellsAndExits(Whole):
    def info(self) -> Any:
        raise Fatal("info")

    def cache(self, clear: bool = False) -> Any:
        sys.exit(1)


def _use(names: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    entry_points = {n: list(p) for n, p in backend._entry_points().items()}
    for name, value in names.items():
        entry_points[name] = [EntryPoint(name, value, backend.GROUP)]
    monkeypatch.setattr(backend, "_points", entry_points)
    monkeypatch.setattr(backend, "_loaded", {})
    monkeypatch.setattr(backend, "_engines", {})


HERE = __name__
LOAD = "from an unknown distribution failed to load"
TEXTS = {
    "Exits": rf"{LOAD} \(SystemExit: goodbye\); mend or uninstall that distribution, or use one of",
    "RaisesFatal": rf"{LOAD} \(Fatal: no reason\)",
    "gives_an_int": r"has no method engine\(\); it does not satisfy adarray.runtime.Backend, since "
    r"it gave 7",
    "ExitsLater": r"its method engine\(\) failed \(SystemExit: 3\); mend or uninstall",
    "GivesAnInt": r"its engine, of int, has no method pointwise\(\); it does not satisfy "
    r"adarray.runtime.Engine",
    "HasNoName": r"its engine, of Plain, has None as its name, which adarray.runtime.Engine wants "
    r"to be of str; mend or uninstall the distribution",
    "CountsInWords": r"its engine, of Plain, has 'two' as its threads, which "
    r"adarray.runtime.Engine wants to be of int",
    "CompilesByItself": r"its engine, of Engine, has executable\(\), which is asked of engines "
    r"that derive from adarray.runtime.CompilingEngine, and it does not; mend or uninstall",
    "EntersByItself": r"its engine, of Engine, has enter\(\), which is asked of engines that "
    r"derive from adarray.runtime.BaseEngine, and it does not",
    "absent": rf"{LOAD} \(AttributeError",
}


@pytest.mark.parametrize("name", TEXTS)
def test_each_is_an_error_that_names_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plugins_of_others", sys.modules[HERE])
    _use({"odd": f"plugins_of_others:{name}"}, monkeypatch)
    with pytest.raises(BackendError, match=f"^backend 'odd': .*{TEXTS[name]}"):
        adarray.use("odd")
    with adarray.use("numpy"):
        assert adarray.grad(np.sin)(0.0) == 1.0


def test_a_value_that_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    _use({"odd": "!! what"}, monkeypatch)
    with pytest.raises(BackendError, match=r"^backend 'odd': !! what"):
        adarray.use("odd")


@pytest.mark.usefixtures("_no_cache")
def test_info_tells_of_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "plugins_of_others", sys.modules[HERE])
    names = (*TEXTS, "TellsAnInt", "TellsAndExits")
    _use({n.lower(): f"plugins_of_others:{n}" for n in names}, monkeypatch)
    assert main(["info"]) == 0
    told = capsys.readouterr().out
    assert "numpy: available" in told
    for name in names:
        assert re.search(rf"^  {name.lower()}: (not available|broken): ", told, re.MULTILINE), name
    for title in ("versions", "compilers", "threads", "simd", "cache"):
        assert f"\n{title}\n" in f"\n{told}"
    assert "tellsandexits: its cache cannot be asked for: SystemExit: 1" in told
    assert main(["cache"]) == 0


@pytest.mark.usefixtures("_no_cache")
@pytest.mark.parametrize(
    "text", ["[adarray.backends\nodd = a:b", "[adarray.backends]\nno sign of equality\n", "\0\xff"]
)
def test_a_malformed_file_leaves_the_others(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    info = tmp_path / "odd-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(text, encoding="latin-1")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, value in (("_points", None), ("_loaded", {}), ("_engines", {}), ("_unreadable", [])):
        monkeypatch.setattr(backend, name, value)
    assert {"numpy", "serial", "openmp"} <= set(adarray.backends())
    with adarray.use("numpy"):
        assert adarray.grad(np.sin)(0.0) == 1.0
    assert main(["info"]) == 0
    assert "numpy: available" in capsys.readouterr().out
    for line in backend.unreadable():
        assert line.startswith("the entry points of odd cannot be read (")


@pytest.mark.parametrize("text", ["many", "-2", "0", "2.5", "²"])
def test_a_number_of_threads_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    monkeypatch.setattr(backend, "_engines", {})
    try:
        backend.load("openmp").engine(threads=1)
    except BackendError as error:
        pytest.skip(str(error))
    with pytest.raises(BackendError, match="the environment variable OMP_NUM_THREADS is"):
        adarray.use("openmp")


ASKED: list[str] = []


class HasSlots:
    """Nothing can be set on it; it is asked all the same, and also for more than it has."""

    __slots__ = ()
    name, threads = "odd", 1

    def pointwise(self, op: Any, values: Any) -> Any:
        ASKED.append(op.name)
        return NotImplemented

    def derivative(self, op: Any, operand: int, g: Any, saved: Any) -> Any:
        ASKED.append(f"derivative of {op.name}")
        return NotImplemented

    def call(self, op: Any, values: Any, params: Any) -> Any:
        ASKED.append(op.name)
        return NotImplemented


class Slotted(Whole):
    def engine(self) -> Any:
        return HasSlots()


def test_an_engine_of_three_methods_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plugins_of_others", sys.modules[HERE])
    _use({"odd": "plugins_of_others:Slotted"}, monkeypatch)
    ASKED.clear()
    with adarray.use("odd"), adarray.debug_nans(), adarray.profile() as profile:
        assert adarray.grad(lambda x: np.sum(np.sin(x)))(np.zeros(1)) == 1.0
        engine = MODE.get().engine  # type: ignore[union-attr]
        assert (engine.device, engine.place, engine.recorder) == (None, None, None)
        engine.synchronize()
        engine.trim()
    assert ASKED == ["sin", "sum", "derivative of sin"]
    assert [s.name for s in profile.spans if s.kind == "op"] == ["sin", "sum"]
