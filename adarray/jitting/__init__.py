"""`adarray.jit`: plain NumPy code, recorded and compiled."""

from adarray.jitting.build import JitWarning
from adarray.jitting.decorator import jit
from adarray.jitting.entries import CacheInfo
from adarray.jitting.fingerprints import register_captured
from adarray.jitting.front import JitFunction

__all__ = ["CacheInfo", "JitFunction", "JitWarning", "jit", "register_captured"]
