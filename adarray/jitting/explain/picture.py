"""Pictures of programs and plans: Graphviz text, and SVG with or without Graphviz."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from html import escape
from itertools import pairwise
from typing import NamedTuple

from adarray.compiler.ir.plan import Plan, Step
from adarray.compiler.ir.program import Program, Value
from adarray.jitting.explain.drawing import Layout, layered
from adarray.jitting.explain.steps import origin_text, step_kind, step_titles, value_title

# With more values than that, each step is one node; of more steps the first ones are shown.
MOST = 250
CHARACTER, LINE, PADDING = 6.7, 14.0, 7.0  # of the text in SVG
FILLS = {
    "input": "#dbeafe", "array": "#dbeafe", "call": "#fee2e2", "dot": "#ede9fe",
    "reduce": "#fef3c7", "scan": "#fef3c7", "result": "#dcfce7", "step": "#f8fafc",
}  # fmt: skip
FRAMES = {"kernel": "#475569", "product": "#7c3aed", "call": "#dc2626"}


class Node(NamedTuple):
    """One box: a value, or a step of a plan.

    Parameters
    ----------
    label : tuple of str
        Its lines.
    kind : str
        A primitive, ``"step"`` or ``"result"``.
    cluster : int
        The step that computes it; -1 for none.
    hint : str
        What is shown when pointed at: where it comes from.
    """

    label: tuple[str, ...]
    kind: str
    cluster: int
    hint: str


class Picture:
    """A graph that can be drawn.

    Parameters
    ----------
    nodes : list of Node
    edges : list of (int, int)
        From and to, always from a smaller number to a larger one.
    clusters : dict
        Title and kind of each step.
    """

    def __init__(
        self,
        nodes: list[Node],
        edges: list[tuple[int, int]],
        clusters: dict[int, tuple[str, str]],
    ) -> None:
        self.nodes = nodes
        self.edges = edges
        self.clusters = clusters

    def dot(self) -> str:
        """Return the graph in the language of Graphviz; kernels are clusters."""
        lines = [
            "digraph program {",
            '  node [shape=box, style="rounded,filled", fillcolor=white, fontname=monospace, '
            "fontsize=10];",
            '  graph [fontname=monospace, fontsize=10, style="rounded"];',
        ]
        inside: dict[int, list[str]] = {}
        for i, node in enumerate(self.nodes):
            fill = FILLS.get(node.kind, "white")
            label = "\\n".join(map(_quoted, node.label))
            text = f'n{i} [label="{label}", fillcolor="{fill}", tooltip="{_quoted(node.hint)}"];'
            inside.setdefault(node.cluster, []).append(text)
        for step, (title, kind) in self.clusters.items():
            lines += [f"  subgraph cluster_{step} {{", f'    label="{_quoted(title)}";']
            lines += [f'    color="{FRAMES[kind]}";', *(f"    {t}" for t in inside.get(step, ()))]
            lines.append("  }")
        lines += [f"  {t}" for t in inside.get(-1, ())]
        lines += [f"  n{a} -> n{b};" for a, b in self.edges]
        return "\n".join([*lines, "}"]) + "\n"

    def svg(self, graphviz: bool | None = None) -> str:
        """Return the picture as SVG.

        Parameters
        ----------
        graphviz : bool, optional
            Whether the program ``dot`` draws it; by default, if it is installed.
        """
        program = shutil.which("dot") if graphviz is not False else None
        if graphviz and program is None:
            raise FileNotFoundError(
                "picture: the program 'dot' of Graphviz is not on PATH; install Graphviz, or "
                "leave out graphviz=True"
            )
        if program is not None:
            drawn = subprocess.run(
                [program, "-Tsvg"], input=self.dot(), capture_output=True, text=True, check=False
            )
            if drawn.returncode == 0:
                return drawn.stdout[drawn.stdout.index("<svg") :]
            if graphviz:
                raise RuntimeError(f"picture: dot failed: {drawn.stderr.strip()}")
        return "".join(_svg(self))

    def _repr_svg_(self) -> str:
        return self.svg()

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the picture: ``.dot`` and ``.gv`` as Graphviz text, others as SVG."""
        name = os.fspath(file)
        content = self.dot() if name.endswith((".dot", ".gv")) else self.svg()
        with open(name, "w", encoding="utf-8") as f:
            f.write(content)


def picture(program: Program, plan: Plan | None = None, *, values: bool | None = None) -> Picture:
    """Return the picture of a program: its values, grouped by the steps of a plan.

    Parameters
    ----------
    program : Program
    plan : Plan, optional
        The plan that computes it.
    values : bool, optional
        Whether each value is a box, or each step of the plan. By default values, unless
        there are more than 250.

    Examples
    --------
    >>> import numpy as np
    >>> from adarray.compiler.ir.program import Program, Value
    >>> x = Value("input", (), {"index": 0, "strides": (1,)}, (3,), np.float64)
    >>> y = Value("map", (x,), {"name": "sin"}, (3,), np.float64)
    >>> [node.label[0] for node in picture(Program([x], [x, y], [y])).nodes]
    ['input 0', 'sin', 'result 0']
    """
    if values is None:
        values = plan is None or len(program.values) <= MOST
    made = _Maker(program, plan)
    if values or plan is None:
        made.by_values()
    else:
        made.by_steps(plan)
    made.results()
    return Picture(made.nodes, sorted(set(made.edges)), made.clusters)


class _Maker:
    """Makes the nodes and edges of a picture."""

    def __init__(self, program: Program, plan: Plan | None) -> None:
        self.program = program
        self.plan = plan
        self.nodes: list[Node] = []
        self.edges: list[tuple[int, int]] = []
        self.clusters: dict[int, tuple[str, str]] = {}
        self.of: dict[int, int] = {}  # value -> node that others read
        self.steps: dict[int, list[int]] = {}  # value -> steps that compute it
        for i, step in enumerate(plan.steps if plan is not None else ()):
            for v in step.values:
                self.steps.setdefault(id(v), []).append(i)

    def add(self, node: Node, operands: list[int]) -> int:
        self.nodes.append(node)
        self.edges += ((a, len(self.nodes) - 1) for a in operands)
        return len(self.nodes) - 1

    def by_values(self) -> None:
        """Make a node for each value, in each step that computes it."""
        # A value that several steps compute is read, in each of them, from the step's own.
        copies: dict[tuple[int, int], int] = {}
        for order in self._in_steps():
            for v, step in order:
                reads = [
                    copies.get((id(a), step), self.of.get(id(a), -1))
                    for a in v.args
                    if a.kind != "const"
                ]
                made = self.add(
                    Node(_label(v), v.kind, step, origin_text(v)), [r for r in reads if r >= 0]
                )
                copies[id(v), step] = made
                self.of.setdefault(id(v), made)
        for i, step_ in enumerate(self.plan.steps if self.plan is not None else ()):
            self.clusters[i] = (f"step {i}: {step_kind(step_)}", step_kind(step_))

    def _in_steps(self) -> Iterator[list[tuple[Value, int]]]:
        """Yield values with their steps, operands first.

        Views that no step lists belong to the steps that read them. What then is left
        comes as early as it can: inputs, and what the results are made of.
        """
        steps = self.plan.steps if self.plan is not None else ()
        inside = [_members(step, self.steps) for step in steps]
        placed = {id(v) for members in inside for v in members}
        waiting = [v for v in self.program.values if v.kind != "const" and id(v) not in placed]
        known = {id(v) for v in self.program.values if v.kind == "const"}
        for i in range(-1, len(inside)):
            if i >= 0:
                yield [(v, i) for v in inside[i] if v.kind != "const"]
                known.update(id(v) for v in inside[i])
            ready, rest = [], []
            for v in waiting:
                if all(id(a) in known for a in v.args):
                    known.add(id(v))
                    ready.append((v, -1))
                else:
                    rest.append(v)
            waiting = rest
            yield ready

    def by_steps(self, plan: Plan) -> None:
        """Make a node for each step, and for each input."""
        for v in self.program.inputs:
            self.of[id(v)] = self.add(Node(_label(v), "input", -1, origin_text(v)), [])
        for i, step in enumerate(plan.steps[:MOST]):
            inner = {id(v) for v in step.values}
            reads = {self._source(a) for v in step.values for a in v.args if id(a) not in inner}
            titles = _counted(step)
            node = Node((f"step {i}: {step_kind(step)}", *titles), "step", -1, "")
            made = self.add(node, sorted(reads - {-1}))
            for v in step.values:
                self.of.setdefault(id(v), made)
        rest = plan.steps[MOST:]
        if rest:
            last = made
            made = self.add(Node((f"and {len(rest)} more steps",), "step", -1, ""), [last])
            for step in rest:
                self.of.update((id(v), made) for v in step.values if id(v) not in self.of)

    def _source(self, v: Value) -> int:
        """Return the node that makes a value, seen through what no step computes."""
        while id(v) not in self.of and v.args:
            v = v.args[0]
        return self.of.get(id(v), -1)

    def results(self) -> None:
        """Make a node for each result."""
        for i, v in enumerate(self.program.outputs):
            source = self._source(v)
            label = (f"result {i}", f"{v.dtype}{list(v.shape)}")
            self.add(Node(label, "result", -1, ""), [source] if source >= 0 else [])


def _members(step: Step, listed: dict[int, list[int]]) -> list[Value]:
    """Return the values of a step and the unlisted views that it reads, operands first."""
    own = {id(v) for v in step.values}
    out: list[Value] = []
    seen: set[int] = set()
    stack = [(v, False) for v in reversed(step.values)]
    while stack:
        v, done = stack.pop()
        if done:
            out.append(v)
        elif id(v) not in seen:
            seen.add(id(v))
            stack.append((v, True))
            stack += [
                (a, False)
                for a in reversed(v.args)
                if id(a) in own or (a.kind in ("view", "iota") and id(a) not in listed)
            ]
    return out


def _counted(step: Step) -> list[str]:
    """Return the operations of a step with their numbers, the most frequent first."""
    counts: dict[str, int] = {}
    for title in step_titles(step):
        counts[title] = counts.get(title, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    lines = [f"{n} x {title}" if n > 1 else title for title, n in ordered[:5]]
    return [*lines, f"and {len(ordered) - 5} other kinds"] if len(ordered) > 5 else lines


def _label(v: Value) -> tuple[str, ...]:
    """Return the lines of a value's box; constant operands stand in them."""
    what = value_title(v)
    if any(a.kind == "const" for a in v.args):
        shown = (str(a.params["value"]) if a.kind == "const" else "." for a in v.args)
        what += f"({', '.join(shown)})"
    return (what, f"{v.dtype}{list(v.shape)}")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


# -- SVG without Graphviz ------------------------------------------------------------------


class _Block(NamedTuple):
    """The nodes of one step, or one node alone, and how they lie in it."""

    nodes: list[int]
    layout: Layout
    title: str
    frame: str


def _size(node: Node) -> tuple[float, float]:
    longest = max(map(len, node.label))
    return longest * CHARACTER + 2 * PADDING, len(node.label) * LINE + 2 * PADDING


def _blocks(graph: Picture) -> list[_Block]:
    """Return the blocks in an order in which edges go forward."""
    members: dict[int, list[int]] = {}
    for i, node in enumerate(graph.nodes):
        # Nodes of no step are blocks of their own, with numbers that steps do not have.
        members.setdefault(node.cluster if node.cluster >= 0 else -1 - i, []).append(i)
    out = []
    for step, nodes in members.items():
        local = {n: i for i, n in enumerate(nodes)}
        inner = [(local[a], local[b]) for a, b in graph.edges if a in local and b in local]
        title, kind = graph.clusters.get(step, ("", ""))
        layout = layered([_size(graph.nodes[n]) for n in nodes], inner)
        out.append(_Block(nodes, layout, title, FRAMES.get(kind, "")))
    return out


def _svg(graph: Picture) -> Iterator[str]:
    """Yield the pieces of an SVG picture: blocks in layers, and in each its nodes in layers."""
    blocks = _blocks(graph)
    of = {n: b for b, block in enumerate(blocks) for n in block.nodes}
    margin = [12.0 if block.frame else 0.0 for block in blocks]
    head = [LINE if block.frame else 0.0 for block in blocks]
    sizes = [
        (
            max(block.layout.width, len(block.title) * CHARACTER) + 2 * m,
            block.layout.height + 2 * m + h,
        )
        for block, m, h in zip(blocks, margin, head, strict=True)
    ]
    outer = layered(sizes, [(of[a], of[b]) for a, b in graph.edges if of[a] != of[b]])
    edge = 10.0
    width, height = outer.width + 2 * edge, outer.height + 2 * edge
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{-edge:.0f} {-edge:.0f} {width:.0f} {height:.0f}" '
        'font-family="monospace" font-size="11">'
        '<defs><marker id="adarray-arrow" markerWidth="7" markerHeight="6" refX="6" refY="3" '
        'orient="auto"><path d="M0,0 L7,3 L0,6 z" fill="#64748b"/></marker></defs>'
    )
    at: dict[int, tuple[float, float]] = {}
    inner: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for b, block in enumerate(blocks):
        (w, h), (cx, cy) = sizes[b], outer.centers[b]
        x0 = cx - block.layout.width / 2
        y0 = cy - h / 2 + margin[b] + head[b]
        if block.frame:
            yield _frame(cx - w / 2, cy - h / 2, w, h, block)
        for n, (x, y) in zip(block.nodes, block.layout.centers, strict=True):
            at[n] = (x0 + x, y0 + y)
        for (p, q), bends in block.layout.routes.items():
            inner[block.nodes[p], block.nodes[q]] = [(x0 + x, y0 + y) for x, y in bends]
    for a, b in graph.edges:
        bends = inner[a, b] if of[a] == of[b] else outer.routes[of[a], of[b]]
        yield _edge(graph, a, b, at, bends)
    for n, node in enumerate(graph.nodes):
        yield _box(node, *at[n])
    yield "</svg>"


def _frame(x: float, y: float, w: float, h: float, block: _Block) -> str:
    return (
        f'<rect class="step" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="8" '
        f'fill="#f8fafc" stroke="{block.frame}"/>'
        f'<text x="{x + 12:.1f}" y="{y + 15:.1f}" fill="{block.frame}">{escape(block.title)}</text>'
    )


def _box(node: Node, x: float, y: float) -> str:
    w, h = _size(node)
    fill = FILLS.get(node.kind, "white")
    hint = f"<title>{escape(node.hint)}</title>" if node.hint else ""
    lines = "".join(
        f'<text x="{x:.1f}" y="{y - h / 2 + PADDING + (i + 0.75) * LINE:.1f}" '
        f'text-anchor="middle">{escape(line)}</text>'
        for i, line in enumerate(node.label)
    )
    return (
        f'<g class="node">{hint}<rect x="{x - w / 2:.1f}" y="{y - h / 2:.1f}" width="{w:.1f}" '
        f'height="{h:.1f}" rx="5" fill="{fill}" stroke="#94a3b8"/>{lines}</g>'
    )


def _edge(
    graph: Picture,
    a: int,
    b: int,
    at: dict[int, tuple[float, float]],
    bends: list[tuple[float, float]],
) -> str:
    """Return a curve from the lower side of one box to the upper side of another."""
    (xa, ya), (xb, yb) = at[a], at[b]
    points = [
        (xa, ya + _size(graph.nodes[a])[1] / 2), *bends, (xb, yb - _size(graph.nodes[b])[1] / 2 - 1)
    ]  # fmt: skip
    path = [f"M{points[0][0]:.1f},{points[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in pairwise(points):
        half = (y0 + y1) / 2
        path.append(f"C{x0:.1f},{half:.1f} {x1:.1f},{half:.1f} {x1:.1f},{y1:.1f}")
    return (
        f'<path class="edge" d="{" ".join(path)}" fill="none" stroke="#64748b" '
        'marker-end="url(#adarray-arrow)"/>'
    )
