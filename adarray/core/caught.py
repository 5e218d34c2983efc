"""Errors of Python itself that code catches because a value is traced.

``decimal.Decimal(x)``, ``memoryview(x)`` or a parser of the text of a traced value inspect types
and characters themselves, and raise where a plain run goes on. Code that a transform reaches
reports the errors that it catches (see `adarray.core.loads`); those that a plain run would not
have raised are refusals.
"""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base.aval import Symbolic
from adarray.base.errors import RefusalError
from adarray.base.handlers import telling
from adarray.base.levels import OPEN, RECORDED, RECORDINGS, around, refused
from adarray.base.scope import client_of, package_of
from adarray.core.callees import asks_for_integer
from adarray.core.trace import Handle, levels_of

# What adarray answers itself, or what has nothing to do with types and text.
_APART = (RefusalError, AttributeError, LookupError, OSError, StopIteration, AssertionError)
_READING = (ValueError, ArithmeticError)  # what parsers of text raise, at times without the text
_SIZES = (ZeroDivisionError, OverflowError, FloatingPointError)
_NO_INTEGER = "cannot be interpreted as an integer"
_RAISE = dis.opmap["RAISE_VARARGS"]

# The levels of open traces of which text was made that is no number.
_told: set[int] = set()


class Shown:
    """Base of text that shows a traced value, `of`, in place of its number."""

    of: object

    def _tell(self) -> None:
        _told.intersection_update(OPEN)
        _told.update(levels_of(self.of))


def note(error: BaseException | None, by: str = "") -> None:
    """Note an error that code is about to catch, if it is a refusal.

    Parameters
    ----------
    error : exception
    by : str
        The package of the code that catches it, if that is a library.
    """
    frames = [] if error is None else _wrongly_passed(error, by)
    if error is not None and frames:
        refused(error, list(around()) or _levels_in(frames))
        if RECORDINGS and RECORDED.get() is None:  # of another thread
            message = f"jit: the function caught an error that NumPy would not have raised: {error}"
            for x in [x for f in frames for x in f.f_locals.values() if _is_recorded(x)]:
                x._plain._refused(message)


def is_refused(error: BaseException) -> bool:
    """Whether an error is a refusal, or one that a plain run would not have raised."""
    return isinstance(error, RefusalError) or bool(_wrongly_passed(error))


def _wrongly_passed(error: BaseException, by: str = "") -> list[types.FrameType]:
    """Return the frames that an error has passed if a plain run would not have raised it.

    Refusals are noted where they are raised.
    """
    trace = error.__traceback__
    if trace is None or (isinstance(error, _APART) and not isinstance(error, AttributeError)):
        return []
    frames, places = [trace.tb_frame], [trace.tb_lasti]
    while trace.tb_next is not None:
        trace = trace.tb_next
        frames.append(trace.tb_frame)
        places.append(trace.tb_lasti)
    if isinstance(error, AttributeError):
        wrong = _is_wrongly_missing(error, frames, places)
    else:
        wrong = _of_tracing(error, frames[-1], trace.tb_lasti, by)
    return frames if wrong else []


def _of_tracing(error: BaseException, frame: types.FrameType, at: int, by: str) -> bool:
    """Whether an error is caused by a traced value, or by text that shows one."""
    space = frame.f_globals
    package = package_of(space.get("__name__"))
    text = str(error)
    library = package in sys.stdlib_module_names and not client_of(space)
    if library and package != by and any(map(_is_ours, frame.f_locals.values())):
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


def _is_wrongly_missing(
    error: AttributeError, frames: list[types.FrameType], places: list[int]
) -> bool:
    """Whether an attribute is missing that is there, or not asked for, in a plain run."""
    if not _is_adarray(frames[-1]):
        return False
    if frames[-1].f_code.co_code[places[-1]] != _RAISE:
        return True  # we met an object that we do not know
    if _NO_INTEGER not in str(error):
        return False
    # An integer was asked for: by some functions, such as time.sleep, of what is no float.
    asking = [k for k, frame in enumerate(frames) if not _is_adarray(frame)]
    return not (asking and asks_for_integer(frames[asking[-1]], places[asking[-1]]))


def _is_adarray(frame: types.FrameType) -> bool:
    return package_of(frame.f_globals.get("__name__")) == "adarray"


def _is_ours(x: object, depth: int = 4) -> bool:
    if isinstance(x, (list, tuple)):  # which may hold themselves
        return depth > 0 and any(_is_ours(i, depth - 1) for i in x[:64])
    if not issubclass(type(x), Handle):
        return issubclass(type(x), Shown)
    return _is_recorded(x) or bool(levels_of(x))


def _is_recorded(x: Any) -> bool:
    return (
        issubclass(type(x), Handle)
        and type(x._plain) is not np.ndarray
        and isinstance(x._plain, Symbolic)
    )


def _levels_in(frames: list[types.FrameType]) -> list[int]:
    """Return the levels of the traces that see what frames hold; all open ones, if none does."""
    levels = [level for f in frames for level in levels_of(list(f.f_locals.values()))]
    return levels or list(OPEN)


class Caught:
    """What handlers of errors in code that a transform reaches evaluate: ``~CAUGHT``."""

    __slots__ = ()

    def __invert__(self) -> None:
        if OPEN or RECORDINGS:
            note(sys.exception())

    def __reduce__(self) -> str:
        return "CAUGHT"

    def __repr__(self) -> str:
        return "<look at a caught error>"


CAUGHT = Caught()

# Libraries that know what they are given, or that show and keep text.
_KNOWING = frozenset({
    "numpy", "adarray", "adarray_backends", "adarray_native", "logging", "warnings", "traceback",
    "reprlib", "pprint",
})  # fmt: skip
# Functions of the standard library that catch what functions of the user raise; by modules.
_RUNNERS = {
    "threading": ("Thread._bootstrap_inner",),
    "concurrent.futures.thread": ("_WorkItem.run",),
    "multiprocessing.pool": ("worker",),
    "unittest.case": ("_AssertRaisesBaseContext.handle", "_AssertRaisesContext.handle"),
}
_watched: set[str] = set()


def watch_libraries() -> None:
    """Look at the errors that code which no transform reaches catches, from now on.

    Python 3.12 tells of every error that is handled; of Python 3.11, functions that run those
    of users are known.
    """
    if sys.version_info >= (3, 12):
        if not _watched:
            _watched.add("")
            _monitor()
        return
    for module in _RUNNERS.keys() - _watched:
        if module in sys.modules:
            _watched.add(module)
            for path in _RUNNERS[module]:
                function: object = sys.modules[module]
                for name in path.split("."):
                    function = getattr(function, name, None)
                if type(function) is types.FunctionType:
                    function.__code__ = telling(function.__code__, CAUGHT)


def _monitor() -> None:
    monitoring = getattr(sys, "monitoring")  # noqa: B009  (Python 3.11 lacks it)
    for tool in (4, 3):  # the others have a use that is agreed upon
        if monitoring.get_tool(tool) is None:
            event = monitoring.events.EXCEPTION_HANDLED
            monitoring.use_tool_id(tool, "adarray")
            monitoring.register_callback(tool, event, _Handled)
            monitoring.set_events(tool, event)
            return


class _Handled(Exception):  # noqa: N818  (it is never raised)
    """An error was handled: code, place, error. Looked at when it goes, which is at once.

    Were this a function, it could not be called at the limit of recursion. The interpreter would
    raise the error of that where it was about to handle another one, and do so forever. What a
    finaliser raises is reported; what raises while the finaliser is looked up is not.
    """

    @property
    def __del__(self) -> Callable[[], object]:
        error = self.args[2]
        # At the limit of recursion there is no depth left to look.
        if (OPEN or RECORDINGS) and type(error) is not RecursionError:
            space = sys._getframe(1).f_globals
            package = package_of(space.get("__name__"))
            if package not in _KNOWING:
                note(error, "" if client_of(space) else package)
        return list  # called in C
