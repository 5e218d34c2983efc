"""Which names statements read and bind, from the syntax tree alone."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Uses:
    """Names of some statements.

    Attributes
    ----------
    exposed : set of str
        Those that may be read before the statements bind them.
    bound : dict of str
        Those that they may bind, in the order of the text.
    sure : set of str
        Those that they bind on each way through.
    """

    exposed: set[str] = field(default_factory=set)
    bound: dict[str, None] = field(default_factory=dict)
    sure: set[str] = field(default_factory=set)

    def read(self, node: ast.AST | None) -> None:
        """Note the names in an expression."""
        if node is not None:
            self.exposed |= loaded(node).keys() - self.sure
            for n in ast.walk(node):
                if isinstance(n, ast.NamedExpr):  # which may not be evaluated
                    self.bound[n.target.id] = None

    def bind(self, target: ast.expr) -> None:
        """Note what an assignment to a target reads and binds."""
        if isinstance(target, ast.Name):
            self.bound[target.id] = None
            self.sure.add(target.id)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for t in target.elts:
                self.bind(t)
        elif isinstance(target, ast.Starred):
            self.bind(target.value)
        else:
            self.read(target)

    def then(self, others: Uses, always: bool) -> None:
        """Note statements that come next."""
        self.exposed |= others.exposed - self.sure
        self.bound |= others.bound
        if always:
            self.sure |= others.sure


def loaded(node: ast.AST) -> Counter[str]:
    """Return how often names are read in a part of the tree, by name."""
    names: Counter[str] = Counter()
    for n in ast.walk(node):
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load):
            names[n.id] += 1
        elif isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name):
            names[n.target.id] += 1
    return names


# NumPy's functions, and methods, that neither keep an array nor give a view of it.
_READING = frozenset((
    "sum", "mean", "prod", "min", "max", "any", "all", "where", "count_nonzero", "logical_and",
    "logical_or", "logical_not", "logical_xor", "abs", "sqrt", "exp", "log", "dot",
))  # fmt: skip


def contained(tree: ast.AST) -> frozenset[str]:
    """Return the names of a function or loop that surely nothing else gets the object of.

    They stand in operators and comparisons, in indices, and in calls such as ``np.sum(a)`` and
    ``a.sum()``; what ``np`` is must be looked at. Nothing is written through them by an index.
    """
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    names, others = set[str](), set[str]()
    for n in parents:
        if isinstance(n, ast.Name):
            names.add(n.id)
            if isinstance(n.ctx, ast.Load) and not _is_only_read(n, parents):
                others.add(n.id)
        elif isinstance(n, ast.arg):  # which the caller has, too
            others.add(n.arg)
    return frozenset(names - others)


def _is_only_read(n: ast.Name, parents: dict[ast.AST, ast.AST]) -> bool:
    user = parents[n]
    if isinstance(user, ast.Subscript):
        return n is user.slice
    if isinstance(user, ast.Attribute):
        call = parents[user]
        return isinstance(call, ast.Call) and call.func is user and user.attr in _READING
    if isinstance(user, ast.Call):
        function = user.func
        return (
            isinstance(function, ast.Attribute)
            and isinstance(function.value, ast.Name)
            and function.value.id in ("np", "numpy")
            and function.attr in _READING
        )
    return isinstance(user, (ast.BinOp, ast.UnaryOp, ast.Compare))


def uses(body: Iterable[ast.stmt]) -> Uses:
    """Return the names of statements that follow each other."""
    result = Uses()
    for s in body:
        _statement(s, result)
    return result


def _statement(s: ast.stmt, out: Uses) -> None:
    if isinstance(s, ast.Assign):
        out.read(s.value)
        for t in s.targets:
            out.bind(t)
    elif isinstance(s, ast.AnnAssign):
        out.read(s.value)
        if s.value is not None:
            out.bind(s.target)
    elif isinstance(s, ast.AugAssign):
        out.read(s.value)
        if isinstance(s.target, ast.Name):
            out.exposed |= {s.target.id} - out.sure
        out.bind(s.target)
    elif isinstance(s, ast.If):
        out.read(s.test)
        then, orelse = uses(s.body), uses(s.orelse)
        out.then(then, False)
        out.then(orelse, False)
        out.sure |= then.sure & orelse.sure
    elif isinstance(s, ast.For):
        out.read(s.iter)
        inner = Uses()
        inner.bind(s.target)
        inner.then(uses(s.body), True)
        out.then(inner, False)
        out.then(uses(s.orelse), False)
    elif isinstance(s, ast.While):
        out.read(s.test)
        out.then(uses(s.body), False)
        out.then(uses(s.orelse), False)
    elif isinstance(s, ast.Try):  # whose handlers are never read
        for body in (s.body, s.orelse, s.finalbody):
            out.then(uses(body), True)
    elif isinstance(s, ast.With):
        for item in s.items:
            out.read(item.context_expr)
        out.then(uses(s.body), True)
    elif isinstance(s, ast.Delete):
        for t in s.targets:
            out.read(t)
            out.bound |= {n.id: None for n in ast.walk(t) if isinstance(n, ast.Name)}
            out.sure -= {n.id for n in ast.walk(t) if isinstance(n, ast.Name)}
    elif isinstance(s, ast.FunctionDef):
        out.read(s)
        out.bound[s.name] = None
        out.sure.add(s.name)
    else:
        out.read(s)


def is_bound_by_assignment(body: Sequence[ast.stmt], name: str) -> bool:
    """Whether statements bind a name other than by an operator in place."""
    for s in body:
        for n in ast.walk(s):
            if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name):
                continue
            targets: list[ast.AST] = []
            if isinstance(n, ast.Assign):
                targets += n.targets
            elif isinstance(n, (ast.For, ast.AnnAssign, ast.NamedExpr)):
                targets.append(n.target)
            for t in targets:
                if any(
                    isinstance(x, ast.Name) and x.id == name and isinstance(x.ctx, ast.Store)
                    for x in ast.walk(t)
                ):
                    return True
    return False


def changed_lists(*nodes: ast.AST) -> set[str]:
    """Return the names whose methods for lists code calls, or that it adds to in place."""
    found: set[str] = set()
    for n in (n for node in nodes for n in ast.walk(node)):
        target: ast.AST | None = None
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute):
            target = n.func.value if n.func.attr in ("append", "extend", "pop") else None
        elif isinstance(n, ast.AugAssign):
            target = n.target
        if isinstance(target, ast.Name):
            found.add(target.id)
    return found


FUNCTIONS = (ast.FunctionDef, ast.Lambda, ast.ClassDef, ast.AsyncFunctionDef)


def returns(node: ast.AST) -> bool:
    """Whether code may return from the function that it stands in."""
    if isinstance(node, ast.Return):
        return True
    inside = (c for c in ast.iter_child_nodes(node) if not isinstance(c, FUNCTIONS))
    return any(map(returns, inside))


def leaves(node: ast.AST, in_loop: bool = False) -> bool:
    """Whether a statement may leave the block that it stands in."""
    if isinstance(node, (ast.Return, ast.Raise)):
        return True
    if isinstance(node, (ast.Break, ast.Continue)):
        return not in_loop
    if isinstance(node, FUNCTIONS):
        return False
    if isinstance(node, (ast.For, ast.While)):
        in_loop = True
    return any(leaves(c, in_loop) for c in ast.iter_child_nodes(node))


def breaks(body: Iterable[ast.stmt]) -> bool:
    """Whether the body of a loop may end the loop early."""

    def found(node: ast.AST) -> bool:
        if isinstance(node, (ast.Break, ast.Return)):
            return True
        if isinstance(node, FUNCTIONS):
            return False
        if isinstance(node, (ast.For, ast.While)):
            return returns(node)
        return any(found(c) for c in ast.iter_child_nodes(node))

    return any(map(found, body))


def has_break(body: Iterable[ast.AST]) -> bool:
    """Whether a `break` among statements ends the loop that they are the body of."""
    return any(
        isinstance(n, ast.Break)
        or (not isinstance(n, (ast.For, ast.While)) and has_break(ast.iter_child_nodes(n)))
        for n in body
    )


def ends(body: Sequence[ast.stmt]) -> bool:
    """Whether a body surely leaves the block that it stands in."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return ends(last.body) and ends(last.orelse)
    return isinstance(last, (ast.Return, ast.Break, ast.Continue, ast.Raise))
