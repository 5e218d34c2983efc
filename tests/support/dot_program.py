"""Puts a stand-in for Graphviz's program `dot` on PATH, to test what draws with it.

For tests of pictures.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

# A stand-in that counts the clusters it was given.
COUNTS_CLUSTERS = """echo "<?xml version='1.0'?>"
echo "<svg><text>$(grep -c subgraph)</text></svg>"
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program `dot` into a folder, and that on PATH; it runs a script of the shell."""
    program = folder / "dot"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    assert shutil.which("dot") == str(program)
