"""Functions that read objects of Python's own kinds and standard library; see `captured_kinds`.

For tests of captured state.
"""

from __future__ import annotations

import array
import collections
import configparser
import ctypes
import datetime
import decimal
import fractions
import io
import itertools
import logging
import mmap
import random
import string
import sys
import types
import warnings
import weakref
from typing import Any

import numpy as np
from captured_kinds import Made, X, kind, sets, written

# -- methods of builtin objects, and views of dictionaries ------------------------------------


@kind
def get_of_a_dictionary() -> Made:
    d: dict[str, Any] = {"k": 2.0}
    get = d.get
    return (lambda x: x * get("k", 1.0)), [*sets(d, k=3.0), *sets(d, k=X * 1), d.clear]


@kind
def methods_of_an_array() -> Made:
    w = np.arange(4.0)
    total, item = w.sum, w.__getitem__

    def f(x: Any) -> Any:
        return x * total() + item(1)

    return f, [lambda: w.__setitem__(1, 7.0), lambda: w.fill(2.0)]


@kind
def append_of_a_list() -> Made:
    log: list[Any] = []
    note = log.append

    def f(x: Any) -> Any:
        note(None)
        return x * len(log)

    return f, [log.clear, lambda: log.append(None)]


@kind
def views_of_a_dictionary() -> Made:
    d: dict[str, Any] = {"a": 1.0, "b": 2.0}
    keys, values, items = d.keys(), d.values(), d.items()

    def f(x: Any) -> Any:
        return x * sum(values) + len(keys) + sum(v for _, v in items)

    return f, [*sets(d, a=5.0, c=X * 1), lambda: d.pop("b"), lambda: d["c"].fill(1.0)]


@kind
def an_ordered_dictionary() -> Made:
    d: Any = collections.OrderedDict(a=1.0, b=2.0)
    values = d.values()

    def f(x: Any) -> Any:
        return x * next(iter(values)) + next(iter(d.values()))

    return f, [lambda: d.move_to_end("a"), *sets(d, b=7.0)]


@kind
def a_default_dictionary() -> Made:
    d: Any = collections.defaultdict(lambda: 2.0, a=1.0)

    def f(x: Any) -> Any:
        return x * d["a"] + len(d)

    return f, [*sets(d, a=3.0, b=1.0), lambda: d.pop("b")]


@kind
def a_counter() -> Made:
    c: Any = collections.Counter("aab")
    return (lambda x: x * c["a"] + c["z"]), [lambda: c.update("az"), lambda: c.subtract("a")]


@kind
def a_queue_with_ends() -> Made:
    q: Any = collections.deque([1.0, 2.0], 3)
    return (lambda x: x * q[0] + len(q)), [lambda: q.append(3.0), lambda: q.append(X), q.popleft]


@kind
def user_text() -> Made:
    s = collections.UserString("12")
    return (lambda x: x * len(s.data)), sets(s, data="1234")


@kind
def keys_of_several_types() -> Made:
    d: dict[Any, Any] = {1: 2.0}

    def f(x: Any) -> Any:
        return x * sum(isinstance(k, bool) + 2 * isinstance(k, float) for k in d)

    return f, [d.clear, lambda: d.update({True: 2.0}), d.clear, lambda: d.update({1.0: 2.0})]


@kind
def keys_with_attributes() -> Made:
    class Key:
        k: Any = 2.0

    key = Key()
    d, s = {key: 1.0}, {key}

    def f(x: Any) -> Any:
        return x * sum(q.k for q in d) + sum(q.k for q in s)

    return f, [*sets(key, k=3.0), *sets(key, k=5.0), *sets(Key, k=7.0), lambda: delattr(key, "k")]


@kind
def the_order_of_a_set() -> Made:
    s = {0, 8}

    def f(x: Any) -> Any:
        first = next(iter(s))
        return x * (first + 1.0)

    def turn() -> None:
        s.clear()
        s.update([8])
        s.add(0)

    return f, [turn, lambda: s.discard(0), lambda: s.add(3)]


@kind
def numbers_that_are_equal() -> Made:
    s: Any = {1}
    n = types.SimpleNamespace(v=0.0)

    def f(x: Any) -> Any:
        return x * np.copysign(2.0, n.v) + sum(isinstance(k, bool) for k in s)

    def turn() -> None:
        s.clear()
        s.add(True)

    return f, [*sets(n, v=-0.0), turn, *sets(n, v=0)]


@kind
def bounds_of_a_range() -> Made:
    n: Any = types.SimpleNamespace(r=range(0, 3, 2), s=slice(0, 2))

    def f(x: Any) -> Any:
        return x * n.r.stop + n.r.step + np.sum(x[n.s])

    return f, [
        *sets(n, r=range(0, 4, 2)),
        *sets(n, r=range(0), s=slice(0, 3)),
        *sets(n, r=range(5, 5)),
    ]


# -- what advances, and chance -----------------------------------------------------------------


@kind
def an_iterator() -> Made:
    numbers = iter([2.0, 3.0, 5.0, 7.0] * 9)
    return (lambda x: x * next(numbers)), [lambda: next(numbers)]


@kind
def a_generator() -> Made:
    numbers = (float(i * i) for i in range(99))
    return (lambda x: x * next(numbers)), [lambda: next(numbers)]


@kind
def counters_of_itertools() -> Made:
    count, cycle = itertools.count(1), itertools.cycle([1.0, 2.0, 3.0])
    return (lambda x: x * next(count) + next(cycle)), [lambda: next(cycle)]


@kind
def an_enumeration_of_a_list() -> Made:
    pairs = enumerate([1.0] * 99)
    return (lambda x: x * next(pairs)[0]), [lambda: next(pairs)]


@kind
def random_of_python() -> Made:
    rng = random.Random(3)
    return (lambda x: x * rng.random()), [rng.random, lambda: rng.seed(9)]


@kind
def a_method_of_random() -> Made:
    draw = random.Random(5).random
    return (lambda x: x * draw()), [draw]


@kind
def a_bit_generator() -> Made:
    bits = np.random.PCG64(4)
    return (lambda x: x * (bits.random_raw() % 7)), [lambda: bits.random_raw()]


@kind
def a_seed_sequence() -> Made:
    seeds = np.random.SeedSequence(4)
    return (lambda x: x * (1 + seeds.n_children_spawned)), [lambda: seeds.spawn(1)]


# -- memory and files --------------------------------------------------------------------------


@kind
def a_stream_of_text() -> Made:
    text = io.StringIO("1\n2\n3\n4\n5\n6\n7\n8\n9\n" * 9)
    return (lambda x: x * float(text.readline())), [text.readline, lambda: text.seek(0)]


@kind
def a_stream_of_bytes() -> Made:
    data = io.BytesIO(b"abc")
    return (lambda x: x * len(data.getvalue())), [lambda: data.write(b"abcdef")]


@kind
def a_mapped_memory() -> Made:
    data = mmap.mmap(-1, 8)
    return (lambda x: x * data[0]), [lambda: data.__setitem__(0, 9)]


@kind
def numbers_of_ctypes() -> Made:
    number, numbers = ctypes.c_double(2.0), (ctypes.c_double * 3)(1.0, 2.0, 3.0)
    return (lambda x: x * number.value + numbers[1]), [
        *sets(number, value=5.0),
        lambda: numbers.__setitem__(1, 7.0),
    ]


@kind
def a_pointer_of_ctypes() -> Made:
    number = ctypes.c_double(2.0)
    pointer = ctypes.pointer(number)
    return (lambda x: x * pointer.contents.value), sets(number, value=5.0)


@kind
def an_array_of_the_standard_library() -> Made:
    numbers = array.array("d", [1.0, 2.0])
    return (lambda x: x * numbers[0] + len(numbers)), [
        lambda: numbers.append(2.0),
        lambda: numbers.__setitem__(0, 4.0),
    ]


# -- the surroundings --------------------------------------------------------------------------


@kind
def arguments_of_the_process() -> Made:
    space = written("import sys\ndef f(x): return x * len(sys.argv)")
    return space["f"], [lambda: sys.argv.append("more"), lambda: sys.argv.pop()]


@kind
def the_context_of_decimal() -> Made:
    one, three = decimal.Decimal(1), decimal.Decimal(3)
    context = decimal.getcontext()
    return (lambda x: x * float(one / three)), [*sets(context, prec=4), *sets(context, prec=28)]


@kind
def a_context_of_decimal() -> Made:
    context = decimal.Context(prec=5)
    return (lambda x: x * context.prec), sets(context, prec=7)


@kind
def numbers_that_never_change() -> Made:
    n = types.SimpleNamespace(
        a=decimal.Decimal(2), b=fractions.Fraction(1, 2), c=datetime.timedelta(seconds=3)
    )

    def f(x: Any) -> Any:
        return x * float(n.a) * float(n.b) + n.c.total_seconds()

    return f, [
        *sets(n, a=decimal.Decimal(7), b=fractions.Fraction(7, 2)),
        *sets(n, c=datetime.timedelta(1)),
    ]


@kind
def how_errors_are_handled() -> Made:
    space = written("def f(x): return x * len(np.geterr()['over'])")
    return space["f"], [lambda: np.seterr(over="print"), lambda: np.seterr(over="warn")]


@kind
def how_arrays_are_printed() -> Made:
    space = written("def f(x): return x * np.get_printoptions()['precision']")
    return space["f"], [
        lambda: np.set_printoptions(precision=3),
        lambda: np.set_printoptions(precision=8),
    ]


@kind
def filters_of_warnings() -> Made:
    space = written("import warnings\ndef f(x): return x * len(warnings.filters)")
    before = list(warnings.filters)

    def reset() -> None:
        warnings.filters[:] = before  # type: ignore[index]

    return space["f"], [lambda: warnings.simplefilter("ignore", BytesWarning), reset]


@kind
def levels_of_logging() -> Made:
    log = logging.getLogger("adarray.tests.kinds")
    log.setLevel(10)
    space = written(
        "import logging\ndef f(x): return x * log.level + logging.getLogger(log.name).level",
        log=log,
    )
    return space["f"], [lambda: log.setLevel(20), lambda: log.setLevel(10)]


@kind
def limits_of_the_interpreter() -> Made:
    space = written("import sys\ndef f(x): return x * (sys.getrecursionlimit() % 7)")
    limit = sys.getrecursionlimit()
    return space["f"], [
        lambda: sys.setrecursionlimit(limit + 1),
        lambda: sys.setrecursionlimit(limit),
    ]


@kind
def a_parser_of_settings() -> Made:
    settings = configparser.ConfigParser()
    settings.read_string("[a]\nk = 2.0")
    return (lambda x: x * settings.getfloat("a", "k")), [lambda: settings.set("a", "k", "5.0")]


@kind
def a_template() -> Made:
    t = string.Template("12$a")
    return (lambda x: x * len(t.substitute(a="3"))), sets(t, template="12$a$a")


@kind
def functions_of_numpy_that_are_replaced() -> Made:
    space = written("def f(x): return np.sin(x)")
    sine = np.sin
    return space["f"], [
        *sets(np, sin=np.cos),
        *sets(np, sin=lambda x: x * 3.0),
        *sets(np, sin=sine),
    ]


@kind
def functions_of_submodules_that_are_replaced() -> Made:
    space = written("def f(x): return x * np.linalg.norm(x)")
    norm = np.linalg.norm
    return space["f"], [*sets(np.linalg, norm=lambda x: 2.0), *sets(np.linalg, norm=norm)]


# -- weak references ---------------------------------------------------------------------------


class Target:
    """What weak references refer to."""

    k: Any = 2.0


@kind
def a_weak_reference() -> Made:
    target = Target()
    reference, references = weakref.ref(target), [target]
    return (lambda x: x * reference().k), [  # type: ignore[union-attr]
        *sets(target, k=3.0),
        *sets(references[0], k=X * 1),
        lambda: references[0].k.fill(3.0),
    ]


@kind
def a_weak_proxy() -> Made:
    target = Target()
    proxy, references = weakref.proxy(target), [target]
    return (lambda x: x * proxy.k), [*sets(target, k=3.0), *sets(references[0], k=X * 1)]


@kind
def weak_values_and_elements() -> Made:
    a, b = Target(), Target()
    table: Any = weakref.WeakValueDictionary({"a": a})
    group: Any = weakref.WeakSet([a])
    references = [a, b]

    def f(x: Any) -> Any:
        return x * table["a"].k + sum(t.k for t in group)

    return f, [
        *sets(a, k=4.0),
        lambda: group.add(references[1]),
        lambda: table.__setitem__("a", b),
        *sets(b, k=9.0),
    ]
