"""The current backend and recording mode, and what a backend offers.

One context variable holds both, so that an operation reads it once. ``None``
means the defaults: NumPy computes and operations on traced arrays are recorded.
Context variables make threads and async tasks independent of each other.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Protocol, runtime_checkable

from adarray.base.engines import BaseEngine, Engine, TracingEngine
from adarray.base.types import Function


class Backend(Protocol):
    """What an entry point in the group ``adarray.backends`` names: a class like this.

    Attributes
    ----------
    name : str
        Name of the backend, equal to that of the entry point.

    """

    name: str

    def engine(self, **options: object) -> Engine | None:
        """Return an engine for `options`; None means that NumPy itself computes.

        It is called once for each combination of options.

        Raises
        ------
        BackendError
            If the backend cannot work here, or an option is unknown or wrong.
        """

    def info(self) -> dict[str, str]:
        """Return facts to show in ``python -m adarray info``."""


@runtime_checkable
class CachingBackend(Protocol):
    """A backend that keeps compiled kernels on disk."""

    def cache(self, clear: bool = False) -> Iterable[str]:
        """Return lines about the kernels, or remove them; for ``python -m adarray cache``."""


@runtime_checkable
class ColoringBackend(Protocol):
    """A backend with compiled code that colours sparse patterns."""

    def coloring(self) -> types.ModuleType:
        """Return a module with the functions of `adarray.sparsity.greedy`."""


@runtime_checkable
class SealingBackend(Protocol):
    """A backend with compiled code that tells which memory was written to."""

    def seals(self) -> types.ModuleType:
        """Return a module with `Account` and a way to `find` of `adarray.base.seals`."""


class Mode:
    """Which engine computes, and whether traced operations are recorded.

    Attributes
    ----------
    engine : BaseEngine or None
        None: NumPy.
    record : bool
        Whether operations on ADArrays are recorded.
    name : str
        Of the backend.
    recorder : TracingEngine or None
        The engine, if it records for `adarray.jit` what it computes.
    symbolic : bool
        Whether there is a recorder.
    place : callable or None
        What moves an operand to where the engine computes, None if that is the host.
    """

    __slots__ = ("engine", "name", "place", "record", "recorder", "symbolic")

    def __init__(self, engine: BaseEngine | None, record: bool = True, name: str = "numpy") -> None:
        self.engine = engine
        self.record = record
        self.name = name
        self.recorder: TracingEngine | None = None
        self.place: Function | None = None
        if engine is not None:
            self.recorder = engine.recorder
            self.place = engine.place
        self.symbolic = self.recorder is not None


# Whether jitted functions run as plain code in this context: what they call does something else
# than in their compiled code.
INLINE: ContextVar[bool] = ContextVar("adarray_inline", default=False)

# What sees operations on ADArrays first, by the names of their records, while a function runs that
# wants it: ``WATCHED[name](op, operands, params)`` returns a result, or NotImplemented.
WATCHED: dict[str, Function] = {}

# Functions that ask the engine of the current mode for parts of their work: where a compiled
# plan calls one, the engine that compiled the plan is the current one.
BY_ENGINE: set[Function] = set()

MODE: ContextVar[Mode | None] = ContextVar("adarray_mode", default=None)

# Wraps the engines that `adarray.use` chooses meanwhile, as those before: see `adarray.profile`.
WRAP: ContextVar[Callable[[BaseEngine | None, str], BaseEngine] | None] = ContextVar(
    "adarray_wrap", default=None
)


def current_mode() -> Mode:
    """Return the mode of this context."""
    return MODE.get() or Mode(None)
