"""`adarray.jit`: plain NumPy code, recorded and compiled."""

from adarray.jitting.calls.decorator import jit
from adarray.jitting.calls.front import JitFunction
from adarray.jitting.captures.fingerprints import register_captured
from adarray.jitting.tree.build import JitWarning
from adarray.jitting.tree.entries import CacheInfo

__all__ = ["CacheInfo", "JitFunction", "JitWarning", "jit", "register_captured"]
