"""ravel: a nest of arrays as one vector, which is what optimisers take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adarray.arrays.adarray import ADArray
from adarray.base.aval import refuse_subclass
from adarray.base.errors import DTypeError, ShapeError
from adarray.core.trace import Handle
from adarray.device import KINDS, adopt
from adarray.transforms.modes import shape_of
from adarray.transforms.tree import LeafPath, Unflatten, flatten, is_floating


def ravel(tree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Turn a nest of arrays into one vector, and return a function that reverses this.

    Parameters
    ----------
    tree : array, number, or nest of them
        Lists, tuples, dicts, namedtuples and dataclasses of floating-point or complex arrays and
        numbers. Other leaves (integers, booleans, text, functions, ...) are not variables, and are
        left out of the vector.

    Returns
    -------
    vector : ndarray or ADArray, shape (n,)
        A copy of all elements in C order, leaf by leaf (of a dict, in the order of its sorted
        keys). Its dtype is the one that the dtypes of the leaves promote to; float64 if there are
        no elements.
    unravel : callable
        ``unravel(vector)`` takes a vector of shape ``(n,)`` and returns a nest with the structure,
        shapes and dtypes of `tree`, filled with copies of its elements. Leaves that were left out
        of the vector are as in `tree`.

    Raises
    ------
    ShapeError
        From `unravel`, if the vector has another shape.
    DTypeError
        From `unravel`, if the vector is complex and the nest is real.

    See Also
    --------
    grad : Has None for other leaves, so that ``ravel(gradient)`` matches ``ravel(tree)``.

    Notes
    -----
    Both directions are differentiable, and can be used inside functions that are differentiated or
    compiled. If some leaves are complex, the whole vector is; `unravel` takes the real parts for
    real leaves.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> vector, unravel = adarray.ravel({"weight": np.ones((2, 2)), "bias": 0.5, "steps": 3})
    >>> vector
    array([0.5, 1. , 1. , 1. , 1. ])
    >>> unravel(2.0 * vector)
    {'weight': array([[2., 2.],
           [2., 2.]]), 'bias': 1.0, 'steps': 3}
    """
    leaves, rebuild = flatten(tree)
    parts = [
        _opened(x, LeafPath("ravel", "tree", tree, k))
        for k, x in enumerate(leaves)
        if is_floating(x)
    ]
    # Of arrays alone: a Python number would give way to a narrower dtype, and lose digits.
    vector = np.concatenate([np.reshape(p, -1) for p in parts]) if parts else np.zeros(0)
    return vector, Unravel(leaves, rebuild, vector.dtype.kind == "c")


def _opened(x: Any, where: Any) -> Any:
    """Return a leaf as an array of NumPy or of ours."""
    if isinstance(x, Handle):
        return x
    if type(x) in KINDS:
        return ADArray(adopt(x))
    return np.asarray(refuse_subclass(x, where))


class _Part(NamedTuple):
    """How a piece of the vector becomes a leaf.

    Parameters
    ----------
    start, stop : int
    shape : tuple of int
    dtype : dtype
    kind : type or None
        Of a number: float, complex or a scalar of NumPy.
    """

    start: int
    stop: int
    shape: tuple[int, ...]
    dtype: Any
    kind: type | None


class Unravel:
    """The function that puts the elements of a vector into a nest; see `ravel`."""

    __slots__ = ("_complex", "_constants", "_parts", "_rebuild", "_size")

    def __init__(self, leaves: list[Any], rebuild: Unflatten, with_complex: bool) -> None:
        self._rebuild = rebuild
        self._complex = with_complex
        self._constants: list[Any] = []
        self._parts: list[_Part | None] = []
        at = 0
        for x in leaves:
            moves = is_floating(x)
            self._constants.append(None if moves else x)
            self._parts.append(_part(x, at) if moves else None)
            at += int(np.prod(shape_of(x), dtype=int)) if moves else 0
        self._size = at

    def __call__(self, vector: Any) -> Any:
        """Return the nest that has the elements of a vector."""
        x: Any = _opened(vector, "unravel")
        if x.shape != (self._size,):
            raise ShapeError(
                f"unravel: the vector has shape {x.shape}, and the nest takes ({self._size},); "
                "pass a vector such as ravel returned"
            )
        if x.dtype.kind == "c" and not self._complex:
            raise DTypeError(
                f"unravel: the vector is {x.dtype}, and the nest is real; pass a real vector"
            )
        pairs = zip(self._parts, self._constants, strict=True)
        return self._rebuild([k if p is None else _placed(x, p) for p, k in pairs])

    def __repr__(self) -> str:
        return f"<unravel of a vector of shape ({self._size},)>"


def _part(x: Any, start: int) -> _Part:
    shape = shape_of(x)
    array = isinstance(x, (Handle, np.ndarray)) or type(x) in KINDS
    dtype = x.dtype if hasattr(x, "dtype") else np.result_type(x)
    stop = start + int(np.prod(shape, dtype=int))
    return _Part(start, stop, shape, dtype, None if array else type(x))


def _placed(vector: Any, p: _Part) -> Any:
    """Return the piece of the vector that a leaf is made of."""
    piece = np.reshape(vector[p.start : p.stop], p.shape)
    if p.dtype.kind != "c" and piece.dtype.kind == "c":
        piece = np.real(piece)
    piece = piece.astype(p.dtype)  # a copy: writes into it leave the vector as it is
    if p.kind is None or isinstance(piece, Handle):
        return piece
    return piece.item() if p.kind in (float, complex) else piece[()]
