"""The exceptions that adarray raises.

::

    ADArrayError
     +-- ShapeError (ValueError)            operands or results of a wrong shape
     +-- DTypeError (TypeError)             a dtype that cannot take part
     +-- TraceError (TypeError)             a value would leave the graph unseen
     +-- NotDifferentiableError             no derivative is known for a function
     |    +-- UnsupportedFunctionError (TypeError)   NumPy's "not implemented" answer
     |    +-- ForwardModeError           a rule of reverse mode alone
     +-- KernelError                        CUDA C that is not differentiated, and where it is
     |    +-- RaceError                  threads of a kernel disturb each other
     +-- BackendError (RuntimeError)        a backend is unknown, broken or misused
          +-- CompileError                  generated source did not compile
          +-- DeviceMemoryError (MemoryError)     a device cannot hold an array

All but the first and the last group are refusals: if the code that is differentiated catches
one, the transform raises `TraceError` in the end (see `adarray.base.levels`).

A message reads *operation: what, which operand, what was got, what to do*.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable

import numpy as np

from adarray.base.levels import refused
from adarray.base.types import Operands, Params

_OURS = (os.path.dirname(os.path.dirname(__file__)) + os.sep, os.path.dirname(np.__file__) + os.sep)


# Their code is no user's either, nor is that of Python's own modules.
_LIBRARIES = (sys.stdlib_module_names | {"scipy", "pandas", "xarray"}) - {"__main__"}


class ADArrayError(Exception):
    """Base class of all errors that adarray raises on purpose."""


class ShapeError(ADArrayError, ValueError):
    """An operand or a result has a shape that the operation does not accept."""


class RefusalError(ADArrayError):
    """An error that NumPy would not have raised: `adarray.base.levels` remembers it.

    Parameters
    ----------
    message : str
    levels : iterable of int, optional
        Of the traces that it concerns; all around, if that is not known.
    """

    def __init__(self, message: str, levels: Iterable[int] | None = None) -> None:
        super().__init__(message)
        refused(self, levels)


class DTypeError(RefusalError, TypeError):
    """An operand has a dtype that the operation does not accept."""


class TraceError(RefusalError, TypeError):
    """A traced value would silently leave the graph, and its gradient with it.

    The message ends with the place in the user's code.

    Attributes
    ----------
    filename : str or None
        File of the innermost line that does not belong to adarray, NumPy, SciPy, pandas, xarray or
        Python's standard library.
    lineno : int or None
        Its number.
    """

    def __init__(self, message: str, levels: Iterable[int] | None = None) -> None:
        self.filename, self.lineno, where = user_line()
        super().__init__(message + where, levels)

    def __reduce__(self) -> tuple[Callable[..., TraceError], tuple[object, ...]]:
        # Made anew, it would name the place where it is unpickled.
        return _remade, (type(self), self.args, self.__dict__)


def _remade(cls: type[TraceError], args: Operands, state: Params) -> TraceError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def user_line() -> tuple[str | None, int | None, str]:
    """Return file, line number and a text with both of the innermost code of the user."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        library = str(frame.f_globals.get("__name__")).partition(".")[0] in _LIBRARIES
        if not library and not name.startswith(_OURS):
            where = f" (in {frame.f_code.co_name}, file {name}, line {frame.f_lineno})"
            return name, frame.f_lineno, where
        frame = frame.f_back  # type: ignore[assignment]
    return None, None, ""


class NotDifferentiableError(RefusalError):
    """A function has no derivative rule, or none for one of its arguments."""


class KernelError(RefusalError):
    """A CUDA C kernel does, or is asked for, what `adarray.kernels` does not differentiate.

    Parameters
    ----------
    message : str
    line : int, optional
        Line of the source; 0 where there is none.
    """

    def __init__(self, message: str, line: int = 0) -> None:
        self.line = line
        super().__init__(message)


class RaceError(KernelError):
    """Two threads of a kernel touch one element, and nothing says who comes first."""


class UnsupportedFunctionError(NotDifferentiableError, TypeError):
    """A NumPy function that adarray does not support.

    It is also a `TypeError`, which is what NumPy raises for a function that a duck array does not
    implement.
    """


class ForwardModeError(NotDifferentiableError):
    """An operation has a rule of reverse mode and none of forward mode."""


class BackendError(ADArrayError, RuntimeError):
    """A backend is unknown, failed to load, or was given a wrong option."""


class DeviceMemoryError(BackendError, MemoryError):
    """An array does not fit into the memory of a device, even after cached memory was freed."""


class CompileError(BackendError):
    """Generated source did not compile.

    Attributes
    ----------
    source : str
        Path of the generated source file.
    """

    def __init__(self, message: str, source: str) -> None:
        super().__init__(message)
        self.source = source


# Tracebacks and pickles name them where users import them from.
for _class in [
    c for c in globals().values() if isinstance(c, type) and issubclass(c, ADArrayError)
]:
    _class.__module__ = "adarray.errors"
