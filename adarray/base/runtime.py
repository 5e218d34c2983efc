"""The current backend and recording mode, and what a backend must offer.

One context variable holds both, so that an operation reads it once. ``None``
means the defaults: NumPy computes and operations on traced arrays are recorded.
Context variables make threads and async tasks independent of each other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from adarray.base.op import Op


class Engine(Protocol):
    """A backend that is ready to compute: its kernels, with options applied.

    Every method may return ``NotImplemented``; NumPy then does the work, so a
    backend implements what it does better. Operands are plain values: ndarrays
    of any strides, NumPy scalars and Python numbers. Results are fresh ndarrays,
    or NumPy scalars where NumPy returns one.

    Attributes
    ----------
    name : str
        Name of the backend.
    threads : int
        Number of threads it computes with.

    Notes
    -----
    An engine may also have ``enter() -> token`` and ``leave(token)``, called when a
    `use` block that chose it begins and ends, for instance to provide memory; and
    ``check_cotangent(op, order, operand, g, ct)``, which sees every cotangent that a
    reverse walk computes (`order` is the node's creation number), and
    ``rule(node, operand, g, saved)``, which runs the rules that are not pointwise; and
    ``executable(plan, precise=False, rerun=None)``, which compiles an
    `adarray.compiler.ir.plan.Plan` into a function of a list of arrays. One that computes on
    a device has ``place(x)``, which returns an operand as an `adarray.device.DeviceArray`
    if it is an array that belongs there, and ``synchronize()``.
    """

    name: str
    threads: int

    def pointwise(self, op: Op, values: tuple[Any, ...]) -> Any:
        """Compute the pointwise operation `op` on `values` with broadcasting."""

    def derivative(self, op: Op, operand: int, g: Any, saved: tuple[Any, ...]) -> Any:
        """Compute ``op.rules[operand](g, *saved)`` in one pass over memory.

        `saved` is ``(out, *operands)`` with None where the rule reads nothing.
        """

    def call(self, op: Op, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Compute any other operation, for instance a reduction or a product."""


class Backend(Protocol):
    """What an entry point in the group ``adarray.backends`` names: a class like this.

    Attributes
    ----------
    name : str
        Name of the backend, equal to that of the entry point.

    Notes
    -----
    A backend that keeps compiled kernels on disk may have ``cache(clear=False)``, which
    returns lines about them, or removes them, for ``python -m adarray cache``.
    """

    name: str

    def engine(self, **options: Any) -> Engine | None:
        """Return an engine for `options`; None means that NumPy itself computes.

        Raises
        ------
        BackendError
            If the backend cannot work here, or an option is unknown or wrong.
        """

    def info(self) -> dict[str, str]:
        """Return facts to show in ``python -m adarray info``."""


class Mode:
    """Which engine computes, and whether traced operations are recorded.

    `symbolic` says that the engine records what it computes, for `adarray.jit`; `place`
    moves an operand to where the engine computes, None if that is the host.
    """

    __slots__ = ("engine", "name", "place", "record", "symbolic")

    def __init__(self, engine: Engine | None, record: bool = True, name: str = "numpy") -> None:
        self.engine = engine
        self.record = record
        self.name = name
        self.symbolic: bool = getattr(engine, "symbolic", False)
        self.place: Callable[[Any], Any] | None = getattr(engine, "place", None)


# Whether jitted functions run as plain code in this context: what they call does something else
# than in their compiled code.
INLINE: ContextVar[bool] = ContextVar("adarray_inline", default=False)

# What sees operations on ADArrays first, by the names of their records, while a function runs that
# wants it: ``WATCHED[name](op, operands, params)`` returns a result, or NotImplemented.
WATCHED: dict[str, Callable[..., Any]] = {}

# Functions that ask the engine of the current mode for parts of their work: where a compiled
# plan calls one, the engine that compiled the plan is the current one.
BY_ENGINE: set[Callable[..., Any]] = set()

MODE: ContextVar[Mode | None] = ContextVar("adarray_mode", default=None)

# Wraps the engines that `adarray.use` chooses meanwhile, as those before: see `adarray.profile`.
WRAP: ContextVar[Callable[[Engine | None, str], Engine] | None] = ContextVar(
    "adarray_wrap", default=None
)


def current_mode() -> Mode:
    """Return the mode of this context."""
    return MODE.get() or Mode(None)
