"""Which leaves of an argument are variables: those that are floating or complex.

The others (integers, truth values, text, None, functions, ...) reach the function as they are, and
None stands in their places in a gradient. A tangent may have anything there.
"""

from __future__ import annotations

import array
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from adarray.base.errors import DTypeError
from adarray.base.frames import is_frame, is_labelled
from adarray.transforms.tree import LeafPath, Unflatten, first, flatten, is_array, is_floating

_ONE = (0,)


class Variables:
    """The leaves of a nest, and which of them are variables.

    Parameters
    ----------
    tree : any
    are : callable
        Tells whether a leaf is one.

    Attributes
    ----------
    leaves : list
        All of them.
    moving : list
        The variables.
    places : sequence of int
        Their positions among the leaves.
    whole : bool
        Whether all leaves are variables.
    """

    __slots__ = ("_rebuild", "leaves", "moving", "places", "whole")

    def __init__(self, tree: Any, are: Callable[[Any], bool] = is_floating) -> None:
        self.leaves: list[Any]
        self.places: Sequence[int]
        self._rebuild: Unflatten
        if type(tree) is np.ndarray and tree.dtype.kind in "fc":  # what most arguments are
            self.leaves, self._rebuild = [tree], first
            self.moving, self.places, self.whole = self.leaves, _ONE, True
            return
        self.leaves, self._rebuild = flatten(tree)
        self.moving = [x for x in self.leaves if are(x)]
        self.whole = len(self.moving) == len(self.leaves)
        if self.whole:
            self.places = range(len(self.leaves))
        else:
            self.places = [k for k, x in enumerate(self.leaves) if are(x)]

    @property
    def constants(self) -> list[Any]:
        """The leaves that are no variables."""
        return [self.leaves[k] for k in self.others()]

    def others(self) -> list[int]:
        """Return the positions of the leaves that are no variables."""
        if self.whole:
            return []
        moving = set(self.places)
        return [k for k in range(len(self.leaves)) if k not in moving]

    def emptied(self, others: bool = True) -> Variables:
        """Keep the structure, and none of the variables; with `others`, none of the leaves."""
        remaining = {} if others else {k: self.leaves[k] for k in self.others()}
        self.leaves = [remaining.get(k) for k in range(len(self.leaves))]
        self.moving = []
        return self

    def rebuilt(self, values: list[Any]) -> Any:
        """Return the nest with other values of all leaves."""
        return self._rebuild(values)

    def argument(self, values: Sequence[Any]) -> Any:
        """Return the nest with other values of the variables."""
        if self.whole:
            return self._rebuild(list(values))
        return self._rebuild(self._filled(list(self.leaves), values))

    def gradient(self, values: Sequence[Any]) -> Any:
        """Return the nest with what belongs to the variables, and None elsewhere."""
        if self.whole:
            return self._rebuild(list(values))
        return self._rebuild(self._filled([None] * len(self.leaves), values))

    def _filled(self, leaves: list[Any], values: Sequence[Any]) -> list[Any]:
        for k, x in zip(self.places, values, strict=True):
            leaves[k] = x
        return leaves

    def along(self, tree: Any) -> list[Any] | None:
        """Return the leaves of `tree` for the variables; None if its structure is another."""
        if self.whole:
            leaves, _ = flatten(tree)
            return leaves if len(leaves) == len(self.leaves) else None
        # By structure: anything may stand in the other places, None and nests too.
        spec: Any = getattr(self._rebuild, "args", (None,))[0]
        if spec is None:
            return []
        try:
            whole = spec.flatten_up_to(tree)
        except ValueError:
            return None
        leaves = [whole[k] for k in self.places]
        return None if any(x is None for x in leaves) else leaves


def check_variables(
    name: str, where: int | str, tree: Any, variables: Variables, allow_int: bool
) -> None:
    """Raise unless an argument has a variable, and no array that would be taken for none.

    Parameters
    ----------
    name : str
        The transform.
    where : int or str
        Number of the argument, or what it is called.
    tree : any
        The argument.
    variables : Variables
        Of it.
    allow_int : bool
        Whether an argument without any variable is taken.

    Raises
    ------
    DTypeError
    """
    if variables.whole:
        return
    others = variables.others()
    for k in others:
        x = variables.leaves[k]
        if not is_array(x) and _holds_numbers(x):
            raise no_array(LeafPath(name, where, tree, k), x)
    if variables.moving or allow_int:
        return
    k = next((k for k in others if is_array(variables.leaves[k])), others[0])
    x, place = variables.leaves[k], LeafPath(name, where, tree, k)
    if not is_array(x):
        raise no_array(place, x)
    dtype: Any = x.dtype if hasattr(x, "dtype") else type(x).__name__
    if getattr(dtype, "names", None):
        fix = f"pass its fields in a dict, such as {{{dtype.names[0]!r}: x[{dtype.names[0]!r}]}}"
    else:
        fix = (
            "pass floating point, for instance x.astype(float) or 3.0 for 3, or allow_int=True "
            "for None in its place"
        )
    raise DTypeError(
        f"{place}: has non-floating dtype {dtype}, which has no real derivative here; {fix}"
    )


def _is_sparse(x: Any) -> bool:
    return hasattr(type(x), "tocsr") and hasattr(x, "dtype")


def _holds_numbers(x: Any) -> bool:
    """Whether a leaf is an array of another kind, whose gradient would be lost without a word."""
    kind = type(x)
    if hasattr(kind, "__dlpack__") or hasattr(kind, "__array__"):
        return True
    if _is_sparse(x):
        return x.dtype.kind in "fc"
    return isinstance(x, array.array) and x.typecode in "fd"


def no_array(where: Any, x: Any) -> DTypeError:
    """Return the error for a leaf that cannot be differentiated."""
    kind = type(x)
    package = (kind.__module__ or "").partition(".")[0]
    name, fix = kind.__name__, "choose the arguments to differentiate with argnums"
    if x is None:
        return DTypeError(f"{where}: is None, not an array or a number; {fix}")
    if is_frame(x) or is_labelled(x):
        name, fix = f"{package} {name}", "pass x.to_numpy()"
    elif package == "xarray":
        name, fix = f"{package} {name}", "pass x['name'].to_numpy(), or a dict of several"
    elif hasattr(kind, "__dlpack__"):  # of another library
        name = f"{kind.__module__}.{kind.__qualname__}"
        fix = "pass adarray.array(x); CuPy's are taken once adarray.use('cuda') was called"
    elif _is_sparse(x):
        fix = "pass its nonzeros, x.data, and make the matrix of them in the function"
    elif isinstance(x, (array.array, memoryview)):
        name, fix = f"{package}.{name}", "pass np.asarray(x)"
    elif isinstance(x, numbers.Number) and not isinstance(x, bool):
        fix = "pass float(x)"
    elif isinstance(x, Iterable) and not isinstance(x, (str, bytes, Mapping)):
        fix = "pass a list, such as list(x)"
    elif hasattr(x, "__dict__") and not callable(x):
        fix = "pass its arrays in a dict, such as vars(x), or make its class a dataclass"
    article = "an" if name[0] in "aeioxAEIO" else "a"
    return DTypeError(f"{where}: is {article} {name}, not an array or a number; {fix}")
