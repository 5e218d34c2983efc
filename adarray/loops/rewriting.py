"""Functions that ask, before each of their loops, what has become of it.

::

    for i in range(n):
        acc = acc + x[i]

becomes, where ``.it`` and ``.answer`` are variables that no user can name,

::

    .it = range(n)
    .answer = place @ (.it, n, acc, x)
    if .answer is None:
        for i in .it:
            acc = acc + x[i]
    else:
        acc, = .answer
    .answer = .it = None

(with a last item, and ``if .returned is not None: return .returned[0]``, if the loop may return),
and loops inside of it ask as well. `Place` stands among the constants of the code. Lines and
columns are those of the user's source, so tracebacks, debuggers and coverage show that; and
`adarray.base.redirecting.original_of` leads back to the user's code.
"""

from __future__ import annotations

import ast
import dis
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from adarray.base.hooks import Hook
from adarray.base.levels import RECORDINGS
from adarray.base.redirecting import IdentityCache, derive, original_of, unredirected
from adarray.core.reaching import rewrite_with
from adarray.loops import names
from adarray.loops.names import BoundNames, LiveNames, Loop, Names
from adarray.loops.source import Key, SourceFile, codes_by_key, compiled, nested, source_of

_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_MARK = "\0adarray loop "
_IT, _ANSWER, _RETURNED = ".it", ".answer", ".returned"
# Builtins that show a function's own variables, or run text that may use them.
_SHOWING = frozenset(("locals", "vars", "dir", "eval", "exec"))
# Statements that no loop is captured with, in words.
_REFUSED: dict[type[ast.AST], str] = {
    ast.TryStar: "it handles errors", ast.ClassDef: "it defines a class",
    ast.Import: "it imports a module", ast.ImportFrom: "it imports a module",
    ast.Match: "it has a match statement", ast.Await: "it awaits", ast.Yield: "it yields",
    ast.YieldFrom: "it yields", ast.AsyncFor: "it awaits", ast.AsyncWith: "it awaits",
    ast.AsyncFunctionDef: "it defines a function", ast.Global: "it assigns a global variable",
    ast.Nonlocal: "it assigns a variable of another function",
}  # fmt: skip
_ITERATORS = frozenset(("range", "enumerate", "zip", "reversed"))


class Place:
    """A loop of a function.

    Parameters
    ----------
    loop : For or While
        As the user wrote it.
    file : str
    function : str
        Its qualified name.
    names : tuple of str
        Variables that are passed with the question: those that the loop uses and that are surely
        bound.
    wanted : tuple of str
        Variables that the loop binds and that are read after it.
    local : frozenset of str
        All variables of the function, and of functions around it that it uses.
    others : tuple of str
        Names that the loop reads and that are none of these: globals and builtins.
    returns : bool
        Whether it may return from the function.
    refusal : (str, int) or None
        Why it is not captured, whatever the values are, and the line of that.
    """

    __slots__ = (
        "__weakref__", "file", "function", "local", "loop", "names", "others", "refusal",
        "returns", "wanted",
    )  # fmt: skip
    # Returns the values of the variables `wanted`; None: the loop is to run.
    answer: Hook[Callable[[Place, tuple[Any, ...], types.FrameType], tuple[Any, ...] | None]]

    def __init__(
        self,
        loop: Loop,
        file: str,
        function: str,
        names_: tuple[str, ...] = (),
        wanted: tuple[str, ...] = (),
        local: Names = frozenset(),
        refusal: tuple[str, int] | None = None,
    ) -> None:
        self.loop = loop
        self.file = file
        self.function = function
        self.names = names_
        self.wanted = wanted
        self.local = local
        self.others = tuple(sorted(names.read_in(loop) - local))
        self.refusal = refusal
        self.returns = any(isinstance(n, ast.Return) for n in names.inside([loop]))

    @property
    def bound(self) -> tuple[str, ...]:
        """What an answer is bound to."""
        return (*self.wanted, _RETURNED) if self.returns else self.wanted

    def __matmul__(self, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not RECORDINGS:
            return None
        return Place.answer.call(self, values, sys._getframe(1))

    def __reduce__(self) -> tuple[Callable[[], Unasked], tuple[()]]:
        return Unasked, ()

    def __repr__(self) -> str:
        return f"<loop at {self.file}:{self.loop.lineno}>"


class Unasked:
    """What a `Place` is in a pickle: the loop runs as Python does."""

    def __matmul__(self, values: tuple[Any, ...]) -> None:
        return None


def _load(place: Place, values: tuple[Any, ...], frame: types.FrameType) -> Any:
    importlib.import_module("adarray.loops.capture")  # which sets the hook
    assert Place.answer.is_set
    return Place.answer.call(place, values, frame)


Place.answer = Hook("adarray.loops.capture", _load)


# -- questions -------------------------------------------------------------------------------------


def refusal(loop: Loop, local: Names, shared: Names) -> tuple[str, int] | None:
    """Return why a loop is not captured whatever its values are, and the line; None if it may be.

    Parameters
    ----------
    loop : For or While
    local : frozenset of str
        Variables of the function.
    shared : frozenset of str
        Those that functions inside of it use.
    """
    if any(map(names.may_jump, loop.orelse)):
        return "its else clause has a jump", loop.lineno
    for node in names.inside([loop]):
        reason = _REFUSED.get(type(node))
        if reason is not None:
            return reason, getattr(node, "lineno", loop.lineno)
    for name in sorted(names.stored_in(loop)):
        if name not in local:
            return f"it assigns {name}, which is no variable of the function", loop.lineno
        if name in shared:
            return f"it assigns {name}, which another function uses", loop.lineno
    return None


def _is_held(iterable: ast.expr) -> bool:
    """Whether a reference to what a loop runs over, until it ends, makes no difference."""
    if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name):
        simple = all(isinstance(k, ast.keyword) and k.arg for k in iterable.keywords)
        if iterable.func.id == "range":
            return True
        return simple and iterable.func.id in _ITERATORS and all(map(_is_held, iterable.args))
    return not any(isinstance(n, (ast.Call, ast.GeneratorExp)) for n in ast.walk(iterable))


class _FunctionLoops:
    """What is known of the loops of one function before it is rewritten."""

    def __init__(
        self, function: ast.FunctionDef, code: types.CodeType, outer: Names, file: SourceFile
    ) -> None:
        bound, live = BoundNames(function), LiveNames(function)
        unsure = names.unsure_in(function)
        own = frozenset((*code.co_varnames, *code.co_cellvars)) - names.declared_in(function)
        local = own | frozenset(code.co_freevars)
        self.places: dict[tuple[int, int], Place] = {}
        self.definitions: dict[ast.AST, Names] = {}
        # Of the functions around it: names that are bound whenever this one runs.
        captured = outer & frozenset(code.co_freevars)
        for node, before in bound.before.items():
            sure = ((before & own) | captured) - unsure
            if not isinstance(node, Loop):
                self.definitions[node] = sure
                continue
            why = refusal(node, own, names.shared_in(function, node))
            if isinstance(node, ast.For) and not _is_held(node.iter) and why is None:
                why = "it runs over what a call returns", node.lineno
            used = names.read_in(node) | names.stored_in(node)
            wanted = names.stored_in(node) & live.after.get(node, frozenset())
            self.places[node.lineno, node.col_offset] = Place(
                node, file.name, code.co_qualname,
                () if why else tuple(sorted(used & sure)),
                () if why else tuple(sorted(wanted)), local, why,
            )  # fmt: skip


class _Rewriter(ast.NodeTransformer):
    """Adds the questions to one syntax tree of a file, in place."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self.marked: list[Place] = []
        self._stack: list[_FunctionLoops | None] = [None]
        self._analysed: dict[Key, _FunctionLoops] = {}
        self._keys = {id(f): key for key, f in file.functions.items()}
        self._by_place = {(f.lineno, f.col_offset): f for f in file.functions.values()}

    def _loops_of(self, node: ast.FunctionDef) -> _FunctionLoops | None:
        """Return what is known of the loops of a function, None if it is not rewritten."""
        original = self._by_place.get((node.lineno, node.col_offset))
        if not isinstance(original, ast.FunctionDef):
            return None
        if not any(isinstance(n, Loop) for n in ast.walk(original)):
            return None
        key = self._keys[id(original)]
        code = self._file.codes.get(key)
        if code is None or code.co_flags & _SUSPENDS or not _SHOWING.isdisjoint(code.co_names):
            return None
        around = self._stack[-1]
        outer = frozenset[str]()
        if around is not None:
            outer = around.definitions.get(original, outer)
        return _FunctionLoops(original, code, outer, self._file)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._stack.append(self._loops_of(node))
        node.body = self._statements(node.body)
        self._stack.pop()
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        self._stack.append(None)
        self.generic_visit(node)
        self._stack.pop()
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        around = self._stack[-1]
        self._stack.append(None)  # loops of the class itself, which no function has
        node.body = self._statements(node.body)
        self._stack.pop()
        assert around is self._stack[-1]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def _statements(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for s in body:
            new = self.visit(s)
            out += new if isinstance(new, list) else [new]
        return out

    def visit_For(self, node: ast.For) -> Any:
        return self._asking(node)

    def visit_While(self, node: ast.While) -> Any:
        return self._asking(node)

    def _asking(self, loop: ast.For | ast.While) -> ast.stmt | list[ast.stmt]:
        around = self._stack[-1]
        loop.body = self._statements(loop.body)
        loop.orelse = self._statements(loop.orelse)
        place = None if around is None else around.places.get((loop.lineno, loop.col_offset))
        if place is None:
            return loop
        head = loop.iter if isinstance(loop, ast.For) else loop.test
        number = len(self.marked)
        self.marked.append(place)
        if place.refusal is not None:
            return [ast.Expr(_question(number, ast.Constant(None), head), **_at(head)), loop]
        before: list[ast.stmt] = []
        passed: list[ast.expr] = [ast.Constant(None, **_at(head))]
        if isinstance(loop, ast.For):
            before.append(_assign([_name(_IT, head, ast.Store())], loop.iter, head))
            passed = [_name(_IT, head)]
            loop.iter = _name(_IT, head)
        passed += [_name(n, head) for n in place.names]
        values = ast.Tuple(passed, ast.Load(), **_at(head))
        question = _question(number, values, head)
        before.append(_assign([_name(_ANSWER, head, ast.Store())], question, head))
        none = ast.Constant(None, **_at(head))
        test = ast.Compare(_name(_ANSWER, head), [ast.Is()], [none], **_at(head))
        bind: list[ast.stmt] = []
        if place.bound:
            targets: list[ast.expr] = [_name(n, head, ast.Store()) for n in place.bound]
            answer = ast.Tuple(targets, ast.Store(), **_at(head))
            bind.append(_assign([answer], _name(_ANSWER, head), head))
        if place.returns:
            bind.append(_returning(head))
        if_ = ast.If(test, [loop], bind, **_at(head))
        return [*before, if_, _forgetting(isinstance(loop, ast.For))]


def _at(node: ast.AST) -> dict[str, Any]:
    fields = ("lineno", "col_offset", "end_lineno", "end_col_offset")
    return {f: getattr(node, f) for f in fields}


_NOWHERE = ast.Pass(lineno=-1, col_offset=-1, end_lineno=-1, end_col_offset=-1)


def _name(name: str, at: ast.AST, context: ast.expr_context | None = None) -> ast.Name:
    return ast.Name(name, context or ast.Load(), **_at(at))


def _assign(targets: list[ast.expr], value: ast.expr, at: ast.AST) -> ast.Assign:
    return ast.Assign(targets, value, **_at(at))


def _question(number: int, values: ast.expr, at: ast.AST) -> ast.BinOp:
    place = ast.Constant(f"{_MARK}{number}", **_at(at))
    for field, value in _at(at).items():
        setattr(values, field, value)
    return ast.BinOp(place, ast.MatMult(), values, **_at(at))


def _returning(at: ast.AST) -> ast.If:
    """Return what returns from the function if the loop does so."""
    none = ast.Constant(None, **_at(at))
    test = ast.Compare(_name(_RETURNED, at), [ast.IsNot()], [none], **_at(at))
    first = ast.Constant(0, **_at(at))
    value = ast.Subscript(_name(_RETURNED, at), first, ast.Load(), **_at(at))
    return ast.If(test, [ast.Return(value, **_at(at))], [], **_at(at))


def _forgetting(counted: bool) -> ast.Assign:
    """Return what drops the references to what the loop ran over, and to its answer; of no line."""
    targets: list[ast.expr] = [_name(_ANSWER, _NOWHERE, ast.Store())]
    if counted:
        targets.append(_name(_IT, _NOWHERE, ast.Store()))
    return _assign(targets, ast.Constant(None, **_at(_NOWHERE)), _NOWHERE)


# -- code ------------------------------------------------------------------------------------------


def rewritten_file(file: SourceFile) -> dict[Key, types.CodeType]:
    """Return the code of functions of a file that ask before their loops, by their keys."""
    rewriter = _Rewriter(file)
    tree = rewriter.visit(file.parse_again())
    if not rewriter.marked:
        return {}
    module = _with_places(compiled(tree, file.name), rewriter.marked)
    return codes_by_key(module)


def _with_places(code: types.CodeType, places: Sequence[Place]) -> types.CodeType:
    """Return code with places in the stead of the texts that mark them."""
    constants = []
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            c = _with_places(c, places)
        elif isinstance(c, str) and c.startswith(_MARK):
            c = places[int(c[len(_MARK) :])]
        constants.append(c)
    return code.replace(co_consts=tuple(constants))


# Of files: the code of functions that ask.
_rewritten: IdentityCache[dict[Key, types.CodeType]] = IdentityCache()
# Of code of the user: the code that asks, or itself.
_asking: IdentityCache[tuple[types.CodeType | None]] = IdentityCache()


_LOOPING = frozenset(
    op for name, op in dis.opmap.items()
    if name == "FOR_ITER" or name.startswith(("JUMP_BACKWARD", "POP_JUMP_BACKWARD"))
)  # fmt: skip


def _asks(code: types.CodeType) -> bool:
    return any(isinstance(c, Place) for part in (code, *nested(code)) for c in part.co_consts)


def _has_loops(code: types.CodeType) -> bool:
    """Whether code, or code nested in it, may have loops."""
    return any(not _LOOPING.isdisjoint(part.co_code[::2]) for part in (code, *nested(code)))


def asking(code: types.CodeType) -> types.CodeType:
    """Return the code that asks before its loops; `code` itself, if there is none.

    Parameters
    ----------
    code : code object
        As the user wrote it, or such code already.
    """
    known = _asking.get(code)
    if known is None:
        if original_of(code) is not code or not _has_loops(code):
            known = _asking.note(code, (None,))
        else:
            known = _asking.note(code, (_found(code),))
    return code if known[0] is None else known[0]


def _found(code: types.CodeType) -> types.CodeType | None:
    source = source_of(code)
    if source is None:
        return None
    codes = _rewritten.get(source.file)
    if codes is None:
        try:
            codes = rewritten_file(source.file)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            codes = {}
        _rewritten.note(source.file, codes)
    other = codes.get(source.key)
    if other is None or not _asks(other) or not _fits(other, code):
        return None
    _derive(other, code)
    return other


def _inside(code: types.CodeType) -> list[types.CodeType]:
    return [c for c in code.co_consts if isinstance(c, types.CodeType)]


def _fits(code: types.CodeType, original: types.CodeType) -> bool:
    """Whether functions may have `code` in the place of the user's, in all that is nested there."""
    fields = (
        "co_freevars", "co_cellvars", "co_flags", "co_argcount", "co_posonlyargcount",
        "co_kwonlyargcount", "co_name", "co_qualname", "co_firstlineno",
    )  # fmt: skip
    if any(getattr(code, f) != getattr(original, f) for f in fields):
        return False
    mine, theirs = (
        [c for c in x.co_consts if isinstance(c, types.CodeType)] for x in (code, original)
    )
    return len(mine) == len(theirs) and all(map(_fits, mine, theirs))


def _derive(code: types.CodeType, original: types.CodeType) -> None:
    """Note what code, and code nested in it, takes the place of."""
    derive(code, original)
    mine, theirs = (
        [c for c in x.co_consts if isinstance(c, types.CodeType)] for x in (code, original)
    )
    for part, of in zip(mine, theirs, strict=True):
        _derive(part, of)


def rewrite(function: types.FunctionType) -> None:
    """Make a function ask before its loops, if its source is known."""
    base = unredirected(function.__code__)
    code = asking(base)
    if code is not base:
        if not Place.answer.is_set:  # later, in a run that is recorded, imports are slower
            importlib.import_module("adarray.loops.capture")
        function.__code__ = code


rewrite_with(rewrite)
