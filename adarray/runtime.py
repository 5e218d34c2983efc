"""What a backend provides: the protocols `Backend` and `Engine`."""

from adarray.base.runtime import (
    Backend,
    Engine,
)

__all__ = [
    "Backend",
    "Engine",
]
