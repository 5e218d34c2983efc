"""One batch: how many members it has, and what happens where they go different ways."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from adarray.base.aval import Symbolic
from adarray.core.graph import next_order
from adarray.device import host, is_device

# Whether a reverse walk goes on in this context: it may meet values of batches that are over.
WALKING: ContextVar[bool] = ContextVar("adarray_walking", default=False)


class SplitError(BaseException):
    """A question that the members of a batch answer differently.

    No Exception: code that catches those goes on for all members in one way.

    Parameters
    ----------
    batch : Batch
    groups : list of ndarray
        Numbers of the members with the same answer, for every answer.
    """

    def __init__(self, batch: Batch, groups: list[np.ndarray]) -> None:
        super().__init__("vmap: members of a batch go different ways")
        self.batch = batch
        self.groups = groups


class Batch:
    """The members that one run of a function stands for.

    Parameters
    ----------
    size : int
        How many there are.
    level : int
        Of the trace: grows with nesting.
    strict : bool
        Whether jitted functions refuse its members: they are faster one by one, compiled.

    Attributes
    ----------
    order : int
        Creation number of the first node in it; numbers of older nodes are larger.
    open : bool
        Whether the function still runs.
    walks : int
        How many derivative rules run on values of it, of a walk that knows what to do where they
        look at values.
    """

    __slots__ = ("level", "open", "order", "size", "strict", "walks")

    def __init__(self, size: int, level: int, strict: bool = False) -> None:
        self.size = size
        self.level = level
        self.strict = strict
        self.order = next_order()
        self.open = True
        self.walks = 0


def concrete_of(x: Any) -> Any:
    """Return the values behind a symbolic array, on the host."""
    while isinstance(x, Symbolic):
        x = x.value
    return host(x) if is_device(x) else np.asarray(x)


def groups_of(rows: np.ndarray) -> list[np.ndarray]:
    """Return the numbers of equal rows, in the order in which the rows come first."""
    groups: dict[bytes, list[int]] = {}
    for k, row in enumerate(rows):
        groups.setdefault(row.tobytes(), []).append(k)
    return [np.array(numbers) for numbers in groups.values()]


def split(values: np.ndarray, batches: Sequence[Batch]) -> None:
    """Raise if members differ: the outermost batch whose members do is the one to split.

    Parameters
    ----------
    values : ndarray
        Has an axis for every batch in front.
    batches : sequence of Batch
        From the outermost.

    Raises
    ------
    SplitError
    """
    for k, batch in enumerate(batches):
        groups = groups_of(np.moveaxis(values, k, 0))
        if len(groups) > 1:
            raise SplitError(batch, groups)
