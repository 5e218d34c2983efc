"""Why a plan is not other than it is, for `explain`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from adarray.compiler.fusion.fuse import Fusion
from adarray.compiler.ir.plan import Note
from adarray.compiler.ir.primitives import mnemonic
from adarray.compiler.ir.program import Program
from adarray.compiler.kernels.siblings import Family


def kernel_notes(fusion: Fusion, families: Mapping[int, Family]) -> Iterable[Note]:
    """Yield why values and their readers are in different kernels; families are by group."""
    for value in fusion.values:
        owner = fusion.owner.get(value)
        if owner is None or owner.dead:
            continue
        for use in fusion.uses.uses(value) if owner.kind != "step" else ():
            first = fusion.owner.get(use.root)
            if first is None or first is owner or first.dead:
                continue
            family = families.get(owner.index)
            if family is not None and family is families.get(first.index):
                continue
            reason = fusion.reasons.get((use.root, value))
            if first.kind == "step":
                what = mnemonic(use.root.primitive).replace("_", " ")
                reason = f"a {what} is a step of its own"
            yield Note(use.root, value, reason or "another kernel suited it better")


def donation_notes(program: Program, refused: Iterable[tuple[int, int, str]]) -> Iterable[Note]:
    """Yield why results are not written into donated arguments."""
    for j, i, why in refused:
        if i < len(program.inputs):
            reason = f"not in the memory of the donated argument: {why}"
            yield Note(program.inputs[i], program.outputs[j], reason)
