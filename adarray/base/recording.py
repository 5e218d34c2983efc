"""The recording of one run of a function: calls on symbols, and guards."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adarray.base.types import Function, Operands, Params, Shape, Where

if TYPE_CHECKING:
    import numpy.typing as npt

    from adarray.base.op import Op


# Where NumPy signals an error, Python's arithmetic raises one, or gives a complex number.
PYTHON: Params = {"divide": "raise", "over": "raise", "under": "ignore", "invalid": "raise"}


class Symbol:
    """A value that depends on the inputs of the recorded run.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    weak : bool
        Whether it is a Python number (NEP 50).
    """

    __slots__ = ("dtype", "shape", "weak")

    def __init__(self, shape: Shape, dtype: npt.DTypeLike, weak: bool = False) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.weak = weak

    def __repr__(self) -> str:
        return f"<symbol {self.dtype}{list(self.shape)}{' weak' if self.weak else ''}>"


class Call:
    """One recorded operation.

    Attributes
    ----------
    op : Op or None
        Its record; None for a function without one.
    function : callable
        What computes it: ``function(*args, **params)``.
    args : tuple
        Operands of the record, in its order (of a variadic operation all of them, the
        sequence spread out); without a record the positional arguments. Symbols and plain
        values; without a record, symbols may stand inside of tuples, lists and dicts.
    params : dict
        Keyword arguments; symbols may stand in them as in args.
    results : tuple of Symbol
        More than one for operations with several results.
    several : bool
        Whether the function returned a tuple (of one or more results).
    where : tuple of (str, int) or None
        File and line of the user's code.
    errors : dict or None
        What `np.geterr` said, where the function itself has set it; `PYTHON` for arithmetic
        of Python numbers.
    """

    __slots__ = ("args", "errors", "function", "op", "params", "results", "several", "where")

    def __init__(
        self,
        op: Op | None,
        function: Function,
        args: Operands,
        params: Params,
        results: tuple[Symbol, ...],
        several: bool = False,
        where: Where | None = None,
    ) -> None:
        self.op = op
        self.function = function
        self.args = args
        self.params = params
        self.results = results
        self.several = several
        self.where = where
        self.errors: Params | None = None

    def __repr__(self) -> str:
        name = self.op.name if self.op is not None else getattr(self.function, "__name__", "?")
        return f"<call {name}>"


class Guard:
    """A host read: Python read a value. Later runs must see the same one, or take another path.

    Attributes
    ----------
    kind : {"bool", "index", "float", "complex", "call"}
        What Python asked for; ``"call"``: to run `call` now, because the shapes of its
        results depend on values, or because it draws random numbers.
    symbol : Symbol or None
        One element, of shape () or any shape of size 1; None for a call.
    outcome : bool, int, float, complex or tuple
        What it saw; for a call ``((shape, dtype), ...)`` of its results.
    where : tuple of (str, int) or None
        File and line of the user's code.
    call : Call or None
    """

    __slots__ = ("call", "kind", "outcome", "symbol", "where")

    def __init__(
        self,
        kind: str,
        symbol: Symbol | None,
        outcome: object,
        where: Where | None = None,
        call: Call | None = None,
    ) -> None:
        self.kind = kind
        self.symbol = symbol
        self.outcome = outcome
        self.where = where
        self.call = call

    def __repr__(self) -> str:
        return f"<guard {self.kind} is {self.outcome}>"


class LoopNote(NamedTuple):
    """What has become of a loop of the user's.

    Parameters
    ----------
    where : (str, int)
        File, and the line where it begins.
    last : int
        The line where it ends.
    function : str
        The qualified name of the function that it belongs to.
    trips : int or None
        Its iterations; None if they are not known before it runs.
    event : int
        How many events were recorded before it.
    reason : str
        Why it is unrolled; "" if it is captured.
    line : int
        The line of what the reason is about.
    taped : callable, optional
        Returns what its adjoint puts on the tape, in words.
    unrolled : float
        Seconds, at least, that its operations take where it is not captured, although it is.
    """

    where: Where
    last: int
    function: str
    trips: int | None
    event: int
    reason: str
    line: int
    taped: Callable[[], str] | None = None
    unrolled: float = 0.0


class Recording:
    """One run.

    Attributes
    ----------
    inputs : list of Symbol
        The arguments' leaves, in order.
    captures : list of (Symbol, ndarray, ndarray)
        Plain arrays that the run read and did not make: globals, closure cells, attributes.
        With what they held when they were read first. They are inputs as well, after the
        arguments.
    events : list of Call or Guard
        In the order in which they happened.
    loops : list of LoopNote
        Loops that were captured or unrolled.
    refused : dict
        Reasons and lines for which loops were unrolled, by their places.
    outputs : list
        The results' leaves: symbols, or plain values that are the same every time.
    writes : list of (int, Symbol)
        Inputs that were written into, and their final values.
    touched : bool
        Whether a transform inside wrote into what it differentiated, which its own copies hold:
        inputs that share memory would have seen it.
    """

    __slots__ = ("captures", "events", "inputs", "loops", "outputs", "refused", "touched", "writes")

    def __init__(self) -> None:
        self.inputs: list[Symbol] = []
        self.captures: list[tuple[Symbol, np.ndarray, np.ndarray]] = []
        self.events: list[Call | Guard] = []
        self.loops: list[LoopNote] = []
        self.refused: dict[object, list[tuple[str, int]]] = {}
        self.outputs: list[Any] = []
        self.touched = False
        self.writes: list[tuple[int, Symbol]] = []


def as_number(x: object) -> object:
    """Return a 0-d value as a Python number, whose dtype yields to others (NEP 50)."""
    return x.item() if hasattr(x, "item") else x
