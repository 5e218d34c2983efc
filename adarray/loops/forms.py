"""What a loop's variables are when it begins, and what has become of it as a kernel.

`Form` says of a variable what the kernel's text may depend on. Values that are not part of it
(`WholeNumber.value`, `ArrayForm.shape`) may be used to prove that indices are in range; where such
a proof decides what the text is, the text is another one for values with another outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adarray.compiler.ir.threads import ThreadKernel


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A Python int that is no traced value; a parameter of the kernel."""

    value: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number with a dtype, which may be traced; `weak`: a Python float or a traced one.

    Weak numbers take part in promotion as NumPy 2 says (NEP 50).
    """

    dtype: str
    weak: bool


@dataclass(frozen=True, slots=True)
class ArrayForm:
    """An array; a C-contiguous buffer of the kernel, whatever its strides are in memory."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """Any other object: a function, a module, a truth value, None, a tuple; part of the text.

    Compared by identity where it cannot be compared by `key`.
    """

    value: Any


@dataclass(frozen=True, slots=True)
class ListForm:
    """A list that nothing else refers to, and that the loop appends to.

    What it holds are variables, ``name[0]`` and so on.
    """

    items: tuple[Form, ...]


Form = WholeNumber | Scalar | ArrayForm | ListForm | Known


# -- operands of the kernel ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Variable:
    """The parameter is the variable `name`: an array, a number, or a whole number."""

    name: str


@dataclass(frozen=True, slots=True)
class Extent:
    """The parameter is a whole number: the extent of an axis of the array `name`."""

    name: str
    axis: int


@dataclass(frozen=True, slots=True)
class Bound:
    """The parameter is a whole number of the loop's range: ``"start"``, ``"stop"``, ``"step"``."""

    which: str


@dataclass(frozen=True, slots=True)
class Workspace:
    """The parameter is a new array of zeros, in which the kernel keeps an array of its own.

    Also what a variable is left in after the loop: an array of shape (1,) for a number.
    """

    dtype: str
    shape: tuple[int, ...]


Source = Variable | Extent | Bound | Workspace


# -- results ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    """What a variable is after the loop.

    Parameters
    ----------
    variable : str
    parameter : str
        Of the kernel: the buffer in which it lies afterwards. If that is an array of the caller's,
        the variable is this very array.
    form : Form
        A `Scalar` is element 0; a `WholeNumber` as well (its `value` has no meaning), and becomes a
        Python int; an `ArrayForm` is the buffer, of that shape.
    which : str, optional
        A parameter, of one integer, if the variable is of a type that the run decides.
    forms : tuple of (int, Form)
        What it is for each of these integers.
    """

    variable: str
    parameter: str
    form: Form
    which: str | None = None
    forms: tuple[tuple[int, Form], ...] = ()


@dataclass(frozen=True, slots=True)
class Listed:
    """What the loop appends to a list.

    Parameters
    ----------
    variable : str
    parameter : str
        The memory that has its items, one behind the other.
    item : Form
        Of a new item.
    before : int
        How many items it has had.
    known : int, optional
        How many items it has after the loop, if that is known before.
    count : str, optional
        Else the parameter, of one integer, that tells.
    """

    variable: str
    parameter: str
    item: Form
    before: int
    known: int | None
    count: str | None


@dataclass(frozen=True, slots=True)
class Returned:
    """What the function returns where the loop does that.

    Parameters
    ----------
    flag : str, optional
        A parameter, of one integer: whether it returns. Without one it does so in any case.
    value : Result or Known or tuple of them
    """

    flag: str | None
    value: Returnable


Returnable = Result | Known | tuple["Returnable", ...]


@dataclass(frozen=True, slots=True)
class LoopKernel:
    """A loop as a kernel of one thread.

    Parameters
    ----------
    kernel : ThreadKernel
    sources : tuple of (str, Source)
        What each parameter is, in the order of the kernel's.
    writes : tuple of str
        Variables: arrays of the caller's that the loop writes into, in place.
    results : tuple of Result
        Variables that the loop binds, and that are asked for after it.
    assumed : tuple of (str, int, int)
        Variables that are arrays of integers, and the least and the largest that they may hold:
        the kernel is right only as long as they do.
    failed : str, optional
        The parameter, of one integer, that is not 0 afterwards where Python would have raised an
        error. What the kernel has written is of no use then.
    returned : Returned, optional
        Of a loop that may return from the function. The variables are of no use then.
    listed : tuple of Listed
        Lists of the caller's that the loop appends to.
    """

    kernel: ThreadKernel
    sources: tuple[tuple[str, Source], ...]
    writes: tuple[str, ...]
    results: tuple[Result, ...]
    assumed: tuple[tuple[str, int, int], ...] = ()
    failed: str | None = None
    returned: Returned | None = None
    listed: tuple[Listed, ...] = ()


class NotCaptured(Exception):  # noqa: N818 - no error: the loop runs as Python does
    """Why a loop is unrolled: one clause, with the line of the user's source."""

    def __init__(self, reason: str, line: int, anew: bool = False) -> None:
        super().__init__(reason)
        self.anew = anew  # whether the loop was read for it, and will be for the next one
        self.reason = reason
        self.line = line
