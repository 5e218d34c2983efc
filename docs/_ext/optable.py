"""Directives that make tables of adarray's registry, so that they cannot go stale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import adarray
from adarray.base.op import COMPOSITES, CONSTANT_FUNCTIONS, FUNCTIONS, Op, all_ops

HEADER = ("NumPy", "methods", "operands", "lowering", "reverse", "forward", "notes")


def public_name(function: Any) -> str:
    """Return the name under which users know a function."""
    name = function.__name__
    module = getattr(function, "__module__", None) or "numpy"
    if module.startswith("adarray"):
        return f"{module}.{name}"
    if isinstance(getattr(function, "__self__", None), np.ufunc):
        return f"np.{function.__self__.__name__}.{name}"
    if module == "_operator":
        return f"operator.{name}"
    prefix = next(
        (f"np.{m}." for m in ("linalg", "fft", "random") if f"numpy.{m}" in module), "np."
    )
    return f"{prefix}{name}"


def numpy_names(op: Op) -> list[str]:
    """Return the public names of all functions that an operation stands for."""
    own = [f for f in (op.numpy, *op.aliases) if not f.__name__.startswith("_")]
    if own:
        return list(dict.fromkeys(map(public_name, own)))
    # An operation of our own is reached by way of the NumPy function of its name, if there is one.
    for prefix, module in (("np.", np), ("np.linalg.", np.linalg)):
        if hasattr(module, op.name):
            return [prefix + op.name]
    return [op.name]


def reverse(op: Op) -> str:
    """Say for which operands there is a reverse rule."""
    if op.variadic or all(op.rules):
        return "all operands"
    return "operands " + ", ".join(str(i) for i, rule in enumerate(op.rules) if rule)


def forward(op: Op) -> str:
    """Say where the forward rule comes from."""
    if op.pointwise:
        return "same rule"
    if op.jvp == "linear":
        return "linear"
    if isinstance(op.jvp, tuple | list):
        return "own rule"
    return "none"


def operand_names(op: Op) -> str:
    """Return the names of the differentiable operands."""
    return (
        ", ".join(op.operands) if op.operands else ", ".join(f"x{i + 1}" for i in range(op.arity))
    )


def table(header: tuple[str, ...], rows: Iterator[tuple[Any, ...]], widths: list[int]) -> Any:
    """Return a docutils table; a cell is text, a list of literals, or nodes."""
    group = nodes.tgroup(cols=len(header))
    group += [nodes.colspec(colwidth=w) for w in widths]
    head, body = nodes.thead(), nodes.tbody()
    head += _row(header)
    body += [_row(cells) for cells in rows]
    group += [head, body]
    table = nodes.table(classes=["optable"])
    table += group
    return table


def _row(cells: tuple[Any, ...]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        paragraph = nodes.paragraph()
        if isinstance(cell, list):
            for k, text in enumerate(cell):
                if k:
                    paragraph += nodes.Text(", ")
                paragraph += nodes.literal(text=text)
        else:
            paragraph += nodes.Text(cell)
        entry = nodes.entry()
        entry += paragraph
        row += entry
    return row


class OpTable(SphinxDirective):
    """``.. optable::`` lists the operations, those of one lowering kind with ``:kind:``."""

    option_spec: ClassVar[dict[str, Any]] = {"kind": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        kind = self.options.get("kind")
        kinds = None if kind is None else {k.strip() for k in kind.split(",")}
        ops = [op for op in all_ops() if kinds is None or type(op.lower).__name__ in kinds]
        if not ops:
            raise self.error(f"optable: no operation is of kind {kind!r}")
        rows = (
            (
                numpy_names(op),
                [f".{m}" for m in op.methods] or "",
                operand_names(op),
                type(op.lower).__name__,
                reverse(op),
                forward(op),
                op.note,
            )
            for op in sorted(ops, key=lambda op: op.name)
        )
        return [table(HEADER, rows, [20, 10, 12, 10, 12, 10, 26])]


class FunctionList(SphinxDirective):
    """``.. functionlist:: composite`` or ``constant`` lists other functions that are known."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a paragraph of names."""
        # Bodies of ndarray methods are registered too, and belong to the functions listed.
        composites = {f for f in COMPOSITES if not public_name(f).startswith("adarray")}
        known = {"composite": composites - set(FUNCTIONS), "constant": CONSTANT_FUNCTIONS}
        if self.arguments[0] not in known:
            raise self.error(f"functionlist: {self.arguments[0]!r}; one of {sorted(known)}")
        tabled = {name for op in all_ops() for name in numpy_names(op)}
        names = sorted({public_name(f) for f in known[self.arguments[0]]} - tabled)
        paragraph = nodes.paragraph()
        for k, name in enumerate(names):
            if k:
                paragraph += nodes.Text(", ")
            paragraph += nodes.literal(text=name)
        return [paragraph]


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directives to Sphinx."""
    app.add_directive("optable", OpTable)
    app.add_directive("functionlist", FunctionList)
    return {"version": adarray.__version__, "parallel_read_safe": True, "parallel_write_safe": True}
