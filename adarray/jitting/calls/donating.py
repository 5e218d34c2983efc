"""Arguments that the caller gives up: a result is written into their memory.

As with ``out=`` of NumPy's functions, the result is the array that was passed, in every call,
compiled or not. Where the result cannot be computed in place it is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adarray.base.aliasing import address, share
from adarray.base.levels import LEVEL
from adarray.base.runtime import MODE
from adarray.jitting.calls.front import JitFunction
from adarray.jitting.captures.objects import TooMuchError
from adarray.jitting.captures.walk import CaptureWalk
from adarray.jitting.shared.options import Options
from adarray.jitting.shared.signature import Bound
from adarray.jitting.tree.build import say
from adarray.jitting.tree.donation import is_array, matched, obstacle
from adarray.jitting.tree.entries import Entry
from adarray.transforms.tree import flatten


class DonatingFunction(JitFunction):
    """A jitted function that may overwrite some of its arguments.

    Nothing is donated where a derivative is taken, which needs the arguments later, nor of
    ADArrays.
    """

    def __init__(self, f: Callable[..., Any], options: Options) -> None:
        super().__init__(f, options)
        self._unused: set[Any] = set()  # forms of donated arrays that no result has

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; results take the memory of donated arguments."""
        mode = MODE.get()
        if LEVEL.get() or (mode is not None and mode.symbolic):
            return super().__call__(*args, **kwargs)
        arrays = self._donated(args)
        self._refuse(arrays, args, kwargs)
        recorded = self._inputs_alone()
        if not recorded:
            self._refuse_reached(arrays)
        result = super().__call__(*args, **kwargs)
        if recorded and recorded != self._inputs_alone():  # another path, or another signature
            self._refuse_reached(arrays)
        return self._settled(result, arrays)

    def _inputs_alone(self) -> int:
        """Return the number of recordings if all that they have read are inputs, else 0."""
        count = 0
        for entry in self._table.values():
            if entry.eager or not entry.variants:
                return 0
            for v in entry.variants:
                if v.state.hidden is not None or v.contents:
                    return 0
                count += v.tree.recordings
        return count

    def _refuse_reached(self, arrays: list[np.ndarray]) -> None:
        """Raise if a donated array is one that the function reaches by any way."""
        try:
            order = CaptureWalk(self._f, []).order
        except TooMuchError as error:
            raise ValueError(
                f"jit: donate: {self._name()}: whether it reaches a donated array is not known: "
                f"{error}; or do not donate"
            ) from None
        reached = [obj.value for obj in order if isinstance(obj.value, np.ndarray)]
        self.refuse_shared(arrays, reached, "what the function captured")

    def _donated(self, args: tuple[Any, ...]) -> list[np.ndarray]:
        """Return the arrays that a call gives up."""
        arrays: list[np.ndarray] = []
        for k in self.options.donate:
            if k >= len(args):
                raise TypeError(
                    f"jit: donate: argument {k} of {self._name()} is to be donated, got "
                    f"{len(args)} positional arguments; pass it by position"
                )
            x = args[k]
            leaves = [x] if type(x) is np.ndarray else flatten(x)[0]
            arrays += [x for x in leaves if type(x) is np.ndarray and x.ndim]
        return arrays

    def _refuse(
        self, arrays: list[np.ndarray], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Raise if an array cannot be given up."""
        for x in arrays:
            why = obstacle(x)
            if why:
                raise ValueError(
                    f"jit: donate: {self._name()}: a donated array ({x.dtype}{list(x.shape)}) "
                    f"{why}; pass a copy, or do not donate it"
                )
        if not kwargs and all(type(x) is np.ndarray or np.isscalar(x) for x in args):
            others: Sequence[Any] = args
        else:
            others = flatten((args, kwargs))[0]
        self.refuse_shared(arrays, others, "another argument")

    def refuse_shared(self, arrays: list[np.ndarray], others: Sequence[Any], what: str) -> None:
        """Raise if a donated array is there a second time, or what is a view of it."""
        for x in arrays:
            count = 0
            for y in others:
                if y is x:
                    count += 1
                elif isinstance(y, np.ndarray) and y.base is not None and np.may_share_memory(x, y):
                    count += 2
            if count > (what == "another argument"):
                raise ValueError(
                    f"jit: donate: {self._name()}: a donated array ({x.dtype}{list(x.shape)}) "
                    f"shares memory with {what}; pass a copy, or do not donate it"
                )

    def _permit(self, args: tuple[Any, ...], captured: list[Any]) -> None:
        """Raise if a donated array is captured as well."""
        if captured:
            self.refuse_shared(self._donated(args), captured, "what the function captured")

    def _settled(self, result: Any, arrays: list[np.ndarray]) -> Any:
        """Return a result with its arrays in the memory of those that were given up."""
        if len(arrays) == 1 and result is arrays[0]:
            return result
        leaves, rebuild = flatten(result)
        places = matched(arrays, [(x.shape, x.dtype) if is_array(x) else None for x in leaves])
        if all(k is not None and leaves[k] is x for k, x in zip(places, arrays, strict=True)):
            return result
        mine = {k: x for k, x in zip(places, arrays, strict=True) if k is not None}
        originals = list(leaves)
        for k, leaf in enumerate(originals):
            if is_array(leaf) and k not in mine:
                leaves[k] = _moved(leaf, [(originals[p], x) for p, x in mine.items()], arrays)
        moving = {k: x for k, x in mine.items() if originals[k] is not x}
        for k in moving:  # what would change with another one that moves
            if any(share(originals[k], x) for x in arrays):
                originals[k] = originals[k].copy()
        for k, x in moving.items():
            np.copyto(x, originals[k])
            leaves[k] = x
        for place, x in zip(places, arrays, strict=True):
            if place is None:
                self._say_unused(x)
        return rebuild(leaves)

    def _say_unused(self, x: np.ndarray) -> None:
        key = (x.shape, x.dtype)
        if key not in self._unused:
            self._unused.add(key)
            say(
                f"jit: donate: {self._name()}: no result has the shape and dtype of a donated "
                f"array ({x.dtype}{list(x.shape)}); it stays as it is"
            )

    def _name(self) -> str:
        return getattr(self, "__name__", repr(self._f))

    def _donated_inputs(self, entry: Entry, bound: Bound) -> tuple[int, ...]:
        """Return the numbers of the inputs whose memory compiled code may take."""
        if not entry.donates:
            return ()
        args, _ = bound.rebuild(list(range(len(bound.leaves))))
        places = [p for k in self.options.donate for p in flatten(args[k])[0]]
        numbers = {p: n for n, p in enumerate(bound.traced)}
        return tuple(
            numbers[p] for p in places if p in numbers and type(bound.leaves[p]) is np.ndarray
        )


def _moved(
    leaf: np.ndarray, moves: list[tuple[np.ndarray, np.ndarray]], arrays: list[np.ndarray]
) -> np.ndarray:
    """Return a leaf of a result beside others that move into donated arrays.

    Parameters
    ----------
    leaf : ndarray
    moves : list of (ndarray, ndarray)
        Leaves, and the arrays that they move to.
    arrays : list of ndarray
        All donated arrays: what is in them now may change.
    """
    for old, new in moves:
        if leaf is old:
            return new
        if share(leaf, old):  # a view of it stays one
            if old is new:
                return leaf
            start = address(leaf) - address(old)
            inside = old.flags.c_contiguous and leaf.itemsize == old.itemsize
            low, high = np.lib.array_utils.byte_bounds(leaf)
            bounds = np.lib.array_utils.byte_bounds(old)
            if not inside or low < bounds[0] or high > bounds[1]:
                return leaf.copy()
            return np.ndarray(leaf.shape, leaf.dtype, new, start, leaf.strides)
    return leaf.copy() if any(share(leaf, x) for x in arrays) else leaf
