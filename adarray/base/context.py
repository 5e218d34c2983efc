"""Running work in a copy of the current context: thread pools and generators.

The backend that `adarray.use` chose, `adarray.no_grad`, `adarray.intercept` and the
traces that are open belong to the current context (see `contextvars`). A worker of a
thread pool starts in an empty context of its own and does not see them; a generator,
on the contrary, runs in the context of whoever asks for its next item, and a ``with``
block in it leaks into that code between two items. `copy_context` mends both.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Yield = TypeVar("_Yield")
_Send = TypeVar("_Send")
_Return = TypeVar("_Return")


def copy_context(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return `function` bound to a copy of the current context.

    Parameters
    ----------
    function : callable
        The function to run, for instance in a pool. If it is a generator function, each item is
        computed in the copy.

    Returns
    -------
    callable
        Takes and returns the same as `function`. Every call starts from the context as it is now;
        what one call sets is visible neither to other calls nor to the caller.

    Notes
    -----
    Operations in the pool are recorded as in this thread, so gradients flow through values that
    workers return. Two threads must not write into the same array at the same time.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import numpy as np, adarray
    >>> def loss(x):
    ...     with ThreadPoolExecutor(2) as pool:
    ...         return sum(pool.map(adarray.copy_context(lambda r: np.sum(r * r)), x))
    >>> with adarray.use("numpy"):
    ...     print(adarray.grad(loss)(np.ones((2, 2))))
    [[2. 2.]
     [2. 2.]]
    """
    context = contextvars.copy_context()

    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def items(*args: _P.args, **kwargs: _P.kwargs) -> Any:
            return _in_context(context.copy(), function(*args, **kwargs))

        return items

    @functools.wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return context.copy().run(function, *args, **kwargs)

    return run


def _in_context(
    context: contextvars.Context, source: Generator[_Yield, _Send, _Return]
) -> Generator[_Yield, _Send, _Return]:
    """Yield what `source` yields, computed in `context`; pass values and errors on to it."""
    step: Callable[[], _Yield] = source.__next__
    try:
        while True:
            try:
                item = context.run(step)
            except StopIteration as end:
                value: _Return = end.value
                return value
            try:
                sent = yield item
            except GeneratorExit:
                raise
            except BaseException as error:  # thrown in by the caller
                step = functools.partial(source.throw, error)
            else:
                step = functools.partial(source.send, sent)
    finally:
        context.run(source.close)
