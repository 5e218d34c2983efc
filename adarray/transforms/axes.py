"""The axes along which the members of a batch lie: ``in_axes`` and ``out_axes``."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.errors import ShapeError
from adarray.transforms.modes import shape_of
from adarray.transforms.tree import NAMESPACE, LeafPath, flatten, is_array


def spread(name: str, axes: Any, tree: Any) -> list[int | None]:
    """Return an axis, or None, for every leaf of a tree.

    Parameters
    ----------
    name : str
        Of the argument, for errors.
    axes : int, None, or nest of them
        Whose structure is that of the tree, down to where one stands for all below.
    tree : any

    Raises
    ------
    TypeError
    """
    count = len(flatten(tree)[0])
    if axes is None or (isinstance(axes, (int, np.integer)) and not isinstance(axes, bool)):
        return [None if axes is None else int(axes)] * count
    import optree

    try:
        all_axes = optree.broadcast_prefix(axes, tree, none_is_leaf=True, namespace=NAMESPACE)
        all_leaves = optree.tree_leaves(tree, none_is_leaf=True, namespace=NAMESPACE)
    except ValueError as error:
        raise TypeError(
            f"vmap: {name} has another structure than what it is for: {error}; give an int or "
            "None, or a nest of them"
        ) from None
    leaf_axes = [a for a, x in zip(all_axes, all_leaves, strict=True) if x is not None]
    for a in leaf_axes:
        if a is not None and (isinstance(a, bool) or not isinstance(a, (int, np.integer))):
            raise TypeError(f"vmap: {name} holds {a!r}; an axis is an int or None")
    return [None if a is None else int(a) for a in leaf_axes]


def axes_of(args: tuple[Any, ...], kwargs: dict[str, Any], in_axes: Any) -> list[int | None]:
    """Return where the members lie in every leaf of the arguments, keyword arguments last.

    Raises
    ------
    TypeError
    """
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if isinstance(in_axes, tuple):
        if len(in_axes) != len(args):
            raise TypeError(
                f"vmap: in_axes has {len(in_axes)} entries and the function got {len(args)} "
                "positional arguments; give one for each"
            )
        positional = [
            a for axes, x in zip(in_axes, args, strict=True) for a in spread("in_axes", axes, x)
        ]
    elif in_axes is None or isinstance(in_axes, (int, np.integer)):
        positional = spread("in_axes", in_axes, args)
    else:
        raise TypeError(
            f"vmap: in_axes is a {type(in_axes).__name__}; give an int, None, or a tuple with one "
            "entry for each positional argument"
        )
    return positional + spread("in_axes", 0, kwargs)


def size_of(
    args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any], axes: list[int | None]
) -> tuple[int, list[int | None]]:
    """Return the number of members, and the axes, none of them negative.

    Raises
    ------
    ShapeError
        If there is no such axis, or sizes differ.
    TypeError
        If nothing has members.
    """
    places = _places(args, kwargs)
    size, first = None, ""
    normalized: list[int | None] = []
    for x, axis, where in zip(leaves, axes, places, strict=True):
        if axis is None:
            normalized.append(None)
            continue
        if not is_array(x):
            raise TypeError(
                f"{where}: is a {type(x).__name__}, which has no axes; give None for it in in_axes"
            )
        shape = shape_of(x)
        if not -len(shape) <= axis < len(shape):
            raise ShapeError(
                f"{where}: has shape {shape}, and no axis {axis} along which members lie; give "
                "another in in_axes, or None for what all members share"
            )
        normalized.append(axis % len(shape))
        n = shape[axis]
        if size is None:
            size, first = n, f"{where} has {n} members along axis {axis}"
        elif n != size:
            raise ShapeError(
                f"{first}, and {str(where).removeprefix('vmap: ')} has {n} along axis {axis}; they "
                "must be equal"
            )
    if size is None:
        raise TypeError(
            "vmap: no argument has an axis of members: in_axes is None for all; give one, or call "
            "the function itself"
        )
    return size, normalized


def _places(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return where every leaf is, for errors."""
    trees: list[tuple[Any, Any]] = [*enumerate(args)]
    trees += [(f"argument {k}", kwargs[k]) for k in sorted(kwargs)]
    return [LeafPath("vmap", k, tree, i) for k, tree in trees for i in range(len(flatten(tree)[0]))]


def result_axes(rebuild: Any, leaves: list[Any], out_axes: Any) -> list[int | None]:
    """Return where the members shall lie in every leaf of a result.

    Raises
    ------
    TypeError
    """
    if out_axes is None or isinstance(out_axes, (int, np.integer)):
        return [None if out_axes is None else int(out_axes)] * len(leaves)
    if isinstance(out_axes, list):
        out_axes = tuple(out_axes)
    return spread("out_axes", out_axes, rebuild(leaves))
