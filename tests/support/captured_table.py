"""The table of the kinds of captured state in the documentation, made of what tests run.

``python tests/support/captured_table.py`` writes it; a test compares it with what happens.

For tests of captured state.
"""

from __future__ import annotations

import importlib.util
import pathlib
import re
import warnings

from captured_kinds import KINDS, X
from captured_kinds_all import NEEDS

import adarray

FILE = pathlib.Path(__file__).parents[2] / "docs" / "jit" / "captured.tsv"
_WHERE = re.compile(r"^.*? stays eager: (it cannot be recorded: \w+: (jit: )?)?")
# What warnings say, in short.
_REASONS = (
    ("iterator", "an iterator, which calls advance"),
    ("file or stream", "a stream, which calls advance"),
    ("pointers", "it holds pointers"),
    ("draws from", "random numbers of Python's"),
    ("changes what it captured", "calls change it"),
    ("it calls eval", "what ``eval`` reads is not known"),
    ("writes a computed value", "computed values go into memory of others"),
    ("two runs", "two runs differed"),
    ("plain ndarray", "computed values go into code that is not recorded"),
)


def outcome(name: str) -> str:
    """Return how jit sees that state of a kind has changed: in short, for the table."""
    f, changes = KINDS[name]()  # which keep what the function reads
    with warnings.catch_warnings(record=True) as said, adarray.use("numpy"):
        warnings.simplefilter("always")
        jf = adarray.jit(f)
        for _ in range(3):
            jf(X)
    del changes
    messages = [str(w.message) for w in said if issubclass(w.category, adarray.JitWarning)]
    if not messages:
        return "compiled, and compared or read in each call"
    short = next((short for part, short in _REASONS if part in messages[0]), None)
    return f"eager: {short or _WHERE.sub('', messages[0])}"


def title(name: str) -> str:
    """Return the name of a kind as text."""
    return name.replace("_", " ")


def available(name: str) -> bool:
    """Whether the package that a kind is about is there."""
    return name not in NEEDS or importlib.util.find_spec(NEEDS[name]) is not None


def rows() -> dict[str, str]:
    """Return what happens to each kind, by its title."""
    return {title(name): outcome(name) for name in KINDS if available(name)}


def committed() -> dict[str, str]:
    """Return the table in the documentation."""
    lines = FILE.read_text(encoding="utf-8").splitlines()[1:]
    return dict(line.split("\t") for line in lines)


if __name__ == "__main__":
    table = {**(committed() if FILE.exists() else {}), **rows()}
    names = [n for n in map(title, KINDS) if n in table]
    text = "\n".join(f"{name}\t{table[name]}" for name in names)
    FILE.write_text(f"what a function reads\twhat jit does\n{text}\n", encoding="utf-8")
