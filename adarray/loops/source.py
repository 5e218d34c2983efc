"""The syntax trees of code objects.

The file of a function is read, parsed and compiled again. A code object has a syntax tree only if
that gives the very same code: a file that has changed since, a decorator that wrote other code, or
text that was made at run time give none.
"""

from __future__ import annotations

import ast
import linecache
import types
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from adarray.base.redirecting import IdentityCache, original_of

Function = ast.FunctionDef | ast.AsyncFunctionDef
# What tells the functions of a file apart: qualified name and first line, of a decorator if any.
Key = tuple[str, int]

_LONGEST = 1 << 22  # characters of a file that is parsed
_FIELDS = (
    "co_code", "co_name", "co_qualname", "co_names", "co_varnames", "co_freevars", "co_cellvars",
    "co_flags", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_firstlineno",
    "co_linetable", "co_exceptiontable",
)  # fmt: skip


class SourceFile:
    """A file of Python code.

    Attributes
    ----------
    name : str
    text : str
    tree : ast.Module
    codes : dict of Key to code
        Of functions, as compiled again; without those that others have the key of.
    functions : dict of Key to FunctionDef or AsyncFunctionDef
    lambdas : dict of Key to Lambda
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.tree = parsed(text, name)
        self.codes = codes_by_key(compiled(self.tree, name))
        self.functions, self.lambdas = functions_by_key(self.tree)

    def parse_again(self) -> ast.Module:
        """Return another syntax tree of the file, to be changed."""
        return parsed(self.text, self.name)


class FunctionSource(NamedTuple):
    """The source of a code object.

    Parameters
    ----------
    file : SourceFile
    key : Key
    function : FunctionDef or AsyncFunctionDef
    """

    file: SourceFile
    key: Key
    function: Function


def parsed(text: str, name: str) -> ast.Module:
    """Return the syntax tree of a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user has seen them
        return ast.parse(text, name)


def compiled(tree: ast.Module, name: str) -> types.CodeType:
    """Return the code of a module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(tree, name, "exec", dont_inherit=True)


def nested(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code objects inside of one."""
    waiting = [code]
    while waiting:
        for constant in waiting.pop().co_consts:
            if isinstance(constant, types.CodeType):
                waiting.append(constant)
                yield constant


def codes_by_key(module: types.CodeType) -> dict[Key, types.CodeType]:
    """Return the code objects in a module by their keys, without those that share one."""
    codes: dict[Key, types.CodeType | None] = {}
    for code in nested(module):
        key = code.co_qualname, code.co_firstlineno
        codes[key] = None if key in codes else code
    return {key: code for key, code in codes.items() if code is not None}


def functions_by_key(module: ast.Module) -> tuple[dict[Key, Function], dict[Key, ast.Lambda]]:
    """Return the functions and lambdas in a module by their keys, without those that share one."""
    functions: dict[Key, Function | None] = {}
    lambdas: dict[Key, ast.Lambda | None] = {}
    waiting: list[tuple[ast.AST, str]] = [(module, "")]
    while waiting:
        node, prefix = waiting.pop()
        inner = prefix
        if isinstance(node, Function):
            line = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            key = prefix + node.name, line
            functions[key] = None if key in functions else node
            inner = f"{prefix}{node.name}.<locals>."
        elif isinstance(node, ast.ClassDef):
            inner = f"{prefix}{node.name}."
        elif isinstance(node, ast.Lambda):
            key = prefix + "<lambda>", node.lineno
            lambdas[key] = None if key in lambdas else node
            inner = f"{prefix}<lambda>.<locals>."
        waiting += [(child, inner) for child in ast.iter_child_nodes(node)]
    return (
        {key: f for key, f in functions.items() if f is not None},
        {key: f for key, f in lambdas.items() if f is not None},
    )


def same_code(a: types.CodeType, b: types.CodeType) -> bool:
    """Whether two code objects do the same, at the same lines."""
    if any(getattr(a, field) != getattr(b, field) for field in _FIELDS):
        return False
    pairs = zip(a.co_consts, b.co_consts, strict=False)
    return len(a.co_consts) == len(b.co_consts) and all(_same_constant(x, y) for x, y in pairs)


def _same_constant(x: object, y: object) -> bool:
    if type(x) is not type(y):
        return False
    if isinstance(x, types.CodeType) and isinstance(y, types.CodeType):
        return same_code(x, y)
    if isinstance(x, tuple) and isinstance(y, tuple):
        return len(x) == len(y) and all(map(_same_constant, x, y))
    if isinstance(x, frozenset) and isinstance(y, frozenset):
        return {(type(i), repr(i)) for i in x} == {(type(i), repr(i)) for i in y}
    return repr(x) == repr(y)  # signed zeros and nan; of Python's own constants


# By their names; of one whose text has changed, the last one.
_files: dict[str, SourceFile | None] = {}
_texts: dict[str, str] = {}
_sources: IdentityCache[tuple[FunctionSource | None]] = IdentityCache()


def file_of(name: str) -> SourceFile | None:
    """Return the file of a name as it is now, None if there is none that can be compiled."""
    linecache.checkcache(name)
    text = "".join(linecache.getlines(name))
    if not text or len(text) > _LONGEST:
        return None
    if _texts.get(name) != text:
        try:
            file = SourceFile(name, text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            file = None
        _files[name], _texts[name] = file, text
    return _files[name]


def source_of(code: types.CodeType) -> FunctionSource | None:
    """Return the source of a function's code; None if it is not known for sure.

    Parameters
    ----------
    code : code object
        As the user wrote it, or a copy of ours.
    """
    code = original_of(code)
    known = _sources.get(code)
    if known is None:
        known = _sources.note(code, (_found(code),))
    return known[0]


def lambda_of(code: types.CodeType) -> ast.Lambda | None:
    """Return the syntax tree of a lambda; None if it is not known for sure."""
    code = original_of(code)
    file = file_of(code.co_filename)
    if file is None:
        return None
    key = code.co_qualname, code.co_firstlineno
    node, other = file.lambdas.get(key), file.codes.get(key)
    return node if other is not None and same_code(code, other) else None


def _found(code: types.CodeType) -> FunctionSource | None:
    file = file_of(code.co_filename)
    if file is None:
        return None
    key = code.co_qualname, code.co_firstlineno
    function, other = file.functions.get(key), file.codes.get(key)
    if function is None or other is None or not same_code(code, other):
        return None
    return FunctionSource(file, key, function)
