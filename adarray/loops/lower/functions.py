"""Functions of the user's that a loop calls: read in the place of the call."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from adarray.compiler.ir.loopir import Const
from adarray.loops.forms import Known
from adarray.loops.lower import names
from adarray.loops.lower.statements import RESULT, Frame, flag
from adarray.loops.lower.values import Closure, Items, Missing, Number, Value
from adarray.loops.source import lambda_of, source_of

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
    lists : set of str
        Names of lists that it changes.
    contained : frozenset of str
        Names whose objects have no other name.
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
        self.lists = names.changed_lists(tree)
        self.contained = names.contained(tree) - live
        if any(self._is_no_numpy(n) for n in ("np", "numpy")):
            self.contained = frozenset()

    def _is_no_numpy(self, name: str) -> bool:
        """Whether a name by which NumPy goes stands for something else."""
        if name in self.own:
            return True
        try:
            return self.resolve(name) is not np
        except NameError:
            return False


class Functions:
    """Reads calls of functions, into the statements of a `LoopLowering`."""

    def __init__(self, lowering: LoopLowering) -> None:
        self.low = lowering
        self.state = lowering.state
        self.depth = 0
        # Names and scopes of the functions that have called the one that is being read.
        self.callers: list[tuple[dict[str, Value], Scope]] = []

    def inlined(
        self, f: FunctionType, args: tuple[Value, ...], keywords: dict[str, Value]
    ) -> Value:
        """Return the value of a call, after writing what it does."""
        node = tree_of(f)
        if node is None:
            raise self.state.refusal(f"the source of {f.__name__} is not known")
        bound = self._bound(f, args, keywords)
        scope = Scope(node, frozenset(f.__code__.co_varnames), _resolver(f))
        return self._read(node, f.__name__, scope, {}, bound)

    def _read(
        self, node: ast.FunctionDef | ast.Lambda, name: str, scope: Scope,
        around: dict[str, Value], bound: dict[str, Value],
    ) -> Value:  # fmt: skip
        """Read a function's body; return what it returns.

        Parameters
        ----------
        node : FunctionDef or Lambda
        name : str
            For reasons.
        scope : Scope
        around : dict
            Names of functions around it.
        bound : dict
            Its parameters.
        """
        if self.depth == _DEEPEST:
            raise self.state.refusal(f"{name} is called by itself, or by too many others")
        low, line = self.low, self.state.line
        outer = low.names, low.scope, low.statements.frames
        frame = Frame("%live_function", None, True)
        parameters = {n: low.statements.settled(v, n) for n, v in bound.items()}
        self.callers.append((low.names, low.scope))
        low.names = dict(around)
        for n, v in parameters.items():
            low.bind(n, v)
        low.names[frame.live] = flag(True)
        low.scope, low.statements.frames = scope, [frame]
        self.depth += 1
        if isinstance(node, ast.Lambda):
            result = low.elements.settled(low.expressions.value(node.body), "result")
        else:
            low.statements.block(node.body)
            result = self._returned(node, frame)
        self.depth -= 1
        self.callers.pop()
        low.names, low.scope, low.statements.frames = outer
        self.state.line = line
        if isinstance(result, Missing):
            raise self.state.refusal(f"what {name} returns: {result.reason.replace('%', '')}")
        if self._outlives(result):
            raise self.state.refusal(f"{name} returns a function")
        return result

    def _returned(self, node: ast.FunctionDef, frame: Frame) -> Value:
        """Return what a function returns whose body has been read."""
        result, live = self.low.names.get(RESULT), self.low.names[frame.live]
        if names.returns(node):
            assert isinstance(live, Number)
            surely = isinstance(live.expr, Const) and not live.expr.value
            return result if surely and result is not None else Missing("nothing, it may be")
        return result or Known(None)

    def _outlives(self, value: Value) -> bool:
        """Whether a value has a function that reads names which are gone."""
        if isinstance(value, Items):
            return any(map(self._outlives, value.items))
        return isinstance(value, Closure) and value.depth > self.depth

    # -- functions that the loop defines -----------------------------------------------------------

    def closure(self, node: ast.FunctionDef | ast.Lambda) -> Closure:
        """Return a function that is defined here."""
        a = node.args
        if a.vararg or a.kwarg:
            raise self.state.refusal("a function that takes any number of arguments")
        for n in ast.walk(node):
            if isinstance(n, (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr)):
                raise self.state.refusal("a function that is a generator")
        positional = [*a.posonlyargs, *a.args]
        last = positional[len(positional) - len(a.defaults) :]
        pairs = [
            *zip(last, a.defaults, strict=True),
            *zip(a.kwonlyargs, a.kw_defaults, strict=True),
        ]
        defaults = tuple(
            (p.arg, self.low.statements.settled(self.low.expressions.value(d), p.arg))
            for p, d in pairs if d is not None
        )  # fmt: skip
        return Closure(node, self.depth, defaults)

    def of_the_loop(self, f: Closure, args: tuple[Value, ...], keywords: dict[str, Value]) -> Value:
        """Return the value of a call of a function that the loop defines."""
        around, scope = (
            (self.low.names, self.low.scope)
            if f.depth == self.depth
            else self.callers[f.depth]
        )  # fmt: skip
        a = f.node.args
        positional = [p.arg for p in (*a.posonlyargs, *a.args)]
        known = {p.arg for p in (*a.args, *a.kwonlyargs)}
        bound = dict(f.defaults) | dict(zip(positional, args, strict=False)) | keywords
        twice = set(positional[: len(args)]) & set(keywords)
        parameters = {*positional, *known}
        if len(args) > len(positional) or twice or not keywords.keys() <= known:
            raise self.state.refusal("a call with other arguments than the function takes")
        if bound.keys() != parameters:
            raise self.state.refusal("a call with other arguments than the function takes")
        own = parameters
        if isinstance(f.node, ast.FunctionDef):
            own |= names.uses(f.node.body).bound.keys()
        others = {n: v for n, v in around.items() if n not in own and not n.startswith("%")}
        name = f.node.name if isinstance(f.node, ast.FunctionDef) else "a lambda"
        inner = Scope(f.node, scope.own | own, scope.resolve)
        return self._read(f.node, name, inner, others, bound)

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


def tree_of(f: FunctionType) -> ast.FunctionDef | ast.Lambda | None:
    """Return the syntax tree of a function, if it is surely that of its code."""
    special = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    if hasattr(f, "__wrapped__") or f.__code__.co_flags & special:
        return None
    if f.__code__.co_name == "<lambda>":
        return lambda_of(f.__code__)
    source = source_of(f.__code__)
    function = None if source is None else source.function
    return function if isinstance(function, ast.FunctionDef) else None
