"""The end of a path: what it returns, and what it writes into its inputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np

from adarray.base.memory import order_of
from adarray.base.recording import Symbol
from adarray.jitting.captures.effects import apply
from adarray.jitting.recording.record import RecordedRun
from adarray.jitting.shared.devices import OnDevice
from adarray.jitting.shared.keys import value_key
from adarray.jitting.shared.links import key_of, numbered


class TreeLeaf:
    """How a path ends: what it returns, and what it writes into its inputs.

    Attributes
    ----------
    outputs : list
        For each leaf of the result ``(number, kind)``, or ``(None, plain value)``.
    writes : list of (int, int or None, ndarray or None)
        Input, and the number of its final value, or that value if it is always the same.
    links : dict of int to Link
        Leaves that are inputs, other leaves, or views of those; nothing is computed for them.
    orders : dict of int to tuple of int
        For leaves, and links to arrays that are no leaves, that do not lie in C order: the axes
        from the outermost in memory. NumPy copies such arrays in that order.
    rebuild : callable
        Puts the leaves into the structure of the result.
    effects : tuple of Effect
        What else is changed; the result is a pair then, see `RecordedRun`.
    find : callable or None
        Returns the objects that effects change, given the static arguments.
    """

    __slots__ = ("_finish", "effects", "find", "links", "orders", "outputs", "rebuild", "writes")

    def __init__(
        self,
        recorded: RecordedRun,
        numbers: dict[int, Hashable],
        constants: Mapping[Symbol, np.ndarray],
    ) -> None:
        self.rebuild = recorded.rebuild
        self.effects, self.find = recorded.effects, recorded.find
        self._finish: dict[bool, Callable[[Any, Any], Any]] = {}
        self.outputs: list[tuple[Any, Any]] = []
        arrays = dict(enumerate(recorded.leaves))
        arrays.update({k: x.place for k, x in recorded.concrete_links.items()})
        orders = {k: order_of(x) for k, x in arrays.items() if isinstance(x, np.ndarray)}
        self.orders = {k: axes for k, axes in orders.items() if axes is not None}
        self.links = {k: numbered(x, numbers, constants) for k, x in recorded.links.items()}
        for k, (x, leaf) in enumerate(
            zip(recorded.recording.outputs, recorded.leaves, strict=True)
        ):
            if k in self.links:
                self.outputs.append((None, None))
                continue
            number = numbers[id(x)] if type(x) is Symbol else None
            if isinstance(number, int):
                self.outputs.append((number, "number" if x.weak else _kind(leaf)))
            else:  # a capture that is the same every time, or no array at all
                array = isinstance(leaf, np.ndarray)
                self.outputs.append((None, leaf.copy("K") if array else leaf))
        self.writes: list[tuple[int, int | None, Any]] = []
        for (i, s), value in zip(recorded.recording.writes, recorded.written, strict=True):
            number = numbers[id(s)]
            known = isinstance(number, int)
            self.writes.append((i, number, None) if known else (i, None, value))  # type: ignore[arg-type]

    def finish(
        self,
        values: list[Any],
        inputs: list[Any],
        device: OnDevice | None = None,
        handles: bool = False,
    ) -> Any:
        """Return the result; see `adarray.jitting.tree.run.finisher`.

        Parameters
        ----------
        values : list
            By number.
        inputs : list
            The inputs, as the caller has them.
        device : OnDevice, optional
        handles : bool
            Whether arrays of the result are ADArrays.
        """
        finish = self._finish.get(handles)
        if finish is None:
            from adarray.jitting.tree.run import finisher  # which imports this module

            finish = finisher(self, range(len(values)), len(inputs), device, handles)
            self._finish[handles] = finish
        return finish(values, inputs)

    def changed(
        self, result_and_values: tuple[Any, list[Any]], statics: Any, arguments: tuple[Any, ...]
    ) -> Any:
        """Make the changes of the path with the output of `finish`, and return the result.

        Parameters
        ----------
        result_and_values : tuple
        statics : list
            Arguments that are no inputs.
        arguments : tuple
            ``(args, kwargs)`` of the call.
        """
        assert self.find is not None
        result, values = result_and_values
        apply(self.effects, self.find(statics), values, arguments)
        return result

    def key(self) -> Hashable:
        """Return the key of the end, equal in recordings of one path."""
        parts = [value_key(x if n is None else (n, x), {}) for n, x in self.outputs]
        links = [(k, key_of(x)) for k, x in self.links.items()]
        effects = [e._replace(key=value_key(e.key, {})) for e in self.effects]
        return (*parts, *links, value_key(self.writes, {}), *effects)

    def numbers(self) -> list[int]:
        """Return the numbers of the values that leave the path here."""
        written = {i: n for i, n, _ in self.writes}
        returned_inputs = [  # what is returned itself must not be overwritten by other results
            x.place for x in self.links.values() if x.of == "input" and x.place not in written
        ]
        return [*self.returned(), *(n for n in written.values() if n is not None), *returned_inputs]

    def returned(self) -> list[int]:
        """Return the numbers of the values in the result."""
        linked = [n for x in self.links.values() for n in x.numbers()]
        return [n for n, _ in self.outputs if n is not None] + linked


def _kind(leaf: Any) -> str:
    if isinstance(leaf, np.ndarray):
        return "array" if leaf.ndim else "cell"
    return "scalar" if isinstance(leaf, np.generic) else "number"
