# The functions below are what users may write, and not what the linter would.
# ruff: noqa: B007, B020, B905, F841, PERF401, PERF402, UP028
"""Functions that ask before their loops do what they did, and look as they did."""

import ast
import dis
import gc
import inspect
import pickle
import sys
import textwrap
import threading
import traceback
import types

import numpy as np
import pytest

import adarray
from adarray.base.levels import RECORDINGS
from adarray.base.redirecting import original_of, unredirected
from adarray.core.reaching import reach
from adarray.loops import rewriting
from adarray.loops.names import BoundNames, LiveNames, loops_in
from adarray.loops.rewriting import Place, asking, rewrite


def places(code):
    """Return the places in code, and in what is nested in it, by their lines."""
    codes = [code, *rewriting.nested(code)]
    found = [c for part in codes for c in part.co_consts if isinstance(c, Place)]
    return sorted(found, key=lambda p: p.loop.lineno)


def copied(f):
    """Return another function like `f`, which asks before its loops."""
    other = types.FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__)
    rewrite(other)
    assert other.__code__ is not f.__code__
    return other


# -- functions of all kinds ------------------------------------------------------------------------


def counted(n):
    total = 0
    for i in range(n):
        if i == 2:
            continue
        if i == 5:
            break
        for j in range(i):
            total += i * j
    else:
        total = -total
    return total


def whiles(n):
    k, steps = n, []
    while k > 1:
        while k % 2 == 0:
            k //= 2
            steps.append(k)
        if k > 1:
            k = 3 * k + 1
    else:
        steps.append("end")
    return steps


def iterates(n):
    out = []
    for i, (a, *b) in enumerate(zip(range(n), "abcdef", range(n, 0, -1))):
        out.append((i, a, b))
    for x in [i for i in range(n) if i % 2]:
        out.append(x)
    for x in (i * i for i in range(n)):
        out.append(x)
    for key in {"a": 1, "b": 2}:
        out.append(key)
    table = [0] * 5
    for table[n % 5] in range(n):
        out.append(list(table))
    return out


def catches(n):
    out = []
    for i in range(n):
        try:
            for j in range(3):
                out.append(10 // (j - i))
        except ZeroDivisionError as error:
            out.append(str(error))
        finally:
            out.append("last")
    return out


def unbound(n):
    for i in range(n):
        last = i
    return last


def nests(n):
    shared = 0

    def add(k):
        nonlocal shared
        for i in range(k):
            shared += i * n

    class Counter:
        total = 0
        for i in range(3):
            total += i

        def count(self, k):
            for i in range(k):
                self.total += i
            return self.total

    for i in range(n):
        add(i)
    return shared, Counter().count(n), [f() for f in [lambda k=k: k for k in range(n)]]


def recurses(n):
    total = 1
    for i in range(n):
        total += recurses(i)
    return total


def matches(n):
    out = []
    for i in range(n):
        match [i, i % 3]:
            case [a, 0]:
                out.append(a)
            case [_, b]:
                out.append(-b)
    return out


def returns(n):
    for i in range(n):
        for j in range(i):
            if i * j > 4:
                return i, j
    return None


def deletes(n):
    x = n
    for i in range(n):
        y = x + i
        del x
        x = y
    return x


def empty():
    for _ in ():
        pass
    while False:
        pass


FUNCTIONS = [
    counted, whiles, iterates, catches, nests, recurses, matches, returns, deletes, unbound,
]  # fmt: skip


def outcome(f, *args):
    try:
        return f(*args)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_same_results(f):
    other = copied(f)
    for n in (0, 1, 2, 4, 7):
        assert outcome(other, n) == outcome(f, n)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_same_results_while_another_thread_records(f):
    """The questions are asked; nobody answers them, since this thread records nothing."""
    other = copied(f)
    RECORDINGS.append([])
    try:
        for n in (0, 3, 6):
            assert outcome(other, n) == outcome(f, n)
    finally:
        RECORDINGS.pop()


def test_same_lines_of_a_trace():
    def traced(f, n):
        lines = []

        def trace(frame, event, arg):
            if frame.f_code.co_name == f.__name__ and event == "line":
                lines.append(frame.f_lineno)
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            outcome(f, n)
        finally:
            sys.settrace(before)
        return lines

    for f in FUNCTIONS:
        for n in (0, 1, 3, 6):
            lines, again = traced(f, n), traced(copied(f), n)
            assert set(lines) == set(again), f
            if f is not nests:
                once = [a for a, b in zip(lines, [None, *lines], strict=False) if a != b]
                assert [a for a, b in zip(again, [None, *again], strict=False) if a != b] == once, f


def test_same_traceback():
    def fails(n):
        for i in range(n):
            for j in [1.0, 0.0]:
                i = i / j
        return i

    texts = []
    for f in (fails, copied(fails)):
        with pytest.raises(ZeroDivisionError) as error:
            f(3)
        texts.append("".join(traceback.format_tb(error.value.__traceback__)[1:]))
    assert texts[0] == texts[1]
    assert "i = i / j" in texts[0]


def test_iterable_that_fails():
    def fails(n):
        for i in range(n.none):
            i += 1

    texts = []
    for f in (fails, copied(fails)):
        with pytest.raises(AttributeError) as error:
            f(3)
        texts.append("".join(traceback.format_tb(error.value.__traceback__)[1:]))
    assert texts[0] == texts[1]


def test_what_is_seen_of_it():
    other = copied(counted)
    assert original_of(other.__code__) is counted.__code__
    assert inspect.getsource(other) == inspect.getsource(counted)
    assert inspect.signature(other) == inspect.signature(counted)
    assert inspect.getclosurevars(other) == inspect.getclosurevars(counted)
    assert other.__code__.co_filename == counted.__code__.co_filename
    lines = {line for _, _, line in counted.__code__.co_lines() if line}
    assert {line for _, _, line in other.__code__.co_lines() if line} == lines


def test_nested_functions_lead_to_the_users():
    other = copied(nests)

    def by_name(code):
        return {c.co_qualname: c for c in rewriting.nested(code)}

    mine, theirs = by_name(other.__code__), by_name(nests.__code__)
    assert mine.keys() == theirs.keys()
    for name, code in mine.items():
        assert original_of(code) is theirs[name], name


def test_pickled_code():
    """In another process the loop runs as Python does."""
    for place in places(copied(counted).__code__):
        assert pickle.loads(pickle.dumps(place)) @ (None, 1) is None


def test_twice():
    other = copied(counted)
    code = other.__code__
    rewrite(other)
    assert other.__code__ is code
    assert asking(counted.__code__) is code
    assert copied(counted).__code__ is code


def test_not_rewritten():
    def shows(n):
        for _ in range(n):
            pass
        return sorted(locals())

    def generates(n):
        for i in range(n):
            yield i

    async def waits(n):
        for i in range(n):
            n += i

    def loops_not(n):
        return [n] * 3

    for f in (shows, generates, waits, loops_not):
        assert asking(f.__code__) is f.__code__
    space = {}
    exec("def made(n):\n    for i in range(n):\n        n += 1\n    return n", space)
    assert asking(space["made"].__code__) is space["made"].__code__


def test_references_are_dropped():
    """What a loop ran over is let go when the loop ends."""

    class Items(list):
        pass

    def runs(items, seen):
        for x in items:
            if x == 2:
                break
        held = sys.getrefcount(items)
        seen.append(held)
        for x in items:
            pass
        seen.append(sys.getrefcount(items))

    counts = []
    for f in (runs, copied(runs)):
        seen = []
        f(Items([1, 2, 3]), seen)
        counts.append(seen)
    assert counts[0] == counts[1]


def test_running_function():
    """A frame that runs already keeps its code, and the next call has the other one."""
    out = []

    def runs(n):
        for i in range(n):
            if i == 1:
                rewrite(runs)
            out.append(i)
        return out

    code = runs.__code__
    assert runs(3) == [0, 1, 2]
    assert runs.__code__ is not code
    assert runs(2) == [0, 1, 2, 0, 1]


def test_threads():
    codes = []

    def work():
        codes.append(asking(whiles.__code__))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(map(id, codes))) == 1


# -- what is passed --------------------------------------------------------------------------------


def function_of(text):
    return ast.parse(textwrap.dedent(text)).body[0]


BOUND = [
    ("def f(a):\n  b = 1\n  for i in a: pass", {"a", "b"}),
    ("def f(a):\n  if a: b = c = 1\n  else: b = 2\n  for i in a: pass", {"a", "b"}),
    ("def f(a):\n  if a: b = 1\n  else: return\n  for i in a: pass", {"a", "b"}),
    ("def f(a):\n  for k in a: b = 1\n  while a: pass", {"a"}),
    ("def f(a):\n  while a:\n    b = 1\n    for i in a: pass", {"a", "b"}),
    ("def f(a):\n  try: b = 1\n  except E: c = 2\n  for i in a: pass", {"a"}),
    ("def f(a):\n  try: b = 1\n  except E: raise\n  for i in a: pass", {"a", "b"}),
    ("def f(a):\n  try: b = 1\n  finally: c = 2\n  for i in a: pass", {"a", "b", "c"}),
    ("def f(a):\n  with a as b: c = 1\n  for i in a: pass", {"a", "b"}),
    ("def f(a, *b, c, **d):\n  import e.g, h as k\n  for i in a: pass", set("abcdek")),
    ("def f(a):\n  def g(): pass\n  class C: pass\n  for i in a: pass", {"a", "g", "C"}),
    ("def f(a):\n  b: int\n  c: int = 1\n  (d, [e, *g]) = a\n  for i in a: pass", set("acdeg")),
    ("def f(a):\n  match a:\n    case [b]: c = 1\n  for i in a: pass", {"a"}),
    ("def f(a):\n  b = 1\n  while True:\n    if b: c = 2; break\n  while a: pass", {"a", "b"}),
]


@pytest.mark.parametrize(("text", "names"), BOUND)
def test_bound_before(text, names):
    function = function_of(text)
    last = max(loops_in(function), key=lambda loop: loop.lineno)
    assert BoundNames(function).before[last] == names


LIVE = [
    ("def f(a):\n  for i in a: b = i\n  return b", {"b"}),
    ("def f(a):\n  for i in a: b = i\n  b = 2\n  return b", set()),
    ("def f(a):\n  for i in a: b = i\n  if a: b = 2\n  return b", {"a", "b"}),
    ("def f(a):\n  for i in a: b = i\n  b += 2\n  return", {"b"}),
    ("def f(a):\n  for i in a: b = i\n  del b", {"b"}),
    ("def f(a):\n  for i in a: b = i\n  def g(): return i\n  return", {"i"}),
    ("def f(a):\n  while a:\n    c = b\n    for i in a: b = i", {"a", "b"}),
    ("def f(a):\n  while a:\n    for i in a: b = i\n    for b in a: c = b", {"a"}),
    ("def f(a):\n  for k in a:\n    for i in a: b = i\n    break\n  else: c = b", set()),
    ("def f(a):\n  for k in a:\n    for i in a: b = i\n    continue\n  else: c = b", {"a", "b"}),
    ("def f(a):\n  try:\n    for i in a: b = i\n  except E: return c\n  return b", {"b", "c"}),
    ("def f(a):\n  for i in a: b = i\n  b[0] = 2", {"b"}),
    ("def f(a):\n  for i in a: b = i\n  for b[0] in a: pass", {"a", "b"}),
    ("def f(a):\n  for i in a: b = i\n  raise E(b)", {"b", "E"}),
    ("def f(a):\n  for i in a: b = i\n  return [b for b in a]", {"a", "b"}),
]


@pytest.mark.parametrize(("text", "names"), LIVE)
def test_live_after(text, names):
    function = function_of(text)
    loops = [n for n in loops_in(function) if "b = i" in ast.unparse(n.body)]
    inner = max(loops, key=lambda loop: loop.lineno)
    assert LiveNames(function).after[inner] >= names
    assert LiveNames(function).after[inner] - names <= {"E"}


def passed(f):
    return [
        (p.names, p.wanted, p.refusal and p.refusal[0])
        for p in places(asking(unredirected(f.__code__)))
    ]


def test_variables():
    limit = 3

    def f(x, n):
        y = np.zeros(n)
        for i in range(n):
            t = x[i] * limit
            y[i] = t
            if n > 3:
                z = t
        return y, t

    assert passed(f) == [(("limit", "n", "x", "y"), ("t",), None)]


def test_captured_variable_that_may_be_unbound():
    def outer(n):
        if n:
            later = 1

        def inner(x):
            for i in range(n):
                x = x + later
            return x

        return inner

    assert passed(outer)[0][0] == ("n", "x")


def test_recursive_name():
    def outer(n):
        def inner(x):
            for i in range(n):
                x = x + inner(i)
            return x

        return inner

    assert passed(outer) == [(("n", "x"), ("x",), None)]


def imports(n):
    for _ in range(n):
        import math
    return math


def jumps_in_else(n):
    while n:
        for _ in range(n):
            pass
        else:
            break
    return n


REFUSED = {
    "it has a match statement": matches,
    "it imports a module": imports,
    "its else clause has a jump": jumps_in_else,
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refusals(reason):
    assert reason in [why for _, _, why in passed(REFUSED[reason])]


COUNT = 0


def test_variables_of_others():
    def assigns_global(n):
        global COUNT
        for i in range(n):
            COUNT = i

    def assigns_nonlocal(n):
        k = 0

        def inner():
            nonlocal k
            for i in range(n):
                k = i

        return inner

    def is_read_elsewhere(n):
        k = 0

        def inner():
            return k

        for i in range(n):
            k = i
        return inner

    def is_summed(x):
        k = 0
        for i in range(3):
            k = sum(k * v for v in x)
        return k

    def over_a_call(x):
        k = 0
        for i in x.rows():
            k = i
        return k

    assert passed(assigns_global)[0][2].startswith("it assigns COUNT, which is no variable")
    assert passed(assigns_nonlocal)[0][2].startswith("it assigns k, which is no variable")
    assert passed(is_read_elsewhere)[0][2].startswith("it assigns k, which another function")
    assert passed(is_summed)[0][2] is None
    assert passed(over_a_call)[0][2] == "it runs over what a call returns"


# -- with the analyses of code ---------------------------------------------------------------------


def test_redirected_and_rewritten():
    def f(x):
        total = 0.0
        for i in range(3):
            total = total + float(x) * i
            if type(total) is not float:
                return 0.0
        return total

    code = original_of(f.__code__)
    adarray.jit(f)(2.0)
    assert original_of(f.__code__) is code
    base = unredirected(f.__code__)
    assert base is asking(code)
    assert len(places(f.__code__)) == 1
    assert f.__code__.co_code[: len(base.co_code)] != base.co_code
    ops = [i.opname for i in dis.get_instructions(base)]
    assert len(ops) == len([i.opname for i in dis.get_instructions(f.__code__)][: len(ops)])
    assert adarray.grad(f)(2.0) == 3.0
    assert f(2.0) == 6.0
    reach(f)
    assert original_of(f.__code__) is code


def test_errors_that_are_caught():
    """Handlers of functions that ask still say what they caught."""

    def f(x):
        total = 0.0
        for i in range(3):
            try:
                total = total + memoryview(x)
            except TypeError:
                total = total + x
        return total

    adarray.jit(lambda x: x * 1.0)(1.0)
    with pytest.raises(adarray.TraceError):
        adarray.grad(f)(2.0)


@pytest.mark.usefixtures("_young_heap")
def test_memory():
    """Code that is not used any more is let go with what was derived of it."""

    def make():
        def f(n):
            for i in range(n):
                n = n + 1
            return n

        return f

    f = make()
    rewrite(f)
    assert f(2) == 4
    count = len(rewriting._asking._entries)
    del f
    gc.collect()
    assert len(rewriting._asking._entries) <= count
