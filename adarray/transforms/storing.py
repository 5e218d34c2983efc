"""Where the states of a loop are kept: in memory, or in a temporary file."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from adarray.arrays.adarray import ADArray
from adarray.core.trace import Extras, Handle, Tangent
from adarray.device import is_device
from adarray.transforms.tree import Unflatten


class LoopState:
    """A state of a loop: its leaves, and what puts them into its structure.

    Its arrays must not be written into.
    """

    __slots__ = ("leaves", "rebuild")

    def __init__(self, leaves: list[Any], rebuild: Unflatten) -> None:
        self.leaves = leaves
        self.rebuild = rebuild


class _Block:
    """An array that is in the file."""

    __slots__ = ("dtype", "nbytes", "offset", "shape")

    def __init__(self, x: np.ndarray, offset: int) -> None:
        self.shape, self.dtype, self.nbytes, self.offset = x.shape, x.dtype, x.nbytes, offset


class _Leaf:
    """An ADArray whose memory is in the file, with its tangents."""

    __slots__ = ("tangents", "value", "weak")

    def __init__(self, value: Any, weak: bool, tangents: list[tuple[int, Any]]) -> None:
        self.value = value
        self.weak = weak
        self.tangents = tangents


class Disk:
    """States in a temporary file that has no name: nothing is left behind, whatever happens.

    Parameters
    ----------
    directory : str or path, optional
        Where the file is; that of `tempfile`, if not given.
    """

    def __init__(self, directory: Any = None) -> None:
        self._directory = directory
        self._file: Any = None
        self._end = 0
        self._free: dict[int, list[int]] = {}  # offsets of blocks, by size

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file, which removes it."""
        file, self._file = getattr(self, "_file", None), None
        if file is not None:
            file.close()

    def put(self, state: LoopState) -> LoopState:
        """Write a state; return what stands for it."""
        return LoopState([self._put(x) for x in state.leaves], state.rebuild)

    def get(self, stored: LoopState) -> LoopState:
        """Read a state."""
        return LoopState([self._get(x) for x in stored.leaves], stored.rebuild)

    def drop(self, stored: LoopState) -> None:
        """Free the place of a state."""
        stack = list(stored.leaves)
        while stack:
            x = stack.pop()
            if isinstance(x, _Leaf):
                stack += [x.value, *(t for _, t in x.tangents)]
            elif isinstance(x, _Block):
                self._free.setdefault(x.nbytes, []).append(x.offset)

    def _put(self, x: Any) -> Any:
        if isinstance(x, Handle):
            if x._node is not None or is_device(x._plain):
                return x
            e = x._x
            tangents = [] if e is None else [(t.level, self._put(t.value)) for t in e.tangents]
            return _Leaf(self._put(x._plain), e is not None and e.weak, tangents)
        if not isinstance(x, np.ndarray) or x.dtype.hasobject or not x.nbytes:
            return x
        if self._file is None:
            tempfile = importlib.import_module("tempfile")  # some milliseconds, for few
            self._file = tempfile.TemporaryFile(prefix="adarray-", dir=self._directory)
        free = self._free.get(x.nbytes)
        block = _Block(x, free.pop() if free else self._end)
        self._end = max(self._end, block.offset + x.nbytes)
        self._file.seek(block.offset)
        self._file.write(np.ascontiguousarray(x).data.cast("B"))
        return block

    def _get(self, x: Any) -> Any:
        if isinstance(x, _Leaf):
            tangents = tuple(Tangent(level, self._get(t)) for level, t in x.tangents)
            e = Extras(tangents=tangents, weak=x.weak) if tangents or x.weak else None
            return ADArray(self._get(x.value), None, e, True)
        if not isinstance(x, _Block):
            return x
        array = np.empty(x.shape, x.dtype)
        self._file.seek(x.offset)
        self._file.readinto(array.reshape(-1).view(np.uint8).data)
        return array


class Snapshot:
    """A state that is kept, and the number of the step that it is for."""

    __slots__ = ("at", "disk", "state")

    def __init__(self, at: int, state: LoopState, disk: Disk | None) -> None:
        self.at = at
        self.disk = disk
        self.state = state if disk is None else disk.put(state)

    def get(self) -> LoopState:
        """Return the state."""
        return self.state if self.disk is None else self.disk.get(self.state)

    def drop(self) -> None:
        """Free its place."""
        if self.disk is not None:
            self.disk.drop(self.state)
