"""Random programs whose branches depend on what values are, and the questions they ask.

A question is an expression about ``q``. Programs ask about arguments, elements, results and items
of containers, in their own code, in nested functions, and in functions of another module.

For tests of questions about types (`adarray.arrays.questions`).
"""

from __future__ import annotations

import abc
import builtins
import collections.abc
import copy
import functools
import itertools
import numbers
import random
import sys
import types
import typing
from typing import Any

import numpy as np


def _words(text: str) -> list[str]:
    return text.split()


CLASSES = _words("""
np.ndarray float int complex bool str list tuple dict type slice (int,float) (float,np.ndarray)
(list,tuple) (list,tuple,np.ndarray) (float,list) float|int (np.ndarray,np.generic)
np.ndarray|float numbers.Number numbers.Complex numbers.Real numbers.Rational numbers.Integral
np.generic np.number np.inexact np.floating np.integer np.signedinteger np.complexfloating
np.float64 np.float32 np.float16 np.int64 np.bool_ np.matrix np.ma.MaskedArray abc.Iterable
abc.Sized abc.Container abc.Collection abc.Sequence abc.MutableSequence abc.Hashable abc.Callable
abc.Mapping abc.Iterator abc.Reversible abc.Set typing.SupportsFloat typing.SupportsInt
typing.SupportsAbs Measured Vectorlike typing.Iterable typing.Sized typing.Hashable typing.Sequence
typing.Callable typing.Mapping typing.Optional[float] typing.Union[float,list] typing.List
typing.Union[typing.Sized,int] Answering
""")
NAMES = _words("""
__len__ __iter__ __getitem__ __contains__ __setitem__ __index__ __call__ __float__ __next__ shape
ndim dtype size T sum mean max item astype copy tolist reshape ravel dot flat strides itemsize
nbytes real imag conjugate is_integer as_integer_ratio all argmax fill take std clip nothing
append keys values name hex fromhex numerator denominator bit_count numpy detach grad requires_grad
backward __array__ __array_ufunc__ __array_function__ __array_namespace__ __array_priority__
__array_wrap__ __dlpack__ __copy__ __complex__ __matmul__ __and__ __iadd__ __ceil__ __round__
""")
QUESTIONS = [
    *(f"isinstance(q, {c})" for c in CLASSES),
    *(f"hasattr(q, {n!r})" for n in NAMES),
    *(f"q.__class__ is {c}" for c in ("np.ndarray", "float", "np.float64", "int", "np.bool_")),
    *(f"issubclass(q.__class__, {c})" for c in ("float", "np.generic", "np.ndarray")),
    *(f"type(q) is {c}" for c in ("np.ndarray", "float", "np.float64", "int", "bool")),
    "type(q) in (float, np.float64)", "issubclass(type(q), np.generic)",
    "type(q).__name__ == 'float'", "{np.ndarray: 1, float: 0}.get(type(q), 0)",
    "type(q) == np.float64", "np.issubdtype(type(q), np.floating)",
    "q.__class__.__name__ == 'float64'",
    "q.__class__ in (float, int)",
    "{np.ndarray: 1, float: 0, np.float64: 0}.get(q.__class__, 0)",
    "getattr(q, 'shape', None) == ()", "getattr(q, 'numpy', None) is None",
    "any(hasattr(q, n) for n in ('detach', 'numpy', 'get'))", "asked(q, 'requires_grad')",
    "getattr(q, 'ndim', 3) == 1",
    "len(getattr(q, 'shape', (1, 2, 3))) == 3",
    "getattr(q, 'dtype', None) is None",
    "callable(getattr(q, 'sum', None))",
    "np.isscalar(q)", "np.iterable(q)", "np.ndim(q) == 0", "np.shape(q) == ()", "np.size(q) == 1",
    "np.isrealobj(q)", "np.iscomplexobj(q)", "np.issubdtype(np.result_type(q), np.floating)",
    "np.result_type(q, np.float32) == np.float32", "callable(q)",
    "not isinstance(q, abc.Sequence) and np.isscalar(q)",
    "copy.copy(q).__class__ is q.__class__", "copy.deepcopy(q).__class__ is q.__class__",
    "isinstance(copy.copy(q), float)", "isinstance(copy.deepcopy(q), np.ndarray)",
    "dispatched(q)", "matched(q) == 'number'", "matched(q) == 'array'", "matched(q) == 'items'",
    "matched(q) == 'scalar'", "sized(q)", "iterated(q)", "indexed(q)", "shaped(q)", "unpacked(q)",
    "looped(q)", "numbered(q)", "any(isinstance(i, np.ndarray) for i in (q, 1.0))",
    "all(map(np.isscalar, [q, 2.0]))", "isinstance([q][0], float)", "isinstance(*(q, float))",
    "functools.partial(isinstance, q)(float)", "[*map(isinstance, [q], [np.ndarray])][0]",
    "written(q)", "counted(q)", "aliased(q)", "passed(type, q) is float",
    "passed(getattr, q, '__class__') is np.float64", "passed(hasattr, q, 'detach')",
    "builtins.type(q) is np.ndarray", "builtins.hasattr(q, 'numpy')",
    "getattr(q, '__class__') is np.ndarray", "next(itertools.groupby([q], key=type))[0] is float",
    "'backward' in dir(q)", "'shape' in dir(q)", "{type: q is None}[type]", "isinstance(q, type)",
    "isinstance(type(q), type) and issubclass(type(type(q)), type)",
]  # fmt: skip
SUBJECTS = _words("""
x A t z x[0] A[1] A[0,1] np.sum(x) np.sum(A,axis=0) t*2.0 -t t+t np.sin(t) np.sin(x[0]) x.mean()
x.max() z*2 x[1:] x[:1] A.T z[()] x[...] t*x t*x[0] np.dot(x,x) np.exp(z) x.copy() np.copy(x[0])
x[0].copy() abs(t) t**2 t/3 2-t x[0]+1 x.reshape(1,-1) np.where(x>0,x,1.0) np.where(t>0,t,1.0)
np.maximum(t,0.0) np.atleast_1d(t) np.squeeze(A[:1,:1]) nest['a'] nest['b'][0] nest['b'][1]
max(x[0],t) min(t,2.0) sum([t,t]) sum(x) x>0 t>0 x[0]>0 x.argmax() len(x) x.shape[0]
x.astype(np.float32)[0] x.astype(np.float32) t.real x.real x[0].real x.flat[0] x.item(0)
round(t,2) np.linalg.norm(x) np.mean(A,axis=1) np.trace(A) np.prod(x) np.cumsum(x)[-1] x@x
np.vdot(x,x) np.einsum('i,i',x,x) np.clip(t,0.0,9.0) np.abs(t) np.sqrt(x[0]) t//1.0 t%2.0 +t t-1
1+t t*1 z+t z.copy() z.T z.reshape(1) x[[0,1]] x[x>0] x[0]*x np.float64(1.5) 2.5 np.ones(2)
np.array(3.0) 7 x.sum(keepdims=True) x.ravel()[1] A.ravel() A[:,0] A[0][1] np.stack([x,x])
np.stack([t,t])[0] np.round(t) round(x[0],1) divmod(t,2.0)[1] x.round(2) np.conj(t) t.conjugate()
x[0].conjugate() t+x[0] t+1j*0 x[0].reshape(1) x[0][()] x[0][...] x[0][None] np.reshape(t,(1,))
np.ravel(t) np.asarray(2.0) np.asarray(x.shape) x.var() x.std() np.median(x) np.median(A,axis=0)
x.min() np.percentile(x,30) np.average(x) np.diff(x) np.ptp(x) np.interp(t,[0.0,5.0],[1.0,2.0])
np.linalg.det(A[:,:2]) np.linalg.inv(A[:,:2]) np.polyval([1.0,2.0],t) np.trapezoid(x)
np.hypot(t,t) np.tensordot(x,x,1) np.tensordot(A,x,1) np.inner(x,x) np.outer(x,x) np.nanmax(x)
np.dot(t,t) np.multiply(t,t) np.add(t,x[0]) np.negative(t) np.sort(x)[0] np.take(x,1)
np.squeeze(x[:1]) np.expand_dims(t,0) np.full(2,1.0) not(t>0) t==t t!=x[0] x[0]<=t np.sign(t)
np.floor(t) t>=1 int(x[0]>0) bool(t>0) np.all(x>0) np.any(x>0) np.isfinite(t) np.isfinite(x)
(x>0).sum()
(t>0)+(t>1) -(t>0) (t>0)&(t<2) (t>0)*t (t>0)^(t>1) (t>0).real (t>0)+(x[0]>0)
""")
# What may stand for the branches: differentiated, and of one kind whatever the answer.
VALUES = _words("""
x[0]*t np.sum(x) np.sum(A*A) t*t z*x[1] np.sin(t)*x[2] np.sum(np.sin(x)*t) np.mean(A)*z x[1]**2
x[0]*((t>0)+(t<9)) t*(3+-(t<9))
""")


class AnsweringMeta(type):
    """Answers for `isinstance` by the class that it sees."""

    def __instancecheck__(cls, q: Any) -> bool:
        return type(q) in (np.ndarray, float)


class Answering(metaclass=AnsweringMeta):
    """Arrays and Python numbers."""


class Measured(abc.ABC):  # noqa: B024
    """Whatever has a shape."""

    @classmethod
    def __subclasshook__(cls, c: type) -> Any:
        return any("shape" in b.__dict__ for b in c.__mro__)


@typing.runtime_checkable
class Vectorlike(typing.Protocol):
    """Whatever has a length and no name."""

    def __len__(self) -> int: ...


@functools.singledispatch
def dispatched(q: Any) -> bool:
    """Tell arrays from numbers, by the class that single dispatch finds."""
    return False


@dispatched.register(np.ndarray)
def _(q: Any) -> bool:
    return True


@dispatched.register(numbers.Integral)
def _(q: Any) -> bool:
    return True


def matched(q: Any) -> str:
    """Tell what a value is by patterns."""
    match q:
        case bool():
            return "truth"
        case np.floating():
            return "scalar"
        case float() | int():
            return "number"
        case np.ndarray(shape=(_,)):
            return "items"
        case np.ndarray():
            return "array"
        case [_, *_]:
            return "sequence"
    return "other"


def sized(q: Any) -> bool:
    """Whether it has a length."""
    try:
        return len(q) > 1
    except TypeError:
        return False


def iterated(q: Any) -> bool:
    """Whether it can be iterated."""
    try:
        iter(q)
    except TypeError:
        return False
    return True


def indexed(q: Any) -> str:
    """Whether it has elements."""
    try:
        q[0]
    except IndexError:
        return ""
    except TypeError:
        return ""
    return "yes"


def shaped(q: Any) -> bool:
    """Whether it has a shape, with axes."""
    try:
        return q.shape != ()
    except AttributeError:
        return True


def unpacked(q: Any) -> bool:
    """Whether it is a row of two, or no row at all."""
    try:
        _first, _second = q
    except ValueError:
        return False
    except TypeError:
        return True
    return True


def looped(q: Any) -> int:
    """Return how many items a loop finds."""
    try:
        return sum(1 for _ in q)
    except TypeError:
        return 0


def numbered(q: Any) -> bool:
    """Whether it is the number that a schema would take."""
    return isinstance(q, numbers.Real) and not isinstance(q, (bool, np.bool_))


def counted(q: Any) -> int:
    """Return the number of values, with recursion into what can be iterated."""
    if hasattr(q, "__len__") and hasattr(q, "shape") and q.shape:
        return sum(counted(i) for i in q)
    return 1


def aliased(q: Any) -> bool:
    """Whether it is an array or a number of NumPy, by another name of `type`."""
    kind = type
    return kind(q) in (np.ndarray, np.float64)


def passed(f: Any, *args: Any) -> Any:
    """Call what it is given."""
    return f(*args)


has = hasattr


def written(q: Any) -> bool:
    return str(q)[:1] == "["  # what becomes of text is looked up in all of the code around it


def asked(q: Any, name: str) -> bool:
    """Whether it has an attribute, asked by another name of hasattr."""
    return has(q, name)


GLOBALS = {
    "np": np, "numbers": numbers, "abc": collections.abc, "typing": typing, "copy": copy,
    "functools": functools, "Measured": Measured, "Vectorlike": Vectorlike,
    **{f.__name__: f for f in (dispatched, matched, sized, iterated, indexed, shaped, unpacked,
                               looped, numbered, counted, written, asked, aliased, passed)},
    "Answering": Answering, "builtins": builtins, "itertools": itertools,
}  # fmt: skip
_count = itertools.count()


def module(text: str) -> types.ModuleType:
    """Return a module of this text, which can be imported."""
    space = types.ModuleType(f"type_program_{next(_count)}")
    vars(space).update(GLOBALS)
    sys.modules[space.__name__] = space
    exec(compile(text, f"<{space.__name__}>", "exec"), vars(space))
    return space


def program(seed: int, questions: list[str] = QUESTIONS, length: int = 10) -> tuple[Any, str]:
    """Return a random function of ``(x, A, t, z)``, and its text."""
    rng = random.Random(seed)
    requests: list[str] = []
    body = ["    nest = {'a': x, 'b': [t, x[0]]}", "    s = t * x[0]"]
    helpers = 0
    for k in range(length):
        question, subject = rng.choice(questions), rng.choice(SUBJECTS)
        yes, no = rng.sample(VALUES, 2)
        weight = round(0.5 + rng.random(), 3)
        kind = rng.randrange(4)
        if kind == 0:
            body += [
                f"    q = {subject}",
                f"    s = s + {weight} * ({yes} if {question} else {no})",
            ]
        elif kind == 1:
            requests += [f"def asked_{k}(q):", f"    return 1 if {question} else 0"]
            body += [f"    if other.asked_{k}({subject}):", f"        s = s + {weight} * {yes}"]
            body += ["    else:", f"        s = s - {weight} * {no}"]
        elif kind == 2:
            helpers += 1
            body += [
                "    def inner(q, factor):",
                f"        if not ({question}):",
                f"            return factor * {yes}",
                f"        return {no} - factor",
            ]
            body += [f"    s = s + inner({subject}, {weight})"]
        else:
            body += [
                f"    picked = [{yes}, {no}][(lambda q: 1 if {question} else 0)({subject})]",
                f"    s = s + {weight} * picked",
            ]
    text = "\n".join(["def f(x, A, t, z):", *body, "    return s", ""])
    helper = "\n".join(requests)
    other = module(helper)
    GLOBALS["other"] = other
    try:
        result = module(text)
    finally:
        del GLOBALS["other"]
    return result.f, f"{helper}\n{text}"


def arguments(seed: int) -> tuple[Any, ...]:
    """Return arguments of a program: a row, a matrix, a number and a 0-d array."""
    rng = np.random.default_rng(seed)
    return (
        rng.uniform(1, 2, 3), rng.uniform(1, 2, (2, 3)), float(rng.uniform(1, 2)),
        np.array(rng.uniform(1, 2)),
    )  # fmt: skip
