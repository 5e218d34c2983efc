"""Nobody asks an engine, or what it makes, whether it has something: contracts say it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adarray_backends
import pytest

import adarray
from adarray import compiling, runtime
from adarray.base import engines
from adarray.base.engines import BaseEngine, CompilingEngine, TracingEngine, WrappingEngine
from adarray.debug import NanChecker
from adarray.device import DeviceEngine
from adarray.jitting.recording.recorder import Recorder
from adarray.profiling import ProfilingEngine

ROOTS = [Path(m.__path__[0]) for m in (adarray, adarray_backends)]
# Names of what has a contract.
CONTRACTS = frozenset({
    "engine", "backend", "library", "device", "recorder", "mode", "compiler", "executable",
    "wrapped", "rerun", "innermost",
})  # fmt: skip
# Where somebody's objects are checked, once.
CHECKED = {("backend.py", "load"), ("backend.py", "completed"), ("backend.py", "__init__")}


def _probes(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield function and line of each ``getattr`` and ``hasattr`` of what has a contract."""
    inside: dict[ast.AST, ast.AST] = {}
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            inside[child] = node
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
            continue
        if node.func.id not in ("getattr", "hasattr"):
            continue
        target = node.args[0]
        if isinstance(target, ast.Call) and target.args:  # getattr(type(engine), ...)
            target = target.args[0]
        name = getattr(target, "attr", getattr(target, "id", "")).strip("_")
        if name in CONTRACTS or name.endswith(("_engine", "_backend")):
            around: Any = node
            while around in inside and not isinstance(around, ast.FunctionDef):
                around = inside[around]
            yield getattr(around, "name", "the module"), node.lineno


@pytest.mark.parametrize(
    "text",
    [
        "getattr(engine, 'place', None)", "hasattr(self.engine, 'trim')",
        "getattr(mode.engine, 'drawn', int)", "hasattr(type(engine), 'x')",
        "getattr(library, 'rule', None)", "getattr(plain_engine, 'x', 1)",
    ],
)  # fmt: skip
def test_a_question_is_found(text: str) -> None:
    assert list(_probes(ast.parse(f"def f():\n    return {text}\n"))) == [("f", 2)]


def test_nobody_asks_whether_an_engine_has_something() -> None:
    questions = [
        f"{path.relative_to(root.parent)}:{line} in {function}"
        for root in ROOTS
        for path in sorted(root.rglob("*.py"))
        for function, line in _probes(ast.parse(path.read_text(encoding="utf-8")))
        if (path.name, function) not in CHECKED
    ]
    assert not questions, (
        "give BaseEngine, or the contract in question, an attribute with a default"
    )


def test_our_engines_derive_from_the_contracts() -> None:
    for cls in (Recorder, DeviceEngine, CompilingEngine, WrappingEngine):
        assert issubclass(cls, BaseEngine)
    for wrapping in (NanChecker, ProfilingEngine):
        assert issubclass(wrapping, WrappingEngine)


def test_the_recorder_is_a_whole_tracing_engine() -> None:
    wanted = [n for n in vars(TracingEngine) if not n.startswith("_")]
    assert len(wanted) > 20
    for name in wanted:
        got = list(inspect.signature(inspect.getattr_static(Recorder, name)).parameters)
        expected = list(inspect.signature(getattr(TracingEngine, name)).parameters)
        own = isinstance(inspect.getattr_static(Recorder, name), staticmethod)
        assert got == (expected[1:] if own else expected), name


@pytest.mark.parametrize("module", [engines, runtime, compiling], ids=lambda m: m.__name__)
def test_contracts_are_documented(module: Any) -> None:
    names = vars(module).get("__all__") or [
        n for n, v in vars(module).items() if inspect.isclass(v) and v.__module__ == module.__name__
    ]
    assert len(names) > 5
    for name in names:
        value = getattr(module, name)
        if not inspect.isclass(value) and not callable(value):
            continue  # a table, or a target
        assert inspect.getdoc(value), name
        for method, function in vars(value).items() if inspect.isclass(value) else ():
            if inspect.isfunction(function) and not method.startswith("_"):
                assert inspect.getdoc(function), f"{name}.{method}"
