"""Plain arrays in a recorded run: those that it reads, its zeros, and memory that it lends."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import numpy as np

from adarray.base.memory import duplicate
from adarray.base.recording import Symbol
from adarray.base.scope import package_of
from adarray.device import is_device
from adarray.jitting.shared.constants import Captured, first_of
from adarray.jitting.shared.symbolic import Traced, UntraceableError

if TYPE_CHECKING:
    from adarray.jitting.recording.recorder import Recorder

# Packages whose functions give the same for the same arguments.
_KNOWN = frozenset({"numpy", "scipy"})
_LARGE = 1 << 16  # bytes from which an array that holds one number is worth finding


class PlainArrays:
    """The plain arrays of one run.

    Parameters
    ----------
    library : Library or None
        Of the device that computes.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._captured: dict[int, Captured] = {}  # by the identity of the plain array
        self._zeros: dict[int, Any] = {}  # that `zeros` made, and nobody has written into yet
        self._lent: list[tuple[np.ndarray, np.ndarray]] = []  # memory of others: what it held

    def capture(self, array: Any, recorder: Recorder) -> Traced:
        """Return a plain array that the run reads as a traced value."""
        known = self._captured.get(id(array))
        if known is not None and known.holds(array):
            same: Traced = known.traced
            return same
        value, constant, first = array, array, None
        if self._zeros.pop(id(array), None) is not None:
            first = np.zeros(1, array.dtype)
        elif type(array) is not np.ndarray or array.nbytes < _LARGE:
            # What it holds now: the run may write into it, or into what it is a view of.
            value = constant = duplicate(array)
        else:
            first = first_of(array)
            value, constant = self._large(array, first)
        if first is not None:
            constant = np.broadcast_to(first[0], array.shape)
        result = Traced(value, Symbol(array.shape, array.dtype), recorder)
        self._captured[id(array)] = Captured(result, constant, first)
        recorder.recording.captures.append((result.symbol, array, constant))
        return result

    def _large(self, array: np.ndarray, first: np.ndarray | None) -> tuple[Any, np.ndarray]:
        """Return the value that stands for a large array in a run, and a copy of the array.

        It goes to the device once, not with every operation; of one number alone that is sent.
        """
        library = self._library
        if not array.flags.c_contiguous or (library and not library.accepts(array.dtype)):
            library = None
        if first is not None and library is not None:
            return np.broadcast_to(library.place(first), array.shape).copy(), first
        if first is not None and array.flags.c_contiguous and not any(first.tobytes()):
            return np.zeros(array.shape, array.dtype), first  # memory that nobody has touched yet
        copy = duplicate(array)
        return (copy if library is None else library.place(copy)), copy

    def lend(self, array: np.ndarray, to: types.FrameType | None) -> None:
        """Note that other code is given the memory of an array made in this run.

        NumPy and SciPy compute of constants what they computed of them before; what they have
        written is found in the end (`refuse_written`). Of others nothing is known.

        Raises
        ------
        UntraceableError
            If it is neither.
        """
        if to is not None and package_of(to.f_globals.get("__name__")) not in _KNOWN:
            raise UntraceableError(
                f"jit: the memory of an array of shape {array.shape} is handed to code that is not "
                f"recorded (in {to.f_code.co_name}, file {to.f_code.co_filename}, line "
                f"{to.f_lineno}), which may write into it; make this call outside of the jitted "
                "function"
            )
        self._lent.append((array, array.copy("K")))

    def refuse_written(self) -> None:
        """Raise if memory that other code was given holds something else now.

        Raises
        ------
        UntraceableError
        """
        for array, before in self._lent:
            if array.tobytes() != before.tobytes():
                raise UntraceableError(
                    f"jit: code that is not recorded wrote into an array of shape {array.shape}; "
                    "write into it with NumPy functions, or make this call outside of the jitted "
                    "function"
                )

    def zeros(self, beside: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return zeros on the device of `beside`, or on the host with it, for a gradient.

        They become part of the recording when an operation reads them: see `capture`.
        """
        if is_device(beside):
            array = np.zeros_like(beside, dtype, shape=shape)
        else:
            array = np.zeros(shape, dtype)
        self._zeros[id(array)] = array
        return array

    def forget(self) -> None:
        """Let go of the arrays: those that were captured refer to the recorder."""
        self._lent.clear()
        self._captured.clear()
        self._zeros.clear()
