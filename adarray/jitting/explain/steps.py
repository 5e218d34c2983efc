"""Names of the parts of plans, as `explain`, pictures and profiles show them."""

from __future__ import annotations

import os
from typing import Any

from adarray.base.recording import Call
from adarray.compiler.ir.plan import Buffer, KernelStep, MatmulStep, Step
from adarray.compiler.ir.primitives import (
    CallResult,
    Constant,
    Map,
    PrefixScan,
    ProgramInput,
    PythonCall,
    Reduce,
    View,
    mnemonic,
)
from adarray.compiler.ir.program import Value


def call_name(call: Call) -> str:
    """Return the name of a recorded operation or function."""
    if call.op is not None:
        return str(call.op.name)
    return str(getattr(call.function, "__name__", call.function))


def at(where: Any) -> str:
    """Return file and line as text: ``" (model.py:12)"``."""
    return "" if where is None else f" ({os.path.basename(where[0])}:{where[1]})"


def origin_text(v: Value) -> str:
    """Return the recorded call that a value comes from: ``"sin (model.py:12)"``."""
    call = v.origin
    return "" if call is None else f"{call_name(call)}{at(call.where)}"


def value_title(v: Value) -> str:
    """Return the title of a value: ``"sin"``, ``"reduce add"``, ``"call sort"``."""
    match v.primitive:
        case Map() as p:
            return p.name
        case PythonCall() as p:
            return f"call {getattr(p.function, '__name__', p.function)}"
        case ProgramInput() as p:
            return f"input {p.index}"
        case CallResult() as p:
            return f"result {p.index} of a call"
        case Reduce() | PrefixScan() as p:
            return f"{mnemonic(p)} {p.combine}"
        case _:
            return mnemonic(v.primitive)


def step_kind(step: Step) -> str:
    """Return the kind of a step: ``"kernel"``, ``"product"`` or ``"call"``."""
    if isinstance(step, KernelStep):
        return "kernel"
    return "product" if isinstance(step, MatmulStep) else "call"


def step_titles(step: Step) -> list[str]:
    """Return the title of each value of a step; constants and views are left out."""
    return [
        value_title(v)
        for v in step.values
        if not isinstance(v.primitive, (Constant, View, ProgramInput))
    ]


def step_title(step: Step, most: int = 6) -> str:
    """Return what a step computes, in a few words."""
    shown = step_titles(step)
    if len(shown) > most:
        shown = [*shown[: most - 1], f"... ({len(shown)} operations)"]
    return ", ".join(shown) or "copy"


def step_buffers(step: Step) -> tuple[Buffer, ...]:
    """Return the buffers that a step reads or writes."""
    if isinstance(step, KernelStep):
        return step.buffers
    if isinstance(step, MatmulStep):
        return (*(o.buffer for o in step.operands), step.out.buffer)
    return (*(o.buffer for o in step.operands), *step.results)
