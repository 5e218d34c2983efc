"""The quick way to the entry of a call: keys of its arguments, and tests for the next ones.

It is for positional arguments that are arrays and numbers, or nests of these. Others are sorted
by `adarray.jitting.shared.signature.Bound`, which takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np

from adarray.base.aliasing import firsts
from adarray.base.scope import GENERATED
from adarray.core.trace import Handle
from adarray.device import KINDS, DeviceArray, adopt, form_of
from adarray.jitting.shared.signature import FLAGS, NUMBERS, array_key, arrays

Args = tuple[Any, ...]


def _is_nest(kind: type) -> bool:
    """Whether arguments of a class are taken apart: lists, dicts, tuples, and named ones.

    Not those of named tuples that may have attributes of their own.
    """
    return kind in (tuple, list, dict) or (
        issubclass(kind, tuple) and hasattr(kind, "_fields") and not kind.__dictoffset__
    )


def fast_key(args: Args) -> Hashable:
    """Return the key of arrays and numbers, or nests of them; None if there is anything else."""
    met: list[Any] = []
    key = _key(args, met)
    if key is None or len(set(map(id, met))) == len(met):
        return key
    return (key, "same", firsts(met, arrays()))


def _key(args: Args, met: list[Any]) -> Hashable:
    """Return the key of what stands side by side; append the arrays to `met`."""
    parts = []
    for x in args:
        part = _part(x, met)
        if part is None:
            return None
        parts.append(part)
    return tuple(parts)


def _part(x: Any, met: list[Any]) -> Hashable:
    """Return the part of an argument, or of what is in one, in the key; None if it has none."""
    kind = type(x)
    if kind is np.ndarray:
        met.append(x)
        return array_key(x)
    if kind in NUMBERS:
        return kind.__name__
    if kind is tuple or kind is list:
        key = _key(x, met)
        return None if key is None else (kind, key)
    if kind is dict:
        key = _key(tuple(x.values()), met) if all(type(k) is str for k in x) else None
        return None if key is None else (kind, *x, key)
    if _is_nest(kind):
        key = _key(x, met)
        return None if key is None else (kind, key)
    if kind in KINDS:
        met.append(x)
        return (*form_of(x, KINDS[kind](x), False), True, kind.__name__)
    if issubclass(kind, Handle):
        v = x._plain
        met.append(x)
        plain = x._node is None and x._x is None and type(v) is DeviceArray
        return (*v.form, v._writeable, kind.__name__) if plain else None
    return None


class Matcher:
    """Tests whether arguments have the `fast_key` of its own.

    Attributes
    ----------
    fits : callable
        The test: a tuple of arguments -> bool. It takes half the time of making the key.
    leaves : callable or None
        Returns the arrays and numbers in a tuple of arguments, in the order of
        `adarray.transforms.tree.flatten`; None if they are the arguments themselves.
    """

    __slots__ = ("fits", "leaves")

    def __init__(self, args: Args) -> None:
        space: dict[str, Any] = {"__name__": GENERATED, "A": np.ndarray, "T": DeviceArray}
        tests = [f"len(a) == {len(args)}"]
        nested = any(_is_nest(type(x)) for x in args)
        for i, (place, x) in enumerate(_walk("a", args, tests, space)):
            tests.extend(_tests(i, place, x, space))
        tests.extend(_same(list(_walk("a", args, []))))
        text = f"def fits(a): return {' and '.join(tests)}\n"
        # Names of containers are bound by the test; this one follows the whole ways.
        ways = [w for w, _ in _walk("a", args, [])]
        exec(text + f"def leaves(a): return [{', '.join(ways)}]", space)  # our own text
        # Functions among their own globals would be a cycle.
        leaves = space.pop("leaves")
        self.fits: Callable[[Args], bool] = space.pop("fits")
        self.leaves: Callable[[Args], list[Any]] | None = leaves if nested else None


def _walk(
    name: str, items: Any, tests: list[str], space: dict[str, Any] | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield where each leaf is and what it is; add tests of the containers on the way.

    With `space`, the names that tests may use, containers get names in the tests.
    """
    # Leaves of a dict come in the order of their keys.
    pairs = sorted(items.items()) if type(items) is dict else enumerate(items)
    for key, x in pairs:
        place, kind = f"{name}[{key!r}]", type(x)
        if not _is_nest(kind):
            yield place, x
            continue
        if space is not None:
            known = f"c{len(tests)}"
            space[f"n{len(tests)}"] = kind
            same = f"[*{known}] == {[*x]!r}" if kind is dict else f"len({known}) == {len(x)}"
            tests.append(f"type({known} := {place}) is n{len(tests)} and {same}")
            place = known
        yield from _walk(place, x, tests, space)


def _tests(i: int, place: str, x: Any, space: dict[str, Any]) -> Iterator[str]:
    """Yield the tests of one leaf."""
    kind = space[f"k{i}"] = type(x)
    if kind is np.ndarray:
        flags = x.flags.num & FLAGS
        space[f"d{i}"] = x.dtype
        yield f"(x := {place}).__class__ is A"
        yield f"x.flags.num & {FLAGS} == {flags} and x.shape == {x.shape!r}"
        yield f"x.dtype is d{i}"
        if not flags & 1:
            yield f"x.strides == {x.strides!r}"
    elif issubclass(kind, Handle):
        space[f"f{i}"] = x._plain.form
        yield f"type(x := {place}) is k{i} and x._node is None and x._x is None"
        yield f"type(x := x._plain) is T and (x._form or x.form) is f{i}"
        yield f"x._writeable is {x._plain._writeable}"
    elif kind in KINDS:
        array = adopt(x)
        space[f"f{i}"] = array.library.fits(array.form)
        yield f"type(x := {place}) is k{i} and f{i}(x)"
    else:
        yield f"(x := {place}).__class__ is k{i}"


# So many arrays of one kind are told apart in pairs; more by a set of their identities.
_PAIRS = 3


def _same(leaves: list[tuple[str, Any]]) -> Iterator[str]:
    """Yield the tests of which arrays are one object.

    Those of different form cannot be: the other tests tell them apart.
    """
    groups: dict[Hashable, list[tuple[str, Any]]] = {}
    for place, x in leaves:
        if isinstance(x, np.ndarray):
            form: Hashable = (x.dtype, x.shape)
        elif isinstance(x, arrays()):
            form = type(x).__name__
        else:
            continue
        groups.setdefault(form, []).append((place, x))
    for group in groups.values():
        known: dict[int, str] = {}
        for place, x in group:
            first = known.setdefault(id(x), place)
            if first is not place:
                yield f"{place} is {first}"
        places = list(known.values())
        if 1 < len(places) <= _PAIRS:
            for k, place in enumerate(places):
                yield from (f"{place} is not {other}" for other in places[:k])
        elif places[1:]:
            yield f"len({{{', '.join(f'id({p})' for p in places)}}}) == {len(places)}"
