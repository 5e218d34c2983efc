"""The exceptions that adarray raises; `adarray.base.errors` says what each means."""

from adarray.base.errors import (
    ADArrayError,
    BackendError,
    CompileError,
    DeviceMemoryError,
    DTypeError,
    ForwardModeError,
    KernelError,
    NotDifferentiableError,
    RaceError,
    RefusalError,
    ShapeError,
    TraceError,
    UnsupportedFunctionError,
)

__all__ = [
    "ADArrayError",
    "BackendError",
    "CompileError",
    "DTypeError",
    "DeviceMemoryError",
    "ForwardModeError",
    "KernelError",
    "NotDifferentiableError",
    "RaceError",
    "RefusalError",
    "ShapeError",
    "TraceError",
    "UnsupportedFunctionError",
]
