"""`jit`: plain NumPy code, recorded and compiled.

``adarray.jit(f)`` is `adarray.jit.jit`: the module itself can be called.
"""

import sys
import types

from adarray.jit.build import JitWarning
from adarray.jit.entries import CacheInfo
from adarray.jit.front import JitFunction, jit


class _Callable(types.ModuleType):
    """The module, which has the name of its function."""

    __call__ = staticmethod(jit)


sys.modules[__name__].__class__ = _Callable

__all__ = ["CacheInfo", "JitFunction", "JitWarning", "jit"]
