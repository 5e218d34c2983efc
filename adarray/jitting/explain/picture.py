"""Pictures of programs and plans: text in Graphviz's language, which its program ``dot`` draws."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Container, Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

from adarray.compiler.ir.plan import Plan, Step
from adarray.compiler.ir.primitives import Constant, Iota, View, mnemonic
from adarray.compiler.ir.program import Program, Value
from adarray.jitting.explain.steps import origin_text, step_kind, step_titles, value_title

# With more values than that, each step is one node; of more steps the first ones are shown.
MOST = 250
SECONDS = 60.0  # that ``dot`` may take for one picture
INSTALL = (
    "the program 'dot' of Graphviz, which draws pictures, is not on PATH; install it (for instance "
    "with apt, brew or conda: graphviz), or give the text of .dot() to a viewer of Graphviz"
)
FILLS = {
    "program_input": "#dbeafe", "constant_array": "#dbeafe", "python_call": "#fee2e2",
    "matmul": "#ede9fe", "reduce": "#fef3c7", "prefix_scan": "#fef3c7", "result": "#dcfce7",
    "step": "#f8fafc",
}  # fmt: skip
FRAMES = {"kernel": "#475569", "product": "#7c3aed", "call": "#dc2626"}


class Box(NamedTuple):
    """One box: a value, or a step of a plan.

    Parameters
    ----------
    label : tuple of str
        Its lines.
    kind : str
        The word for a primitive, ``"step"`` or ``"result"``.
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
    nodes : list of Box
    edges : list of (int, int)
        From and to, always from a smaller number to a larger one.
    clusters : dict
        Title and kind of each step.
    """

    def __init__(
        self,
        nodes: list[Box],
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

    __str__ = dot

    def svg(self) -> str:
        """Return the picture as SVG, drawn by Graphviz.

        Raises
        ------
        FileNotFoundError
            If the program ``dot`` of Graphviz is not on PATH.
        RuntimeError
            If it fails, or takes more than a minute.
        """
        drawn = self._drawn("svg").decode()
        return drawn[drawn.index("<svg") :]

    def html(self) -> str:
        """Return the picture as HTML: drawn, or why it is not and the text of Graphviz."""
        try:
            return f'<div style="overflow-x:auto">{self.svg()}</div>'
        except (FileNotFoundError, RuntimeError) as error:
            return f"<p>{escape(str(error))}</p><pre>{escape(self.dot())}</pre>"

    _repr_html_ = html

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the picture in the format that the file's suffix names.

        Parameters
        ----------
        file : path-like
            ``.dot`` and ``.gv`` are Graphviz's text; ``.svg``, ``.png``, ``.pdf`` and whatever
            else ``dot`` writes are drawn by it, as in `svg`.
        """
        path = Path(file)
        kind = path.suffix.removeprefix(".")
        path.write_bytes(
            self.dot().encode() if kind in ("dot", "gv") else self._drawn(kind or "svg")
        )

    def _drawn(self, kind: str) -> bytes:
        program = shutil.which("dot")
        if program is None:
            raise FileNotFoundError(f"picture: {INSTALL}")
        try:
            run = subprocess.run(
                [program, f"-T{kind}"],
                input=self.dot().encode(),
                capture_output=True,
                check=False,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(
                f"picture: dot took more than {SECONDS:g} s; the text of .dot() is the same graph"
            ) from None
        if run.returncode != 0:
            raise RuntimeError(f"picture: dot failed: {run.stderr.decode().strip()}")
        return run.stdout


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
    >>> from adarray.compiler.ir.primitives import Map, ProgramInput
    >>> from adarray.compiler.ir.program import Program, Value
    >>> x = Value(ProgramInput(0, (1,)), (), (3,), np.float64)
    >>> y = Value(Map("sin"), (x,), (3,), np.float64)
    >>> [node.label[0] for node in picture(Program([x], [x, y], [y])).nodes]
    ['input 0', 'sin', 'result 0']
    """
    if values is None:
        values = plan is None or len(program.values) <= MOST
    graph = _GraphBuilder(program, plan)
    if values or plan is None:
        graph.by_values()
    else:
        graph.by_steps(plan)
    graph.results()
    return Picture(graph.nodes, sorted(set(graph.edges)), graph.clusters)


class _GraphBuilder:
    """Collects the nodes and edges of a picture."""

    def __init__(self, program: Program, plan: Plan | None) -> None:
        self.program = program
        self.plan = plan
        self.nodes: list[Box] = []
        self.edges: list[tuple[int, int]] = []
        self.clusters: dict[int, tuple[str, str]] = {}
        self.of: dict[Value, int] = {}  # value -> node that others read
        self.steps: dict[Value, list[int]] = {}  # value -> steps that compute it
        for i, step in enumerate(plan.steps if plan is not None else ()):
            for v in step.values:
                self.steps.setdefault(v, []).append(i)

    def add(self, node: Box, operands: list[int]) -> int:
        self.nodes.append(node)
        self.edges += ((a, len(self.nodes) - 1) for a in operands)
        return len(self.nodes) - 1

    def by_values(self) -> None:
        """Make a node for each value, in each step that computes it."""
        # A value that several steps compute is read, in each of them, from the step's own.
        copies: dict[tuple[Value, int], int] = {}
        for order in self._in_steps():
            for v, step in order:
                reads = [
                    copies.get((a, step), self.of.get(a, -1))
                    for a in v.args
                    if not isinstance(a.primitive, Constant)
                ]
                box = Box(_label(v), mnemonic(v.primitive), step, origin_text(v))
                number = self.add(box, [r for r in reads if r >= 0])
                copies[v, step] = number
                self.of.setdefault(v, number)
        for i, step_ in enumerate(self.plan.steps if self.plan is not None else ()):
            self.clusters[i] = (f"step {i}: {step_kind(step_)}", step_kind(step_))

    def _in_steps(self) -> Iterator[list[tuple[Value, int]]]:
        """Yield values with their steps, operands first.

        Views that no step lists belong to the steps that read them. What then is left
        comes as early as it can: inputs, and what the results are made of.
        """
        steps = self.plan.steps if self.plan is not None else ()
        inside = [_members(step, self.steps) for step in steps]
        placed = {v for members in inside for v in members}
        waiting = [
            v
            for v in self.program.values
            if not isinstance(v.primitive, Constant) and v not in placed
        ]
        known = {v for v in self.program.values if isinstance(v.primitive, Constant)}
        for i in range(-1, len(inside)):
            if i >= 0:
                yield [(v, i) for v in inside[i] if not isinstance(v.primitive, Constant)]
                known.update(inside[i])
            ready, rest = [], []
            for v in waiting:
                if all(a in known for a in v.args):
                    known.add(v)
                    ready.append((v, -1))
                else:
                    rest.append(v)
            waiting = rest
            yield ready

    def by_steps(self, plan: Plan) -> None:
        """Make a node for each step, and for each input."""
        for v in self.program.inputs:
            self.of[v] = self.add(Box(_label(v), mnemonic(v.primitive), -1, origin_text(v)), [])
        for i, step in enumerate(plan.steps[:MOST]):
            inner = set(step.values)
            reads = {self._source(a) for v in step.values for a in v.args if a not in inner}
            titles = _counted(step)
            box = Box((f"step {i}: {step_kind(step)}", *titles), "step", -1, "")
            number = self.add(box, sorted(reads - {-1}))
            for v in step.values:
                self.of.setdefault(v, number)
        rest = plan.steps[MOST:]
        if rest:
            last = number
            number = self.add(Box((f"and {len(rest)} more steps",), "step", -1, ""), [last])
            for step in rest:
                self.of.update((v, number) for v in step.values if v not in self.of)

    def _source(self, v: Value) -> int:
        """Return the node that makes a value, seen through what no step computes."""
        while v not in self.of and v.args:
            v = v.args[0]
        return self.of.get(v, -1)

    def results(self) -> None:
        """Make a node for each result."""
        for i, v in enumerate(self.program.outputs):
            source = self._source(v)
            label = (f"result {i}", f"{v.dtype}{list(v.shape)}")
            self.add(Box(label, "result", -1, ""), [source] if source >= 0 else [])


def _members(step: Step, listed: Container[Value]) -> list[Value]:
    """Return the values of a step and the unlisted views that it reads, operands first."""
    own = set(step.values)
    out: list[Value] = []
    seen: set[Value] = set()
    stack = [(v, False) for v in reversed(step.values)]
    while stack:
        v, done = stack.pop()
        if done:
            out.append(v)
        elif v not in seen:
            seen.add(v)
            stack.append((v, True))
            stack += [
                (a, False)
                for a in reversed(v.args)
                if a in own or (isinstance(a.primitive, (View, Iota)) and a not in listed)
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
    if any(isinstance(a.primitive, Constant) for a in v.args):
        shown = (
            str(a.primitive.value) if isinstance(a.primitive, Constant) else "." for a in v.args
        )
        what += f"({', '.join(shown)})"
    return (what, f"{v.dtype}{list(v.shape)}")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
