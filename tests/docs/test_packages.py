"""Every package of the tree is installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_package_is_installed() -> None:
    """An editable environment finds packages that pyproject.toml does not name."""
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    there = set()
    for package, folder in setuptools["package-dir"].items():
        top = ROOT / folder
        for init in top.rglob("__init__.py"):
            there.add(".".join((package, *init.parent.relative_to(top).parts)))
    assert sorted(there) == sorted(setuptools["packages"])
