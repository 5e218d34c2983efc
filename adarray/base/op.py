"""The operation record, and the registry that dispatch, kernels, tests and docs read.

An operation is one `Op`: the NumPy function it stands for, how it computes, its
derivative rules and sample inputs. Everything about an operation stands there.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from adarray.base import scalar
from adarray.base.errors import NotDifferentiableError
from adarray.base.scope import is_clients, outside
from adarray.base.types import Function, Operands, Params

Rule = Function


class Pointwise(NamedTuple):
    """Every result element depends on one element of each operand.

    `expr` gives that element as a scalar expression; None means that the
    dialects know the function by its name (``sin``, ``add``).
    """

    expr: Function | None = None


class Reduction(NamedTuple):
    """Axes are folded: ``post(combine(map(x0), map(x1), ...), n)``.

    `combine` names the fold (``add``, ``multiply``, ``maximum``, ``minimum``),
    `identity` is its neutral element (None: there is none, and an empty axis is
    an error), `map` and `post` are scalar expressions of ``x`` and of
    ``(acc, n)``, n being the number of elements folded.
    """

    combine: str
    identity: float | None
    map: Function | None = None
    post: Function | None = None


class Contraction(NamedTuple):
    """Products summed over shared axes; a library call such as gemm."""


class Layout(NamedTuple):
    """Elements keep their values and change places; NumPy may return a view.

    Parameters
    ----------
    part : str, optional
        ``"real"`` or ``"imag"``: elements stay where they are, and this part of them is seen.
    cast : bool
        Whether elements stay where they are, and their dtype changes.
    readonly : bool
        Whether NumPy does not let the view be written through.
    """

    part: str | None = None
    cast: bool = False
    readonly: bool = False


class Gather(NamedTuple):
    """Elements are picked by run-time indices."""


class Scatter(NamedTuple):
    """Elements are written or added at run-time indices."""


class Scan(NamedTuple):
    """Running folds along an axis."""


class Opaque(NamedTuple):
    """Runs in the backend's array library.

    Parameters
    ----------
    body : callable, optional
        NumPy code that computes the same, for what cannot call the function: compiled code, and
        arrays on devices.
    """

    body: Function | None = None


Lowering = Pointwise | Reduction | Contraction | Layout | Gather | Scatter | Scan | Opaque


class Sample(NamedTuple):
    """One set of sample inputs: positional arguments and keyword arguments."""

    args: Operands
    kwargs: Params = {}  # noqa: RUF012  (never written to)


# Where one operand of a pointwise operation is sampled: from, to, and whether it is a truth value.
Domain: TypeAlias = tuple[float, float] | tuple[float, float, Literal["bool"]]
# ``dynamic(operands, params)``, or of a function without record ``dynamic(args, kwargs)``.
Dynamic: TypeAlias = Callable[[Operands, Params], object]
# Inputs for tests and probes.
# Quoted: NumPy imports its random generators when they are asked for, which takes 10 ms.
Samples: TypeAlias = "Callable[[np.random.Generator], list[Sample]] | tuple[Domain, ...]"


class Op:
    """One operation.

    Parameters
    ----------
    name : str
        Unique name.
    numpy : callable
        The NumPy function or ufunc (or a function of ours that dispatches as
        NumPy's do): dispatch key, evaluator of the reference backend and oracle
        of the tests.
    lower : Lowering
        How it computes.
    rules : sequence of callable or None
        One rule per operand, ``rule(g, out, *operands, **params)``: the cotangent
        of that operand, given the cotangent `g` of the result. None where an
        operand has no derivative. A variadic operation has one rule,
        ``rule(g, i, out, *operands, **params)``, for its i-th operand. In a
        `Pointwise` operation the same text gives the tangent, since a diagonal
        Jacobian is its own transpose; broadcasting is taken care of outside.
    jvp : sequence of callable or None, optional
        ``jvp(t, out, *operands, **params)``: the tangent of the result for the
        tangent `t` of one operand; for a variadic operation
        ``jvp(t, i, out, ...)``. Not given for `Pointwise`; the string
        ``"linear"`` says that the operation is linear in each operand, so that
        its tangent is the operation applied to `t` in place of that operand.
    samples : callable
        ``samples(rng)`` returns a list of `Sample`; for a `Pointwise` operation
        it may be a tuple of ``(low, high)`` ranges, one per operand, from which
        shapes and special values are made by the tests; ``(0, 1, "bool")`` is the
        range of truth values.
    operands : tuple of str, optional
        Names of the differentiable arguments in NumPy's signature. A name that
        begins with ``*`` is one argument that holds a sequence of arrays.
        Not needed for ufuncs.
    params : tuple of str, optional
        Names of the other arguments that are honoured. One that is not listed
        here may be passed only with its default value.
    signature : str, optional
        NumPy's signature where `inspect` cannot see it.
    evaluate : callable, optional
        Used instead of `numpy` to compute values.
    aliases : tuple of callable, optional
        Other NumPy functions with the same signature and meaning.
    methods : tuple of str, optional
        Names of the ndarray methods that are this function, `self` first.
    needs : callable, optional
        ``needs(mask)`` returns for each of ``(out, *operands)`` whether it is saved
        when the operands in `mask` (bits) are traced; of a variadic operation, for
        the result and for all operands. Found by running the rules on probes where
        it is not given.
    transfer : callable, optional
        ``transfer(g, node)``: the reverse rule of an in-place write, which may take
        over the buffer of the cotangent `g`. See `adarray.core.inplace`.
    outputs : int
        Number of results. With more than one, the function returns a tuple (a
        namedtuple stays one), `g` and `out` in the rules are tuples, and jvp rules
        return one. A cotangent is zeros where nothing flowed back, and None (as
        tangents are) for a result that is not floating point or complex.
    general : Op, optional
        The operation that takes the calls with arguments that are not in `params`,
        such as ``where=``: this one stays short, and its kernels printable.
    masks : bool
        Whether some operands have no effect on the result, as the branch of np.where
        that is not taken. Their cotangent of zero stays zero on the way back, even
        where it meets an infinite derivative.
    drops : bool
        Whether elements of an operand may have no effect on the result, as those that an
        index leaves out. As `masks`, where nothing else depends on these elements.
    invariants : callable, optional
        ``invariants(out)`` returns what of the results does not depend on choices that
        NumPy makes, such as the phases of eigenvectors; `opcheck` differentiates that.
    dynamic : callable, optional
        ``dynamic(operands, params)`` returns what the shape of the result depends on by
        its values. See `DYNAMIC`.
    zero_d : callable, optional
        ``zero_d(operand, params)``: whether NumPy returns an array, and no scalar, where a
        result has no axes. `operand` says whether the first operand is an array. Not given
        where it never does.
    batch : callable, optional
        How `adarray.vmap` computes it for all members of a batch: ``batch(call)``, see
        `adarray.batching.rules`. Not given for operations whose kind says it: pointwise ones,
        reductions, scans and ufuncs.
    note : str
        What the documentation's table says, such as the derivative at kinks.

    Attributes
    ----------
    pointwise : bool
        Whether `lower` is `Pointwise`.
    variadic : bool
        Whether the last operand is a sequence of arrays.
    special : bool
        Whether the reverse walk looks twice at it: leaves and writes have no plain rule, and
        what masks or drops is followed by others that need care.
    """

    __slots__ = (
        "_binder", "_plans", "aliases", "batch", "drops", "dynamic", "evaluate", "general",
        "invariants", "jvp", "lower", "masks", "methods", "name", "needs", "note", "numpy",
        "operands", "outputs", "params", "pointwise", "rules", "samples", "signature", "special",
        "transfer", "variadic", "zero_d",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        numpy: Function,
        lower: Lowering,
        rules: Sequence[Rule | None],
        *,
        jvp: Sequence[Rule | None] | str | None = None,
        samples: Samples | None = None,
        operands: tuple[str, ...] = (),
        params: tuple[str, ...] = (),
        signature: str | None = None,
        evaluate: Function | None = None,
        aliases: tuple[Function, ...] = (),
        methods: tuple[str, ...] = (),
        needs: Function | None = None,
        transfer: Function | None = None,
        outputs: int = 1,
        masks: bool = False,
        drops: bool = False,
        general: Op | None = None,
        invariants: Function | None = None,
        dynamic: Dynamic | None = None,
        zero_d: Callable[[bool, Params], bool] | None = None,
        batch: Function | None = None,
        note: str = "",
    ) -> None:
        self.name = name
        self.numpy = numpy
        self.lower = lower
        self.rules = tuple(rules)
        self.jvp = jvp
        self.samples = samples
        self.operands = operands
        self.params = params
        self.signature = signature
        computes = evaluate or numpy
        self.evaluate = outside(computes) if is_clients(computes) else computes
        self.aliases = aliases
        self.methods = methods
        self.needs = needs
        self.note = note
        self.outputs = outputs
        self.masks = masks
        self.drops = drops
        self.general = general
        self.invariants = invariants
        self.batch = batch
        self.dynamic = dynamic
        self.zero_d = zero_d
        self.transfer = transfer
        self.special = transfer is not None or not rules or masks or drops
        self.pointwise = isinstance(lower, Pointwise)
        self.variadic = bool(operands) and operands[-1].startswith("*")
        self._plans: dict[int, tuple[bool, ...]] = {}
        self._binder: ArgumentBinder | None = None

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def arity(self) -> int:
        """Number of operands; of a variadic operation, those before the sequence."""
        return len(self.operands) if self.operands else len(self.rules)

    def expression(self, *operands: object) -> scalar.ScalarExpr:
        """Return the scalar expression of a pointwise operation for symbols `operands`."""
        assert isinstance(self.lower, Pointwise)
        if self.lower.expr is not None:
            return scalar.as_expr(self.lower.expr(*operands))
        return scalar.call(self.numpy.__name__, *operands)

    def derivative_expression(self, operand: int) -> scalar.ScalarExpr:
        """Return rule `operand` of a pointwise operation as an expression of g, out, x0, x1..."""
        rule = self.rules[operand]
        assert rule is not None
        symbols = [scalar.var(n) for n in ("g", "out", *(f"x{i}" for i in range(self.arity)))]
        return scalar.as_expr(rule(*symbols))

    def plan(self, mask: int) -> tuple[bool, ...]:
        """Return which of ``(out, *operands)`` a pointwise op saves when `mask` is traced."""
        plan = self._plans.get(mask)
        if plan is None:
            read: set[str] = set()
            for i, rule in enumerate(self.rules):
                if mask >> i & 1:
                    if rule is None:
                        raise NotDifferentiableError(
                            f"{self.name}: no derivative with respect to operand {i}; pass it as "
                            "a plain array, or use adarray.stop_gradient on it"
                        )
                    read |= scalar.variables(self.derivative_expression(i))
            plan = tuple(n in read for n in ("out", *(f"x{i}" for i in range(self.arity))))
            self._plans[mask] = plan
        return plan

    def bind(self, args: Operands, kwargs: Params) -> Bound:
        """Return ``(operands, params, out)`` of a call with NumPy's signature.

        The operands are None where the call is one for `general`.
        """
        if self._binder is None:
            self._binder = ArgumentBinder(self)
        return self._binder(args, kwargs)


# Names of arguments in PyTorch.
_ELSEWHERE = {"dim": "axis", "dims": "axis", "keepdim": "keepdims"}


_OF_UFUNCS = (
    ", /, out=None, *, where=True, casting='same_kind', order='K', dtype=None, subok=True, "
    "signature=None"
)

# ``(operands, params, out)`` of a call: a list of operands, None where it is one for another
# record.
Bound: TypeAlias = tuple[Any, Params, Any]


class ArgumentBinder:
    """Sorts the arguments of a NumPy call into operands, params and ``out=``."""

    def __init__(self, op: Op) -> None:
        import inspect  # not needed before the first call

        self.op = op
        text = op.signature
        if text is None and isinstance(op.numpy, np.ufunc):  # those of older NumPy have none
            text = ", ".join(f"x{i}" for i in range(1, op.numpy.nin + 1)) + _OF_UFUNCS
        if text is not None:
            namespace: Params = {"np": np, "_": np._NoValue}
            exec(f"def f({text}): pass", namespace)  # our own literal text
            signature = inspect.signature(namespace["f"])
        else:
            signature = inspect.signature(op.numpy)
        parameters = signature.parameters
        self.rest = next((n for n, p in parameters.items() if p.kind is p.VAR_POSITIONAL), None)
        self.names = tuple(
            n
            for n, p in parameters.items()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        )
        self.defaults = {n: p.default for n, p in parameters.items()}
        self.required = frozenset(
            n for n in self.names if self.defaults[n] is inspect.Parameter.empty
        )
        self.operand_list = tuple((n.lstrip("*"), n.startswith("*")) for n in op.operands)
        self.operand_names = frozenset(n for n, _ in self.operand_list)
        self.signature = signature
        # The number of arguments of a call that gives the operands and nothing else.
        plain = self.rest is None and self.names[: len(op.operands)] == op.operands
        self.alone = len(op.operands) if plain and self.required <= self.operand_names else -1

    def _bound(self, args: Operands, kwargs: Params) -> Params:
        """Return the arguments by name, or raise Python's own TypeError."""
        try:
            return self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            known = next((n for n in kwargs if n in _ELSEWHERE), None)
            hint = f"; it is called {_ELSEWHERE[known]} in NumPy" if known is not None else ""
            raise TypeError(f"{self.op.name}() {error}{hint}") from None

    def __call__(self, args: Operands, kwargs: Params) -> Bound:
        """Return ``(operands, params, out)`` of one call."""
        if not kwargs and len(args) == self.alone:
            return list(args), {}, None
        if self.rest is not None or len(args) > len(self.names):
            bound = self._bound(args, kwargs)
            bound.update(bound.pop("kwargs", {}))
        else:
            bound = dict(zip(self.names, args, strict=False))
            positional = len(bound)
            if kwargs:
                bound.update(kwargs)
            if len(bound) != positional + len(kwargs) or not (
                bound.keys() <= self.defaults.keys() and bound.keys() >= self.required
            ):
                self._bound(args, kwargs)  # raises Python's own TypeError
        operands: list[object] = []
        params: Params = {}
        out = None
        for name, value in bound.items():
            if name in self.operand_names:
                continue
            if name == "out":
                out = value
            elif name in self.op.params:
                if value is not np._NoValue:
                    params[name] = value
            elif name == "where" and value is True:
                continue
            elif value is not np._NoValue and not same_argument(value, self.defaults.get(name)):
                if self.op.general is not None:
                    return None, {}, None
                raise NotDifferentiableError(
                    f"{self.op.name}: the argument {name}={value!r} is not differentiated; leave "
                    f"it at its default {self.defaults.get(name)!r} and write the step in other "
                    "functions"
                )
        for name, many in self.operand_list:
            if many:
                operands.extend(bound[name])
            else:
                operands.append(bound[name] if name in bound else self.defaults[name])
        return operands, params, out


def same_argument(value: object, default: object) -> bool:
    """Whether an argument has its default value; arrays never have."""
    if value is default:
        return True
    return type(value) is type(default) and isinstance(value, (bool, int, str)) and value == default


OPS: dict[str, Op] = {}
FUNCTIONS: dict[object, Op] = {}
# Those of FUNCTIONS that are pointwise, which dispatch looks up first.
POINTWISE: dict[object, Op] = {}
METHODS: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Add `op` to the registry and return it.

    Raises
    ------
    ValueError
        If its name, one of its functions or methods is taken.
    """
    if op.name in OPS:
        raise ValueError(f"register: an operation named {op.name!r} is there already")
    OPS[op.name] = op
    for function in (op.numpy, *op.aliases):
        if function in FUNCTIONS:
            raise ValueError(f"register: {function!r} belongs to {FUNCTIONS[function].name!r}")
        FUNCTIONS[function] = op
        if op.dynamic is not None:
            DYNAMIC[function] = op.dynamic
        if op.pointwise:
            POINTWISE[function] = op
    for method in op.methods:
        if method in METHODS:
            raise ValueError(f"register: method {method!r} belongs to {METHODS[method].name!r}")
        METHODS[method] = op
    return op


def all_ops() -> Iterator[Op]:
    """Yield every registered operation in order of registration.

    Those registered meanwhile, by rules of a module that is loaded late, do not count.
    """
    yield from tuple(OPS.values())


# Module whose functions need rules of ours: our module that registers them. It is imported
# when a function that is not known is met after the other module was imported.
LATE: dict[str, str] = {"scipy.special": "adarray.scipy.special"}


def load_late() -> bool:
    """Import the rules for modules that are loaded by now; return whether there were any."""
    waiting = [name for name in LATE if name in sys.modules]
    for name in waiting:
        importlib.import_module(LATE.pop(name))
    return bool(waiting)


# NumPy functions whose results carry no derivative: they get plain values and
# their results are constants (comparisons, rounding, argmax, ...).
CONSTANT_FUNCTIONS: set[Function] = set()

# NumPy functions that are written in Python on top of others, with a body of ours
# or NumPy's own that runs over ADArrays: {function: implementation}.
COMPOSITES: dict[object, Function] = {}


# What else is known of functions, in the modules that register them.

# Those whose results have a shape that depends on values: {function: of which arguments}.
DYNAMIC: dict[object, Dynamic] = {}
# Those that answer questions about shapes, dtypes and memory, which values do not change.
METADATA: set[object] = set()
# Those that make an array of the shape and dtype of another, and read no value of it.
ALIKE: set[object] = set()
# Those that write into their first argument, and return nothing.
WRITERS: set[object] = set()


def dynamic(*functions: Function, of: Dynamic = lambda args, kwargs: (args, kwargs)) -> None:
    """Register functions whose result shapes depend on values.

    Parameters
    ----------
    *functions : callable
    of : callable
        ``of(args, kwargs)`` returns the arguments whose values decide; all, if not given.
    """
    DYNAMIC.update(dict.fromkeys(functions, of))


# NumPy functions that traced arrays must not be passed to: {function: why, and what to do}.
REFUSED: dict[object, str] = {}


def refuse(why: str, *functions: Function) -> None:
    """Register NumPy functions that raise `why` for traced arrays; others they may take."""
    for function in functions:
        REFUSED[function] = why


def constant(*functions: Function) -> None:
    """Register NumPy functions whose results have derivative zero or none."""
    CONSTANT_FUNCTIONS.update(functions)


def composite(*functions: Function) -> Callable[[Function], Function]:
    """Register the decorated body as the implementation of NumPy functions."""

    def decorate(body: Function) -> Function:
        for function in functions:
            COMPOSITES[function] = body
        return body

    return decorate
