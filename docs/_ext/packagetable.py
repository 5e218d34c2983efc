"""``.. packagetable:: summary`` shows docs/coverage/packages.tsv, which a test run writes.

``summary`` counts the functions of each package, ``functions`` names them all and
``failures`` says what does not differentiate, and why.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Any

from coveragetable import read
from docutils import nodes
from optable import table
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

Row = dict[str, str]


def by_package(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    """Return the rows of each package."""
    return [(name, list(of_it)) for name, of_it in groupby(rows, itemgetter("package"))]


def agree(rows: list[Row]) -> list[Row]:
    """Return the rows of which the gradient agrees with differences."""
    return [r for r in rows if r["status"] == "differentiable"]


def summary(rows: list[Row]) -> list[nodes.Node]:
    """Return a sentence with counts, and a table of packages."""
    passed = agree(rows)
    text = (
        f"{len(passed)} functions of {len(by_package(passed))} packages are differentiated and "
        f"agree with differences; {len(rows) - len(passed)} calls do not, for the reasons below."
    )
    cells = (
        (
            f"{name} {of_it[0]['version']}",
            of_it[0]["field"],
            str(len(agree(of_it))),
            max((r["max relative error"] for r in agree(of_it)), key=float),
            str(len(of_it) - len(agree(of_it))),
        )
        for name, of_it in by_package(rows)
    )
    header = ("package", "field", "agree", "largest relative error", "do not")
    return [nodes.paragraph(text=text), table(header, cells, [26, 24, 12, 22, 12])]


def functions(rows: list[Row]) -> list[nodes.Node]:
    """Return one table: the functions of each package that are differentiated."""
    cells = ((name, [r["function"] for r in of_it]) for name, of_it in by_package(agree(rows)))
    return [table(("package", "functions"), cells, [15, 85])]


def failures(rows: list[Row]) -> list[nodes.Node]:
    """Return the table of what is not differentiated."""
    cells = (
        ([f"{r['package']}.{r['function']}"], r["status"], r["reason"])
        for r in rows
        if r["status"] != "differentiable"
    )
    return [table(("function", "status", "reason"), cells, [40, 12, 48])]


PARTS = {"summary": summary, "functions": functions, "failures": failures}


class PackageTable(SphinxDirective):
    """A part of the table of packages."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the part that is asked for."""
        part = PARTS.get(self.arguments[0])
        if part is None:
            raise self.error(f"packagetable: {self.arguments[0]!r}; one of {sorted(PARTS)}")
        return part(read("packages"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive to Sphinx."""
    app.add_directive("packagetable", PackageTable)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
