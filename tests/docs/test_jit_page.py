"""The page on internals is about the passes, primitives and modules that there are."""

import importlib
import re
from pathlib import Path

from adarray.compiler.ir.primitives import PRIMITIVES
from adarray.compiler.rewrite import PASSES

PAGE = (Path(__file__).parents[2] / "docs" / "design" / "jit.rst").read_text()


def test_every_pass_is_in_the_table():
    table = re.search(r"^===+ ===+$(.*?)^===+ ===+$", PAGE, re.DOTALL | re.MULTILINE)
    assert set(re.findall(r"^``(\w+)``", table[1], re.MULTILINE)) == {p.__name__ for p in PASSES}


def test_the_number_of_primitives():
    assert f"one of {len(PRIMITIVES)} primitives" in PAGE


def test_every_place_that_must_know_a_primitive_is_named():
    """Each module with an exhaustive match of primitives is in the list of the page."""
    root = Path(__file__).parents[2]
    files = [p for p in (root / "adarray").rglob("*.py") if "assert_never(v" in p.read_text()]
    files += [root / "adarray/compiler/kernels/values.py"]
    assert len(files) > 6
    for p in files:
        module = ".".join(p.relative_to(root).with_suffix("").parts)
        assert f"`{module}`" in PAGE, module


def test_modules_that_are_named_exist():
    names = set(re.findall(r"`(adarray\.[a-z_.]+)`", PAGE))
    assert len(names) > 10
    for name in names:
        importlib.import_module(name)


def test_files_that_are_named_exist():
    root = Path(__file__).parents[2]
    for name in re.findall(r"``((?:native|adarray)/[\w./]+)``", PAGE):
        assert (root / name).exists(), name
