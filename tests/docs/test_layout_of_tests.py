"""The tests of a package are where its name says, and helpers say what they help with."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PACKAGE = TESTS.parent / "adarray"
# Folders about more than one package, or about none.
OTHERS = {
    "asv_bench", "backends", "coverage", "docs", "newcomer", "packages", "support", "trust",
    "typing",
}  # fmt: skip


def test_folders_have_the_names_of_packages() -> None:
    folders = {p.parent.relative_to(TESTS) for p in TESTS.rglob("test_*.py")} - {Path()}
    assert len(folders) > 30
    assert not [str(f) for f in folders if f.parts[0] not in OTHERS and not (PACKAGE / f).is_dir()]


def test_modules_beside_the_folders_are_tested_by_name() -> None:
    names = {p.stem.removeprefix("test_") for p in TESTS.glob("test_*.py")}
    assert {"backend", "custom", "evaluation", "profiling"} <= names & {
        p.stem for p in PACKAGE.glob("*.py")
    }


def test_helpers_say_what_they_help_with() -> None:
    for path in sorted((TESTS / "support").glob("*.py")):
        doc = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert re.search(r"\b[Ff]or (?:\w+ )*(?:tests?|runs|changes|``|the|`)", doc), path.name
