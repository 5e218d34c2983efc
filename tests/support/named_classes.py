"""Random modules that call classes, look at them, and derive from them under many names.

For tests of interception: names of classes that are called and compared.
"""

from __future__ import annotations

import random

HEAD = """
import abc
import builtins
import collections
import dataclasses
import functools
import math
import numbers
import types
import typing
import numpy as np
from math import sqrt
from numpy import {float32} as {f4}, vectorize, exp, array as make, linalg
{dt} = np.float64
{fl} = float
{cx} = complex
{ty} = type

class Meta(type):
    pass

class Strict:
    known = ((float, "d"), (np.float32, "f"), (complex, "D"), (int, "i"), (np.float64, "g"))
    def __init__(self, dtype=float):
        self.code = [c for k, c in self.known if k is dtype]

@functools.singledispatch
def kind_of(x):
    return "other"

@kind_of.register
def _(x: float):
    return "float"

@kind_of.register(np.ndarray)
def _(x):
    return "array"

@dataclasses.dataclass
class Record:
    a: float = 1.0
    b: {dt} = 2.0

@functools.lru_cache(maxsize=4)
def cached(n):
    return {fl}(n) / 2

WEIGHT = {{float: 2.0, {dt}: 3.0, np.ndarray: 5.0, {f4}: 7.0, int: 11.0, complex: 13.0, bool: 17.0}}
CONVERT = {{"f": float, "d": {dt}, "l": lambda u: float(u)}}
heard = []
hook = [lambda: None]

def listen(v):
    heard.append(look0(v))
    hook[0]()
    return 0.0
"""

# Of a number or an array v, in functions that are not transformed.
LOOKS = [
    "type(v) is float", "type(v) is {dt}", "{ty}(v) is {fl}", "type(v) == {dt}", "float is {fl}",
    "{dt} is np.float64", "type(v) in (float, {dt})", "WEIGHT.get(type(v))", "WEIGHT[{ty}(v)]",
    "{{float: str, {dt}: repr}}.get(type(v), abs)(v)", "Strict(float).code", "Strict({dt}).code",
    "Strict(dtype={f4}).code", "Strict({cx}).code", "isinstance(v, float)", "isinstance(v, {dt})",
    "isinstance(v, (int, {fl}))", "issubclass({dt}, float)", "kind_of(v)", "matched(v)",
    "float.__name__", "{dt}.__name__", "{dt}.__mro__[1].__name__", "{fl}('1.5')", "{dt}('2.5')",
    "np.dtype(float).str", "np.dtype({f4}).str", "np.zeros(2, dtype={dt}).dtype.str",
    "np.zeros(2, {fl}).dtype.str", "list(map(float, ['1', '2']))", "id({fl}) == id(float)",
    "[k is float for k in WEIGHT][:2]", "default()", "derived()", "Record().a", "Record(v).b == 2",
    "[f.type is float for f in dataclasses.fields(Record)]", "repr({dt})", "str({fl})",
    "typing.get_type_hints(Record)['b'] is {dt}", "functools.partial({fl}, '3')()",
    "sorted(['2', '10'], key=float)", "max(['2', '10'], key={fl})", "float.fromhex('0x1p1')",
    "{fl}.fromhex('0x1p1')", "type('Y', (), {{}}).__module__ == __name__", "{ty}(type(v)) is type",
    "type(type('Z', (float,), {{}})(2.0)).__name__", "CONVERT['f'] is float",
    "CONVERT['d'](v) == v",
    "(lambda k=float: k is {fl})()", "hash({dt}) == hash(np.float64)",
    "complex(1, 2) == {cx}(1, 2)",
    "isinstance({f4}(1), np.floating)", "float in WEIGHT", "vectorize is np.vectorize",
    "cached(3)", "builtins.float is {fl}", "callable({dt})", "{dt}.__call__ is not None",
    "getattr(builtins, 'float') is {fl}", "type(None) is {ty}(None)", "v.__class__ is type(v)",
    "(float if v is None else {dt}) is {dt}", "[float][0] is {fl}", "type(float) is {ty}",
    "abc.ABCMeta.__instancecheck__(numbers.Real, v)", "'{fl}' in globals()", "'float' in globals()",
    "len(globals())", "exp is np.exp", "make is np.array", "sqrt is math.sqrt",
    "type(exp) is np.ufunc",
    "type(sqrt).__name__", "type(np) is types.ModuleType", "type(math).__name__",
    "linalg is np.linalg",
    "{{np.exp: 1, sqrt: 2}}[exp]", "[f for f in (np.exp, exp)].count(exp)", "callable(sqrt)",
    "isinstance(exp, np.ufunc)", "isinstance(math, types.ModuleType)", "np == np",
    "{{sqrt: make}}[math.sqrt]([1, 2]).dtype.str", "type(make).__name__", "repr(exp)",
    "np.__name__", "math.sqrt is np.emath or sqrt(4.0)",
]  # fmt: skip

# Numbers made of an array x of three: what is transformed.
NUMBERS = [
    "x[0]", "x[1] * 2.0", "np.sum(x)", "np.sin(x[2])", "x.sum()", "x[0] * x[1]", "x[1] ** 2",
    "np.dot(x, x)", "x.max()", "np.exp(-x[1])", "abs(x[2])", "-x[0]", "x.mean()", "x[-1] / 3",
]  # fmt: skip
CONVERTED = [
    "float({n})", "{fl}({n})", "{dt}({n})", "float({n}) * 1.5", "np.float64({n})", "({n}).item()",
    "{dt}(float({n}))", "float({dt}({n}))", "{cx}({n}).real", "complex({n}).real", "math.sin({n})",
    "CONVERT['l']({n})", "sum(map(float, [{n}, 2.0]))", "sqrt(1.0 + float({n}) ** 2)",
]  # fmt: skip
TERMS = [
    "{s} * WEIGHT[type({s})]", "({s} if type({s}) is float else 2.0 * {s})",
    "({s} if type({s}) is {dt} else 3.0 * {s})", "({s} if {ty}({s}) in (float, int) else -{s})",
    "{s} * WEIGHT[{ty}(x)]", "np.sum(x) * WEIGHT[type(x)]", "helped({s})", "{s} * weight({s})",
    "np.sum(x * 2.0 if type(x) is np.ndarray else x)", "model.scaled({s})", "model.scaled(x).sum()",
    "{s} * len(type({s}).__name__)", "{s} * len({ty}(x).__name__)", "{s} * (float is {fl})",
    "{{np.ndarray: lambda u: u.sum(), float: lambda u: u}}[type(x)](x)", "{s} + listen(2.5)",
    "{s} * (1 + issubclass(type({s}), float))", "{s} + listen({dt}(1))",
    "{s} * (type({s}) == float)",
    "{s} * 2.0", "np.float64(2.0) * {s}", "inner({s})", "{s} * (type(2.0) is float)",
]  # fmt: skip

LOOKER = """
def look{i}(v):
    def matched(u):
        match u:
            case float():
                return "float"
            case int():
                return "int"
        return "none"
    def default(a=float, *, b={dt}):
        return a is float, b is np.float64
    def derived():
        class X(float, metaclass=Meta):
            made = {dt}(2)
        return type(X) is Meta, X(2.5) + X.made, X.__mro__[1] is float
    return (
        {items},
    )
"""

WORKER = """
class Model:
    def scaled(self, u):
        return 3.0 * u if type(u) is {array} else u * {c}

model = Model()

def weight(u):
    return WEIGHT.get({ty}(u), 19.0)

def helped(u):
    {helped}

def work(x):
    def inner(u):
        return u * WEIGHT[type(u)]
    s = {s}
    t = {t}
    total = {first}
    {rest}
    return total
"""


class Module:
    """One module's source, made of a seed.

    Attributes
    ----------
    source : str
    lookers : int
        Functions ``look0``, ``look1``, ... of a value, which are not transformed.
    converts : bool
        Whether ``work``, of an array, needs interception.
    """

    def __init__(self, seed: int) -> None:
        pick = random.Random(seed)
        names = {
            "dt": pick.choice(["DT", "DTYPE", "float64", "real"]),
            "fl": pick.choice(["F", "Float", "float_"]),
            "cx": pick.choice(["C", "complex_"]),
            "ty": pick.choice(["kind", "T", "class_of"]),
            "f4": pick.choice(["f4", "single", "float32"]),
            "float32": "float32",
        }
        self.lookers = pick.randint(1, 3)
        self.converts = pick.random() < 0.6
        parts = [HEAD.format(**names)]
        for i in range(self.lookers):
            items = [t.format(**names) for t in pick.sample(LOOKS, pick.randint(3, 12))]
            parts.append(LOOKER.format(i=i, items=",\n        ".join(items), **names))

        def number() -> str:
            n = pick.choice(NUMBERS)
            return pick.choice(CONVERTED).format(n=n, **names) if self.converts else n

        def term() -> str:
            return pick.choice(TERMS).format(s=pick.choice("st"), **names)

        rest = [pick.choice(["total += {}", "total = total + {}", "total -= 0.5 * ({})"])
                .format(term()) for _ in range(pick.randint(0, 3))]  # fmt: skip
        parts.append(
            WORKER.format(
                array=pick.choice(["np.ndarray", names["dt"], "float"]),
                c=pick.choice([0.5, 2.0]),
                helped=pick.choice([
                    "return u * 2.0 if type(u) is float else u",
                    "kinds = {float: 2.0, np.float64: 3.0}\n    return u * kinds.get(type(u), 7.0)",
                    f"return u * (2.0 if type(u) == {names['dt']} else 4.0)",
                    "return [u * 1.0, u * 5.0][type(u) is np.float64]",
                ]),
                s=number(), t=number(), first=term(), rest="\n    ".join(rest) or "pass", **names,
            )
        )  # fmt: skip
        self.source = "\n".join(parts)
