"""Rules that a test registers are taken back; those that adarray loads meanwhile stay.

For tests of `register_rule` and its like.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from adarray.base.op import FUNCTIONS, OPS, POINTWISE, Op
from adarray.base.scope import package_of

_LIBRARIES = frozenset({"numpy", "scipy", "adarray", "builtins", "math"})


@contextlib.contextmanager
def rules_taken_back() -> Iterator[None]:
    """Forget the operations that are registered inside, and put back those that are removed.

    Modules with rules of adarray's own are loaded when they are needed first, and only once.
    """
    registries: tuple[dict[Any, Op], ...] = (OPS, FUNCTIONS, POINTWISE)
    copies = [dict(r) for r in registries]
    try:
        yield
    finally:
        for registry, before in zip(registries, copies, strict=True):
            for key in [k for k, op in registry.items() if k not in before and not _is_ours(op)]:
                del registry[key]
            registry.update(before)


def _is_ours(op: Op) -> bool:
    """Whether the function of an operation is a library's, and its rules are adarray's."""
    rules = (*op.rules, *(op.jvp if isinstance(op.jvp, (list, tuple)) else ()))
    modules = [getattr(f, "__module__", None) for f in rules if f is not None]
    function = getattr(op.numpy, "__module__", None)
    known = function is None or package_of(function) in _LIBRARIES  # a ufunc has none
    return known and all(package_of(m) == "adarray" for m in modules if m is not None)
