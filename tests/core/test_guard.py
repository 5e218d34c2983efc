"""Large plain operands: an expression's temporary is kept as it is, all others are guarded."""

from __future__ import annotations

import operator
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.core import guard

N = guard.COPY_LIMIT // 8 + 100
LARGE, TWICE = np.linspace(0.5, 1.5, N), np.linspace(0.5, 1.5, 2 * N)

counted = pytest.mark.skipif(not guard._COUNTED, reason="references are not counted")
known: list[Any] = []


def _kept() -> np.ndarray:
    t = LARGE + 1
    known.append(t[:])
    return t


def _lent() -> np.ndarray:
    t = LARGE + 1
    known.append(memoryview(t))
    return t


def _part_kept() -> np.ndarray:
    t = TWICE + 1
    known.append(t[3:])
    return t[::2]


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[np.ndarray]]:
    """Return the arrays that guards are made for, in a list that grows."""
    copies = []
    init = guard.WriteGuard.__init__

    def noted(self: guard.WriteGuard, value: np.ndarray) -> None:
        copies.append(value)
        init(self, value)

    monkeypatch.setattr(guard.WriteGuard, "__init__", noted)
    yield copies
    known.clear()


def _guards(f: Callable[[Any], Any], result: list[np.ndarray]) -> int:
    for _ in range(12):  # Python's own fast ways come after some calls
        result.clear()
        adarray.grad(lambda s: np.sum(f(s)))(np.full(1, 1.5))
    return len(result)


TEMPORARY: dict[str, Callable[[Any], Any]] = {
    "x * t": lambda x: x * (LARGE + 1),
    "t * x": lambda x: (LARGE + 1) * x,
    "x / t": lambda x: x / (LARGE + 1),
    "of temporaries": lambda x: np.sin(x) * (2 * (LARGE + 1)),
    "x * part of t": lambda x: x * (TWICE + 1)[1:-1],
    "part of t * x": lambda x: (TWICE + 1)[1:-1] * x,
    "of a call": lambda x: x * np.add(LARGE, 1),
}

KNOWN: dict[str, Callable[[Any], Any]] = {
    "a name": lambda x: x * LARGE,
    "a name, left": lambda x: LARGE * x,
    "a view": lambda x: x * _kept(),
    "a view, left": lambda x: _kept() * x,
    "a buffer": lambda x: x * _lent(),
    "a buffer, left": lambda x: _lent() * x,
    "a view of its base": lambda x: x * _part_kept(),
    "a view of its base, left": lambda x: _part_kept() * x,
    "the method": lambda x: x.__mul__(_kept()),
    "the reflected method": lambda x: x.__rmul__(_kept()),
    "the function": lambda x: np.multiply(x, _kept()),
    "the function, left": lambda x: np.multiply(_kept(), x),
    "operator.mul": lambda x: operator.mul(x, _kept()),
    "operator.mul, left": lambda x: operator.mul(_kept(), x),
    "map": lambda x: next(map(operator.mul, [x], [_kept()])),
    "map of methods": lambda x: next(map(x.__mul__, [_kept()])),
    "in place": lambda x: operator.imul(x * LARGE, _kept()),
    "an assigned name": lambda x: x * (known.append(t := LARGE + 1) or t),
}


@counted
@pytest.mark.parametrize("name", TEMPORARY)
def test_what_nobody_else_knows_needs_no_guard(name: str, guarded: list[np.ndarray]) -> None:
    assert _guards(TEMPORARY[name], guarded) == 0


@pytest.mark.parametrize("name", KNOWN)
def test_what_others_know_is_guarded(name: str, guarded: list[np.ndarray]) -> None:
    assert _guards(KNOWN[name], guarded) == (2 if name == "in place" else 1)


def test_under_a_tracing_debugger_no_temporary_is_mistaken(guarded: list[np.ndarray]) -> None:
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        assert _guards(KNOWN["a view"], guarded) == 1
        assert _guards(KNOWN["a view, left"], guarded) == 1
    finally:
        sys.settrace(before)


def test_a_pullback_that_outlives_its_module_is_freed_silently() -> None:
    script = (
        "import numpy as np, adarray\n"
        "x = np.ones(100_000)\n"
        "r, pull = adarray.vjp(lambda s: np.sum(np.sin(s * x)), 1.0)\n"
        "import builtins; builtins.kept = pull\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
