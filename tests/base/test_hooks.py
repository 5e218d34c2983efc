"""Hooks: functions that a layer above provides."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

import adarray
from adarray.base.hooks import Hook

SOURCES = sorted(Path(adarray.__file__).parent.rglob("*.py"))


def test_an_unset_hook_says_who_sets_it() -> None:
    hook: Hook[Callable[[int], int]] = Hook("adarray.nowhere")
    assert not hook.is_set
    message = "^adarray, internal: a function of adarray.nowhere is called before that is imported$"
    with pytest.raises(RuntimeError, match=message):
        hook.call(1)
    hook.set(abs)
    assert hook.is_set
    assert hook.call(-1) == 1


def test_a_default_is_called_until_the_hook_is_set() -> None:
    hook: Hook[Callable[[int], int]] = Hook("adarray.nowhere", abs)
    assert hook.call(-2) == 2
    assert not hook.is_set


def _called_items(tree: ast.Module) -> list[int]:
    """Return the lines that call the first item of a list which is empty in the module's text."""
    empty = {
        s.target.id
        for s in tree.body
        if isinstance(s, ast.AnnAssign)
        and isinstance(s.target, ast.Name)
        and isinstance(s.value, ast.List)
        and not s.value.elts
    }
    return [
        n.lineno
        for n in ast.walk(tree)
        if isinstance(n, ast.Call)
        and isinstance(n.func, ast.Subscript)
        and isinstance(n.func.value, ast.Name)
        and (n.func.value.id in empty or n.func.value.id.endswith(("hook", "HOOK")))
        and isinstance(n.func.slice, ast.Constant)
    ]


def test_lists_of_one_function_are_found() -> None:
    bad = "hook: list[object] = []\ndef f(x):\n    return hook[0](x)\n"
    assert _called_items(ast.parse(bad)) == [3]


def test_no_hook_is_a_list_of_one_function() -> None:
    hooks = [
        f"{path}:{line}"
        for path in SOURCES
        for line in _called_items(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not hooks, "use adarray.base.hooks.Hook"
