"""Results that are arguments, captured arrays or each other, or views of these.

A recording computes values; what a caller can tell besides them is which results share memory.
So a result that is the object of an input, of another result, or a view of one of them, is no
value of the program: it is a link, followed when the result is put together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from adarray.base.aval import Symbolic
from adarray.base.recording import Symbol
from adarray.core.dispatch import replay
from adarray.core.inplace import sync_if_view
from adarray.core.trace import Handle, root_of
from adarray.jitting.shared.keys import replace_symbols, value_key
from adarray.jitting.shared.symbolic import UntraceableError, concrete, opened, symbolic


class Link(NamedTuple):
    """Where a leaf of a result comes from.

    Parameters
    ----------
    of : {"leaf", "input", "value", "constant"}
        Another leaf of the result, an input, an array that is no leaf, or one that is the same
        every time.
    place : int, Symbol or ndarray
        Its number; before values have numbers, the symbol of an array that is no leaf.
    steps : tuple
        The layout operations of the view, with symbols in them; none for the object itself.
    """

    of: str
    place: Any
    steps: tuple[Any, ...] = ()

    def numbers(self) -> list[int]:
        """Return the numbers of the values that the link needs."""
        return [*([self.place] if self.of == "value" else []), *_numbers_in(self.steps)]


class Numbered(NamedTuple):
    """A value in the steps of a link.

    Parameters
    ----------
    number : int
    """

    number: int


def _numbers_in(x: Any) -> list[int]:
    if type(x) is Numbered:
        return [x.number]
    if isinstance(x, (tuple, list)):
        return [n for i in x for n in _numbers_in(i)]
    if type(x) is dict:
        return _numbers_in(list(x.values()))
    return _numbers_in((x.start, x.stop, x.step)) if type(x) is slice else []


def _filled(x: Any, value: Callable[[int], Any]) -> Any:
    """Return steps with the values of a call in the places of their numbers."""
    kind = type(x)
    if kind is Numbered:
        number = value(x.number)
        number = number._plain if isinstance(number, Handle) else number
        return number.item() if hasattr(number, "item") else number
    if kind is tuple or kind is list:
        return kind([_filled(i, value) for i in x])
    if kind is dict:
        return {k: _filled(v, value) for k, v in x.items()}
    if kind is slice:
        return slice(*[_filled(i, value) for i in (x.start, x.stop, x.step)])
    return x


def links_of(
    leaves: Sequence[Any], inputs: Mapping[int, int], whole: bool, traced: Callable[[Any], Any]
) -> dict[int, Link]:
    """Return the links among the leaves of a result.

    Parameters
    ----------
    leaves : sequence
        As the function returned them.
    inputs : mapping
        From the identity of an input's handle to its number.
    whole : bool
        Whether views are left alone: those of arrays on a device are copies.
    traced : callable
        Returns the traced value of a plain or traced one.
    """
    links: dict[int, Link] = {}
    again: dict[int, Link] = {}  # followed last: what is there twice may be a link itself
    seen: dict[int, int] = {}
    others: dict[int, list[int]] = {}
    for k, x in enumerate(leaves):
        if not isinstance(x, Handle):
            continue
        if id(x) in seen:
            again[k] = Link("leaf", seen[id(x)])
            continue
        seen[id(x)] = k
        root = root_of(sync_if_view(x))
        if not isinstance(x._plain, np.ndarray) or (whole and root is not x):
            continue
        if id(root) in inputs:
            links[k] = Link("input", inputs[id(root)], _steps(x))
        else:
            others.setdefault(id(root), []).append(k)
    for members in others.values():
        if len(members) < 2:
            continue
        root = root_of(leaves[members[0]])
        base = next((k for k in members if leaves[k] is root), None)
        for k in members:
            if k != base:
                place = traced(root._plain).symbol if base is None else base
                links[k] = Link("value" if base is None else "leaf", place, _steps(leaves[k]))
    return links | again


def concrete_links_of(leaves: Sequence[Any], links: Mapping[int, Link]) -> dict[int, Link]:
    """Return the links of one run with its concrete values in them."""
    concrete_links = {}
    for k, link in links.items():
        x = leaves[k]
        if link.of == "value":
            v = root_of(x)._plain
            link = link._replace(place=v.value if isinstance(v, Symbolic) else v)
        if link.steps:
            link = link._replace(steps=concrete(opened(x._x.steps)))
        concrete_links[k] = link
    return concrete_links


def _steps(x: Handle) -> tuple[Any, ...]:
    steps = x._x.steps if x._x is not None and x._x.base is not None else ()
    symbols: tuple[Any, ...] = symbolic(opened(steps))
    return symbols


def numbered(link: Link, numbers: Mapping[int, Any], constants: Mapping[Any, Any]) -> Link:
    """Return a link with numbers in the place of symbols."""

    def number(s: Symbol) -> Any:
        n = numbers[id(s)]
        if isinstance(n, int):
            return Numbered(n)
        raise UntraceableError("jit: a result is a view at an index that was captured")

    steps = replace_symbols(link.steps, number)
    if link.of != "value":
        return link._replace(steps=steps)
    n = numbers[id(link.place)]
    if isinstance(n, int):
        return Link("value", n, steps)
    return Link("constant", np.array(constants[link.place]), steps)


def key_of(link: Link) -> Any:
    """Return the key of a link, equal in recordings of one path."""
    return (link.of, value_key(link.place, {}), value_key(link.steps, {}))


def follower(steps: tuple[Any, ...]) -> Callable[[Any, Callable[[int], Any]], Any]:
    """Return a function of ``(array, value by number)`` that takes the view of an array."""
    if not _numbers_in(steps):
        return lambda x, _: replay(x, steps)
    return lambda x, value: replay(x, _filled(steps, value))


def follow_links(
    leaves: Sequence[Any],
    links: Mapping[int, Link],
    targets: Sequence[Any],
    wrap: Callable[[Any], Any],
) -> list[Any]:
    """Return the leaves of the result of a recorded run, with the links followed.

    Parameters
    ----------
    leaves : sequence
        With anything in the places of links.
    links : mapping
        With concrete steps, and the arrays that are no leaves.
    targets : sequence
        The inputs, as the caller has them.
    wrap : callable
        Returns a value as the caller gets it.
    """
    results = [x if k in links else wrap(x) for k, x in enumerate(leaves)]
    bases: dict[int, Any] = {}
    for k, link in links.items():
        if link.of == "leaf":
            source = results[link.place]
        elif link.of == "input":
            source = targets[link.place]
        else:
            source = bases.setdefault(id(link.place), None)
            if source is None:
                source = bases[id(link.place)] = wrap(np.array(link.place, order="K"))
        results[k] = replay(source, link.steps)
    return results
