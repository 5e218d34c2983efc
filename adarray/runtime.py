"""What a backend provides: `Backend` and `Engine`, and what an engine may be beyond that."""

from adarray.base.engines import (
    AheadCompiler,
    BaseEngine,
    CompiledPlan,
    CompilingEngine,
    Engine,
    FaultHandler,
)
from adarray.base.runtime import (
    Backend,
    CachingBackend,
)

__all__ = [
    "AheadCompiler",
    "Backend",
    "BaseEngine",
    "CachingBackend",
    "CompiledPlan",
    "CompilingEngine",
    "Engine",
    "FaultHandler",
]
