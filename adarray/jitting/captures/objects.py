"""The objects that a function reaches, and the ways between them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from adarray.jitting.captures.fingerprints import SavedFingerprint

LIMIT = 4000


class Edge:
    """A way from one object to another.

    Attributes
    ----------
    how : str
        ``item``, ``global``, ``builtin``, ``import``, ``cell``, ``default``, ``keyword``,
        ``attribute``, ``slot``, ``class``, ``module``, ``method``, ``part``, ``context``,
        ``element`` (of an array of objects), ``referent`` (of a weak reference) or ``fingerprint``
        (the same object as long as the parent has not changed).
    key : any
        Name, index or cell.
    child : CapturedObject
    clones : bool
        Whether a clone of the parent can have a clone of the child there.
    """

    __slots__ = ("child", "clones", "how", "key")

    def __init__(self, how: str, key: Any, child: CapturedObject, clones: bool = True) -> None:
        self.how = how
        self.key = key
        self.child = child
        self.clones = clones


class CapturedObject:
    """An object that the function reaches.

    Attributes
    ----------
    value : any
    kind : str
        ``array``, ``adarray``, ``device`` (an array of a device's library), ``scalar``,
        ``function``, ``method``, ``bound`` (a method of a builtin object), ``partial``,
        ``sequence``, ``mapping``, ``proxy``, ``view`` (of a dictionary), ``instance``, ``class``,
        ``module``, ``set``, ``random``, ``jitted``, ``cached``, ``dispatch``, ``variable``,
        ``transformed``, ``whole`` (see `checkpoint`),
        ``reference`` and ``proxied`` (weak ones), ``stand_in`` (for a library's
        object), ``objects`` (an array of them), ``content`` (compared by its contents),
        ``fingerprint`` (compared by one), ``opaque`` (by identity: code of libraries, and what
        never changes) or ``assumed`` (constant, by the user).
    name : str
        How the user would write it.
    edges : list of Edge
    direct : bool
        Whether a chain of clones leads to it.
    hidden : bool
        Whether there is a way to it that no clone covers.
    fingerprint : SavedFingerprint or None
        The fingerprint of an object of the kind ``fingerprint``.
    """

    __slots__ = ("direct", "edges", "fingerprint", "hidden", "kind", "name", "value")

    def __init__(self, value: Any, kind: str, name: str) -> None:
        self.value = value
        self.kind = kind
        self.name = name
        self.edges: list[Edge] = []
        self.direct = False
        self.hidden = False
        self.fingerprint: SavedFingerprint | None = None

    def grows(self, names: Collection[str]) -> bool:
        """Whether this is a list that runs only append to, given the names of those."""
        return self.name in names and type(self.value) is list

    def __repr__(self) -> str:
        return f"<captured {self.kind} {self.name}>"


class TooMuchError(Exception):
    """A function reaches more objects than can be checked at every call."""
