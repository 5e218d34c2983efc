"""`debug_nans`: where the first nan comes from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from adarray.base.engines import BaseEngine, WrappingEngine
from adarray.base.errors import user_line
from adarray.base.op import Op
from adarray.base.runtime import MODE, Mode, current_mode
from adarray.core.dispatch import compute
from adarray.core.graph import ResultCotangent, next_order
from adarray.core.trace import Handle
from adarray.ops.common import Placed


class NanChecker(WrappingEngine):
    """An engine that hands everything to another one (or NumPy) and checks the results."""

    def __init__(self, engine: BaseEngine | None, name: str) -> None:
        super().__init__(engine, name)
        self.inner = Mode(engine, name=name)
        # Creation number of a node -> where the user's code made it.
        self.places: dict[int, str] = {}

    def _run(self, op: Op, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        with np.errstate(invalid="ignore"):  # the error below says more than a warning
            r = compute(op, values, params, self.inner)
        *_, place = user_line()
        # The node of this operation, if one is recorded, gets the next number.
        self.places[next_order() - 1] = place
        if any(map(_has_nan, r if isinstance(r, tuple) else (r,))):
            operands = [i for i, v in enumerate(values) if _has_nan(v)]
            if not operands:
                raise FloatingPointError(f"{op.name}: the result has nan, no operand has{place}")
        return r

    def pointwise(self, op: Op, values: tuple[Any, ...]) -> Any:
        """Compute and check the result."""
        return self._run(op, values, {})

    def call(self, op: Op, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Compute and check the result."""
        return self._run(op, values, params)

    def derivative(self, op: Op, operand: int, g: Any, saved: tuple[Any, ...]) -> Any:
        """Let the engine compute; `check_cotangent` checks the result."""
        if self.wrapped is None:
            return NotImplemented
        return self.wrapped.derivative(op, operand, g, saved)

    def check_cotangent(self, op: Op, order: int, operand: int, g: Any, ct: Any) -> None:
        """Raise if a derivative rule made a nan out of a cotangent without one."""
        if _has_nan(ct) and not _has_nan(g):
            raise FloatingPointError(
                f"{op.name}: the derivative with respect to operand {operand} has nan, the "
                f"cotangent of the result has not{self.places.get(order, '')}"
            )


def _has_nan(x: Any) -> bool:
    x = x.g if type(x) in (ResultCotangent, Placed) else x  # one region or one result of several
    x = x._plain if isinstance(x, Handle) else x
    if isinstance(x, dict):
        return any(map(_has_nan, x.values()))
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind in "fc":
        return bool(np.isnan(x).any())
    return isinstance(x, float) and x != x


@contextlib.contextmanager
def debug_nans() -> Iterator[None]:
    """Context manager: raise an error where the first NaN appears, in values or in derivatives.

    Raises
    ------
    FloatingPointError
        If an operation on ADArrays returns NaN although none of its operands contains one, or if
        its derivative rule does although the cotangent of the result contains none. The message
        names the operation and the file and line of the code that called it, for derivatives as
        well.

    Notes
    -----
    Every result is checked, and the source line of every operation is stored until the context
    ends, which makes small operations several times slower. Open the context around the transform,
    not inside the function that is differentiated.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> with adarray.debug_nans():
    ...     adarray.grad(lambda x: np.sqrt(x) * x)(0.0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    FloatingPointError: sqrt: the derivative with respect to operand 0 has nan, the ...
    """
    mode = current_mode()
    checker = NanChecker(mode.engine, mode.name)
    token = MODE.set(Mode(checker, mode.record, mode.name))
    try:
        yield
    finally:
        MODE.reset(token)
