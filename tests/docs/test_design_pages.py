"""What the design pages name exists, and the glossary stays short."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

pytest.importorskip("adarray_backends")
ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "design").glob("*.rst"))
TEXTS = {p.name: p.read_text() for p in (*PAGES, ROOT / "CONTRIBUTING.md")}
# Folders whose files a page may name alone.
HOMES = (
    "",
    "adarray",
    "adarray/compiler",
    "adarray/compiler/rewrite",
    "adarray/batching",
    "adarray/sparsity",
)
EXAMPLES = {"docs/examples/plot_NAME.py"}


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        try:
            module: object = importlib.import_module(".".join(parts[:k]))
        except ImportError:
            continue
        for part in parts[k:]:
            if part in getattr(module, "__annotations__", {}):
                return True
            module = getattr(module, part, None)
        return module is not None
    return False


@pytest.mark.parametrize("page", TEXTS)
def test_names_resolve(page: str) -> None:
    dotted = r"`~?((?:adarray|adarray_backends|adarray_native)(?:\.\w+)+)"
    assert not [n for n in sorted(set(re.findall(dotted, TEXTS[page]))) if not resolves(n)]


@pytest.mark.parametrize("page", TEXTS)
def test_files_exist(page: str) -> None:
    named = set(re.findall(r"`([\w./-]+(?:\.(?:py|pyi|c|h|rst|toml|md)|/))`", TEXTS[page]))
    assert not [
        n for n in sorted(named - EXAMPLES) if not any((ROOT / home / n).exists() for home in HOMES)
    ]


def test_every_page_is_in_the_index() -> None:
    listed = re.findall(r"^    ([\w-]+)$", TEXTS["index.rst"], re.MULTILINE)
    assert sorted(listed) == sorted(p.stem for p in PAGES if p.stem != "index")


def test_glossary_has_thirty_words_at_most() -> None:
    heads = re.findall(r"^    (\S.*)$", TEXTS["glossary.rst"], re.MULTILINE)
    words = [w.strip() for head in heads for w in head.split(",")]
    assert 20 < len(words) <= 30
    assert len(set(words)) == len(words)
