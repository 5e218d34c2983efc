"""Packs of neighbouring iterations of vector loops, as threads of a GPU load and store them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from adarray.compiler.ir.loopir import Fold, For
from adarray.compiler.print_c.values import TextScope
from adarray.compiler.print_cuda.statements import CudaPrinter
from adarray.compiler.scalars.dtypes import STORED
from adarray.compiler.schedule.gpu.group_loops import GroupLoop, Packs, ResidentPacks


@dataclass(frozen=True)
class LoopText:
    """The C names of a vector loop.

    Parameters
    ----------
    loop : For
    plan : GroupLoop
    one : str
        The function that makes an iteration.
    bases : list of str
        Pointers to what the first iteration moves.
    first, stop : str
        The loop's bounds.
    resident : list of (str, str)
        Packs and elements of array totals that threads of a sheet have in registers.
    again : list of (str, str) or None
        Types and names of what is set back where a pack is computed twice.
    """

    loop: For
    plan: GroupLoop
    one: str
    bases: list[str]
    first: str
    stop: str
    resident: list[tuple[str, str]] = field(default_factory=list)
    again: list[tuple[str, str]] | None = None


def alone(p: CudaPrinter, t: LoopText, v: str) -> list[str]:
    """Return the lines of an iteration by itself."""
    lines: list[str] = []
    args, after = ["care"] * p.outline.is_careful + [f"{t.first} + {v}"], []
    for (kind, dtype, _), base in zip(t.plan.moved, t.bases, strict=True):
        if kind == "load":
            args.append(f"{base}[{v}]")
            continue
        y = p.fresh("y")
        lines.append(f"{STORED[dtype]} {y}{f' = {base}[{v}]' if kind == 'fold' else ''};")
        args.append(y)
        after.append(f"{base}[{v}] = {y};")
    args += [element for _, element in t.resident]
    return [*lines, f"{t.one}({', '.join(args)});", *after]


def packs(p: CudaPrinter, t: LoopText, how: Packs) -> tuple[str, str]:
    """Print the loop over packs of neighbouring iterations.

    They begin where the first result, or else operand, is aligned, unless they must stay
    where they are. If then another operand is not, its elements are loaded one by one; so
    are those of loops that must stay, which also store them so, and of long loops over rows
    that begin anywhere. Otherwise iterations are made one by one, by neighbouring threads.
    Return how many iterations come before, and how many it makes.
    """
    lo, hi, width, anchors = t.first, t.stop, how.width, how.anchors
    still = bool(t.resident)
    moves = list(zip(t.plan.moved, t.bases, strict=True))
    first = next(
        (b for m, b in moves if m.kind == "store"), t.bases[anchors[0][0]] if t.bases else ""
    )
    head, count, straight = p.fresh("h"), p.fresh("m"), p.fresh("w")
    n = f"({hi} > {lo} ? {hi} - {lo} : 0)"
    start = "0" if still else f"adarray_head<{width}>({first}, {n})"
    p.line(f"const {p.counter} {head} = {start};")
    own = [(m.kind, b) for k, (m, b) in enumerate(moves) if anchors[k] == (k, 0)]
    tests = [
        " & ".join(f"adarray_aligned<{width}>({b} + {head})" for kind, b in own if kind in which)
        for which in (("load", "store", "fold"), ("store",))
    ]
    if still or not how.by_element:
        p.line(f"const bool {straight} = {tests[0] or 'true'};")
    both = how.askew and bool(tests[1]) and not still
    all_ = f"({n} - {head}) / {width} * {width}"
    test = tests[1] if both else tests[1] or "true" if how.by_element else straight
    p.line(f"const {p.counter} {count} = {all_ if still else f'{test} ? {all_} : 0'};")
    cast, v = f"({p.counter})", p.fresh("v")
    begin, step = f"{head} + {cast}lane * {width}", f"{cast}span * {width}"
    loop = f"for ({p.counter} {v} = {begin}; {v} < {head} + {count}; {v} += {step})"
    if still:  # a pack for each thread
        p.line(f"const {p.counter} {v} = {begin};")
        loop = f"if ({v} < {head} + {count})"
    if how.by_element and not still:
        p.braced(loop, pack(p, t, anchors, v, width, each="_each"))
        return head, count
    either = still or both
    fast = f"if ({straight}) {loop}" if either else loop
    p.braced(fast, pack(p, t, anchors, v, width))
    if either:
        p.braced(f"if (!{straight}) {loop}", pack(p, t, anchors, v, width, each="_each"))
    return head, count


def own_anchors(t: LoopText) -> tuple[tuple[int, int], ...]:
    """Return anchors where nothing is taken from what lies beside it."""
    return tuple((i, 0) for i in range(len(t.plan.moved)))


def pack(
    p: CudaPrinter, t: LoopText, anchors: tuple[tuple[int, int], ...], v: str, width: int,
    each: str = "", slots: Mapping[int, str] | None = None,
) -> TextScope:  # fmt: skip
    """Return the lines of one pack.

    Parameters
    ----------
    p : CudaPrinter
    t : LoopText
    anchors : tuple of (int, int)
        See `adarray.compiler.schedule.gpu.group_loops.Packs`.
    v : str
        The pack's first iteration.
    width : int
    each : {"", "_each"}
        Whether elements are moved one by one.
    slots : mapping of int to str, optional
        Where a thread has packs of its own, by the number of what is moved.
    """
    slots, moved = slots or {}, t.plan.moved
    after: list[str] = []
    scope, args = TextScope(), ["care"] * p.outline.is_careful + [f"{t.first} + {v} + u"]
    names = [p.fresh("y") for _ in moved]
    for k, ((kind, dtype, x), base) in enumerate(zip(moved, t.bases, strict=True)):
        other, d = anchors[k]
        if other != k:
            inside = f"u + {d} >= 0 && u + {d} < {width}"
            args.append(f"{inside} ? {names[other]}.v[u + {d}] : {base}[{v} + u]")
            continue
        scope.lines.append(f"adarray_pack<{STORED[dtype]}, {width}> {names[k]};")
        args.append(f"{names[k]}.v[u]")
        if k in slots:
            if kind != "store":
                scope.lines.append(f"{names[k]} = *{slots[k]};")
            if kind != "load":
                after.append(f"*{slots[k]} = {names[k]};")
            continue
        if isinstance(x, Fold):
            near = "_near" if x.target in p.outline.memory.shared else ""
            scope.lines.append(f"adarray_load{each}({names[k]}, {base} + {v});")
            after.append(f"adarray_store{each or near}({names[k]}, {base} + {v});")
            continue
        # Results are stored one by one only where packs must stay, and may not be aligned.
        apart = each if t.resident or slots else ""
        how = each if kind == "load" else apart or p.outline.memory.stores.get(x.buffer, "")
        line = f"adarray_{kind}{how}({names[k]}, {base} + {v});"
        (scope.lines if kind == "load" else after).append(line)
    args += [f"{own}.v[u]" for own, _ in t.resident]
    again = None if t.resident else t.again
    if again is not None:
        args[0] = "quick"
        scope.lines.append("adarray_quick quick = {false};")
        scope.lines += [f"const {kind} {name}_ = {name};" for kind, name in again]
    scope.lines.append("#pragma unroll")
    scope.lines.append(f"for (int u = 0; u < {width}; u++) {t.one}({', '.join(args)});")
    if again is None:
        scope.lines += after
    elif isinstance(t.plan.sharing, ResidentPacks):  # what is in registers has no address
        args[0] = "care"
        scope.lines += [
            "if (quick.rare) {",
            *(f"    {name} = {name}_;" for _, name in again),
            *(f"    {names[k]} = *{slots[k]};" for k, m in enumerate(moved) if m.kind == "fold"),
            "#pragma unroll",
            f"    for (int u = 0; u < {width}; u++) {t.one}({', '.join(args)});",
            "}",
            *after,
        ]
    else:
        scope.lines += [
            "if (quick.rare) {",
            *(f"    {name} = {name}_;" for _, name in again),
            "#pragma unroll 1",
            f"    for ({p.counter} k = {v}; k < {v} + {width}; k++) {{",
            *(f"        {x}" for x in alone(p, t, "k")),
            "    }",
            "} else {",
            *(f"    {x}" for x in after),
            "}",
        ]
    return scope
