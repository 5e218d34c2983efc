"""Running compiled code under an open profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adarray.codegen.plan import Plan
from adarray.jit.costs import cost
from adarray.jit.steps import step_kind, step_title, value_title
from adarray.program import Value
from adarray.spans import Recorder


def run_timed(recorder: Recorder, plan: Plan | None, run: Any, arrays: list[Any]) -> Any:
    """Run compiled code and tell `recorder` when each of its steps ran.

    Parameters
    ----------
    recorder : Recorder
    plan : Plan or None
        What the code was made of; None for an interpreted program.
    run : callable
        With a method ``timed(arrays) -> (results, stamps)``, or with a parameter `watch`
        (see `adarray.passes.interpret`) and an attribute `program`; anything else is
        measured as a whole by whoever calls this.
    arrays : list of ndarray

    Returns
    -------
    list
        The results.
    """
    timed = getattr(run, "timed", None)
    if plan is not None and timed is not None:
        results, stamps = timed(arrays)
        steps = recorder.cached(plan, lambda: [_about(step) for step in plan.steps])
        for i, (kind, title, moved, work) in enumerate(steps):
            recorder.add(kind, title, int(stamps[i]), int(stamps[i + 1]), moved, work)
        return results
    if plan is None and hasattr(run, "program"):
        return run(arrays, _watcher(recorder))
    return run(arrays)


def _about(step: Any) -> tuple[str, str, int, float]:
    """Return kind, name, bytes and operations of a step."""
    counted = cost(step)
    return step_kind(step), step_title(step), counted.moved, counted.flops


def _watcher(recorder: Recorder) -> Callable[[Value, int, int], None]:
    def watch(v: Value, start: int, stop: int) -> None:
        moved = v.nbytes + sum(a.nbytes for a in v.args) if v.kind != "view" else 0
        shapes = tuple(a.shape for a in v.args)
        recorder.add("step", value_title(v), start, stop, moved, 0.0, shapes)

    return watch
