"""Calls of globals that go through an object of ours, and uses that do not."""

from __future__ import annotations

import dis
import gc
import inspect
import sys
import weakref
from typing import Any, TypeVar

import numpy as np
import pytest

import adarray
from adarray.base.redirecting import all_names, original_of, redirect

CALLS = [
    "float(x)", "float(*[x])", "float(x if x else 2)", "float([v for v in [x]][0])",
    "float({again: 1}.get(3, x))", "float(x or 3)", "float(x and 3)", "float(abs(x))",
    "float(x.real)", "float(x.conjugate())", "float((lambda q: q)(x))", "float(f'{x}')",
    "float(max(x, *[1, 2], key=lambda v: v))", "float(**{})", "float(sum(v for v in [x]))",
    "float(not x)", "float(-x)", "float(x[0] if x is None else [x][0])", "float([1, 2][0:1][0])",
    "float((y := x))", "float({k: k for k in [x]}[x])", "float(again(x))",
    "float(x is None and 1 or 3)", "float(1 < x < 3)", "float(str(x, ) if 0 else 4)",
    "(float)(x)", "float(float(x))",
]  # fmt: skip
READS = [
    "{float: f}[kind(x)](x)", "{float: f, int: f}[kind(x)](x)", "(float is int or f)(x)",
    "[float][0](x)", "(float, int)[0](x)", "{'a': float}['a'](x)", "(f if float else f)(x)",
    "{int: f, float: f}[float](x)", "{float}.pop()(x)", "[f for q in (float,)][0](x)",
    "f(float)", "f(x, float)", "f(dtype=float)", "{float: {float: f}}[float][float](x)",
    "(f, float)[0](x)", "(lambda q: q)(float)", "isinstance(x, float)",
    "kind('X', (float,), {})(2)",
]  # fmt: skip
COMPARISONS = ["kind(x) is float", "kind(x) == float"]
ATTRIBUTES = ["float.fromhex('0x1')", "float.__name__", "[0, float.fromhex('0x1'), 2][1]"]
FORMS = [
    "def h(x):\n    return {}\n",
    "def h(x):\n    z = [\n        1,\n        {},\n        2]\n    return z[1]\n",
    "def h(x):\n    try:\n        return [{}][0] if x else 0\n    finally:\n        pass\n",
    "def h(x):\n    def g():\n        return {}, x\n    return g()[0]\n",
    "def h(x):\n" + "".join(f"    {i}.5; many{i}\n" for i in range(300)) + "    return {}\n",
]


def f(*args: Any, **kwargs: Any) -> int:
    """Take anything."""
    return 1


class Noting:
    """Pushes what a name is bound to, and notes that it was asked."""

    def __init__(self, name: str, how: str, seen: list[str]) -> None:
        self.name, self.how, self.seen = name, how, seen

    def __invert__(self) -> Any:
        self.seen.append(self.how)
        frame = sys._getframe(1)
        return frame.f_globals.get(self.name) or frame.f_builtins[self.name]


def made(source: str) -> Any:
    space: dict[str, Any] = {"f": f, "again": float, "kind": type}
    space.update({f"many{i}": i for i in range(300)})
    exec(source, space)
    return space["h"]


@pytest.mark.parametrize("form", FORMS, ids=["plain", "lines", "try", "nested", "many names"])
@pytest.mark.parametrize(
    ("how", "expression"),
    [("call", e) for e in CALLS]
    + [("read", e) for e in READS]
    + [("compared", e) for e in COMPARISONS]
    + [("attribute", e) for e in ATTRIBUTES],
)
def test_uses_are_told_apart(how: str, expression: str, form: str) -> None:
    h, seen = made(form.replace("{}", expression, 1)), []
    expected, code = h(1.5), h.__code__
    redirect(h, ["float"], lambda name, use: Noting(name, use, seen), "all")
    for _ in range(20):  # the interpreter specialises instructions after some runs
        seen.clear()
        assert repr(h(1.5))[:12] == repr(expected)[:12]
        assert set(seen) == {how}
    assert original_of(h.__code__) is code
    places = list(code.co_positions())
    assert list(h.__code__.co_positions())[: len(places)] == places
    assert "float" in inspect.getclosurevars(h).builtins or "def g" in form
    assert dis.Bytecode(h).dis()
    redirect(h, ["float"], lambda name, use: None, "none")
    assert h(1.5) is not None
    assert original_of(h.__code__) is code


def test_functions_generators_coroutines_keep_working() -> None:
    def steps(n: int) -> Any:
        for i in range(n):
            got = yield float(i)
            assert got is None

    async def later(x: int) -> float:
        return float(x)

    seen: list[str] = []
    for function in (steps, later):
        redirect(function, ["float"], lambda name, use: Noting(name, use, seen), "some")
    assert list(steps(3)) == [0.0, 1.0, 2.0]
    with pytest.raises(StopIteration) as end:
        later(2).send(None)
    assert end.value.value == 2.0
    assert seen == ["call"] * 4


def test_lines_of_errors_stay() -> None:
    h = made("def h(x):\n    a = 1\n    return (a,\n        float(x),\n        2)\n")
    redirect(h, ["float"], lambda name, use: Noting(name, use, []), "lines")
    with pytest.raises(ValueError, match="could not convert") as error:
        h("x")
    assert error.tb.tb_next.tb_lineno == 4


def test_tracing_tools_see_the_lines() -> None:
    h = made("def h(x):\n    y = float(x)\n    return y\n")
    redirect(h, ["float"], lambda name, use: Noting(name, use, []), "tools")
    lines: list[int] = []

    def trace(frame: Any, event: str, _: Any) -> Any:
        if event == "line" and frame.f_code is h.__code__:
            lines.append(frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        assert h(1) == 1.0
    finally:
        sys.settrace(before)
    assert lines == [2, 3]


@pytest.mark.usefixtures("_young_heap")
def test_code_is_not_kept_alive() -> None:
    h = made("def h(x):\n    return float(x)\n")
    redirect(h, ["float"], lambda name, use: Noting(name, use, []), "alive")
    copy, original = weakref.ref(h.__code__), weakref.ref(original_of(h.__code__))
    assert copy() is not original()
    del h
    gc.collect()
    assert copy() is None
    assert original() is None


def test_all_names() -> None:
    h = made("def h(x):\n    def g():\n        return float(x.real)\n    return g, abs\n")
    assert all_names(h.__code__) == {"float", "real", "abs"}


class Hidden:
    """Refuses a look at its attributes; so does a TypeVar since Python 3.12."""

    @property
    def __dict__(self) -> Any:
        raise RuntimeError("not to be read")


@pytest.mark.parametrize("instance", [Hidden(), TypeVar("T")], ids=["property", "TypeVar"])
def test_objects_that_hide_their_attributes(instance: Any) -> None:
    def f(x: Any) -> Any:
        return x * x if instance is not None else x

    assert adarray.grad(f)(3.0) == 6.0
    assert adarray.grad(f, intercept=True)(3.0) == 6.0


HANDLERS = [
    "try: {}\n    except: y = 2",
    "try: {}\n    except BaseException as e: y = str(e)",
    "kind = ValueError\n    try: {}\n    except (KeyError, kind): y = 4",
    "try:\n        try: {}\n        except KeyError: y = 5\n    except ValueError: y = 6",
    "try:\n        try: {}\n        finally: y = 7\n    except ValueError: pass",
    "with Eats(): {}",
    "with Eats() as a, Eats() as b: {}",
    "for i in range(3):\n        try: {}\n        except ValueError: continue\n        y = i",
    "for i in range(3):\n        try: {}\n        except ValueError: break",
    "try: {}\n    except* ValueError: y = 8",
    "try: {}\n    except ValueError:\n        try: raise KeyError\n        except KeyError: y = 9",
    "y = [g(v) for v in [x]]",
    "def k():\n        try: {}\n        except ValueError: yield 1\n    y = list(k())",
    "".join(f"try: {{}}\n    except ValueError: y = {i}\n    " for i in range(400)),
]  # fmt: skip


class Eats:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> bool:
        return True


class Told:
    """Notes the errors that handlers begin with."""

    def __init__(self) -> None:
        self.errors: list[BaseException | None] = []

    def __invert__(self) -> None:
        self.errors.append(sys.exception())


@pytest.mark.parametrize("end", ["return y", "try: return y\n    finally: y = 3"])
@pytest.mark.parametrize("text", HANDLERS)
def test_handlers_of_errors_tell_first(text: str, end: str) -> None:
    source = "def g(v):\n    try: return float(v)\n    except ValueError: return 3\n"
    source += f"def h(x):\n    y = 1\n    {text.replace('{}', 'y = float(x)')}\n    {end}\n"
    space: dict[str, Any] = {"Eats": Eats}
    exec(source, space)
    h, told = space["h"], Told()
    expected = [h(x) for x in ("a", "1.5")]
    code = h.__code__
    for function in (h, space["g"]):
        redirect(function, [], lambda name, use: None, "told", told)
    for _ in range(20):
        told.errors.clear()
        assert [h(x) for x in ("a", "1.5")] == expected
        assert any(isinstance(e, ValueError) for e in told.errors)
        assert None not in told.errors
        assert sys.exception() is None
    assert original_of(h.__code__) is code or "[g(v)" in text
    places = list(code.co_positions())
    assert list(h.__code__.co_positions())[: len(places)] == places
    assert dis.Bytecode(h).dis()


def test_errors_that_go_on_keep_their_lines() -> None:
    h = made("def h(x):\n    try:\n        float(x)\n    except KeyError:\n        pass\n")
    redirect(h, [], lambda name, use: None, "lines of errors", Told())
    with pytest.raises(ValueError, match="could not convert") as error:
        h("x")
    assert error.tb.tb_next.tb_lineno == 3
    assert error.tb.tb_next.tb_next is None


def test_interrupts_in_what_is_told_leave_handlers_in_order() -> None:
    class Interrupted:
        def __invert__(self) -> None:
            raise KeyboardInterrupt

    h = made("def h(x):\n    try:\n        float(x)\n    except ValueError:\n        pass\n")
    redirect(h, [], lambda name, use: None, "interrupted", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        h("x")
    assert sys.exception() is None


DATA = np.arange(6.0).reshape(2, 3)


class Model:
    def __init__(self):
        self.data = DATA

    def loss(self, w):
        return np.sum((self.data.dot(w) - 1.0) ** 2)


def of_a_global(w):
    return np.sum(DATA.dot(w) ** 2) + np.dot(w, w) + DATA.T.dot([1.0, 2.0]).dot(w)


def of_a_closure():
    limits = np.full(3, 5.0)
    return lambda w: np.sum(limits.clip(w, 2.0 + w) * w)


def chosen(w):
    return np.array([0, 1, 0]).choose([w, 2.0 * w]).sum() * DATA[0].searchsorted(w[0])


def many_constants():
    """More than 255 of them: a load takes two instructions."""
    lines = "\n".join(f"    t = t + {k}.5" for k in range(300))
    space = {"DATA": DATA, "np": np, "__name__": "client_of_many_constants"}
    exec(f"def f(w):\n    t = 0\n{lines}\n    return np.sum(DATA.dot(w)) * t", space)
    return space["f"]


METHODS = {
    "attribute": Model().loss,
    "global": of_a_global,
    "closure": of_a_closure(),
    "choose and searchsorted": chosen,
    "many constants": many_constants(),
}


@pytest.mark.parametrize("what", METHODS)
def test_methods_of_captured_arrays_take_traced_arguments(what):
    """``X.dot(w)`` was refused, since an ndarray converts what its methods are given."""
    f, w = METHODS[what], np.array([0.3, 0.2, 0.7])
    step = 1e-6
    expected = [(f(w + step * e) - f(w - step * e)) / (2 * step) for e in np.eye(3)]
    for _ in range(2):
        np.testing.assert_allclose(adarray.grad(f)(w), expected, rtol=1e-6)
    np.testing.assert_allclose(adarray.jit(adarray.grad(f))(w), expected, rtol=1e-6)
    assert type(f(w)) is np.float64


def test_methods_of_other_objects_are_called_as_they_are():
    class Other:
        def dot(self, *args, **kwargs):
            return args, kwargs

        clip = staticmethod(lambda *args: args)

    def f(w):
        other = Other()
        assert other.dot(1, 2, a=3) == ((1, 2), {"a": 3})
        assert other.clip(1, 2) == (1, 2)
        with pytest.raises(AttributeError, match="'int' object has no attribute 'dot'"):
            (3).dot(4)
        return np.sum(w.dot(w)) + np.clip(w, 0.0, 0.5).sum()

    np.testing.assert_allclose(adarray.grad(f)(np.array([0.3, 0.7])), [1.6, 1.4])
