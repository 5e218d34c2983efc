"""Finding backends and choosing one: `use`, `backends`."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any

from adarray.errors import BackendError
from adarray.runtime import MODE, WRAP, Backend, Engine, Mode, current_mode

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "adarray.backends"

_lock = threading.RLock()
_points: dict[str, list[EntryPoint]] | None = None
_loaded: dict[str, Backend] = {}
_engines: dict[Any, Engine | None] = {}


def _entry_points() -> dict[str, list[EntryPoint]]:
    """Return the entry points by name, looked up once."""
    global _points
    from importlib.metadata import entry_points  # takes as long as a fifth of importing NumPy

    with _lock:
        if _points is None:
            found: dict[str, list[EntryPoint]] = {}
            for point in entry_points(group=GROUP):
                same = found.setdefault(point.name, [])
                if all(point.value != p.value for p in same):
                    same.append(point)
            _points = found
        return _points


def refresh() -> None:
    """Forget what was found and loaded, for instance after installing a plugin."""
    global _points
    with _lock:
        _points = None
        _loaded.clear()
        _engines.clear()


def backends() -> list[str]:
    """Return the names of the installed backends, whether or not they can work here.

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
            made: Backend = point.load()()
        except BackendError:
            raise
        except Exception as error:
            others = [n for n in backends() if n != name]
            raise BackendError(
                f"backend {name!r}: {point.value} from {_origin(point)} failed to load "
                f"({type(error).__name__}: {error}); mend or uninstall that distribution, or use "
                f"one of {', '.join(others) or 'none'}"
            ) from error
        for method in ("engine", "info"):
            if not callable(getattr(made, method, None)):
                raise BackendError(
                    f"backend {name!r}: {point.value} from {_origin(point)} has no method "
                    f"{method}(); it does not satisfy adarray.runtime.Backend"
                )
        _loaded[name] = made
        return made


def _engine(name: str, options: dict[str, Any]) -> Engine | None:
    """Return the engine of a backend for `options`, made once per combination."""
    try:
        key = (name, tuple(sorted(options.items())))
        hash(key)
    except TypeError:
        return load(name).engine(**options)
    with _lock:
        if key not in _engines:
            _engines[key] = load(name).engine(**options)
        return _engines[key]


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
        If the backend is unknown, broken, or refuses an option.

    Notes
    -----
    The choice holds for the current thread or async task until the block ends,
    however it ends; blocks nest. A worker thread starts with the default backend.
    A generator that yields inside the block leaks the choice to its caller until
    it is resumed, as with every context variable: do not yield inside.

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
        enter = getattr(self._engine, "enter", None)
        token = enter() if enter is not None else None
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
        leave = getattr(self._engine, "leave", None)
        if leave is not None:
            leave(token)


def current_backend() -> str:
    """Return the name of the backend that computes in this context."""
    return current_mode().name
