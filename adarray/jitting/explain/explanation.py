"""`explain`: what `jit` recorded, how it was optimised, fused and compiled, and why."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from os import fspath
from typing import TYPE_CHECKING, Any

from adarray.arrays.adarray import ADArray
from adarray.base.engines import BaseEngine
from adarray.base.recording import Call
from adarray.base.report import (
    Code,
    ReportTable,
    Section,
    as_html,
    as_text,
    count_text,
    size_text,
    time_text,
)
from adarray.device import KINDS, adopt
from adarray.jitting.explain.costs import Cost, peak, total
from adarray.jitting.explain.loops import loop_lines
from adarray.jitting.explain.picture import Picture, picture
from adarray.jitting.explain.sections import (
    ShownSegment,
    SymbolNames,
    kernels,
    outcome_text,
    plural,
    segment_section,
)
from adarray.jitting.explain.steps import at
from adarray.jitting.shared.background import pending
from adarray.jitting.shared.copies import copies
from adarray.transforms.tree import flatten

if TYPE_CHECKING:
    from adarray.jitting.calls.front import JitFunction
    from adarray.jitting.tree.tree import TreeNode


class Explanation:
    """What a compiled function does for one set of arguments.

    Shown as text by `print`, and with pictures in notebooks.

    Parameters
    ----------
    name : str
        Name of the function.
    signature : str
        The kinds of arguments it was compiled for.
    backend : str
    segments : sequence of ShownSegment
        The trace tree, parents before their children.
    path : sequence of int
        The segments that these arguments take.
    notes : sequence of str, optional
        What else there is to say: why calls stay eager.
    recordings : (int, float), optional
        How many runs were recorded, and in how many seconds.
    loops : sequence of str, optional
        What has become of the loops in the user's code.

    Attributes
    ----------
    kernels : list of KernelInfo
        The kernels on the path, in the order in which they run.
    """

    def __init__(
        self,
        name: str,
        signature: str,
        backend: str,
        segments: Sequence[ShownSegment],
        path: Sequence[int],
        notes: Sequence[str] = (),
        recordings: tuple[int, float] = (0, 0.0),
        loops: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.signature = signature
        self.backend = backend
        self.segments = tuple(segments)
        self.path = tuple(path)
        self.notes = tuple(notes)
        self.recordings = recordings
        self.loops = tuple(loops)
        self.kernels = [k for n in self.path for k in kernels(n, self.segments[n])]

    @property
    def cost(self) -> Cost:
        """Bytes read and written by the steps on the path, and their arithmetic."""
        out = Cost()
        for number in self.path:
            plan = self.segments[number].plan
            if plan is not None:
                out = out.plus(total(plan))
        return out

    @property
    def peak_bytes(self) -> int:
        """Most memory that a run of one segment needs: arguments, results, temporaries."""
        plans = [self.segments[number].plan for number in self.path]
        return max((peak(p) for p in plans if p is not None), default=0)

    @property
    def compile_seconds(self) -> float:
        """Seconds from the recording to the executables, over the path."""
        return sum(sum(self.segments[number].seconds.values()) for number in self.path)

    def section(self, pictures: bool = False) -> Section:
        """Return the whole report."""
        names = SymbolNames()
        segments = [segment_section(n, self.segments[n], names, pictures) for n in self.path]
        loops = [Section("loops", (Code("\n".join(self.loops)),))] if self.loops else []
        inside = (self._summary(), *loops, self._tree(), *segments)
        return Section(f"{self.name} under jit", inside=inside)

    def text(self, limit: int | None = None) -> str:
        """Return the report as text, of each table and listing at most `limit` lines.

        What `print` shows leaves out what comes after 600.
        """
        return as_text(self.section(), limit)

    def __str__(self) -> str:
        return self.text(LINES)

    def __repr__(self) -> str:
        return (
            f"<explanation of {self.name}: {len(self.path)} of {len(self.segments)} segments, "
            f"{len(self.kernels)} kernels>"
        )

    def _repr_html_(self) -> str:
        return as_html(self.section(pictures=True), LINES)

    def picture(self, segment: int | None = None) -> Picture:
        """Return the picture of one segment's graph: the last one's of the path by default."""
        number = self.path[-1] if segment is None else segment
        s = self.segments[number]
        if s.after is None:
            raise ValueError(
                f"explain: segment {number} has no program ({s.eager or 'it was not compiled'}); "
                "call the function again, and explain then"
            )
        return picture(s.after, s.plan)

    def dot(self, segment: int | None = None) -> str:
        """Return a segment's graph in the language of Graphviz; kernels are clusters."""
        return self.picture(segment).dot()

    def svg(self, segment: int | None = None) -> str:
        """Return a segment's graph as SVG, drawn by Graphviz; see `Picture.svg`."""
        return self.picture(segment).svg()

    def save(self, file: Any) -> None:
        """Write the report as a page of HTML.

        Parameters
        ----------
        file : path-like
        """
        page = (
            f'<!DOCTYPE html><html><head><meta charset="utf-8"><title>{escape(self.name)}'
            f"</title></head><body>{self._repr_html_()}</body></html>"
        )
        with open(fspath(file), "w", encoding="utf-8") as f:
            f.write(page)

    def _summary(self) -> Section:
        c = self.cost
        rows = [
            ("arguments", self.signature),
            ("backend", self.backend),
            ("path", " -> ".join(map(str, self.path)) or "none: nothing is compiled"),
            ("kernels", str(len(self.kernels))),
            ("read, written", f"{size_text(c.read)}, {size_text(c.written)}"),
            ("arithmetic", f"{count_text(c.flops, 'flop')}; {_functions(c)}"),
            ("peak memory", size_text(self.peak_bytes)),
            ("runs recorded", f"{self.recordings[0]}, in {time_text(self.recordings[1])}"),
            ("from recording to executable", time_text(self.compile_seconds)),
            *(("note", note) for note in self.notes),
        ]
        return Section("summary", (ReportTable(("", ""), tuple(rows)),))

    def _tree(self) -> Section:
        """Return the trace tree: a line for each segment and each guard."""
        children: dict[int, list[int]] = {}
        for number, s in enumerate(self.segments):
            children.setdefault(s.parent, []).append(number)
        lines = []
        stack = [(number, 0) for number in reversed(children.get(-1, []))]
        on_path = set(self.path)
        while stack:
            number, depth = stack.pop()
            s = self.segments[number]
            pad = "  " * depth
            mark = "*" if number in on_path else " "
            after = "" if s.parent < 0 else f"if {outcome_text(s.outcome)}: "
            state = s.eager or f"compiled, {plural(s.runs, 'run')}"
            calls = sum(isinstance(e, Call) for e in s.events)
            lines.append(f"{mark} {pad}{after}segment {number}: {plural(calls, 'call')}; {state}")
            if s.guard is not None:
                lines.append(f"  {pad}  guard {s.guard.kind}{at(s.guard.where)}")
            stack += [(child, depth + 2) for child in reversed(children.get(number, []))]
        return Section("paths (* = taken by these arguments)", (Code("\n".join(lines)),))


def _functions(c: Cost) -> str:
    return f"{count_text(c.calls)} of them functions such as exp"


# Lines of a table or a listing that are shown.
LINES = 600
# So many calls until a path is compiled at most: two recordings that agree, and a compiled run.
CALLS = 3


def compiled_path(
    jitted: JitFunction, args: tuple[Any, ...], kwargs: dict[str, Any], method: str = "compile"
) -> list[TreeNode]:
    """Return the path of some arguments, once all that can be compiled of it is.

    If it is not compiled yet, the function is called first, on copies of its arrays.

    Raises
    ------
    Exception
        What the call raises, with a note that names the `method` that was called.
    """
    path = _path(jitted, args, kwargs)
    for _ in range(CALLS):
        if path and path[-1].leaf is not None and all(n.compiled is not None for n in path):
            break
        own_args, own_kwargs = _copied((args, kwargs))
        try:
            jitted(*own_args, **own_kwargs)
        except Exception as error:
            name = getattr(jitted, "__name__", "the function")
            error.add_note(
                f"jit: {method} has called {name} with copies of its arguments to record it, and "
                f"this is what the call raises; give {method} the arguments that {name} takes"
            )
            raise
        path = _path(jitted, args, kwargs)
    pending(path, seconds=None)
    return path


def explain(jitted: JitFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
    """Return a report of what a jitted function does for some arguments.

    If their path is not compiled yet, the function is called first, on copies of its arrays.

    Parameters
    ----------
    jitted : JitFunction
    args : tuple
    kwargs : dict

    Returns
    -------
    Explanation
    """
    path = compiled_path(jitted, args, kwargs, "explain")
    entry = None
    if path:
        tree = path[0].tree
        entry = next(e for e in jitted.entries if any(v.tree is tree for v in e.variants))
    notes = [
        f"stays eager for {e.signature}: {e.eager}"
        for e in jitted.entries
        if e.eager and entry in (None, e)
    ]
    segments = _segments(path[0].tree.nodes()) if path else {}
    backend = ""
    if entry is not None:
        variant = next(v for v in entry.variants if v.tree is path[0].tree)
        backend = _backend_text(variant.builder.engine)
        if variant.unproven:
            notes.append(f"compiled after two recordings that agree: {variant.unproven}")
    return Explanation(
        getattr(jitted, "__name__", "function"),
        entry.signature if entry is not None else "",
        backend,
        [segment for _, segment in segments.values()],
        [segments[id(node)][0] for node in path],
        notes,
        (path[0].tree.recordings, path[0].tree.seconds) if path else (0, 0.0),
        loop_lines(path[-1].path.recording) if path else (),
    )


def _backend_text(engine: BaseEngine | None) -> str:
    """Return the name of what compiles, with its threads or its device."""
    if engine is None:
        return "numpy"
    if engine.device is not None:
        return f"{engine.name} ({engine.device.name})"
    return f"{engine.name} ({plural(engine.threads, 'thread')})"


def _path(jitted: JitFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[TreeNode]:
    args, kwargs = _copied((args, kwargs))
    return list(jitted.path(*args, **kwargs))


def _segments(nodes: list[TreeNode]) -> dict[int, tuple[int, ShownSegment]]:
    """Return the segments of a tree's nodes with their numbers, by the nodes' identity."""
    numbers = {id(node): i for i, node in enumerate(nodes)}
    outcomes = {id(child): key for node in nodes for key, child in node.children.items()}
    out = {}
    for i, node in enumerate(nodes):
        eager = node.eager
        if not eager and node.compiled is None:
            eager = "not compiled yet: " + (
                "it did not run since" if node.ready else "it was recorded once, not twice"
            )
        parent = numbers[id(node.parent)] if node.parent is not None else -1
        out[id(node)] = i, ShownSegment(
            parent, outcomes.get(id(node)), tuple(node.events), node.before, node.after,
            node.plan, node.executable, dict(node.seconds), node.runs, eager,
        )  # fmt: skip
    return out


def _copied(arguments: Any) -> Any:
    """Return arguments with arrays and generators of their own: the function may change them.

    They have the same signature: strides are the same, and so is which of them are one array.
    """
    leaves, rebuild = flatten(arguments)
    memo: dict[int, Any] = {}
    for x in leaves:
        if id(x) in memo:
            continue
        if isinstance(x, ADArray):
            memo[id(x)] = x if x._node is not None else x.copy()
        elif type(x) in KINDS:
            memo[id(x)] = adopt(x).copy().raw
    own = [memo.get(id(x), y) for x, y in zip(leaves, copies(leaves), strict=True)]
    return rebuild(own)
