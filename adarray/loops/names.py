"""Which names of a function are surely bound before a loop, and which are read after it.

References
----------
- A. V. Aho, M. S. Lam, R. Sethi, J. D. Ullman, *Compilers: Principles, Techniques, and Tools*, 2nd
  ed., 2006, section 9.2: reaching definitions and live variables.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

Loop = ast.For | ast.While
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
Names = frozenset[str]

_NONE: Names = frozenset()
_COMPREHENSION = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_TRY = ast.Try | ast.TryStar
# Functions that read all of a generator before they return.
_READING = frozenset({"sum", "min", "max", "any", "all", "list", "tuple", "sorted", "set"})


def inside(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield nodes and those inside of them, but for the bodies of functions and classes."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Scope):
            waiting += ast.iter_child_nodes(node)


def may_jump(node: ast.AST) -> bool:
    """Whether a statement may leave the function, or a loop around it."""
    if isinstance(node, (ast.Return, ast.Break, ast.Continue)):
        return True
    return not isinstance(node, Scope) and any(map(may_jump, ast.iter_child_nodes(node)))


def loops_in(function: ast.FunctionDef) -> list[Loop]:
    """Return the loops of a function, not those of functions in it."""
    return [n for n in inside(function.body) if isinstance(n, Loop)]


def read_in(*nodes: ast.AST | None) -> Names:
    """Return the names that code reads, in functions inside of it as well."""
    return frozenset(
        n.id for node in nodes if node is not None for n in ast.walk(node)
        if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Store)
    )  # fmt: skip


def stored_in(*nodes: ast.AST) -> Names:
    """Return the names that code binds: by assignments, loops, definitions, imports, patterns."""
    names: set[str] = set()
    every = list(inside(nodes))
    # Variables of comprehensions are theirs alone.
    own = {id(n) for c in every if isinstance(c, ast.comprehension) for n in ast.walk(c.target)}
    for n in every:
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
            if id(n) not in own:
                names.add(n.id)
        elif isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(n.name)
        elif isinstance(n, ast.alias):
            names.add((n.asname or n.name).partition(".")[0])
        elif isinstance(n, (ast.MatchAs, ast.MatchStar)) and n.name:
            names.add(n.name)
        elif isinstance(n, ast.MatchMapping) and n.rest:
            names.add(n.rest)
        elif isinstance(n, ast.ExceptHandler) and n.name:
            names.add(n.name)
    return frozenset(names)


def targets_of(*targets: ast.AST | None) -> Names:
    """Return the names that targets of an assignment bind."""
    return frozenset(
        n.id for t in targets if t is not None for n in ast.walk(t)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    )  # fmt: skip


def parameters_of(function: ast.FunctionDef) -> Names:
    """Return the names of a function's parameters."""
    return _parameters(function.args)


def _parameters(a: ast.arguments) -> Names:
    rest = [x for x in (a.vararg, a.kwarg) if x is not None]
    return frozenset(x.arg for x in [*a.posonlyargs, *a.args, *a.kwonlyargs, *rest])


def shared_in(function: ast.FunctionDef, loop: Loop | None = None) -> Names:
    """Return the names that functions inside of a function use, which may run at any time.

    Those that are defined in a loop, and are only called, are left out if a loop is given.
    """
    scopes = [n for n in inside(function.body) if isinstance(n, (Scope, ast.GeneratorExp))]
    if not scopes:  # most functions
        return _NONE
    names: set[str] = set()
    own = set() if loop is None else _only_called(loop, function)
    at_once = {
        id(a) for n in inside(function.body)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in _READING
        for a in n.args[:1]
    }  # fmt: skip
    for n in scopes:
        if id(n) not in own and not (isinstance(n, ast.GeneratorExp) and id(n) in at_once):
            names |= _free(n)
    return frozenset(names)


def _only_called(loop: Loop, function: ast.FunctionDef) -> set[int]:
    """Return the functions that a loop defines and that nothing but a call in it ever gets."""
    nodes = list(inside([loop]))
    named = {id(n): n.name for n in nodes if isinstance(n, ast.FunctionDef)}
    for n in nodes:
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Lambda):
            target = n.targets[0]
            if len(n.targets) == 1 and isinstance(target, ast.Name):
                named[id(n.value)] = target.id
    called = {id(n.func) for n in ast.walk(loop) if isinstance(n, ast.Call)}
    held = {
        n.id for n in ast.walk(function)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and id(n) not in called
    }  # fmt: skip
    return {k for k, name in named.items() if name not in held}


def _free(scope: ast.AST) -> Names:
    """Return the names of functions around it that a function, or one inside of it, uses."""
    if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        body: list[ast.AST] = [*scope.body]
        declared = frozenset(x for n in inside(body) for x in _declared(n))
        own = (_parameters(scope.args) | stored_in(*body)) - declared
    elif isinstance(scope, ast.Lambda):
        body, declared, own = [scope.body], _NONE, _parameters(scope.args)
    elif isinstance(scope, ast.ClassDef):
        # What it reads itself it reads at once.
        return _NONE.union(*(_free(n) for n in inside(scope.body) if isinstance(n, Scope)))
    else:
        body, declared, own = [*ast.iter_child_nodes(scope)], _NONE, _NONE
    used = {n.id for n in inside(body) if isinstance(n, ast.Name)}
    inner = (_free(n) for n in inside(body) if isinstance(n, Scope))
    return declared.union(used, *inner) - own


def _declared(node: ast.AST) -> list[str]:
    return node.names if isinstance(node, (ast.Global, ast.Nonlocal)) else []


def declared_in(function: ast.FunctionDef) -> Names:
    """Return the names that a function declares as global or nonlocal."""
    return frozenset(x for n in inside(function.body) for x in _declared(n))


def unsure_in(function: ast.FunctionDef) -> Names:
    """Return the names that may be unbound again: deleted ones, and those of handled errors."""
    names: set[str] = set()
    for n in ast.walk(function):
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Del):
            names.add(n.id)
        elif isinstance(n, ast.ExceptHandler) and n.name:
            names.add(n.name)
    return frozenset(names)


class BoundNames:
    """Names that are bound wherever one comes to a loop, or to the definition of a function.

    Parameters
    ----------
    function : FunctionDef

    Attributes
    ----------
    before : dict of node to frozenset of str
    """

    def __init__(self, function: ast.FunctionDef) -> None:
        self.before: dict[ast.AST, Names] = {}
        self._block(function.body, parameters_of(function))

    def _block(self, body: Sequence[ast.stmt], bound: Names | None) -> Names | None:
        """Return what is bound behind statements; None where nothing gets there."""
        for s in body:
            if bound is None:
                break
            bound = self._statement(s, bound)
        return bound

    def _statement(self, s: ast.stmt, bound: Names) -> Names | None:
        if isinstance(s, (ast.Return, ast.Raise, ast.Break, ast.Continue)):
            return None
        if isinstance(s, ast.If):
            return _both(self._block(s.body, bound), self._block(s.orelse, bound))
        if isinstance(s, Loop):
            self.before[s] = bound
            self._block(s.body, bound | (targets_of(s.target) if isinstance(s, ast.For) else _NONE))
            self._block(s.orelse, bound)
            return bound
        if isinstance(s, _TRY):
            return self._try(s, bound)
        if isinstance(s, (ast.With, ast.AsyncWith)):
            # Its objects may handle an error anywhere inside.
            inner = bound | targets_of(*(i.optional_vars for i in s.items))
            self._block(s.body, inner)
            return inner
        if isinstance(s, ast.Match):
            for case in s.cases:
                self._block(case.body, bound)
            return bound
        if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.before[s] = bound
            return bound | {s.name}
        if isinstance(s, ast.AsyncFor):
            return bound
        if isinstance(s, ast.Assign):
            return bound | targets_of(*s.targets)
        if isinstance(s, ast.AugAssign):
            return bound | targets_of(s.target)
        if isinstance(s, ast.AnnAssign):
            return bound if s.value is None else bound | targets_of(s.target)
        return bound | stored_in(s) if isinstance(s, (ast.Import, ast.ImportFrom)) else bound

    def _try(self, s: ast.Try | ast.TryStar, bound: Names) -> Names | None:
        after = self._block(s.body, bound)
        after = self._block(s.orelse, after)
        for handler in s.handlers:
            after = _both(after, self._block(handler.body, bound))
        last = self._block(s.finalbody, bound)
        return None if after is None or last is None else after | last


def _both(a: Names | None, b: Names | None) -> Names | None:
    if a is None or b is None:
        return b if a is None else a
    return a & b


class LiveNames:
    """Names whose values behind a loop may be read.

    Parameters
    ----------
    function : FunctionDef

    Attributes
    ----------
    after : dict of loop to frozenset of str
    """

    def __init__(self, function: ast.FunctionDef) -> None:
        self.after: dict[Loop, Names] = {}
        # Where errors lead is not followed: what is read there is live everywhere.
        self._function = function
        always = [declared_in(function)]
        tries = (n for n in inside(function.body) if isinstance(n, _TRY))
        always += [read_in(*n.handlers, *n.finalbody) for n in tries]
        self._always = frozenset[str]().union(*always)
        self._breaks: list[Names] = []
        self._continues: list[Names] = []
        self._block(function.body, _NONE)

    def _block(self, body: Sequence[ast.stmt], out: Names) -> Names:
        """Return what is live before statements, given what is live behind them."""
        for s in reversed(body):
            out = self._statement(s, out)
        return out

    def _statement(self, s: ast.stmt, out: Names) -> Names:
        if isinstance(s, ast.Return):
            return read_in(s.value)
        if isinstance(s, ast.Raise):
            return read_in(s.exc, s.cause)
        if isinstance(s, ast.Break):
            return self._breaks[-1]
        if isinstance(s, ast.Continue):
            return self._continues[-1]
        if isinstance(s, ast.If):
            return read_in(s.test) | self._block(s.body, out) | self._block(s.orelse, out)
        if isinstance(s, (ast.For, ast.AsyncFor, ast.While)):
            return self._loop(s, out)
        if isinstance(s, _TRY):
            last = self._block(s.finalbody, out)
            handlers = [self._block(h.body, last) for h in s.handlers]
            body = self._block(s.body, self._block(s.orelse, last))
            return body.union(last, *handlers)
        if isinstance(s, (ast.With, ast.AsyncWith)):
            return read_in(*s.items) | self._block(s.body, out) | out
        if isinstance(s, ast.Match):
            cases = [read_in(c.pattern, c.guard) | self._block(c.body, out) for c in s.cases]
            return read_in(s.subject).union(out, *cases)
        if isinstance(s, ast.Assign):
            return (out - targets_of(*s.targets)) | read_in(s)
        if isinstance(s, ast.AnnAssign):
            return (out - targets_of(s.target if s.value else None)) | read_in(s)
        if isinstance(s, ast.AugAssign):
            return out | read_in(s) | targets_of(s.target)
        return out | read_in(s)

    def _loop(self, s: ast.For | ast.AsyncFor | ast.While, out: Names) -> Names:
        exit_ = self._block(s.orelse, out)
        if isinstance(s, ast.While):
            target, enter, first = _NONE, read_in(s.test), _NONE
        else:
            target, enter, first = targets_of(s.target), read_in(s.target), read_in(s.iter)
        head: Names = exit_ | enter
        self._breaks.append(out)
        while True:
            self._continues.append(head)
            again = head | (self._block(s.body, head) - target)
            self._continues.pop()
            if again == head:
                break
            head = again
        self._breaks.pop()
        if isinstance(s, Loop):
            always = self._always | shared_in(self._function, s)
            self.after[s] = self.after.get(s, _NONE) | out | exit_ | always
        return head | first
