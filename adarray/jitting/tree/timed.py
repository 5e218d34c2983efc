"""Running compiled code under an open profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adarray.base.spans import SpanRecorder, Step
from adarray.compiler.ir.plan import Plan
from adarray.compiler.ir.primitives import View
from adarray.compiler.ir.program import Value
from adarray.jitting.explain.costs import costs
from adarray.jitting.explain.steps import step_kind, step_title, value_title


def run_timed(recorder: SpanRecorder, node: Any, arrays: list[Any]) -> Any:
    """Run a compiled segment and tell `recorder` when each of its steps ran.

    Parameters
    ----------
    recorder : SpanRecorder
    node : adarray.jitting.tree.tree.TreeNode
        The segment. One without an executable is interpreted, or replays what was recorded.
    arrays : list of ndarray

    Returns
    -------
    list
        The results.
    """
    if node.executable is not None:
        results, stamps = node.executable.timed(arrays)
        steps = recorder.cached(node.plan, lambda: _about(node.plan))
        recorder.add_steps(steps, stamps)
        return results
    run = node.compiled[1]
    return run(arrays, _watcher(recorder)) if node.after is not None else run(arrays)


def _about(plan: Plan) -> list[Step]:
    """Return kind, name, bytes and operations of each step."""
    return [
        (step_kind(step), step_title(step), c.moved, c.flops)
        for step, c in zip(plan.steps, costs(plan), strict=True)
    ]


def _watcher(recorder: SpanRecorder) -> Callable[[Value, int, int], None]:
    def watch(v: Value, start: int, stop: int) -> None:
        moved = v.nbytes + sum(a.nbytes for a in v.args) if not isinstance(v.primitive, View) else 0
        shapes = tuple(a.shape for a in v.args)
        recorder.add("step", value_title(v), start, stop, moved, 0.0, shapes)

    return watch
