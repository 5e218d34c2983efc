"""A backend that compiles by interpreting: what docs/backends.rst says, and nothing else.

For tests of compiling engines.

It stands in for a backend of somebody else, so it imports the public paths alone, as do the
modules that run plans and kernels for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from importlib.metadata import EntryPoint
from typing import Any

from plan_runner import FailedError, PlanRunner

from adarray import BackendError
from adarray.compiling import CPU, KernelStep, Plan
from adarray.runtime import CompiledPlan, CompilingEngine, FaultHandler

# What the engines were asked for, by name; for tests.
DONE: Counter[str] = Counter()


class InterpretedPlan(CompiledPlan):
    """A plan whose kernels Python runs."""

    def __init__(self, plan: Plan, rerun: FaultHandler | None) -> None:
        self.plan = plan
        self.in_memory = len({s.kernel for s in plan.steps if isinstance(s, KernelStep)})
        self._rerun = rerun

    def run(self, arrays: list[Any]) -> list[Any]:
        """Return the results for `arrays`."""
        DONE["run"] += 1
        DONE["kernels"] += sum(isinstance(s, KernelStep) for s in self.plan.steps)
        runner = PlanRunner(self.plan)  # with memory of its own, for each thread
        try:
            results = runner(arrays)
        except FailedError as error:
            (code,) = error.args
            if self._rerun is None:
                raise BackendError(f"a kernel refused its data with code {code}") from error
            result: list[Any] = self._rerun(arrays, 0, code, None)
            return result
        return [
            x[()] if x.ndim == 0 else arrays[o.buffer.donor] if o.buffer.donor >= 0 else x
            for x, o in zip(results, self.plan.outputs, strict=True)
        ]

    def source_of(self, step: int) -> str:
        """Return the loop IR of a kernel."""
        s = self.plan.steps[step]
        return str(s.kernel) if isinstance(s, KernelStep) else ""


class InterpretingEngine(CompilingEngine):
    """Leaves operations to NumPy, and compiles."""

    name = "interpreting"
    target = CPU

    def executable(
        self,
        plan: Plan,
        precise: bool = False,
        rerun: FaultHandler | None = None,
    ) -> InterpretedPlan:
        """Return what interprets a plan."""
        DONE["executable"] += 1
        return InterpretedPlan(plan, rerun)

    def prepare(self, plans: Iterable[Plan], precise: bool = False) -> None:
        """Count the plans."""
        DONE["prepared"] += len(list(plans))


class InterpretingBackend:
    """What the entry point names."""

    name = "interpreting"

    def engine(self, **options: Any) -> InterpretingEngine:
        """Return an engine."""
        if options:
            raise BackendError(f"backend 'interpreting': unknown option {min(options)!r}")
        return InterpretingEngine()

    def info(self) -> dict[str, str]:
        """Return facts."""
        return {"status": "available"}


def installed(monkeypatch: Any) -> None:
    """Let `adarray.use` find it until the test ends, as if a distribution had the entry point."""
    from adarray import backend

    point = EntryPoint("interpreting", "interpreting_backend:InterpretingBackend", backend.GROUP)
    monkeypatch.setattr(backend, "_points", {**backend._entry_points(), "interpreting": [point]})
    monkeypatch.setattr(backend, "_loaded", {})
    monkeypatch.setattr(backend, "_engines", {})
    DONE.clear()
