"""Errors of Python itself that code catches because a value is traced.

``decimal.Decimal(x)``, ``memoryview(x)`` or a parser that reads the text of a traced value look
at types and characters, and ask nobody. They raise where a plain run goes on. Code that a
transform reaches shows the errors that it catches (see `adarray.loads`); those that a plain run
would not have met are refusals.
"""

from __future__ import annotations

import contextlib
import dis
import sys
import types
from typing import Any

import numpy as np

from adarray.aval import Symbolic
from adarray.errors import RefusalError
from adarray.levels import OPEN, RECORDED, RECORDINGS, around, refused
from adarray.scope import client_of, package_of
from adarray.trace import Handle, levels_of

# What adarray answers itself, or what has nothing to do with types and text.
_APART = (RefusalError, AttributeError, LookupError, OSError, StopIteration, AssertionError)
_READING = (ValueError, ArithmeticError)  # what parsers of text raise, at times without the text
_SIZES = (ZeroDivisionError, OverflowError, FloatingPointError)
_RAISE = dis.opmap["RAISE_VARARGS"]

# The levels of open traces of which text was made that is no number.
_told: set[int] = set()


class Shown:
    """Base of text that shows a traced value, `of`, in place of its number."""

    of: Any

    def _tell(self) -> None:
        _told.intersection_update(OPEN)
        _told.update(levels_of(self.of))


def note(error: BaseException | None) -> None:
    """Put down an error that code is about to catch, if it is a refusal."""
    if error is None or not (OPEN or RECORDINGS) or isinstance(error, _APART):
        return
    trace = error.__traceback__
    if trace is None:
        return
    frames = [trace.tb_frame]
    while trace.tb_next is not None:
        trace = trace.tb_next
        frames.append(trace.tb_frame)
    if _of_tracing(error, frames[-1], trace.tb_lasti):
        refused(error, list(around()) or _levels_in(frames))
        if RECORDINGS and RECORDED.get() is None:  # of another thread
            message = f"jit: the function caught an error that NumPy would not have raised: {error}"
            for x in [x for f in frames for x in f.f_locals.values() if _is_recorded(x)]:
                x._v._refused(message)


def _of_tracing(error: BaseException, frame: types.FrameType, at: int) -> bool:
    """Whether an error comes of a traced value, or of text that shows one."""
    space = frame.f_globals
    package = package_of(space.get("__name__"))
    text = str(error)
    library = package in sys.stdlib_module_names and not client_of(space)
    if library and any(map(_is_ours, frame.f_locals.values())):
        return True
    if not library and frame.f_code.co_code[at] == _RAISE:
        return False  # on purpose
    if isinstance(error, _READING) and not isinstance(error, _SIZES):
        return "traced" in text or not _told.isdisjoint(OPEN)
    if package == "adarray":
        return False  # it raises what NumPy raises, or a RefusalError
    if isinstance(error, TypeError) and "must be" in text and "'" not in text:
        # It says what was wanted, and not what was got; code that asks of classes is no reader.
        return not text.startswith(("issubclass()", "isinstance()"))
    return "traced" in text or ("ADArray" in text and not text.endswith("not callable"))


def _is_ours(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(map(_is_ours, x[:64]))
    if not issubclass(type(x), Handle):
        return issubclass(type(x), Shown)
    return _is_recorded(x) or bool(levels_of(x))


def _is_recorded(x: Any) -> bool:
    return (
        issubclass(type(x), Handle) and type(x._v) is not np.ndarray and isinstance(x._v, Symbolic)
    )


def _levels_in(frames: list[types.FrameType]) -> list[int]:
    """Return the levels of the traces that see what frames hold; all open ones, if none does."""
    found = [level for f in frames for level in levels_of(list(f.f_locals.values()))]
    return found or list(OPEN)


class Suppress(contextlib.suppress):
    """`contextlib.suppress` that puts refusals down."""

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        note(error)
        return super().__exit__(kind, error, trace)


class _Contextlib:
    """The module `contextlib` with our `Suppress`."""

    __slots__ = ()
    suppress = Suppress

    def __getattr__(self, name: str) -> Any:
        return getattr(contextlib, name)


_CONTEXTLIB = _Contextlib()


def suppressing(value: Any, how: str) -> Any:
    """Return what stands for `contextlib` or its `suppress` where it is used; None if neither."""
    if value is contextlib.suppress:
        return Suppress if how == "call" else None
    return _CONTEXTLIB if value is contextlib and how == "attribute" else None
