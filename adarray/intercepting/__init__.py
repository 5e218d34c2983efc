"""Existing code, unedited: the names in its modules are rebound to stand-ins.

`adarray.intercept` and `adarray.wrap` are the public face; `docs/intercept.rst`
says what is covered.
"""

from adarray.intercepting import labelled as _labelled  # noqa: F401  (methods of xarray)
from adarray.intercepting.context import intercept, intercepted, run_inside, wrap

__all__ = ["intercept", "intercepted", "run_inside", "wrap"]
