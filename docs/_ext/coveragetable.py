"""``.. coveragetable:: numpy`` shows the tables in docs/coverage that the tests check."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from optable import table
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

FOLDER = Path(__file__).parents[1] / "coverage"
HEADER = ("name", "adarray", "adarray.numpy, intercept", "autograd", "MyGrad", "JAX", "note")
PEER_WORDS = {"-": "", "y": "name there", "vjp+jvp": "vjp, jvp"}


def read(name: str) -> list[dict[str, str]]:
    """Return the rows of one table."""
    with (FOLDER / f"{name}.tsv").open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def newest(library: str) -> str:
    """Return the name of the table of the newest version of a library."""
    versions = [p.stem for p in FOLDER.glob(f"{library}-*.tsv")]
    return max(versions, key=lambda s: tuple(map(int, s.rpartition("-")[2].split("."))))


def described(row: dict[str, str], status: str = "status") -> str:
    """Return a status with the modes of differentiation."""
    modes = [m for m, key in (("vjp", "reverse"), ("jvp", "forward")) if row.get(key) == "yes"]
    return ", ".join(modes) if row[status] == "differentiable" and modes else row[status]


class CoverageTable(SphinxDirective):
    """A table of names, with the peers beside them; ``:prefix:`` and ``:without:`` select."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {
        "prefix": directives.unchanged,
        "without": directives.unchanged,
    }

    def run(self) -> list[nodes.Node]:
        """Return a sentence with counts, and the table."""
        library = self.arguments[0]
        prefix = self.options.get("prefix", library + ".")
        without = tuple(self.options.get("without", "").split())
        rows = [
            r for r in read(newest(library))
            if r["name"].startswith(prefix) and not (without and r["name"].startswith(without))
        ]  # fmt: skip
        if not rows:
            raise self.error(f"coveragetable: no name begins with {prefix!r}")
        peers = {r["name"]: r for r in read("peers")}
        counts = Counter(r["status"] for r in rows)
        text = ", ".join(f"{n} {status}" for status, n in counts.most_common())
        cells = (
            (
                [r["name"].removeprefix(prefix)],
                described(r),
                r.get("namespace", ""),
                *(
                    PEER_WORDS.get(v, v)
                    for v in (
                        peers.get(r["name"], {}).get(p, "") for p in ("autograd", "mygrad", "jax")
                    )
                ),
                r["note"],
            )
            for r in rows
        )
        widths = [20, 14, 14, 10, 8, 10, 24]
        return [nodes.paragraph(text=f"{len(rows)} names: {text}."), table(HEADER, cells, widths)]


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive to Sphinx."""
    app.add_directive("coveragetable", CoverageTable)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
