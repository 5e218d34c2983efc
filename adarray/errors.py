"""The exceptions that adarray raises; `adarray.base.errors` says what each means."""

from adarray.base.errors import (
    ADArrayError,
    BackendError,
    CompileError,
    DeviceMemoryError,
    DTypeError,
    ForwardModeError,
    NotDifferentiableError,
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
    "NotDifferentiableError",
    "RefusalError",
    "ShapeError",
    "TraceError",
    "UnsupportedFunctionError",
]
