"""`evaluation_trace`: every operation of one evaluation, with its tangent and its adjoint.

Textbooks explain forward and reverse mode by such tables: "evaluation trace" is the word of
Griewank and Walther, Evaluating Derivatives, second edition, SIAM 2008, chapters 2 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from adarray.arrays.adarray import ADArray, array
from adarray.base.errors import DTypeError, ShapeError, TraceError
from adarray.base.recording import Call, Guard, Recording, Symbol, as_number
from adarray.core.dispatch import run
from adarray.core.inplace import WRITE
from adarray.core.inplace import _region as region
from adarray.jitting.explain.picture import Box, Picture
from adarray.jitting.recording.record import record
from adarray.jitting.shared.keys import replace_symbols, symbols_in
from adarray.jitting.shared.symbolic import UntraceableError
from adarray.transforms import jvp, vjp
from adarray.transforms.running import check_function
from adarray.transforms.tree import is_array
from adarray.transforms.variables import Variables, check_variables

SIGNS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "**", "matmul": "@",
    "floor_divide": "//", "remainder": "%", "less": "<", "less_equal": "<=", "greater": ">",
    "greater_equal": ">=", "equal": "==", "not_equal": "!=",
}  # fmt: skip


class TraceStep(NamedTuple):
    """One variable of an evaluation: an argument, or the result of an operation.

    Parameters
    ----------
    name : str
        ``v0``, ``v1`` and so on, in the order of evaluation.
    text : str
        What computes it, in terms of variables before it.
    operands : tuple of int
        The numbers of these variables.
    value : ndarray or scalar
    tangent : ndarray, scalar or None
        Its derivative along the direction; None where there is no direction, or where the value
        is not floating point or complex.
    adjoint : ndarray, scalar or None
        The derivative of the result with respect to it; None where none flowed back to it.
    place : str
        Where in the user's code.
    """

    name: str
    text: str
    operands: tuple[int, ...]
    value: Any
    tangent: Any
    adjoint: Any
    place: str


class EvaluationTrace:
    """The result of `evaluation_trace`; printed, it is a table.

    Attributes
    ----------
    steps : tuple of TraceStep
    value : ndarray or scalar
        Of the function.
    tangent : ndarray, scalar or None
        Of the result along the direction.
    gradient : tuple
        The adjoints of the arguments.
    """

    def __init__(
        self, steps: tuple[TraceStep, ...], value: Any, tangent: Any, gradient: tuple[Any, ...]
    ) -> None:
        self.steps = steps
        self.value = value
        self.tangent = tangent
        self.gradient = gradient

    def _rows(self) -> list[tuple[str, ...]]:
        forward = self.tangent is not None
        head = ("", "evaluation", "value", *(("tangent",) if forward else ()), "adjoint")
        rows = [head]
        for s in self.steps:
            numbers = (s.value, *((s.tangent,) if forward else ()), s.adjoint)
            rows.append((s.name, s.text, *map(_short, numbers)))
        return rows

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(len(r[k]) for r in rows) for k in range(len(rows[0]))]
        lines = [
            "  ".join(
                cell.ljust(w) if k < 2 else cell.rjust(w)
                for k, (cell, w) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *rows = self._rows()
        cells = "".join(f"<th>{escape(c)}</th>" for c in head)
        body = "".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in row)}</tr>" for row in rows)
        return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"

    def picture(self) -> Picture:
        """Return the graph of the evaluation, as text for Graphviz, or drawn by it."""
        _, *rows = self._rows()
        head = self._rows()[0]
        nodes, edges = [], []
        for k, (step, row) in enumerate(zip(self.steps, rows, strict=True)):
            numbers = [
                f"{what} {cell}" for what, cell in zip(head[2:], row[2:], strict=True) if cell
            ]
            last = k == len(rows) - 1
            kind = "input" if not step.operands else "result" if last else "step"
            nodes.append(Box((f"{step.name} = {step.text}", *numbers), kind, -1, step.place))
            edges += [(o, k) for o in dict.fromkeys(step.operands)]
        return Picture(nodes, edges, {})


def _short(x: Any) -> str:
    if x is None:
        return ""
    if np.ndim(x) == 0:
        return f"{x:.6g}" if np.result_type(x).kind in "fc" else str(x)
    return " ".join(
        np.array2string(np.asarray(x), precision=4, threshold=6, edgeitems=2).split()
    ).replace("[ ", "[")


def evaluation_trace(
    f: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any] | None = None,
    cotangent: Any = None,
) -> EvaluationTrace:
    """Evaluate a function, and list every operation with its value, tangent and adjoint.

    Parameters
    ----------
    f : callable
        Takes arrays and numbers, and returns one array or number.
    primals : sequence of array_like
        Its arguments, all of them differentiated.
    tangents : sequence of array_like, optional
        The direction of the forward derivative: for each argument, an array of its shape. Without
        it, no tangents are computed.
    cotangent : array_like, optional
        Has the shape of the result; by default 1, if the result is a number.

    Returns
    -------
    EvaluationTrace
        Prints as a table, also in notebooks. ``.picture()`` draws the graph.

    Raises
    ------
    ShapeError
        If the shapes of a tangent and its primal differ, or the result is an array and no
        `cotangent` is given.
    TraceError
        If a value leaves the function in a way that `jit` cannot record either.

    Notes
    -----
    The function runs once, and is recorded as by `jit`. The operations are then evaluated one by
    one: `jvp` computes the tangent of each, and `vjp` the adjoints of its operands.

    See Also
    --------
    grad, jvp, vjp

    Examples
    --------
    >>> import numpy as np
    >>> import adarray
    >>> adarray.evaluation_trace(lambda x, y: np.log(x) + x * y, (2.0, 5.0), (1.0, 0.0))
        evaluation     value  tangent  adjoint
    ------------------------------------------
    v0  x                  2        1      5.5
    v1  y                  5        0        2
    v2  log(v0)     0.693147      0.5        1
    v3  v0 * v1           10        5        1
    v4  v2 + v3      10.6931      5.5        1
    """
    check_function("evaluation_trace", f)
    _check_primals(primals, tangents)
    primals = tuple(primals)
    if tangents is not None:
        _check_tangents(primals, tangents)
    try:
        positions = list(range(len(primals)))
        run = record(f, list(primals), _arguments, positions, unrolls=True, once=True)
        recorded = run.recording
    except UntraceableError as error:
        raise TraceError(f"evaluation_trace: {str(error).removeprefix('jit: ')}") from error
    steps = _Steps(recorded, _names(f, len(primals)), primals, tangents)
    for event in recorded.events:
        call = event.call if isinstance(event, Guard) else event
        if call is not None:
            steps.run(call)
    if len(recorded.outputs) != 1 or not isinstance(recorded.outputs[0], Symbol):
        raise TypeError(
            "evaluation_trace: the function must return one array or number that depends on its "
            f"arguments; it returned {len(recorded.outputs)} values"
        )
    return steps.trace(recorded.outputs[0], cotangent)


def _arguments(args: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(args), {}


def _check_primals(primals: Any, tangents: Any) -> None:
    for values, what in (primals, "primals"), (tangents, "tangents"):
        if not isinstance(values, (tuple, list)) and (values is not None or what == "primals"):
            raise TypeError(
                f"evaluation_trace: {what} is of type {type(values).__name__}; pass a tuple with "
                "an item for each argument, such as (x,)"
            )
    for k, x in enumerate(primals):
        if not is_array(x):
            raise DTypeError(
                f"evaluation_trace: primals[{k}] is of type {type(x).__name__}; pass an array or a "
                "number: each line of the table is one"
            )
        check_variables("evaluation_trace", f"primals[{k}]", x, Variables(x), False)


def _check_tangents(primals: Sequence[Any], tangents: Sequence[Any]) -> None:
    if len(tangents) != len(primals):
        raise ShapeError(
            f"evaluation_trace: {len(primals)} primals and {len(tangents)} tangents; "
            "give one of each"
        )
    for k, (x, t) in enumerate(zip(primals, tangents, strict=True)):
        if np.shape(x) != np.shape(t):
            raise ShapeError(
                f"evaluation_trace: tangent {k} has shape {np.shape(t)} and its primal "
                f"{np.shape(x)}; they must be equal"
            )


def _names(f: Callable[..., Any], count: int) -> list[str]:
    """Return the names of the arguments."""
    code = getattr(f, "__code__", None)
    names = list(code.co_varnames[: code.co_argcount]) if code is not None else []
    return [*names[:count], *(f"argument {k}" for k in range(len(names), count))]


class _Steps:
    """The variables of an evaluation, and the operations that compute them."""

    def __init__(
        self,
        recording: Recording,
        names: list[str],
        primals: Sequence[Any],
        tangents: Sequence[Any] | None,
    ) -> None:
        self.forward = tangents is not None
        self.values: dict[int, Any] = {id(s): x for s, x, _ in recording.captures}
        self.number: dict[int, int] = {}
        self.tangents: dict[int, Any] = {}
        self.adjoints: dict[int, Any] = {}
        self.calls: list[_Applied] = []
        self.rows: list[tuple[str, tuple[int, ...], Symbol, str]] = []
        self.same: dict[int, int] = {}  # of numbers: the ``id`` of what they were taken from
        for k, (symbol, name) in enumerate(zip(recording.inputs, names, strict=True)):
            self.values[id(symbol)] = primals[k]
            if tangents is not None:
                self.tangents[id(symbol)] = tangents[k]
            self._variable(symbol, name, (), "")

    def _variable(self, symbol: Symbol, text: str, operands: tuple[int, ...], place: str) -> None:
        self.number[id(symbol)] = len(self.rows)
        self.rows.append((text, operands, symbol, place))

    def run(self, call: Call) -> None:
        """Evaluate an operation, and its tangent."""
        if call.function is as_number:
            source: Any = call.args[0]
            self._alias(call.results[0], source)
            return
        x = _Applied(call, tuple(dict.fromkeys(symbols_in((call.args, call.params)))), self.values)
        result = x.of(())()
        for symbol, r in zip(call.results, result if call.several else (result,), strict=True):
            self.values[id(symbol)] = r
        operands = tuple(
            self.number[key] for s in x.symbols if (key := self._key(s)) in self.number
        )
        if not operands:
            return  # of constants
        self.calls.append(x)
        if self.forward:
            self._push(x)
        text = self._text(x)
        place = ":".join(map(str, call.where)) if call.where else ""
        for k, symbol in enumerate(call.results):
            self._variable(symbol, f"{text}[{k}]" if call.several else text, operands, place)

    def _key(self, symbol: Symbol) -> int:
        """Return the ``id`` of the symbol of a variable."""
        return self.same.get(id(symbol), id(symbol))

    def _alias(self, symbol: Symbol, of: Symbol) -> None:
        """Note that a symbol is a Python number of the value of another one."""
        self.values[id(symbol)] = as_number(self._value(of))
        self.same[id(symbol)] = self._key(of)

    def _value(self, symbol: Symbol) -> Any:
        return self.values[id(symbol)]

    def _push(self, x: _Applied) -> None:
        """Note the tangents of the results of an operation."""
        moving = [s for s in x.symbols if self._key(s) in self.tangents]
        if not moving:
            return
        primals = [self._value(s) for s in moving]
        _, tangents = jvp(x.of(moving), primals, [self.tangents[self._key(s)] for s in moving])
        for symbol, t in zip(
            x.call.results, tangents if x.call.several else (tangents,), strict=True
        ):
            if symbol.dtype.kind in "fc":
                self.tangents[id(symbol)] = t

    def trace(self, output: Symbol, cotangent: Any) -> EvaluationTrace:
        """Go back over the operations for the adjoints; return the trace."""
        if output.shape and cotangent is None:
            raise ShapeError(
                f"evaluation_trace: the function returned an array of shape {output.shape}; "
                "give a cotangent of that shape, or return a number"
            )
        value = self._value(output)
        self.adjoints[self._key(output)] = (
            np.ones((), output.dtype)[()] if cotangent is None else np.asarray(cotangent)
        )
        for x in reversed(self.calls):
            if any(id(s) in self.adjoints for s in x.call.results):
                self._pull(x)
        steps = tuple(
            TraceStep(
                f"v{k}", text, operands, self._value(s), self.tangents.get(id(s)),
                self.adjoints.get(id(s)), place,
            )
            for k, (text, operands, s, place) in enumerate(self.rows)
        )  # fmt: skip
        inputs = [s for _, operands, s, _ in self.rows if not operands]
        gradient = tuple(self.adjoints.get(id(s), np.zeros(s.shape, s.dtype)[()]) for s in inputs)
        tangent = self.tangents.get(self._key(output)) if self.forward else None
        return EvaluationTrace(steps, value, tangent, gradient)

    def _pull(self, x: _Applied) -> None:
        """Add what flows back through an operation to the adjoints of its operands."""
        moving = [s for s in x.symbols if self._key(s) in self.number and s.dtype.kind in "fc"]
        if not moving:
            return
        result, pullback = vjp(x.of(moving), *map(self._value, moving))
        several = x.call.several
        cotangents = [
            self.adjoints.get(id(s), np.zeros_like(r))
            for s, r in zip(x.call.results, result if several else (result,), strict=True)
        ]
        named = hasattr(result, "_fields")
        cotangent: Any = (
            type(result)(*cotangents) if named else tuple(cotangents) if several else cotangents[0]
        )
        for s, g in zip(moving, pullback(cotangent), strict=True):
            key = self._key(s)
            self.adjoints[key] = self.adjoints[key] + g if key in self.adjoints else g

    def _text(self, x: _Applied) -> str:
        """Return the expression that computes a variable."""
        call, shown = x.call, [self._shown(a) for a in x.call.args]
        name = call.op.name if call.op is not None else call.function.__name__
        if len(shown) == 2 and name in SIGNS and not call.params:
            return f"{shown[0]} {SIGNS[name]} {shown[1]}"
        params = {k: v for k, v in call.params.items() if v is not None}
        if name == "getitem" and set(params) == {"index"}:
            return f"{shown[0]}[{self._index(params['index'])}]"
        if name == "write":
            steps = "".join(
                f"[{self._index(p['index'])}]" if op.name == "getitem" else f".{op.name}"
                for op, _, p in params["steps"]
            )
            return f"{shown[0]} with {steps}[{self._index(params['index'])}] = {shown[1]}"
        options = [f"{k}={self._shown(v)}" for k, v in params.items()]
        return f"{name}({', '.join([*shown, *options])})"

    def _index(self, index: Any) -> str:
        return ", ".join(map(self._shown, index if isinstance(index, tuple) else (index,)))

    def _shown(self, x: Any) -> str:
        """Return an operand or a parameter in words."""
        if isinstance(x, Symbol):
            k = self.number.get(self._key(x))
            return f"v{k}" if k is not None else _short(self._value(x))
        if isinstance(x, slice):
            parts = [x.start, x.stop] + ([x.step] if x.step is not None else [])
            return ":".join("" if p is None else self._shown(p) for p in parts)
        if isinstance(x, (tuple, list)):
            return f"({', '.join(map(self._shown, x))})"
        if x is ...:
            return "..."
        return _short(x) if isinstance(x, (np.ndarray, np.generic, float)) else str(x)


class _Applied(NamedTuple):
    """A recorded operation."""

    call: Call
    symbols: tuple[Symbol, ...]
    values: dict[int, Any]

    def of(self, symbols: Sequence[Symbol]) -> Callable[..., Any]:
        """Return the operation as a function of some of the values that it reads."""

        def of(*xs: Any) -> Any:
            own = {id(s): x for s, x in zip(symbols, xs, strict=True)}

            def value(s: Symbol) -> Any:
                return own[id(s)] if id(s) in own else self.values[id(s)]

            call = self.call
            args, params = replace_symbols((call.args, call.params), value)
            if call.op is WRITE:
                return _written(*args, **params)
            if call.op is None:
                return call.function(*args, **params)
            return run(call.op, *args, **params)

        return of


def _written(base: Any, value: Any, steps: tuple[Any, ...], index: Any) -> Any:
    """Return a copy of an array, written into at an index of the view that layout steps lead to."""
    traced = isinstance(base, ADArray) or isinstance(value, ADArray)
    whole = base.copy() if isinstance(base, ADArray) else array(base) if traced else np.array(base)
    target, index = region(whole, steps, index)
    target[index] = value
    return whole
