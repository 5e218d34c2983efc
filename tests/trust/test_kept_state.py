"""Compiled calls change objects as the plain function does: attributes, items, globals, lists.

``ADARRAY_LONG=2000`` runs that many random programs.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
from trust import BACKENDS, seeds

import adarray
from adarray.device import DeviceArray
from adarray.errors import ADArrayError
from adarray.jitting import JitWarning

HEAD = """
class Part:
    def __init__(self, v):
        self.v = v
        self.k = 0

class Slot:
    __slots__ = ("v", "k", "w")
    def __init__(self):
        self.v = np.ones(3)
        self.k = 0.5

class Model:
    def __init__(self):
        self.a = np.array([0.5, -0.25, 1.0])
        self.b = 0.5
        self.n = 0
        self.none = None
        self.h = []
        self.d = {"k": 1.0}
        self.log = {"l": [], "m": [0.5]}
        self.slot = Slot()
        self.parts = [Part(np.zeros(3)), Part(2.0)]
        self.items = [np.ones(3), 0.25, 1]

    def step(self, y, s):
        self.n += 1
        self.b = 0.5 * self.b + s
        self.h.append(s)
        return y * self.b

class Registry:
    items = []

def read():
    return total

def bump():
    global total
    total += 1

def made():
    count = 0
    state = np.zeros(3)

    def counted():
        nonlocal count
        count += 1
        return count

    def f(x):
        global total, seen
        nonlocal count, state
        m = MODEL
        y = x * 1.5
        s = np.sum(x) * 0.25
"""
TAIL = """
        return {result}

    return f, lambda: [count, state]

MODEL = Model()
Registry.items.append(MODEL)
total, seen = 0, []
"""
ARRAYS = ("y", "x", "m.a", "m.slot.v", "m.parts[0].v", "m.items[0]", "state", "np.tanh(y)",
          "m.a * 0.5", "y + m.items[1]", "np.array([s, 1.0, m.b])", "y.copy()", "m.a[::-1]",
          "y * m.n", "np.zeros(3)", "y[:]")  # fmt: skip
NUMBERS = ("s", "m.b", "m.b * 0.5 + s", "np.max(y)", "total + 1.0", "float(m.n)", "y[0]", "0.75",
           "m.slot.k", "count * 0.5", "m.items[1]", "np.float64(2.0)")  # fmt: skip
STATEMENTS = (
    "m.a = {a}", "m.a = m.a * 0.5 + {a}", "m.a += {a}", "m.b = {s}", "m.b += 0.25", "m.n += 1",
    "m.none = {a}", "m.none = {s}", "m.fresh = {a}", "m.h.append({s})", "m.h.append({a})",
    "m.h.extend([{s}, {s}])", "m.h += [{s}]", "m.log['l'].append({s})", "m.log['m'].append(1.0)",
    "m.d['k'] = {s}", "m.d['new'] = {a}", "m.d = dict(u={a}, v=[{s}, 1])", "m.slot.v = {a}",
    "m.slot.k = {s}", "m.slot.w = {a}", "m.slot.k += 0.5", "m.parts[0].v = {a}",
    "m.parts[1].v = {s}", "m.parts[0].k += 1", "m.parts[1].k -= 2", "m.items[0] = {a}",
    "m.items[1] = {s}", "m.items[2] += 1", "m.pair = ({a}, {s})", "m.both = m.alias = {a}",
    "m.alias = m.a", "m.name = 'done'", "m.flag = True", "m.flag = bool({s} > 1.0)",
    "total = total + 1", "total = {s}", "seen.append({s})", "count += 1", "counted()",
    "state = {a}", "state = state + {a}", "y = m.step(y, {s})", "y = y + m.h[-1] if 0 else y * 2",
    "m.h.append({s}); y = y * m.h[-1]", "y = y * counted()", "y = y + m.a", "y = y * (1 + m.b)",
    "s = s + total", "y = y + state", "y = y * (m.n % 3)", "y = y + m.slot.v",
    "y = y * read()", "bump()", "bump(); y = y + total",
)  # fmt: skip
# Statements that compiled code cannot repeat, or that read what grows.
RARE = (
    "y = y * len(m.h)", "y = y + sum(m.log['m'])", "del m.d['k']; m.d['k'] = {s}", "m.h.clear()",
    "Model.shared = {s}", "m.same = m.parts", "m.list = m.h", "m.parts.reverse()",
    "m.items.insert(0, {a})", "m.copied = list(m.h)", "m.h = []", "m.d.clear(); m.d['k'] = 0.5",
    "m.first = m.h[0] if m.h else 0.0", "seen[:] = seen[-2:]",
    "Registry.items[0].n += 1", "y = y * Registry.items[0].b", "m.other = Registry.items[0]",
)  # fmt: skip
BRANCHES = ("if m.n % 2 == 0:", "if s > 1.0:", "if y[0] < 1.0:", "if m.none is None:",
            "if total > 2:", "for _ in range(2):")  # fmt: skip
RESULTS = ("np.sum(y * m.b) + s", "np.sum(y ** 2)", "np.sum(y * m.a)", "np.sum(y) * (1 + m.n)")


def program(rng: random.Random) -> str:
    """Return the text of a module: `MODEL` and other state, and `made`, which returns `f`."""
    lines: list[str] = []
    for _ in range(rng.randint(2, 6)):
        pool = RARE if rng.random() < 0.06 else STATEMENTS
        text = (
            rng.choice(pool).replace("{a}", rng.choice(ARRAYS)).replace("{s}", rng.choice(NUMBERS))
        )
        if rng.random() < 0.25:
            lines.append(" " * 8 + rng.choice(BRANCHES))
            lines.append(" " * 12 + text)
        else:
            lines.append(" " * 8 + text)
    result = rng.choice(RESULTS)
    return HEAD + "\n".join(lines) + TAIL.replace("{result}", result)


class Instance:
    """A program that runs: its function and its state."""

    def __init__(self, text: str) -> None:
        self.space: dict[str, Any] = {"np": np, "__name__": "kept_state"}
        exec(compile(text, "<program>", "exec"), self.space)
        self.f, self.cells = self.space["made"]()

    def state(self) -> Any:
        """Return everything that the function may have changed."""
        space = self.space
        shared = getattr(space["Model"], "shared", None)
        return [space["MODEL"], space["total"], space["seen"], *self.cells(), shared]


class View:
    """What an object holds, with types, values, and which arrays and containers are the same."""

    def __init__(self, exactly: bool) -> None:
        self.exactly = exactly
        self.numbers: dict[int, int] = {}
        self.seen: set[int] = set()  # instances

    def of(self, x: Any) -> Any:
        if isinstance(x, DeviceArray) and not x.shape:
            x = np.asarray(x)[()]  # numbers stay on a GPU
        if isinstance(x, (adarray.ADArray, np.ndarray)):
            which = self.numbers.setdefault(id(x), len(self.numbers)) if self.exactly else 0
            x = np.asarray(x)
            kind = x.dtype.str if self.exactly or x.ndim else "number"
            return ("array", which, kind, x.shape, x.tolist())
        if isinstance(x, (float, np.floating)) and not self.exactly:
            return ("array", 0, "number", (), float(x))
        if isinstance(x, (bool, int, float, str, np.generic)) or x is None:
            return (type(x), x)
        which = self.numbers.setdefault(id(x), len(self.numbers)) if self.exactly else 0
        if isinstance(x, dict):
            return (dict, which, [(k, self.of(v)) for k, v in x.items()])
        if isinstance(x, (list, tuple)):
            return (type(x), which, [self.of(i) for i in x])
        if id(x) in self.seen:
            return (type(x).__name__, which)
        self.seen.add(id(x))
        parts = getattr(x, "__dict__", None)
        if parts is None:
            parts = {k: getattr(x, k) for k in type(x).__slots__ if hasattr(x, k)}
        return (type(x).__name__, which, [(k, self.of(parts[k])) for k in sorted(parts)])


def near(a: Any, b: Any) -> bool:
    """Whether two views agree: numbers within rounding."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(near, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return bool(np.isclose(a, b, rtol=1e-9, atol=1e-11, equal_nan=True))
    return bool(a == b)


def transformed(mode: str, f: Any, jit: bool) -> Any:
    jitted = adarray.jit if jit else lambda f: f
    if mode == "plain":
        return jitted(f)
    if mode == "jit(grad)":
        return jitted(adarray.value_and_grad(f))
    return adarray.value_and_grad(jitted(f))


def compare(text: str, mode: str, counts: Counter[str]) -> str:
    """Return what differs between the plain program and the compiled one; "" if nothing does."""
    plain, compiled = Instance(text), Instance(text)
    f, jf = transformed(mode, plain.f, False), transformed(mode, compiled.f, True)
    rng = np.random.default_rng(5)
    for i in range(8):
        x = rng.normal(size=3) + (0.5 if i % 3 else 1.5)
        own, other = x.copy(), x.copy()
        try:
            expected: Any = f(own)
        except (AttributeError, LookupError, ValueError, ADArrayError) as error:
            expected = type(error)
        try:
            got = jf(other)
        except (AttributeError, LookupError, ValueError, ADArrayError) as error:
            if expected is not type(error):
                return f"call {i}: raised {error!r}"
            counts["raised"] += 1
            return ""
        if isinstance(expected, type):
            counts["refused eagerly"] += 1
            return ""
        exactly = mode == "plain"
        a = View(exactly).of([own, expected, plain.state()])
        b = View(exactly).of([other, got, compiled.state()])
        if not near(a, b):
            return f"call {i}:\n{a}\n{b}"
    info = getattr(jf, "cache_info", None)
    if info is not None:
        counts["eager" if info().eager else "compiled"] += 1
    return ""


COMPILED = [pytest.param(m, marks=pytest.mark.slow) for m in ("jit(grad)", "grad(jit)")]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["plain", *COMPILED])
def test_random_programs_change_the_same(backend: str, mode: str) -> None:
    counts: Counter[str] = Counter()
    for seed in seeds(12):
        text = program(random.Random(seed))
        with adarray.use(backend), warnings.catch_warnings():
            warnings.simplefilter("ignore", JitWarning)
            different = compare(text, mode, counts)
        assert not different, f"seed {seed}, {mode} on {backend}\n{text}\n{different}"
    if mode != "grad(jit)":
        assert counts["compiled"] > counts["eager"], counts
