"""Functions of the user's that a loop calls: read in the place of the call."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from adarray.compiler.ir.loopir import Const
from adarray.loops.forms import Known
from adarray.loops.lower import names
from adarray.loops.lower.statements import RESULT, Frame, flag
from adarray.loops.lower.values import Missing, Number, Value
from adarray.loops.source import source_of

if TYPE_CHECKING:
    from adarray.loops.lower.kernel import LoopLowering

_DEEPEST = 8


class Scope:
    """Names of a function: its own, and where others come from.

    Attributes
    ----------
    tree : ast.AST
        What its names are read in.
    own : frozenset of str
        Names that it binds: they are never another's.
    resolve : callable
    live : frozenset of str
        Names of its own that are read by others.
    """

    def __init__(
        self,
        tree: ast.AST,
        own: frozenset[str],
        resolve: Callable[[str], Any],
        live: frozenset[str] = frozenset(),
    ) -> None:
        self.tree = tree
        self.own = own
        self.resolve = resolve
        self.live = live
        self.loads = names.loaded(tree)


class Functions:
    """Reads calls of functions, into the statements of a `LoopLowering`."""

    def __init__(self, lowering: LoopLowering) -> None:
        self.low = lowering
        self.state = lowering.state
        self.depth = 0

    def inlined(
        self, f: FunctionType, args: tuple[Value, ...], keywords: dict[str, Value]
    ) -> Value:
        """Return the value of a call, after writing what it does."""
        if self.depth == _DEEPEST:
            raise self.state.refusal(f"{f.__name__} is called by itself, or by too many others")
        node = tree_of(f)
        if node is None:
            raise self.state.refusal(f"the source of {f.__name__} is not known")
        low, line = self.low, self.state.line
        bound = self._bound(f, args, keywords)
        scope = Scope(node, frozenset(f.__code__.co_varnames), _resolver(f))
        outer = low.names, low.scope, low.statements.frames
        frame = Frame("%live_function", None, True)
        low.names = {n: low.statements.settled(v, n) for n, v in bound.items()}
        low.names[frame.live] = flag(True)
        low.scope, low.statements.frames = scope, [frame]
        self.depth += 1
        low.statements.block(node.body)
        self.depth -= 1
        result, live = low.names.get(RESULT), low.names[frame.live]
        low.names, low.scope, low.statements.frames = outer
        if any(isinstance(n, ast.Return) for n in ast.walk(node)):
            assert isinstance(live, Number)
            surely = isinstance(live.expr, Const) and not live.expr.value
            result = result if surely and result is not None else Missing("nothing, it may be")
        self.state.line = line
        if isinstance(result, Missing):
            raise self.state.refusal(f"what {f.__name__} returns: {result.reason.replace('%', '')}")
        return result or Known(None)

    def _bound(
        self, f: FunctionType, args: tuple[Value, ...], keywords: dict[str, Value]
    ) -> dict[str, Value]:
        """Return the values of a function's parameters."""
        try:
            signature = inspect.signature(f, follow_wrapped=False)
            call = signature.bind(*args, **keywords)
        except (TypeError, ValueError):
            raise self.state.refusal(f"{f.__name__} with such arguments") from None
        plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD,
                 inspect.Parameter.KEYWORD_ONLY)  # fmt: skip
        bound: dict[str, Value] = {}
        for p in signature.parameters.values():
            if p.kind not in plain:
                raise self.state.refusal(f"{f.__name__} takes any number of arguments")
            if p.name in call.arguments:
                bound[p.name] = call.arguments[p.name]
            else:
                bound[p.name] = self.low.expressions.known(p.default)
        return bound


def _resolver(f: FunctionType) -> Callable[[str], Any]:
    """Return what gives the objects of names that a function does not bind."""
    code = f.__code__
    cells = dict(zip(code.co_freevars, f.__closure__ or (), strict=True))

    def resolve(name: str) -> Any:
        if name in cells:
            try:
                return cells[name].cell_contents
            except ValueError:
                raise NameError(name) from None
        if name in f.__globals__:
            return f.__globals__[name]
        table = f.__globals__.get("__builtins__", builtins)
        known = table if isinstance(table, dict) else vars(table)
        if name in known:
            return known[name]
        raise NameError(name)

    return resolve


def tree_of(f: FunctionType) -> ast.FunctionDef | None:
    """Return the syntax tree of a function, if it is surely that of its code."""
    special = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    if hasattr(f, "__wrapped__") or f.__code__.co_flags & special:
        return None
    source = source_of(f.__code__)
    function = None if source is None else source.function
    return function if isinstance(function, ast.FunctionDef) else None
