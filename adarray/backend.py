"""Finding backends and choosing one: `use`, `backends`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from adarray.base.engines import BaseEngine, CompilingEngine, Engine
from adarray.base.errors import BackendError
from adarray.base.runtime import MODE, WRAP, Backend, Mode, SealingBackend, current_mode
from adarray.base.scope import UNINTERCEPTED, outside, package_of
from adarray.base.seals import native_hook

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "adarray.backends"

_PLAIN = (int, float, str, bytes, list, tuple, dict, type(None))  # short to show

_lock = threading.RLock()
_points: dict[str, list[EntryPoint]] | None = None
_unreadable: list[str] = []
_loaded: dict[str, Backend] = {}
_engines: dict[Any, BaseEngine | None] = {}


def _entry_points() -> dict[str, list[EntryPoint]]:
    """Return the entry points by name, looked up once."""
    global _points
    from importlib.metadata import entry_points  # takes as long as a fifth of importing NumPy

    with _lock:
        if _points is None:
            points_by_name: dict[str, list[EntryPoint]] = {}
            _unreadable.clear()
            try:
                points: Iterable[EntryPoint] = entry_points(group=GROUP)
            except Exception:  # one distribution's file is no reason to do without the others
                points = _readable_points()
            for point in points:
                same = points_by_name.setdefault(point.name, [])
                if all(point.value != p.value for p in same):
                    same.append(point)
            _points = points_by_name
        return _points


def _readable_points() -> Iterator[EntryPoint]:
    """Yield entry points where a distribution has a file that cannot be read; note which one."""
    from importlib.metadata import distributions

    for dist in distributions():
        try:
            yield from dist.entry_points.select(group=GROUP)
        except Exception as error:
            _unreadable.append(
                f"the entry points of {dist.metadata['Name']} cannot be read "
                f"({type(error).__name__}: {error}); mend or uninstall that distribution"
            )


def unreadable() -> list[str]:
    """Return what is wrong with distributions whose entry points cannot be read."""
    _entry_points()
    return list(_unreadable)


def refresh() -> None:
    """Forget what was found and loaded, for instance after installing a plugin."""
    global _points
    with _lock:
        _points = None
        _loaded.clear()
        _engines.clear()


def backends() -> list[str]:
    """Return the names of the installed backends, whether or not they work on this machine.

    Examples
    --------
    >>> import adarray
    >>> "numpy" in adarray.backends()
    True
    """
    return sorted(_entry_points())


def _origin(point: EntryPoint) -> str:
    dist = point.dist
    return f"{dist.name} {dist.version}" if dist is not None else "an unknown distribution"


def load(name: str) -> Backend:
    """Return the backend `name`, loaded once.

    Raises
    ------
    BackendError
        If there is none of that name, two distributions offer it, or it fails to
        load; the message names the distribution, the cause and what is there.
    """
    with _lock:
        if name in _loaded:
            return _loaded[name]
        points = _entry_points().get(name, [])
        if not points:
            raise BackendError(
                f"backend {name!r}: there is none of that name; installed are "
                f"{', '.join(backends()) or 'none'}"
            )
        if len(points) > 1:
            raise BackendError(
                f"backend {name!r}: offered by {' and '.join(map(_origin, points))}; "
                "uninstall all but one of them"
            )
        (point,) = points
        try:
            backend: Backend = point.load()()
        except (BackendError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a plugin that calls sys.exit must not end the program
            others = [n for n in backends() if n != name]
            raise BackendError(
                f"backend {name!r}: {point.value} from {_origin(point)} failed to load "
                f"({type(error).__name__}: {error}); mend or uninstall that distribution, or use "
                f"one of {', '.join(others) or 'none'}"
            ) from error
        for method in ("engine", "info"):
            if not callable(getattr(backend, method, None)):
                raise BackendError(
                    f"backend {name!r}: {point.value} from {_origin(point)} has no method "
                    f"{method}(); it does not satisfy adarray.runtime.Backend"
                    + (f", since it gave {backend!r}" if isinstance(backend, _PLAIN) else "")
                )
        _loaded[name] = backend
        return backend


def _seals() -> ModuleType | None:
    """Return what `adarray.base.seals` has in C, if it was compiled."""
    try:
        backend = load("numpy")
        return backend.seals() if isinstance(backend, SealingBackend) else None
    except BackendError:
        return None


native_hook.set(_seals)


def _engine(name: str, options: dict[str, Any]) -> BaseEngine | None:
    """Return the engine of a backend for `options`, made once per combination."""
    try:
        key = (name, tuple(sorted(options.items())))
        hash(key)
    except TypeError:
        return new_engine(name, options)
    with _lock:
        if key not in _engines:
            _engines[key] = new_engine(name, options)
        return _engines[key]


def new_engine(name: str, options: dict[str, Any]) -> BaseEngine | None:
    """Return a new engine of a backend; raise BackendError, whatever the backend does."""
    engine: Any = _called(name, "engine", lambda: load(name).engine(**options))
    return None if engine is None else completed(name, engine)


_METHODS = ("pointwise", "derivative", "call")
# What an engine has by deriving from the class that is named, and not otherwise.
_MORE = {
    "executable": "CompilingEngine",
    **dict.fromkeys(
        ("enter", "leave", "place", "rule", "check_cotangent", "synchronize"), "BaseEngine"
    ),
}


class _Completed(BaseEngine):
    """Somebody's engine of the three methods, with all that adarray asks of one."""

    def __init__(self, engine: Engine) -> None:
        self.name = engine.name
        self.threads = engine.threads
        for method in _METHODS:  # as they are: an operation pays no call in between
            setattr(self, method, getattr(engine, method))


def completed(name: str, engine: Any) -> BaseEngine:
    """Return what the backend `name` has made as an engine with everything; here it is checked.

    Raises
    ------
    BackendError
        If it does not satisfy its contract.
    """
    kind = type(engine).__name__
    said = f"backend {name!r}: its engine, of {kind}, "
    mend = "; mend or uninstall the distribution"
    for method in _METHODS:
        if not callable(getattr(engine, method, None)):
            raise BackendError(
                f"{said}has no method {method}(); it does not satisfy adarray.runtime.Engine{mend}"
            )
    for attribute, wanted in (("name", str), ("threads", int)):
        value = getattr(engine, attribute, None)
        if not isinstance(value, wanted):
            raise BackendError(
                f"{said}has {value!r} as its {attribute}, which adarray.runtime.Engine wants to be "
                f"of {wanted.__name__}{mend}"
            )
    if isinstance(engine, BaseEngine):
        complete = engine
    else:
        for method, base in _MORE.items():
            if callable(getattr(engine, method, None)):
                raise BackendError(
                    f"{said}has {method}(), which is asked of engines that derive from "
                    f"adarray.runtime.{base}, and it does not{mend}"
                )
        complete = _Completed(engine)
    if package_of(type(engine).__module__) not in UNINTERCEPTED:
        compiling = (
            ("executable", "prepare", "ahead") if isinstance(complete, CompilingEngine) else ()
        )
        for method in (*_METHODS, *compiling):
            # Somebody's code: what it is given and makes is plain, inside of `intercept`, too.
            setattr(complete, method, outside(getattr(complete, method)))
    return complete


def _called(name: str, method: str, call: Callable[[], Any]) -> Any:
    """Return what a method of a backend returns.

    Raises
    ------
    BackendError
        If it raises anything, SystemExit included; not of a TypeError of its own options.
    """
    try:
        return call()
    except (BackendError, KeyboardInterrupt, TypeError):
        raise
    except BaseException as error:
        raise BackendError(
            f"backend {name!r}: its method {method}() failed ({type(error).__name__}: {error}); "
            "mend or uninstall the distribution that offers it, or use another backend"
        ) from error


# The modes to return to and the engines' tokens, innermost last. They are kept in the
# context and not in the `use` object, so that several threads and tasks may enter one.
_Outer = tuple[tuple[Mode | None, Any], ...]
_OUTER: ContextVar[_Outer] = ContextVar("adarray_outer_modes", default=())


def chosen() -> bool:
    """Whether a `use` block says what computes."""
    return bool(_OUTER.get())


class use:  # noqa: N801  (reads as a statement)
    """Context manager: compute with another backend.

    Parameters
    ----------
    name : str
        Name of an installed backend; see `backends`.
    **options
        Options of the backend, for instance ``threads=2``.

    Raises
    ------
    BackendError
        If the backend is unknown or broken, or does not accept an option.

    Notes
    -----
    The choice applies to the current thread or async task until the block ends, normally or by an
    exception; blocks nest. A worker thread starts with the default backend. Do not yield inside the
    block: as with every context variable, a generator that does leaks the choice to its caller
    until it is resumed.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> with adarray.use("numpy"):
    ...     adarray.grad(np.sin)(0.0)
    1.0
    """

    def __init__(self, name: str, /, **options: Any) -> None:
        if not isinstance(name, str):
            raise TypeError(f"use: expected the name of a backend, got {type(name).__name__}")
        self._name = name
        self._engine = _engine(name, options)

    def __enter__(self) -> use:
        record = current_mode().record
        engine, wrap = self._engine, WRAP.get()
        if wrap is not None:
            engine = wrap(engine, self._name)
        # The defaults are represented by None, which operations test fastest.
        mode = None if engine is None and record else Mode(engine, record, self._name)
        token = None if self._engine is None else self._engine.enter()
        _OUTER.set((*_OUTER.get(), (MODE.get(), token)))
        MODE.set(mode)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        *outer, (before, token) = _OUTER.get()
        _OUTER.set(tuple(outer))
        MODE.set(before)
        if self._engine is not None:
            self._engine.leave(token)


def current_backend() -> str:
    """Return the name of the backend that computes in this context."""
    return current_mode().name
