"""SciPy for ADArrays: drop-in modules, and derivative rules for the ufuncs of `scipy.special`.

``adarray.scipy.special`` and the like are imported when they are first asked for.
SciPy is an optional dependency: ``pip install adarray[scipy]``.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adarray.base.op import Op

# Records of the operations that the modules below registered, by name.
RECORDS: dict[str, Op] = {}

if importlib.util.find_spec("scipy") is None:
    raise ImportError(
        "adarray.scipy: SciPy is not installed, and these functions are built on it; "
        "pip install adarray[scipy]"
    )


def _modules() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def __getattr__(name: str) -> Any:
    """Import a submodule when it is first asked for."""
    if name in _modules():
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {_modules()}")


def __dir__() -> list[str]:
    return _modules()
