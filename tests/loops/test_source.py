"""The syntax tree of a function's code: the very one, or none."""

import ast
import importlib
import linecache
import sys
import textwrap

import pytest

from adarray.loops.source import functions_by_key, same_code, source_of


def plain(x):
    return x + 1


def outer(n):
    def inner(x):
        for _ in range(n):
            x = x + 1
        return x

    return inner


def decorated_by(f):
    return f


@decorated_by
@decorated_by
def decorated(x):
    return [x for _ in range(3)]


class Holder:
    def method(self, x):
        return -0.0 * x

    class Inner:
        @staticmethod
        def static(x):
            return x


@pytest.mark.parametrize(
    ("f", "name"),
    [
        (plain, "plain"),
        (outer, "outer"),
        (outer(3), "inner"),
        (decorated, "decorated"),
        (Holder.method, "method"),
        (Holder.Inner.static, "static"),
    ],
)
def test_function_of_code(f, name):
    source = source_of(f.__code__)
    assert source is not None
    assert source.function.name == name
    assert source.function.lineno >= f.__code__.co_firstlineno


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes a module and imports it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names = iter(f"adarray_written_{k}" for k in range(100))

    def write(text):
        name = next(names)
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        loaded = importlib.import_module(name)
        sys.modules.pop(name)
        return loaded, path

    return write


TEXT = """
    def f(x):
        for i in range(3):
            x = x + 1.0
        return x
"""


def test_module(module):
    loaded, _ = module(TEXT)
    assert source_of(loaded.f.__code__).function.name == "f"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x + 1.0", "x + 2.0"),
        ("x + 1.0", "x - 1.0"),
        ("x + 1.0", "x + 1"),
        ("x + 1.0", "x + i"),
        ("range(3)", "range(4)"),
        ("range", "sorted"),
        ("def f", "# a line\n\ndef f"),
        ("return x", "return -0.0"),
        ("def f(x)", "def g(x)"),
        ("def f(x)", "async def f(x)"),
        ("x = x", "yield x"),
        ("return x", "return ("),
        ("return x", "return x  \0"),
    ],
)
def test_file_that_has_changed(module, old, new):
    loaded, path = module(TEXT)
    path.write_text(textwrap.dedent(TEXT).replace(old, new))
    assert source_of(loaded.f.__code__) is None


def test_file_with_other_comments(module):
    """What gives the same code at the same lines is the source, too."""
    loaded, path = module(TEXT)
    path.write_text(textwrap.dedent(TEXT).replace("1.0", "1.0  # a comment"))
    assert source_of(loaded.f.__code__) is not None


def test_file_that_is_gone(module):
    loaded, path = module(TEXT)
    path.unlink()
    linecache.clearcache()
    assert source_of(loaded.f.__code__) is None


def test_code_without_a_file():
    space = {}
    exec(textwrap.dedent(TEXT), space)
    assert source_of(space["f"].__code__) is None
    name = "<a cell of a notebook>"
    text = textwrap.dedent(TEXT)
    exec(compile(text, name, "exec"), space)
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    try:
        assert source_of(space["f"].__code__).function.name == "f"
    finally:
        del linecache.cache[name]


def test_other_flags(module):
    """Annotations are not evaluated in the one, and are in the other."""
    text = "from __future__ import annotations\n" + textwrap.dedent(TEXT)
    loaded, path = module(text)
    assert source_of(loaded.f.__code__) is not None
    loaded, path = module(text)
    path.write_text(text.replace("from __future__ import annotations", "import math"))
    assert source_of(loaded.f.__code__) is None


def test_two_of_one_name_and_line(module):
    loaded, _ = module("fs = [lambda x: x, lambda x: x + 1]\ndef f(x): return fs[0](x)\n")
    assert source_of(loaded.fs[1].__code__) is None
    assert source_of(loaded.f.__code__) is not None
    twins = ast.parse("if a:\n  def f(): pass\nelse:\n  def f(): pass")
    assert len(functions_by_key(twins)) == 2


def test_constants_are_compared_by_kind():
    def code(text):
        return compile(text, "", "eval")

    for a, b in [("1", "1.0"), ("0.0", "-0.0"), ("(1, 2)", "(1, 2.0)"), ("1", "True"),
                 ("lambda: 1", "lambda: 1.0"), ("x in {1}", "x in {True}")]:  # fmt: skip
        assert same_code(code(a), code(a))
        assert not same_code(code(a), code(b)), (a, b)


def test_code_that_a_decorator_changed(module):
    loaded, _ = module("""
        def other(f):
            f.__code__ = f.__code__.replace(co_consts=tuple(
                2.0 if c == 1.0 else c for c in f.__code__.co_consts))
            return f

        @other
        def f(x):
            for i in range(3):
                x = x + 1.0
            return x
    """)
    assert loaded.f(0.0) == 6.0
    assert source_of(loaded.f.__code__) is None
