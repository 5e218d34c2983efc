"""Where code compares objects by their identity, or asks which of them share memory.

A transform passes objects of its own that stand for the caller's arrays. Code that compares one
with a captured array would get another answer. ``is`` cannot be intercepted, but the bytecode shows
which names it compares.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import types
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from adarray.base.errors import TraceError
from adarray.base.redirecting import IdentityCache, all_names, original_of
from adarray.base.scope import client_of
from adarray.base.types import Namespace

_SHARING = ("shares_memory", "may_share_memory")
_COMPARING = ("id", "is_", "is_not", *_SHARING)
_CLASSES = frozenset(
    name for m in (builtins, np) for name, x in vars(m).items() if isinstance(x, type)
)
_MORE_ARGUMENTS, _MORE_KEYWORDS = inspect.CO_VARARGS, inspect.CO_VARKEYWORDS
_ABSENT = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "RESUME", "PRECALL"})


class Comparing(NamedTuple):
    """What code compares.

    Parameters
    ----------
    by : str
        For errors, such as "`is`".
    names : frozenset of str
        Of what the function captured, beside which something is compared.
    attributes : frozenset of str
        The same for attributes: "W" of ``x is self.W``.
    locals : bool
        Whether two values are compared that no such name leads to at once.
    sharing : bool
        Whether it asks about memory, not objects.
    """

    by: str
    names: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    locals: bool = False
    sharing: bool = False


class Side(NamedTuple):
    """One side of an ``is``.

    Parameters
    ----------
    kind : str
        "name" of what the function captured; "attribute"; "constant", what is no array, as in
        ``x is None`` and ``type(x) is float``; "computed", what a call or operator returned;
        "value", anything else.
    name : str
        Of the first two.
    """

    kind: str
    name: str = ""


_known: IdentityCache[Comparing] = IdentityCache()


def comparing(code: types.CodeType) -> Comparing:
    """Return what a function's code, and functions that are made in it, compare."""
    result = _known.get(code)
    if result is None:
        original = original_of(code)
        names: set[str] = set()
        attributes: set[str] = set()
        by, beyond = "", False
        for sides in _identities(original, frozenset(original.co_freevars)):
            by = "`is`"
            names.update(s.name for s in sides if s.kind == "name")
            attributes.update(s.name for s in sides if s.kind == "attribute")
            beyond = beyond or not any(s.name for s in sides)
        everything = all_names(original)
        function = next((n for n in _COMPARING if n in everything), "")
        result = Comparing(
            by or function, frozenset(names), frozenset(attributes), beyond or bool(function),
            not everything.isdisjoint(_SHARING),
        )  # fmt: skip
        _known.note(code, result)
    return result


def compared(f: types.FunctionType, others: Iterable[object]) -> Comparing:
    """Return what a function compares, itself or by one of `others` that it may call.

    It may pass to these what it captured.
    """
    what = comparing(f.__code__)
    if what.locals:
        return what
    for g in others:
        if type(g) is types.FunctionType and client_of(g.__globals__):
            other = comparing(g.__code__)
            if other.locals:
                return what._replace(by=other.by, locals=True, sharing=other.sharing)
    return what


# What code does with truth values as objects: it compares something by ``is``; it names
# ``np.True_`` or ``np.False_``; it compares with Python's by ``is``, as ``case True`` does, too.
COMPARES, NAMES_NUMPYS, COMPARES_PYTHONS = 1, 2, 4
_NUMPYS = frozenset({"True_", "False_"})
_truths: IdentityCache[int] = IdentityCache()


def truths_in(code: types.CodeType) -> int:
    """Return how the user's code, with functions defined in it, uses truth values."""
    truths: int | None = _truths.get(code)
    if truths is not None:
        return truths
    names = all_names(code)
    truths = 0 if names.isdisjoint(_NUMPYS) else NAMES_NUMPYS
    truths |= 0 if names.isdisjoint(_COMPARING) else COMPARES
    steps = [i for i in dis.get_instructions(code) if i.opname not in _ABSENT]
    lines = {i.positions.lineno for i in steps if i.opname == "IS_OP" and i.positions is not None}
    if lines:
        truths |= COMPARES
    for i in steps:
        if i.argval is True or i.argval is False:
            on_one_line = i.positions is not None and i.positions.lineno in lines
            truths |= COMPARES_PYTHONS if "CONST" in i.opname and on_one_line else 0
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            truths |= truths_in(c)
    _truths.note(code, truths)
    return truths


def asks_truths(truths: int) -> bool:
    """Whether code that does all this may compare truth values with the only two that there are."""
    numpys = COMPARES | NAMES_NUMPYS
    return bool(truths & COMPARES_PYTHONS) or truths & numpys == numpys


def refuse_truths(truths: int) -> None:
    """Raise if code compares truth values with NumPy's two, and is not intercepted.

    Raises
    ------
    TraceError
    """
    numpys = COMPARES | NAMES_NUMPYS
    if truths & numpys == numpys:
        raise TraceError(
            "np.True_: the function, or code that it calls, compares with it by `is`, which only "
            "interception can answer; leave out intercept=False, or compare with =="
        )


def bound_to(space: Namespace, name: str) -> object:
    """Return what a global is, also one that `dict.get` does not find; None if there is none."""
    try:
        return space[name]
    except KeyError:
        return None


def _identities(code: types.CodeType, free: frozenset[str]) -> list[tuple[Side, Side]]:
    """Return the sides of each ``is`` between what may be arrays of the caller."""
    pairs = []
    steps = _steps(code)
    computed = _computed(code, steps)
    for at, (op, _) in enumerate(steps):
        if op != "IS_OP":
            continue
        right, count = _side(steps[:at], free, computed)
        left = _side(steps[: at - count], free, computed)[0] if count else Side("value")
        if "constant" in (left.kind, right.kind) or left.kind == right.kind == "computed":
            continue
        pairs.append((left, right))
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            pairs += _identities(c, free)
    return pairs


def _steps(code: types.CodeType) -> list[tuple[str, str]]:
    """Return instructions and what they name; those of two names are two."""
    steps: list[tuple[str, str]] = []
    for i in dis.get_instructions(code):
        if i.opname in _ABSENT:
            continue
        if type(i.argval) is tuple and "_FAST_" in i.opname and len(i.argval) == 2:  # from 3.13 on
            first = "STORE_FAST" if i.opname.startswith("STORE") else "LOAD_FAST"
            second = "STORE_FAST" if i.opname.endswith("STORE_FAST") else "LOAD_FAST"
            steps += [(first, i.argval[0]), (second, i.argval[1])]
        else:
            steps.append((i.opname, str(i.argval)))
    return steps


def _computed(code: types.CodeType, steps: list[tuple[str, str]]) -> frozenset[str]:
    """Return the local names that are only bound to results of calls and operators."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & _MORE_ARGUMENTS) + bool(code.co_flags & _MORE_KEYWORDS)
    computed: set[str] = set()
    others = set(code.co_varnames[:count])
    source = ("", "")
    for op, name in steps:
        if op in ("STORE_FAST", "STORE_DEREF"):
            no_array = source[0].startswith("LOAD_") and source[1] in _CLASSES  # x.dtype, float
            no_array = no_array or "CONST" in source[0]
            (computed if no_array or _returns(source[0]) else others).add(name)
        elif op != "COPY":  # as in ``a = b = f()``
            source = (op, name)
    return frozenset(computed - others)


def _returns(op: str) -> bool:
    return op.startswith(
        ("CALL", "BINARY_OP", "BUILD_", "COMPARE_OP", "CONTAINS", "IS_OP", "UNARY_")
    )


def _side(
    before: list[tuple[str, str]], free: frozenset[str], computed: frozenset[str]
) -> tuple[Side, int]:
    """Return what one side is, and how many instructions made it; 0 if that is not known."""
    if not before:
        return Side("value"), 0
    op, name = before[-1]
    if "CONST" in op:
        return Side("constant"), 1
    if op == "LOAD_ATTR":
        count = 1
        while count < len(before) and before[-count][0] == "LOAD_ATTR":
            count += 1
        if not before[-count][0].startswith("LOAD_"):
            count = 0
        return Side("constant" if name in _CLASSES else "attribute", name), count
    if op == "LOAD_GLOBAL" or (op == "LOAD_DEREF" and name in free):
        return Side("constant" if name in _CLASSES else "name", name), 1
    if op.startswith(("LOAD_FAST", "LOAD_DEREF")):
        return Side("computed" if name in computed else "value"), 1
    return Side("computed" if _returns(op) else "value"), 0


__all__ = [
    "COMPARES_PYTHONS", "NAMES_NUMPYS", "Comparing", "asks_truths", "bound_to", "compared",
    "comparing", "refuse_truths", "truths_in",
]  # fmt: skip
