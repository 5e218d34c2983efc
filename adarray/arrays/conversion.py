"""Ways out of an ADArray: numbers, plain arrays, bytes, files and text.

Every way by which a traced value would become a plain one without a word raises
`TraceError`; `ADArray.numpy`, `ADArray.detach` and `adarray.value_of` are the ways to
leave the graph on purpose. Text shows the values and lets go of nothing.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import linecache
import math
import operator
import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from adarray.arrays.operators import weakened
from adarray.arrays.questions import is_array, of_some
from adarray.base.aval import ARRAYS, Symbolic
from adarray.base.redirecting import unredirected
from adarray.base.scope import SCOPE, STORES, client_of, package_of
from adarray.base.watching import WATCHES, note_read
from adarray.core.escaping import note_number
from adarray.core.inplace import sync_if_view
from adarray.core.lending import lend
from adarray.core.protocol import call_function, finish, on_plain, traced
from adarray.core.refusals import leaves_graph
from adarray.core.texts import (
    TracedText,
    as_text,
    is_compared,
    is_rounded,
    is_shown,
    rounds,
    text_is_kept,
)
from adarray.core.trace import Extras, Handle, snapshot
from adarray.device import is_device

if TYPE_CHECKING:
    from adarray.arrays.adarray import ADArray

    _State = Handle
else:
    _State = object  # the first subclass of Handle is the class that users see

_CALL = dis.opmap["CALL"]
_LONG = 60  # characters of the user's code that are shown
_DRAWS = "in random draws, write loc + scale * rng.normal(size=...)"


def _fix_for(frame: Any) -> str:
    """Return the advice to the code in `frame`, which has asked for a plain array."""
    if str(frame.f_globals.get("__name__")).startswith("scipy.sparse"):
        return "make the sparse array with adarray.scipy.sparse in place of scipy.sparse"
    if str(frame.f_globals.get("__name__")).startswith("scipy."):
        return f"call the function of that name in adarray.scipy{_or_intercept(', or ')}"
    return f"keep it an ADArray (np.stack joins several); {_DRAWS}{_or_intercept('; ')}"


def _multiplies(frame: FrameType) -> bool:
    """Whether the code in `frame` is that of ``A @ x`` of SciPy's own sparse arrays."""
    code = frame.f_code
    return code.co_name == "_matmul_dispatch" and code.co_filename.endswith(_SPARSE)


_SPARSE = tuple(os.path.join("scipy", "sparse", n) for n in ("_base.py", "_coo.py"))


def _or_intercept(joint: str) -> str:
    """Return the advice to intercept, where that is off."""
    return "" if SCOPE.get() is not None else f"{joint}use adarray.intercept()"


# Packages that show values and compute nothing with them, as text does.
_SHOWING = frozenset({"matplotlib", "mpl_toolkits"})


def _shows(frame: FrameType | None) -> bool:
    """Whether a package that shows values asks for them, itself or by functions of NumPy."""
    package = ""
    while frame is not None and (package := package_of(frame.f_globals.get("__name__"))) == "numpy":
        frame = frame.f_back
    return package in _SHOWING


# Packages whose objects hold arrays, and what their users can do.
_FIXES = {
    "pandas": "pandas cannot hold it: compute with .to_numpy() of the Series or DataFrame",
    "xarray": "take .data in place of .values or .to_numpy(), and compute with that",
}


def _converting_method(frame: FrameType | None, package: str) -> str:
    """Return the method of a package that wants to convert a value, as its user called it."""
    what = package
    while frame is not None:
        asking = package_of(frame.f_globals.get("__name__"))
        if asking == package:
            what = f"{package} {frame.f_code.co_qualname}"
        elif asking not in ("numpy", "scipy"):
            break
        frame = frame.f_back
    return what


def _refused_at(frame: FrameType, default: str, fix: str) -> tuple[str, str]:
    """Return what to call a refused operation, and advice.

    Where NumPy's C code has asked by itself, it is called as the user wrote it: ``hist[i] = ...``.
    """
    code, at = unredirected(frame.f_code), frame.f_lasti
    if not client_of(frame.f_globals):
        return default, fix
    kind = code.co_code[at]
    writes = kind in STORES
    if not writes and kind != _CALL:
        return default, fix
    text = _source(code, at)
    if writes and text:
        make = "np.zeros_like(x)" if SCOPE.get() is None else "np.zeros or np.array"
        return f"{text} = ...", (
            f"the array is a plain ndarray, which cannot hold it: make it in the function by {make}"
        )
    base, dot, _ = text.partition("(")[0].rpartition(".")
    if (
        dot
        and type(_value_of_text(base.strip(), {**frame.f_globals, **frame.f_locals})) is np.ndarray
    ):
        return text, f"write np.{text[len(base) + 1 :].partition('(')[0]}({base}, ...)"
    return default, fix


def _value_of_text(text: str, names: dict[str, Any]) -> Any:
    """Return what an expression of names, attributes and items holds, where no code runs for it."""
    with contextlib.suppress(SyntaxError, KeyError, IndexError, TypeError):
        return _value_of(ast.parse(text, mode="eval").body, names)
    return None


def _value_of(x: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(x, ast.Name):
        return names.get(x.id)
    if isinstance(x, ast.Attribute):
        owner = _value_of(x.value, names)
        if type(owner) is np.ndarray and x.attr in ("T", "real", "imag"):
            return getattr(owner, x.attr)
        return vars(owner).get(x.attr)
    if isinstance(x, ast.Subscript):
        owner = _value_of(x.value, names)
        plain = type(owner) in (dict, list, tuple, np.ndarray)
        # Any element of an array is one; the index is not looked at.
        index: Any = ... if type(owner) is np.ndarray else ast.literal_eval(x.slice)
        return owner[index] if plain else None
    return None


def _source(code: CodeType, at: int) -> str:
    """Return the text of the expression that an instruction belongs to; "" if it is not known."""
    line, last, start, end = list(code.co_positions())[at // 2]
    if line is None or line != last or start is None or end is None:
        return ""
    text = linecache.getline(code.co_filename, line).encode()[start:end].decode(errors="replace")
    return text if len(text) <= _LONG else ""


def _remainder(text: str) -> tuple[int, int]:
    """Return the instruction that computes ``a % b`` or ``a %= b``, and its argument."""
    code = compile(text, "", "exec").co_code
    at = max(i for i in range(0, len(code), 2) if code[i] == dis.opmap["BINARY_OP"])
    return code[at], code[at + 1]


_REMAINDER = (_remainder("a % b"), _remainder("a %= b"))


def _formats(frame: FrameType) -> bool:
    """Whether a frame is at ``text % x``, which shows a value; for numbers, % is an operator."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return (code[at], code[at + 1]) in _REMAINDER


class Conversions(_State):
    """Conversions of an ADArray to other types, which a traced one refuses."""

    __slots__ = ()

    # -- on purpose -------------------------------------------------------------------

    def numpy(self) -> np.ndarray:
        """Return the values as a fresh plain ndarray, outside of the graph."""
        if isinstance(sync_if_view(self)._plain, Symbolic):  # see adarray.value_of
            return self.detach()  # type: ignore[return-value]
        return np.array(sync_if_view(self)._plain)

    def detach(self) -> ADArray:
        """Return the values as an array of which no derivative is taken."""
        sync_if_view(self)
        out: Any = Handle.array_class(
            self._plain.copy() if type(self._plain) in ARRAYS else self._plain
        )
        return out  # type: ignore[no-any-return]

    # -- numbers ----------------------------------------------------------------------

    def _must_be_constant(self, what: str, fix: str) -> None:
        if traced(self):
            frame = sys._getframe(2)
            if _shows(frame) and not isinstance(self._plain, Symbolic):
                sync_if_view(self)
                return
            package = package_of(frame.f_globals.get("__name__"))
            if package in _FIXES:
                what, fix = _converting_method(frame, package), _FIXES[package]
            elif what in ("np.asarray", "float"):
                what, fix = _refused_at(frame, what, fix)
            raise leaves_graph(what, fix, self)
        sync_if_view(self)

    def item(self, *index: Any) -> Any:
        """Return one element as a Python number; traced, if the array is."""
        array: Any = self
        if index:
            at = index[0] if len(index) == 1 else index
            return (array if isinstance(at, tuple) else array.reshape(-1))[at].item()
        if array.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        if not traced(self):
            return sync_if_view(self)._plain.item() if hasattr(self._plain, "item") else self._plain
        return note_number(weakened(array.reshape(()) if array.ndim else array))

    def tolist(self) -> Any:
        """Return the values as nested lists of Python numbers."""
        if SCOPE.get() is not None and traced(self):  # in foreign code: traced numbers
            array: Any = self
            return [x.tolist() for x in array] if array.ndim else array.item()
        self._must_be_constant("tolist", "index the array instead")
        if isinstance(self._plain, Symbolic):
            return self._plain.tolist()  # type: ignore[attr-defined]
        return np.asarray(self._plain).tolist()

    @of_some("float() argument must be a string or a real number, not '{}'")
    def __float__(self) -> float:
        if traced(self) and _formats(frame := sys._getframe(1)):
            if is_shown() or is_compared() or (SCOPE.get() is not None and is_rounded(frame)):
                return float(self._plain)
            raise text_is_kept(self)
        self._must_be_constant(
            "float",
            f"use np functions in place of float() and math.*; {_DRAWS}{_or_intercept('; ')}",
        )
        return float(self._plain)

    @of_some("int() argument must be a string or a real number, not '{}'")
    def __int__(self) -> int:
        if SCOPE.get() is None:
            self._must_be_constant("int", "use np functions in place of int()")
        if WATCHES and traced(self):
            note_read()
        sync_if_view(self)  # in foreign code: piecewise constant, as np.trunc
        return int(self._plain)

    def __complex__(self) -> complex:
        self._must_be_constant("complex", "use np functions in place of complex()")
        return complex(self._plain)

    @of_some(
        "'{}' object cannot be interpreted as an integer; adarray.value_of(x) leaves the graph "
        "on purpose"
    )
    def __index__(self) -> int:
        self._must_be_constant("index", "an index is an integer")
        v: Any = self._plain if isinstance(self._plain, Symbolic) else np.asarray(self._plain)[()]
        return operator.index(v)

    def __bool__(self) -> bool:
        if WATCHES and traced(self):
            note_read()
        return bool(sync_if_view(self)._plain)

    # Whole numbers are constant between jumps, as the results of np.floor are.

    def __round__(self, digits: int | None = None) -> Any:
        weak = self._x is not None and self._x.weak
        known = digits is not None and not traced(self) and isinstance(self._plain, Symbolic)
        if weak and known:  # as Python rounds its numbers
            r = finish(on_plain(_rounded, (self, digits), {}), None, "round")
            v = r._plain if isinstance(r, Handle) else r
            return Handle.number_class(v, None, Extras(weak=True), True)
        rounded = call_function(np.round, (self, digits or 0), {})
        if digits is None:
            return int(rounded)
        return weakened(rounded) if weak else rounded

    def __floor__(self) -> int:
        if WATCHES and traced(self):
            note_read()
        return math.floor(float(sync_if_view(self)._plain))

    def __ceil__(self) -> int:
        if WATCHES and traced(self):
            note_read()
        return math.ceil(float(sync_if_view(self)._plain))

    def __trunc__(self) -> int:
        if WATCHES and traced(self):
            note_read()
        return math.trunc(float(sync_if_view(self)._plain))

    @of_some()
    def is_integer(self) -> bool:
        """Whether the number is a whole one."""
        whole = call_function(np.equal, (self, call_function(np.round, (self,), {})), {})
        return bool(
            call_function(np.logical_and, (whole, call_function(np.isfinite, (self,), {})), {})
        )

    @of_some()
    def as_integer_ratio(self) -> tuple[int, int]:
        """Return the number as a fraction."""
        self._must_be_constant("as_integer_ratio", "a fraction has no derivative")
        return float(self).as_integer_ratio()

    # -- plain arrays and memory --------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if _multiplies(sys._getframe(1)) and (traced(self) or isinstance(self._plain, Symbolic)):
            return np.array(None, object)  # then SciPy leaves the product to `__rmatmul__`
        self._must_be_constant("np.asarray", _fix_for(sys._getframe(1)))
        if copy:
            return np.array(sync_if_view(self)._plain, dtype=dtype)
        own: Any = self
        memory = lend(own, sys._getframe(1))
        if copy is False and (
            (dtype is not None and memory.dtype != dtype) or type(self._plain) is not np.ndarray
        ):
            raise ValueError("np.asarray: copy=False, and the values have to be copied")
        return memory if dtype is None else memory.astype(dtype, copy=False)

    @property
    def data(self) -> memoryview:
        """As `numpy.ndarray.data`."""
        self._must_be_constant(
            "data", "update a leaf under `with adarray.no_grad():`, or pass x.numpy().data"
        )
        own: Any = self
        if isinstance(self._plain, Symbolic):  # which says so by its own name
            return own._plain.data  # type: ignore[no-any-return]
        return lend(own, sys._getframe(1)).data

    @property
    def ctypes(self) -> Any:
        """As `numpy.ndarray.ctypes`."""
        self._must_be_constant("ctypes", "pass x.numpy().ctypes")
        own: Any = self
        if isinstance(self._plain, Symbolic):
            return own._plain.ctypes
        return lend(own, sys._getframe(1), forever=True).ctypes

    def tobytes(self, order: Any = "C") -> bytes:
        """Return the values' bytes, as `numpy.ndarray.tobytes`."""
        self._must_be_constant("tobytes", "use x.numpy().tobytes()")
        return np.asarray(self._plain).tobytes(order)

    def __bytes__(self) -> bytes:
        self._must_be_constant("bytes", "use x.numpy().tobytes()")
        return np.asarray(self._plain).tobytes()

    # -- files and copies ---------------------------------------------------------------

    def tofile(self, fid: Any, sep: str = "", format: str = "%s") -> None:  # noqa: A002
        """Write the values into a file, as `numpy.ndarray.tofile`."""
        self._must_be_constant("tofile", "use x.numpy().tofile(file)")
        np.asarray(self._plain).tofile(fid, sep, format)

    def dump(self, file: Any) -> None:
        """Pickle the values into a file, as `numpy.ndarray.dump`."""
        self._must_be_constant("dump", "use x.numpy().dump(file)")
        np.asarray(self._plain).dump(file)

    def dumps(self) -> bytes:
        """Return the values pickled, as `numpy.ndarray.dumps`."""
        self._must_be_constant("dumps", "use x.numpy().dumps()")
        return np.asarray(self._plain).dumps()

    def __copy__(self) -> ADArray:
        if not is_array(self):  # a number stays one
            return snapshot(sync_if_view(self))  # type: ignore[return-value]
        return call_function(np.copy, (self,), {})  # type: ignore[no-any-return]

    # -- text -----------------------------------------------------------------------------

    def __repr__(self) -> str:
        value = np.asarray(_shown(sync_if_view(self)._plain))
        text = np.array2string(value, separator=", ", prefix="ADArray(")
        dtype = "" if value.dtype == np.float64 else f", dtype={value.dtype}"
        device = f", device={self._plain.library.name}" if is_device(self._plain) else ""
        if not traced(self):
            return f"ADArray({text}{dtype}{device})"
        return TracedText(f"ADArray({text}{dtype}{device}, traced)", self, "{}")

    def __str__(self) -> str:
        text = str(sync_if_view(self)._plain)
        return as_text(text, self) if traced(self) else text

    def _repr_html_(self) -> str:
        """Return what notebooks show: vectors and matrices as a table, with their ends."""
        import html  # not needed before

        value = np.asarray(_shown(sync_if_view(self)._plain))
        place = self._plain.library.name if is_device(self._plain) else ""
        facts = [str(value.shape), str(value.dtype), place, "traced" if traced(self) else ""]
        head = f"<b>ADArray</b> {', '.join(f for f in facts if f)}"
        if value.ndim not in (1, 2) or not value.size:
            text = np.array2string(value, separator=", ")
            return f"<div>{head}<pre>{html.escape(text)}</pre></div>"
        rows = _ends(np.atleast_2d(value), lambda row: _ends(row, _cell))
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows
        )
        return f"<div>{head}<table>{body}</table></div>"

    def __format__(self, spec: str) -> str:
        text = format(sync_if_view(self)._plain, spec)
        return as_text(text, self, True) if traced(self) and not rounds(spec) else text


def _rounded(x: Any, digits: int) -> float:
    return round(float(x), digits)


def _cell(x: Any) -> str:
    return np.array2string(np.asarray(x))


def _ends(items: Any, show: Callable[[Any], Any]) -> list[Any]:
    """Return the items shown, of many only the first and last ones, around an ellipsis."""
    few = int(np.get_printoptions()["edgeitems"]) + 2
    if len(items) <= 2 * few:
        return [show(x) for x in items]
    return [*map(show, items[:few]), "\N{HORIZONTAL ELLIPSIS}", *map(show, items[-few:])]


def _shown(v: Any) -> Any:
    """Return the values that text shows."""
    return v.shown() if isinstance(v, Symbolic) else v
