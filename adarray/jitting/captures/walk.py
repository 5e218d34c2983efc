"""What a function reads besides its arguments: globals, closures, defaults, attributes.

`captured` walks over everything that the function can reach under the names in its code.
Arrays in it become inputs of the compiled program, read again at every call; numbers,
text and the like are compared by value, functions and classes by identity. The walk only
reads; `adarray.jitting.captures.checks` makes the test that every call does, `clones` beside it a
copy of the function in which the inputs have taken the places of the arrays.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection
from typing import Any

from adarray.intercepting.memory import is_cached
from adarray.jitting.captures.expansion import BY_ANY_NAME, Expansion
from adarray.jitting.captures.fingerprints import OpaqueError, SavedFingerprint
from adarray.jitting.captures.kinds import INDIRECT, kind_of
from adarray.jitting.captures.objects import LIMIT, CapturedObject, Edge, TooMuchError
from adarray.jitting.captures.surroundings import is_outside, outside
from adarray.jitting.shared.options import Constants


class CaptureWalk:
    """The objects that a function reaches.

    Parameters
    ----------
    f : callable
    statics : list
        Arguments that are no inputs: callbacks, objects with methods.
    constants : Constants
        What is not walked.
    growing : set of str
        Names of lists that runs only append to: nothing in them is walked.

    Attributes
    ----------
    roots : list of CapturedObject
        Of `f`, then of `statics`.
    order : list of CapturedObject
        All, parents before their children.
    names : set of str
        What the code of all functions that were found calls things by.
    absent : dict
        By the identity of their dictionary: globals, and the names that functions look up
        there and do not find, such as those of builtins.
    whole : dict
        By their identity: globals all of which a function may read.
    undo : list of callable
        Functions that put back what objects of libraries hold now.
    opaque : str
        What cannot be compared, in a sentence; "" if everything can.
    """

    def __init__(
        self,
        f: Any,
        statics: list[Any],
        constants: Constants = Constants(),  # noqa: B008
        growing: Collection[str] = (),
    ) -> None:
        self.names: set[str] = set()
        # Attributes that code which gets others by any name uses as objects.
        self.passed: set[str] = set()
        self.growing = growing
        self._expansion = Expansion(self)
        self._constants = constants
        while True:  # functions that are found add names by which more is found
            count = len(self.names)
            self.order: list[CapturedObject] = []
            self._known: dict[int, CapturedObject] = {}
            self.absent: dict[int, tuple[dict[str, Any], set[str]]] = {}
            self.whole: dict[int, dict[str, Any]] = {}
            self.opaque = ""
            self.undo: list[Callable[[], None]] = []
            self.roots = [self._find(f, getattr(f, "__name__", type(f).__name__))]
            self.roots += [self._find(x, f"argument {i}") for i, x in enumerate(statics)]
            for obj in self.order:
                self._expand(obj)
                if len(self.order) > LIMIT:
                    raise TooMuchError(
                        f"it reaches more than {LIMIT} objects, as by {obj.name}; pass what "
                        "it needs as arguments"
                    )
            if not INDIRECT.isdisjoint(self.names):  # names that code gets attributes by
                texts = [x.value for x in self.order if type(x.value) is str]
                self.names.update(x for text in texts for x in text.split(".") if x.isidentifier())
            if len(self.names) == count:
                break
        if not BY_ANY_NAME.isdisjoint(self.names):
            for edge in [edge for obj in self.order for edge in obj.edges]:
                x, how = edge.child.value, edge.how
                attribute = how == "module" and edge.key in self.passed and isinstance(x, type)
                if (attribute or how not in _BY_NAME) and is_outside(x):
                    self.refuse_all_of(x, edge.child.name)
        _mark(self.roots)
        for obj in self.order:
            if obj.kind == "cached" and obj.hidden and is_cached(obj.value):
                self.refuse(
                    f"{obj.name} has a cache, and is held where jit cannot follow what it "
                    "returns; make it a global function or a method"
                )

    def _find(self, value: Any, name: str, steady: bool = False) -> CapturedObject:
        kind = "assumed" if self._constants.holds(value, name) else kind_of(value)
        if kind != "scalar":  # equal numbers may be one object, and change apart
            known = self._known.get(id(value))
            if known is not None:
                return known
        if steady and kind not in _DATA:
            kind = "opaque"
        obj = CapturedObject(value, kind, name)
        if kind != "scalar":
            self._known[id(value)] = obj
        self.order.append(obj)
        return obj

    def _expand(self, obj: CapturedObject) -> None:
        if obj.kind == "fingerprint":
            self._fingerprint(obj)
        elif obj.kind == "opaque":
            read = outside(obj.value, self.names)
            if read:
                self.refuse(f"it reads {read}, which may be another time by time")
        if not obj.grows(self.growing):
            obj.edges = [
                Edge(how, key, self._find(child, name, how == "module" and not clones), clones)
                for how, key, child, name, clones in self._expansion.children(obj)
            ]

    def _fingerprint(self, obj: CapturedObject) -> None:
        try:
            obj.fingerprint = SavedFingerprint(obj.value, is_walked, self.undo)
        except OpaqueError as error:
            self.refuse(
                f"{obj.name} is of type {type(obj.value).__name__}, which cannot be compared "
                f"in each call ({error}); pass what is needed of it as an argument, give "
                "adarray.register_captured a rule, or name it in assume_constant"
            )

    def fingerprint_of(self, x: Any) -> SavedFingerprint | None:
        """Return the fingerprint of an object that was found."""
        return self._known[id(x)].fingerprint

    def refuse_all_of(self, x: Any, name: str) -> None:
        """Note that code may read anything of a module of clocks, files or the like."""
        kind = "module" if isinstance(x, types.ModuleType) else "class"
        self.refuse(
            f"it may read anything of the {kind} {x.__name__}, which it uses as an object "
            f"({name}); write what it needs as {x.__name__}.name"
        )

    def refuse(self, why: str) -> None:
        """Note what cannot be compared, in a sentence; the first one counts."""
        self.opaque = self.opaque or why


# Ways that are looked at by their names.
_BY_NAME = frozenset({"global", "builtin", "import", "module", "cell"})
# Kinds of what modules of libraries hold that are walked; all else there is code.
_DATA = frozenset({"scalar", "sequence", "mapping", "array", "content", "set", "opaque", "function",
                   "assumed"})  # fmt: skip


def is_walked(x: Any) -> bool:
    """Whether a walk visits an object itself, wherever it is met."""
    return kind_of(x) in _WALKED


_WALKED = frozenset({"adarray", "device", "function", "method", "bound", "partial", "instance",
                     "class", "module", "jitted", "cached", "transformed", "whole", "dispatch",
                     "variable", "proxied", "view", "random"})  # fmt: skip


def _mark(roots: list[CapturedObject]) -> None:
    """Find out what clones lead to, and what can be reached without passing through one."""
    waiting = list(roots)
    for obj in roots:
        obj.direct = True
    hidden: list[CapturedObject] = []
    while waiting:
        obj = waiting.pop()
        for edge in obj.edges:
            if not edge.clones:
                hidden.append(edge.child)
            elif not edge.child.direct:
                edge.child.direct = True
                waiting.append(edge.child)
    while hidden:
        obj = hidden.pop()
        if not obj.hidden:
            obj.hidden = True
            hidden.extend(edge.child for edge in obj.edges)
