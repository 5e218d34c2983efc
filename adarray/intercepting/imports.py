"""Import statements while `adarray.intercept` is active.

``import numpy as np`` inside of a function reaches `builtins.__import__`, which is
ours while a context is open anywhere: intercepted code gets the stand-in. Modules
that are imported meanwhile run outside of the context, so that the constants they
make are plain, and are rebound afterwards. Other threads and other code get what
they always get, and `sys.modules` is not touched.
"""

from __future__ import annotations

import builtins
import threading
import types
from collections.abc import Mapping, Sequence
from typing import Any

from adarray.base.scope import SCOPE, client_of, package_of
from adarray.intercepting.binding import INTERCEPTED_ROOTS, binder_of
from adarray.intercepting.rebinding import rebind

_lock = threading.Lock()
_open = 0
_original: Any = builtins.__import__


def _import(
    name: str,
    globals: Mapping[str, Any] | None = None,  # noqa: A002  (Python's names)
    locals: Mapping[str, Any] | None = None,  # noqa: A002
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> types.ModuleType:
    scope = SCOPE.get()
    if scope is None:
        return _original(name, globals, locals, fromlist, level)  # type: ignore[no-any-return]
    token = SCOPE.set(None)
    try:
        module: types.ModuleType = _original(name, globals, locals, fromlist, level)
        rebind(scope.packages)
    finally:
        SCOPE.reset(token)
    # Functions import without a local namespace; the body of a module keeps NumPy.
    if locals is None and level == 0 and globals and package_of(name) in INTERCEPTED_ROOTS:
        package = client_of(dict(globals) if not isinstance(globals, dict) else globals)
        if package and scope.covers(package):
            return binder_of(package).of(module) or module
    return module


def begin() -> None:
    """Take over import statements, when the first context opens."""
    global _open, _original
    with _lock:
        _open += 1
        if builtins.__import__ is not _import:
            _original = builtins.__import__
            builtins.__import__ = _import


def end() -> None:
    """Give import statements back, when the last context closes."""
    global _open
    with _lock:
        _open -= 1
        # Somebody else may have taken over since, and may call us: then we stay.
        if _open == 0 and builtins.__import__ is _import:
            builtins.__import__ = _original
