"""With ``ADARRAY_CHECK=1``: a captured loop beside the loop as Python runs it."""

from __future__ import annotations

import ast
import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from adarray.base.runtime import MODE
from adarray.base.scope import outside
from adarray.core.trace import Handle
from adarray.jitting.shared.symbolic import concrete, opened
from adarray.loops.forms import ListForm
from adarray.loops.lower.names import is_bound_by_assignment
from adarray.loops.names import stored_in

if TYPE_CHECKING:
    from adarray.loops.capture import LoopCall

_RUN = "run_by_python"
RETURNED = "what it returns"
_TOLERANCE = 1e-9  # relative to the largest element, in double precision


def plain(x: Any) -> Any:
    """Return the plain value of a variable, a copy of an array."""
    if type(x) is list:
        return list(map(plain, x))
    x = concrete(opened(x))
    return np.array(x) if isinstance(x, np.ndarray) else x


def expected(call: LoopCall) -> dict[str, Any]:
    """Run a loop as Python does, on copies of the plain values of its variables.

    Returns
    -------
    dict
        All its variables after the loop.
    """
    place = call.place
    (function,) = ast.parse(f"def {_RUN}(): pass").body
    assert isinstance(function, ast.FunctionDef)
    stored = sorted(stored_in(call.written))
    function.body = [*([ast.Global(stored)] if stored else []), call.written]
    function.body.append(ast.Return(ast.Name(_RUN, ast.Load())))
    module = ast.fix_missing_locations(ast.Module([function], []))
    code = compile(module, place.file, "exec", dont_inherit=True)
    copies = {id(x): plain(x) for x in call.values.values()}
    names = {n.id for n in ast.walk(call.written) if isinstance(n, ast.Name)} - place.local
    space: dict[str, Any] = {}
    for name in names:
        with contextlib.suppress(NameError):
            space[name] = call.resolve(name)
    space.update({n: copies[id(x)] for n, x in call.values.items()})
    token = MODE.set(None)
    try:
        outside(exec)(code, space)
        space[RETURNED] = outside(space[_RUN])()
    finally:
        MODE.reset(token)
    return space


def check(call: LoopCall, wanted: dict[str, Any], results: dict[str, Any]) -> None:
    """Compare what a captured loop has left with what the loop itself leaves.

    Raises
    ------
    AssertionError
        If they differ.
    """
    arrays = {
        n: x for n, x in call.values.items()
        if isinstance(x, (Handle, np.ndarray)) and n in wanted
        and not is_bound_by_assignment([call.loop], n)
    }  # fmt: skip
    lists = {n: tuple(x) for n, x in call.values.items() if isinstance(call.forms[n], ListForm)}
    for name, items in lists.items():
        _compare(f"{call.place!r}: {name}", items, tuple(wanted[name]))
    for name, x in {**arrays, **results}.items():
        _compare(f"{call.place!r}: {name}", x, wanted[name])


def _compare(where: str, x: Any, want: Any) -> None:
    if isinstance(x, tuple):
        assert type(want) is tuple, f"{where} is a tuple, and {type(want)} in Python"
        for a, b in zip(x, want, strict=True):
            _compare(where, a, b)
    elif x is None:
        assert want is None, f"{where} is None, and {want} in Python"
    else:
        _compare_numbers(where, plain(x), want)


def _compare_numbers(where: str, got: Any, want: Any) -> None:
    assert type(got) is type(want), f"{where} is {type(got)}, and {type(want)} in Python"
    a, b = np.asarray(got), np.asarray(want)
    assert (a.shape, a.dtype) == (b.shape, b.dtype), f"{where}: {a!r}, {b!r}"
    if a.dtype.kind not in "fc":
        assert np.array_equal(a, b), f"{where} is {got}, and {want} in Python"
        return
    scale = np.max(np.abs(b), initial=0.0, where=np.isfinite(b))
    near = _TOLERANCE * (np.finfo(b.dtype).eps / np.finfo(float).eps)
    same = np.allclose(a, b, near, near * scale, equal_nan=True)
    assert same, f"{where} is {got}, and {want} in Python"
