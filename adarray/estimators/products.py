"""Automatic noise sites: products of values and parameters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from adarray.arrays.adarray import ADArray
from adarray.base.runtime import WATCHED
from adarray.core.dispatch import apply
from adarray.core.inplace import sync_if_view
from adarray.core.trace import Handle, root_of
from adarray.estimators.sites import noise_site
from adarray.transforms.running import prepared
from adarray.transforms.tree import LeafPath, flatten, is_floating

# Records of operations that multiply and sum.
PRODUCTS = ("matmul", "einsum", "tensordot", "conv2d", "matvec", "vecmat", "vecdot")

# The parameters of the run in this context: their names by the identity of their values.
_PARAMETERS: ContextVar[dict[int, str] | None] = ContextVar("adarray_parameters", default=None)
_lock = threading.Lock()
_runs = 0


class Marked:
    """A function whose products with its parameters are noise sites.

    Parameters
    ----------
    f : callable
    argnums : sequence of int
        Positions of the parameters. A site has the name of the parameter as it is written in
        Python, such as ``"['hidden'].weight"``; with several arguments, their number before it.
    """

    def __init__(self, f: Callable[..., Any], argnums: Sequence[int]) -> None:
        self.f = f
        self.argnums = argnums

    def __repr__(self) -> str:
        return repr(self.f)

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        new_args = list(args)
        names: dict[int, str] = {}  # by the identity of values, which this call holds
        plain = True
        for n in self.argnums:
            leaves, rebuild = flatten(args[n])
            prefix = "" if len(self.argnums) == 1 else str(n)
            marked = []
            for k, x in enumerate(leaves):
                if is_floating(x):
                    h = x if isinstance(x, Handle) else ADArray(x)
                    names[id(sync_if_view(h)._plain)] = _named(prefix, args[n], k)
                    marked.append(h)
                else:
                    marked.append(x)
            new_args[n] = rebuild(marked)
            plain = plain and not any(isinstance(x, Handle) for x in leaves)
        token = _PARAMETERS.set(names)
        _watch(1)
        try:
            result = prepared(self.f, True)(*new_args)
        finally:
            _watch(-1)
            _PARAMETERS.reset(token)
        if plain and isinstance(result, Handle):
            value = sync_if_view(result)._plain
            kind = type(value)  # a value of members passes for an ndarray
            return value if kind is np.ndarray or issubclass(kind, np.generic) else result
        return result


def _watch(change: int) -> None:
    """Let `apply` ask while there are such runs, in any thread."""
    global _runs
    with _lock:
        _runs += change
        if _runs:
            WATCHED.update(dict.fromkeys(PRODUCTS, _product))
        else:
            WATCHED.clear()


def _product(op: Any, operands: tuple[Any, ...], params: Any) -> Any:
    """Compute a product, and make it a site if an operand is a parameter or a view of one."""
    names = _PARAMETERS.get()
    if names is None:
        return NotImplemented
    name = next((names[k] for k in map(_identity, operands) if k in names), None)
    if name is None:
        return NotImplemented
    token = _PARAMETERS.set(None)
    try:
        product = apply(op, operands, params)
    finally:
        _PARAMETERS.reset(token)
    return noise_site(product, name)


def _identity(x: Any) -> int | None:
    """Return a key of a parameter, which its views share."""
    return id(root_of(sync_if_view(x))._plain) if isinstance(x, Handle) else None


def _named(prefix: str, tree: Any, k: int) -> str:
    """Return how a parameter is written in Python, less the name of the argument."""
    return str(LeafPath("", prefix, tree, k)).removeprefix(": ") or "parameter"
