"""Python numbers that are traced: ADArrays without what arrays have and numbers lack."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from adarray import ops as _ops  # noqa: F401  (gives ADArray its methods)
from adarray.arrays.adarray import ADArray, weakened
from adarray.arrays.questions import Indexing, Lacking, Shy, visible
from adarray.base.elsewhere import OF_ARRAYS, Elsewhere, shown
from adarray.base.levels import LEVEL
from adarray.base.scope import SCOPE, asking
from adarray.core.trace import Handle, plain_class

# What stays of an array in a Python number: adarray's own attributes. NumPy's protocols and the
# special methods of operators stay, too; those raise by themselves.
_OWN = frozenset({"array_class", "number_class", "backward", "detach", "grad", "numpy"}) | {
    "requires_grad"
}

# What traced values may be without adarray.
_PLAIN: list[type] = [np.ndarray, complex, float, int]
_PLAIN += [c for c in np.sctypeDict.values() if issubclass(c, (np.number, np.bool_))]


def _add_lacking() -> None:
    known = set(dir(ADArray))
    for name in {n for c in _PLAIN for n in dir(c)} - known:
        if name[0] != "_":
            setattr(ADArray, name, Lacking(name))


_add_lacking()


class Number(ADArray, metaclass=Shy):
    """A Python number, traced; `isinstance` knows it as an ADArray."""

    __slots__ = ()
    _shown = float
    __getitem__ = Indexing(ADArray.__getitem__)

    def conjugate(self, out: Any = None) -> Any:  # noqa: ARG002  (as that of arrays)
        """Return the complex conjugate, a Python number."""
        z: Any = self
        return weakened(np.conjugate(z)) if self.dtype.kind == "c" else +z


def _hide() -> None:
    for name in dir(ADArray):
        if name.startswith("_") or name in _OWN or hasattr(float, name):
            continue
        member = next(c.__dict__[name] for c in ADArray.__mro__ if name in c.__dict__)
        type.__setattr__(Number, name, visible(name, member))


_hide()


def _listed(x: Handle) -> list[str]:
    """Return the attributes of a value, for ``dir``: those of its plain class, and our own.

    Transformed code looks for arrays of other libraries by them, and gets the plain class's.
    """
    plain = plain_class(x)
    if (LEVEL.get() or SCOPE.get() is not None) and asking(sys._getframe(1)) is not None:
        return dir(plain)
    return [n for n in shown(x) if n[0] == "_" or n in _OWN or hasattr(plain, n)]


def _add_hints() -> None:
    known: Any = ADArray
    for name in OF_ARRAYS.keys() - set(dir(ADArray)):
        setattr(known, name, Elsewhere(name))
    known.__dir__ = _listed


_add_hints()
Number.__name__, Number.__qualname__, Number.__module__ = "ADArray", "ADArray", ADArray.__module__
Handle.number_class = Number
