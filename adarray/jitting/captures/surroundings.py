"""Functions of libraries whose results depend on more than their arguments.

Where a function that is jitted can reach one of them, what it reads is compared in each call, if
that can be done; clocks and files cannot.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from adarray.base.scope import package_of

# By module and name: module and name of what reads the state.
_READ = {
    ("numpy", "geterr"): ("numpy", "geterr"),
    ("numpy", "geterrcall"): ("numpy", "geterrcall"),
    ("numpy", "getbufsize"): ("numpy", "getbufsize"),
    ("numpy", "get_printoptions"): ("numpy", "get_printoptions"),
    ("numpy", "array2string"): ("numpy", "get_printoptions"),
    ("numpy", "array_str"): ("numpy", "get_printoptions"),
    ("numpy", "array_repr"): ("numpy", "get_printoptions"),
    ("sys", "getrecursionlimit"): ("sys", "getrecursionlimit"),
    ("sys", "getswitchinterval"): ("sys", "getswitchinterval"),
    ("gc", "isenabled"): ("gc", "isenabled"),
    ("gc", "get_threshold"): ("gc", "get_threshold"),
    ("_thread", "get_ident"): ("_thread", "get_ident"),
    ("threading", "current_thread"): ("_thread", "get_ident"),
    ("os", "getcwd"): ("os", "getcwd"),
    ("os", "getpid"): ("os", "getpid"),
    ("locale", "localeconv"): ("locale", "localeconv"),
    ("locale", "getlocale"): ("locale", "getlocale"),
    ("locale", "setlocale"): ("locale", "getlocale"),
    ("logging", "getLogger"): ("adarray.jitting.captures.surroundings", "levels"),
}
# What any use of a package depends on.
_AMBIENT = {"decimal": ("adarray.jitting.captures.surroundings", "arithmetic")}
# What code asks of loggers, besides having them write.
_LEVELS = frozenset({"level", "disabled", "getEffectiveLevel", "isEnabledFor"})
# Modules of clocks, files, processes and chance, and what of them is neither.
_OUTSIDE = frozenset({"time", "os", "io", "genericpath", "glob", "shutil", "subprocess", "socket",
                      "secrets", "uuid", "tempfile", "select", "urllib", "fileinput", "linecache",
                      "getpass", "pty", "sqlite3", "shelve", "zipfile", "gzip", "gc", "resource",
                      "timeit", "psutil", "importlib", "pkgutil", "runpy"})  # fmt: skip
_INSIDE = frozenset({"getenv", "getenvb", "fspath", "fsencode", "fsdecode", "sleep", "cpu_count",
                     "strptime", "mktime", "gmtime", "putenv", "unsetenv", "get_clock_info",
                     "system", "strerror", "abort", "_exit", "getpid", "getcwd", "enable",
                     "disable", "isenabled", "collect", "freeze", "unfreeze", "get_threshold",
                     "set_threshold"})  # fmt: skip
# Functions of other modules that are like those, and how the names of more of them begin.
_OUTSIDE_OF = {
    "numpy": {"load", "loadtxt", "genfromtxt", "fromfile", "fromregex", "memmap", "open_memmap"},
    "sys": {"getrefcount", "getallocatedblocks", "_current_frames"},
    "threading": {"active_count", "enumerate"},
    "asyncio": {"get_running_loop", "get_event_loop"},
}
_READERS = {"pandas": ("read_",), "xarray": ("open_", "load_data")}
_FILES = ("numpy", "pandas", "xarray")  # read by these; others read more
# Classes whose instances begin with what the system gives them.
_CHANCE = frozenset({("random", "Random"), ("random", "SystemRandom"), ("numpy", "SeedSequence")})
# Methods of classes that ask the clock.
_CLOCKS = frozenset({"now", "today", "utcnow"})
# Methods of paths that read files.
_READS = frozenset({"read_text", "read_bytes", "exists", "open", "stat", "is_file", "is_dir",
                    "iterdir", "glob", "rglob", "resolve"})  # fmt: skip
_ALIASES = {"posix": "os", "nt": "os", "_io": "io", "_decimal": "decimal", "_socket": "socket",
            "_asyncio": "asyncio", "_random": "random"}  # fmt: skip
# What NumPy and pandas read the clock for, in place of a date.
_TODAY = frozenset({"now", "today"})


def arithmetic() -> Any:
    """Return how decimal numbers are computed with; flags that operations raise are no part."""
    import decimal

    c = decimal.getcontext()
    traps = [trap.__name__ for trap, is_set in c.traps.items() if is_set]
    return c.prec, c.rounding, c.Emin, c.Emax, c.capitals, c.clamp, traps


def levels() -> Any:
    """Return the levels of all loggers."""
    import logging

    loggers = logging.Logger.manager.loggerDict
    by_name = {
        k: (v.level, v.disabled) for k, v in loggers.items() if isinstance(v, logging.Logger)
    }
    return logging.root.level, logging.Logger.manager.disable, by_name


def _module_of(x: Any) -> str:
    module = getattr(x, "__module__", None)
    if not isinstance(module, str):
        module = getattr(getattr(x, "__self__", None), "__name__", "")
    package = package_of(module)
    return _ALIASES.get(package, package)


def reader_of(x: Any, names: set[str]) -> Callable[[], Any] | None:
    """Return the function that reads the state an object of a library depends on, or None."""
    package = _module_of(x if callable(x) else type(x))
    place = _AMBIENT.get(package) or _AMBIENT.get(_ALIASES.get(type(x).__module__, ""))
    if place is None and isinstance(x, types.ModuleType):
        place = _AMBIENT.get(x.__name__)
    if place is None and callable(x):
        place = _READ.get((package, getattr(x, "__name__", "")))
    if place is None or (place[1] == "levels" and _LEVELS.isdisjoint(names)):
        return None
    read: Callable[[], Any] = getattr(sys.modules[place[0]], place[1])
    return read


def outside(x: Any, names: set[str]) -> str:
    """Name what an object of a library reads and no call can compare; "" if nothing."""
    if isinstance(x, type):
        return _outside_by_class(x, names)
    if package_of(type(x).__module__) == "pathlib":
        methods = sorted(_READS & names)
        return f"a file, by {type(x).__name__}.{methods[0]}" if methods else ""
    if package_of(type(x).__module__) == "_thread" and "locked" in names:
        return "whether a lock is held, by locked"
    name = getattr(x, "__name__", "")
    if not isinstance(x, (types.FunctionType, types.BuiltinFunctionType)) and name != "fromfile":
        return ""
    module = _module_of(x)
    if name in _OUTSIDE_OF.get(module, ()) or name.startswith(_READERS.get(module, "\0")):
        what = "a file" if module in _FILES else "what is outside of the program"
        return f"{what}, by {'np' if module == 'numpy' else module}.{name}"
    if module == "scipy" and x.__module__.startswith("scipy.io"):
        return f"a file, by {x.__module__}.{name}"
    if module in _OUTSIDE and name not in _INSIDE:
        what = "the clock" if module == "time" else "what is outside of the program"
        return f"{what}, by {module}.{name}"
    return ""


def _outside_by_class(cls: type, names: set[str]) -> str:
    """Name what methods of a class, or new instances, read and no call can compare."""
    module, name = _module_of(cls), cls.__name__
    if module in ("datetime", "pandas"):
        methods = sorted(_CLOCKS & names & set(dir(cls)))
        return f"the clock, by {name}.{methods[0]}" if methods else ""
    if module == "pathlib":
        methods = sorted(_READS & names & set(dir(cls)))
        return f"a file, by {name}.{methods[0]}" if methods else ""
    if (module, name) in _CHANCE:
        return f"random numbers, by {module}.{name}"
    return f"a file, by np.{name}" if module == "numpy" and name == "memmap" else ""


def is_outside(x: Any) -> bool:
    """Whether something is a module, or a class, of functions that read what is outside."""
    if isinstance(x, types.ModuleType):
        name = package_of(x.__name__)
        return name == "builtins" or _ALIASES.get(name, name) in _OUTSIDE
    return isinstance(x, type) and _module_of(x) == "datetime" and not _CLOCKS.isdisjoint(dir(x))


def asks_for_today(texts: frozenset[str], names: frozenset[str]) -> bool:
    """Whether code has a text that NumPy and pandas take for the present time."""
    if _TODAY.isdisjoint(texts):
        return False
    dates = any(t.startswith(("M8", "<M8", "datetime64")) for t in texts)
    return dates or not names.isdisjoint(("datetime64", "Timestamp", "to_datetime"))
