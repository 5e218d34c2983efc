"""The differentiated arguments of a transform, and what comes back to the caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adarray.ad.reverse import Pullback, check_guard
from adarray.arrays.adarray import ADArray
from adarray.arrays.plainarrays import opened
from adarray.base.aval import BATCHED, Symbolic
from adarray.base.errors import DTypeError, ShapeError
from adarray.core.graph import Node
from adarray.core.inplace import sync_if_view
from adarray.core.trace import Extras, Handle, alive, leaf, snapshot
from adarray.device import KINDS, adopt, host, is_device
from adarray.ops.common import zero_beside
from adarray.transforms.shared import ArgumentPlace, check_copies, remember, tie
from adarray.transforms.tree import LeafPath, flatten, is_array
from adarray.transforms.variables import Variables, check_variables, no_array

Argnums = int | str | Sequence[int | str]


class Inputs:
    """The differentiated arguments of one call, as inputs of one trace.

    Parameters
    ----------
    name : str
        The transform, for errors.
    args : tuple
        All positional arguments.
    argnums : int or sequence of int
        Which of them to differentiate.
    level : int
        Level of the trace.
    f : callable, optional
        The function, and its keyword arguments.
    kwargs : dict, optional
    allow_int : bool
        Whether arguments without any floating leaf are taken.
    """

    def __init__(
        self,
        name: str,
        args: tuple[Any, ...],
        argnums: Argnums,
        level: int,
        f: Any = None,
        kwargs: dict[str, Any] | None = None,
        allow_int: bool = False,
    ) -> None:
        self.name = name
        self.closed = False  # whether the trace is over, and a pullback runs
        self.argnums = argnums
        self.level = level
        picked = pick(name, args, argnums)
        self.trees: list[Variables] = []
        self.leaves: list[Handle] = []
        self.originals: list[Any] = []
        new = list(args)
        places: list[ArgumentPlace] = []
        others = len(args) > 1 or kwargs  # that may share memory with the first
        self.copies: list[Any] = []  # see `tie`
        self.plain: list[tuple[int, Any, Handle, Any]] = []  # see `refuse_unseen`
        for k in picked:
            tree = Variables(args[k])
            if not tree.whole:
                check_variables(name, k, args[k], tree, allow_int)
            moving, new_leaves = tree.moving, []
            for i, x in zip(tree.places, moving, strict=True):
                where: Any = LeafPath(name, k, args[k], i)
                new_leaves.append(leaf(ADArray, sync_if_view(x), level, where))
            self.leaves += new_leaves
            self.originals += moving
            self.trees.append(tree)
            # The function gets handles of its own: in-place updates move them.
            handles = [type(h)(h._plain, h._node, h._x, True) for h in new_leaves]
            for x, h, m in zip(moving, handles, new_leaves, strict=True):
                if has_memory(x):
                    self.plain.append((k, x, h, m._plain))
                    if others or len(tree.leaves) > 1:
                        places.append(ArgumentPlace(f"{name}: argument {k}", x, h))
            if not tree.whole:
                constants = [x for x in tree.constants if has_memory(x)]
                places += [ArgumentPlace(f"{name}: argument {k}", x, None) for x in constants]
            new[k] = tree.argument(handles)
        if not self.leaves and picked and not allow_int and all(args[k] is None for k in picked):
            raise no_array(f"{name}: argument {picked[0]}", None)
        self.args = tuple(new)
        if others and (len(args) > len(picked) or kwargs):
            rest = [(f"{name}: argument {k}", x) for k, x in enumerate(args) if k not in picked]
            rest += [(f"{name}: argument {k}", x) for k, x in (kwargs or {}).items()]
            places += [
                ArgumentPlace(where, y, None)
                for where, x in rest
                for y in (flatten(x)[0] if isinstance(x, (list, tuple, dict)) else (x,))
                if has_memory(y)
            ]
        if len(places) > 1:
            self.copies = tie(f, places)
        if self.plain:
            remember(f"{name}: argument", level, self.plain)
        self.nodes: list[Node] = [h._node for h in self.leaves if h._node is not None]

    def pull(self, results: list[tuple[Node, Any]], release: bool = False) -> Any:
        """Return the gradients, in the structure of the arguments.

        `release` frees the graph on the way: it will not be walked again.
        """
        self.check()
        walk = Pullback(self.level, {n.order for n in self.nodes}, release=release)
        for node, g in results:
            walk.add(node, walk.seed(g))
        return self.rebuild(self.cotangents(walk.run()))

    def check(self) -> None:
        """Raise if an argument was changed where that is not seen."""
        if self.copies:
            check_copies(self.copies)
        for n in self.nodes:
            if n.guard is not None:
                check_guard(n)

    def cotangents(self, by_order: dict[int, Any]) -> list[Any]:
        """Return the cotangents that a walk has found, one for each leaf, of its kind."""
        grads, seen = [], set()
        for n, x in zip(self.nodes, self.originals, strict=True):
            g = self._mirror(by_order.get(n.order), n, x)
            if isinstance(g, np.ndarray):
                if id(g) in seen:  # one cotangent reached two inputs unchanged
                    g = g.copy()
                seen.add(id(g))
            grads.append(g)
        return grads

    def _mirror(self, g: Any, node: Node, original: Any) -> Any:
        """Return a gradient of the kind of the input: ADArray for ADArray or traced, else plain."""
        recorded = isinstance(original, Handle) and isinstance(original._plain, Symbolic)
        if g is None:
            g = zero_beside(_value(original), node.aval.shape, node.aval.dtype)
            if recorded:  # nobody else has these zeros
                return g.item() if node.aval.weak else ADArray(g)
        if isinstance(g, Handle):
            sync_if_view(g)
            if recorded and node.aval.weak and not alive(g, self.level, self.closed):
                return g._plain.item()  # as below: a Python number gets one
            if isinstance(original, Handle) or alive(g, self.level, self.closed):
                return g
            if isinstance(g._plain, Symbolic):
                return g
            g = g._plain
        if type(g) in BATCHED:  # of members of a batch, whatever was given
            return ADArray(g.copy())
        if isinstance(original, Handle):
            return _beside(original._plain, g)
        if type(original) in KINDS:
            return adopt(original).library.place(np.copy(g)).raw
        g = host(g)
        if node.aval.weak:
            return complex(g) if node.aval.dtype.kind == "c" else float(g)
        if isinstance(original, np.ndarray):
            return fresh(g, original.shape)
        return np.asarray(g)[()]

    def rebuild(self, leaves: list[Any]) -> Any:
        """Return `leaves` in the structure of the differentiated arguments."""
        gradients, at = [], 0
        for tree in self.trees:
            count = len(tree.places)
            gradients.append(tree.gradient(leaves[at : at + count]))
            at += count
        return gradients[0] if isinstance(self.argnums, int) else tuple(gradients)


def has_memory(x: Any) -> bool:
    """Whether an argument is an array that others may see, too."""
    kind = type(x)
    return (
        kind is np.ndarray
        or kind is np.memmap
        or (isinstance(x, Handle) and isinstance(x._plain, np.ndarray))
    )


def _value(x: Any) -> Any:
    """Return the plain value of an argument; that of a device's array shares its memory."""
    return x._plain if isinstance(x, Handle) else adopt(x) if type(x) in KINDS else x


def _beside(v: Any, g: Any) -> ADArray:
    """Return the gradient `g` as an ADArray where the value `v` is."""
    if not is_device(v):
        return ADArray(np.array(g)[()])
    g = v.library.place(g if isinstance(g, np.ndarray) else np.asarray(g))
    # Others may hold it too, or see it through another view: a write copies it first.
    return ADArray(g.library.wrap(g.raw, v.scalar), None, None, True)


def pick(name: str, args: tuple[Any, ...], argnums: Argnums) -> list[int]:
    """Return `argnums` as a list of non-negative positions in `args`.

    Raises
    ------
    TypeError
        If a position is out of range or given twice.
    """
    if type(argnums) is int and 0 <= argnums < len(args):
        return [argnums]
    wanted: list[Any] = [argnums] if isinstance(argnums, int) else list(argnums)
    for k in wanted:
        if not isinstance(k, int) or not -len(args) <= k < len(args):
            raise TypeError(
                f"{name}: argnums={argnums!r}, but the function got {len(args)} positional "
                "arguments; pass the differentiated ones by position"
            )
    picked = [k % len(args) for k in wanted]
    if len(set(picked)) != len(picked):
        raise TypeError(f"{name}: argnums={argnums!r} names an argument twice")
    return picked


def fresh(g: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return `g` as a writeable ndarray that owns its memory, copied only if it does not."""
    if isinstance(g, np.ndarray) and g.base is None and g.flags.writeable and g.flags.owndata:
        return g
    return np.array(g).reshape(shape)


def mirrored(inputs: Sequence[Any]) -> Any:
    """Return the kind that results get, for `plain_result`, from the kinds of inputs.

    True for ADArrays, if one was given; the class of an array of a device, if one was; else
    False, for ndarrays.
    """
    kind: Any = False
    for x in inputs:
        if isinstance(x, Handle):
            return True
        if KINDS and not kind and type(x) in KINDS:
            kind = type(x)
    return kind


def plain_result(y: Any, level: int, to: Any) -> Any:
    """Return one leaf of a result as the caller may see it after the trace `level` closed.

    `to` is what `mirrored` returned.
    """
    if not isinstance(y, Handle):
        return opened(y)
    sync_if_view(y)
    if alive(y, level):
        # Nodes of the closed trace stay below it; they are harmless, since only
        # an outer trace can still be walked.
        return y
    if to is True:
        return _untraced(y)
    if isinstance(y._plain, Symbolic):
        return y
    if is_device(y._plain):
        return y._plain.host() if to is False else np.copy(y._plain).raw  # type: ignore[attr-defined]
    return y._plain.copy() if isinstance(y._plain, np.ndarray) else y._plain


def _untraced(y: Handle) -> Handle:
    """Return a (synchronised) handle of a closed trace as one that no trace sees."""
    x = y._x
    if y._node is None and (x is None or not x.tangents):
        return y
    handle = snapshot(y)
    handle._node = None
    handle._x = Extras(weak=True) if x is not None and x.weak else None
    return handle


def closed_tree(tree: Any, level: int, to: Any = False) -> Any:
    """Apply `plain_result` to every leaf of a tree."""
    leaves, rebuild = flatten(tree)
    return rebuild([plain_result(x, level, to) for x in leaves])


def check_scalar(name: str, y: Any, holomorphic: bool = False) -> None:
    """Raise unless a result can be differentiated by `grad`.

    Raises
    ------
    ShapeError, DTypeError, TypeError
    """
    v = y._plain if issubclass(type(y), Handle) else None
    if isinstance(v, (np.floating, float)) and not holomorphic:
        return  # what nearly every loss is
    if type(y) is bool:  # a comparison of Python numbers
        refuse_whole(name, [y])
    if not is_array(y):
        raise TypeError(
            f"{name}: the function returned a {type(y).__name__}, not a number; return one "
            "scalar (with has_aux=True, a pair of it and anything else)"
        )
    shape = y.shape if isinstance(y, Handle | np.ndarray) else ()  # type: ignore[union-attr]
    if shape != ():
        raise ShapeError(
            f"{name}: the function returned shape {shape}, not a scalar; reduce it (for "
            "instance with np.sum), or use adarray.jacobian or adarray.vjp"
        )
    dtype = y.dtype if hasattr(y, "dtype") else np.result_type(y)
    refuse_whole(name, [y])
    if dtype.kind == "c" and not holomorphic:
        raise DTypeError(
            f"{name}: the function returned {dtype}; return a real number, for instance its "
            "absolute value, or pass holomorphic=True for the derivative of an analytic function"
        )
    if dtype.kind != "c" and holomorphic:
        raise DTypeError(
            f"{name}: holomorphic=True, but the function returned {dtype}; an analytic function "
            "returns a complex number: leave holomorphic out"
        )


def refuse_whole(name: str, leaves: Sequence[Any]) -> None:
    """Raise if all results of a function are integers or truth values, which do not move.

    Raises
    ------
    DTypeError
    """
    dtype: Any = None
    for x in leaves:
        if not is_array(x) and type(x) is not bool:
            continue
        dtype = x.dtype if hasattr(x, "dtype") else np.result_type(x)
        if dtype.kind not in "biu":
            return
    if dtype is not None:
        raise DTypeError(
            f"{name}: the function returned {dtype}, which has no derivative; return floating "
            "point, for instance a weighted sum in place of a comparison or a count"
        )


def check_holomorphic(name: str, inputs: Sequence[Any]) -> None:
    """Raise unless all differentiated arguments are complex.

    Raises
    ------
    DTypeError
    """
    for i, x in enumerate(inputs):
        dtype = x.dtype if hasattr(x, "dtype") else np.result_type(x)
        if dtype.kind != "c":
            raise DTypeError(
                f"{name}: holomorphic=True, but input {i} has dtype {dtype}; pass complex "
                "arguments, or leave holomorphic out"
            )
