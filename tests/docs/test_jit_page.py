"""The page on internals is about the passes, primitives and modules that there are."""

import importlib
import re
from pathlib import Path

from adarray.compiler.ir import program
from adarray.compiler.rewrite import PASSES

PAGE = (Path(__file__).parents[2] / "docs" / "design" / "jit.rst").read_text()


def test_every_pass_is_in_the_table():
    table = re.search(r"^===+ ===+$(.*?)^===+ ===+$", PAGE, re.DOTALL | re.MULTILINE)
    assert set(re.findall(r"^``(\w+)``", table[1], re.MULTILINE)) == {p.__name__ for p in PASSES}


def test_every_primitive_is_in_the_docstring():
    table = program.__doc__.split("=========  ====")
    assert len(table) == 3
    kinds = re.findall(r"^(\w+)  ", table[1], re.MULTILINE)
    assert sorted(kinds) == sorted(program.KINDS)
    assert f"one of {len(kinds)} primitives" in PAGE


def test_modules_that_are_named_exist():
    names = set(re.findall(r"`(adarray\.[a-z_.]+)`", PAGE))
    assert len(names) > 10
    for name in names:
        importlib.import_module(name)


def test_files_that_are_named_exist():
    root = Path(__file__).parents[2]
    for name in re.findall(r"``((?:native|adarray)/[\w./]+)``", PAGE):
        assert (root / name).exists(), name
