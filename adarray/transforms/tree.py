"""Nested containers of arrays: flattening with optree, and what counts as a leaf."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.core.trace import Handle
from adarray.device import KINDS

NAMESPACE = "adarray"
Unflatten = Callable[[list[Any]], Any]
_LEAVES = (Handle, np.ndarray, np.generic, float, complex, int)
_CONSTANT_TYPES = (str, bytes, bool, np.bool)  # of dataclasses, where they tell how to compute
_registered: set[type] = set()


def flatten(tree: Any) -> tuple[list[Any], Unflatten]:
    """Return the leaves of a tree and a function that rebuilds it from new leaves.

    Containers are lists, tuples, dicts, namedtuples, ordered and default dicts,
    dataclasses, and whatever is registered with optree. None holds no leaf.
    """
    if isinstance(tree, _LEAVES) or type(tree) in KINDS:  # the most common tree needs no optree
        return [tree], first
    import optree

    while True:
        leaves, spec = optree.tree_flatten(tree, namespace=NAMESPACE)
        fresh = {
            type(x)
            for x in leaves
            if dataclasses.is_dataclass(x)
            and not isinstance(x, type)
            and type(x) not in _registered
        }
        if not fresh:
            return leaves, functools.partial(optree.tree_unflatten, spec)
        for cls in fresh:
            _register_dataclass(cls)


def first(leaves: list[Any]) -> Any:
    """Return the first of the leaves: rebuilds a tree that is one leaf."""
    return leaves[0]


def _register_dataclass(cls: type) -> None:
    """Make optree look into a dataclass.

    Text and truth values in it, and fields that `__init__` does not take, stay as they are.
    """
    import optree

    names = tuple(f.name for f in dataclasses.fields(cls) if f.init)

    def unflatten(constants: Any, children: Any) -> Any:
        values = dict(constants)
        rest = (n for n in names if n not in values)
        return cls(**values, **dict(zip(rest, children, strict=True)))

    def flatten_one(obj: Any) -> Any:
        values = {n: getattr(obj, n) for n in names}
        constants = tuple((n, v) for n, v in values.items() if isinstance(v, _CONSTANT_TYPES))
        parts = {n: v for n, v in values.items() if not isinstance(v, _CONSTANT_TYPES)}
        return list(parts.values()), constants, tuple(parts)

    _registered.add(cls)
    optree.register_pytree_node(cls, flatten_one, unflatten, namespace=NAMESPACE)


def is_array(x: Any) -> bool:
    """Whether a leaf is an array or a number (and not, say, a string or a function)."""
    return (isinstance(x, _LEAVES) and not isinstance(x, bool)) or type(x) in KINDS


def is_number(x: Any) -> bool:
    """Whether a leaf is an array, a number or a truth value."""
    return is_array(x) or type(x) is bool


def is_floating(x: Any) -> bool:
    """Whether a leaf is floating or complex, so that it can be differentiated."""
    kind = type(x)
    if kind is np.ndarray:
        return x.dtype.kind in "fc"
    if issubclass(kind, Handle):
        v = x._plain
        return (v if isinstance(v, (np.ndarray, np.generic)) else x).dtype.kind in "fc"
    if issubclass(kind, (float, complex)):  # NumPy's float64 and complex128, too
        return True
    return is_array(x) and not issubclass(kind, int) and x.dtype.kind in "fc"


class LeafPath:
    """Where a leaf of an argument is, for errors: ``grad: argument 0['hidden'][1].bias``.

    Parameters
    ----------
    name : str
        The transform.
    k : int or str
        Number of the argument, or what it is called.
    tree : any
        The argument.
    i : int
        Number of the leaf in it.
    """

    __slots__ = ("i", "k", "name", "tree")

    def __init__(self, name: str, k: int | str, tree: Any, i: int) -> None:
        self.name = name
        self.k = k
        self.tree = tree
        self.i = i

    def __str__(self) -> str:
        where = self.k if isinstance(self.k, str) else f"argument {self.k}"
        if not (isinstance(self.tree, _LEAVES) or type(self.tree) in KINDS):
            import optree

            paths = optree.tree_accessors(self.tree, namespace=NAMESPACE)
            where = paths[self.i].codify(where)
        return f"{self.name}: {where}"
