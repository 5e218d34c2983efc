"""How the drop-in modules are made: functions of ours in the place of SciPy's.

Plain arguments go to SciPy itself, untraced ADArrays too (and ADArrays come back);
traced ones go to a body of ours, which is built of operations with rules. Without a body,
or for arguments that it does not cover, they go through SciPy's own code, which NumPy's
protocols may show us; where it would coerce them, they are refused.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adarray.base.aval import BATCHED, Symbolic
from adarray.base.errors import (
    DTypeError,
    NotDifferentiableError,
    TraceError,
    UnsupportedFunctionError,
)
from adarray.base.levels import remembered, restore
from adarray.base.op import Op, Opaque, register, same_argument
from adarray.base.runtime import MODE
from adarray.batching.rules import members
from adarray.core.dispatch import apply, run, stands_for_many
from adarray.core.lending import lent
from adarray.core.protocol import check_params, concrete, finish, followed, on_plain, plain, traced
from adarray.core.refusals import leaves_graph
from adarray.core.trace import Extras, Handle
from adarray.ops.creation import asarray
from adarray.scipy import RECORDS

# {SciPy's function: ours}, and those of them whose results carry no derivative: what the
# table in the documentation is made from.
REPLACEMENTS: dict[Any, Callable[..., Any]] = {}
CONSTANTS: set[Any] = set()

# Permissions and hints, which change how SciPy computes and not what.
_HINTS = frozenset(
    {"overwrite_a", "overwrite_b", "overwrite_ab", "overwrite_x", "overwrite_qr", "overwrite_c",
     "overwrite_a_band", "lapack_driver", "driver", "lwork", "workers", "blocksize", "plan"}
)  # fmt: skip

# Parameters that take arrays to write into.
_OUTPUTS = frozenset({"out", "output", "distances", "indices"})


def holds(x: Any) -> bool:
    """Whether `x` is an ADArray or a list, tuple or dict with one in it."""
    if isinstance(x, Handle):
        return True
    if isinstance(x, (list, tuple)):
        return any(map(holds, x))
    return isinstance(x, dict) and any(map(holds, x.values()))


def value(x: Any) -> Any:
    """Return the plain value of an ADArray, or of the ADArrays in a list, tuple or dict."""
    return plain(x)


def is_complex(*arrays: Any) -> bool:
    """Whether one of the arrays is complex."""
    return any(np.result_type(x.dtype if hasattr(x, "dtype") else x).kind == "c" for x in arrays)


def array(x: Any) -> Any:
    """Return `x` as an array: ADArrays as they are, lists of traced numbers as one."""
    return asarray(x)


def wrapped(r: Any, name: str) -> Any:
    """Return results as ADArrays, those in lists and tuples too."""
    if isinstance(r, list):
        return [wrapped(x, name) for x in r]
    if isinstance(r, tuple) and not hasattr(r, "_fields"):
        return tuple(wrapped(x, name) for x in r)
    if hasattr(r, "_extra_fields"):  # a result of scipy.stats with fields that are no items
        more = {n: wrapped(getattr(r, n), name) for n in r._extra_fields}
        try:
            return type(r)(*(wrapped(x, name) for x in r), **more)
        except TypeError:  # one that is made of something else
            return r
    return finish(r, None, name)


def untraced(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str
) -> Any:
    """Call SciPy's `function` for ADArrays that are not traced.

    It writes into the memory of those that it is told to write into. A result that lies in the
    memory of an argument stays there.
    """
    written = _written(function, args, kwargs)
    if followed(args) or followed(kwargs):  # `jit` records the call
        ordered = written is None and "overwrite_data" in kwargs  # an order, others are hints
        if ordered or any(isinstance(x, (Handle, np.ndarray)) for x in written or ()):
            raise leaves_graph(f"{name} into an array", "use the array that it returns")
        kwargs = {k: v for k, v in kwargs.items() if not k.startswith("overwrite_")}
        return wrapped(on_plain(function, args, kwargs), name)
    memory: list[tuple[Handle, Any]] = []

    def opened(x: Any) -> Any:
        if isinstance(x, Handle):
            v = lent(x) if written is None or any(x is w for w in written) else plain(x)
            memory.append((x, v))
            return v
        if type(x) is list or type(x) is tuple:
            return type(x)(map(opened, x))
        if type(x) is dict:
            return {k: opened(v) for k, v in x.items()}
        return plain(x)

    r = function(*map(opened, args), **{k: opened(v) for k, v in kwargs.items()})
    return wrapped(_in_memory(r, memory, written is None), name)


def _in_memory(r: Any, memory: list[tuple[Handle, Any]], all_lent: bool) -> Any:
    """Return results with ADArrays in place of those that lie in the memory of arguments."""
    if type(r) is tuple or type(r) is list:
        return type(r)(_in_memory(x, memory, all_lent) for x in r)
    if type(r) is not np.ndarray:
        return r
    for x, v in memory:
        if r is v:
            return x
        if isinstance(v, np.ndarray) and np.may_share_memory(r, v):
            # Of a buffer that was not lent, nodes may rely on what it holds.
            return Handle.array_class(r, None, Extras(borrowed=True)) if all_lent else r.copy()
    return r


@functools.cache
def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function that may write into arguments; None of others."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    writes = any(n in _OUTPUTS or n.startswith("overwrite_") for n in signature.parameters)
    return signature if writes else None


def _written(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any] | None:
    """Return the arguments that a function of SciPy's writes into; None if it may be any."""
    signature = _signature(function)
    if signature is None:
        return []
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError:  # which the call raises, too
        return []
    if any(n.startswith("overwrite_") and x is not False and x for n, x in bound.items()):
        return None
    outputs: list[Any] = []
    for name in _OUTPUTS & bound.keys():
        x = bound[name]
        outputs += x if isinstance(x, (list, tuple)) else [x]
    return outputs


def instead_of(function: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Put the decorated body in the place of SciPy's `function` for traced arguments.

    The body takes those of its arguments that it honours, by their names; hints such
    as ``overwrite_a`` are dropped, ``check_finite`` is seen to here, and another
    argument is refused unless it has its default value.
    """
    signature = inspect.signature(function)
    name = function.__name__

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        honoured = inspect.signature(body).parameters
        star = next((n for n, p in honoured.items() if p.kind is p.VAR_POSITIONAL), None)

        @functools.wraps(function)
        def either(*args: Any, **kwargs: Any) -> Any:
            if not (holds(args) or holds(kwargs)):
                return function(*args, **kwargs)
            if not (traced(args) or traced(kwargs)):
                return untraced(function, args, kwargs, name)
            bound = signature.bind(*args, **kwargs).arguments
            try:
                rest = select(name, signature, honoured, bound)
            except UncoveredError as error:
                return by_original(function, args, kwargs, error.refusal)
            more = () if star is None else rest.pop(star, ())
            return wrapped(body(*more, **rest), name)

        REPLACEMENTS[function] = either
        return either

    return decorate


def _check_finite(x: Any) -> None:
    """Raise where an array is not finite; a jitted function does in each call."""
    v, mode = plain(x), MODE.get()
    if isinstance(v, Symbolic):
        assert mode is not None
        assert mode.recorder is not None
        mode.recorder.check(np.asarray_chkfinite, (v,), {})
    else:
        np.asarray_chkfinite(v)


def select(name: str, signature: Any, honoured: Any, bound: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that a body takes; raise for others that are not at their default."""
    if "check_finite" in signature.parameters and "check_finite" not in honoured:
        check = bound.pop("check_finite", signature.parameters["check_finite"].default)
        if check:
            for x in bound.values():
                if isinstance(x, Handle):
                    _check_finite(x)
    # SciPy's own defaults, which are not the same in all of its versions.
    rest = {
        key: p.default
        for key, p in signature.parameters.items()
        if key in honoured and p.default is not p.empty
    }
    for key, argument in bound.items():
        if key in honoured:
            rest[key] = argument
        elif key not in _HINTS and not same_argument(argument, signature.parameters[key].default):
            default = signature.parameters[key].default
            if traced(argument):
                raise _not_differentiated(name, f"{key}=a traced array", default)
            raise UncoveredError(
                functools.partial(_not_differentiated, name, f"{key}={argument!r}", default)
            )
    return rest


class UncoveredError(Exception):
    """A body does not take an argument, which is not traced: SciPy's own code may."""

    def __init__(self, refusal: Callable[[], Exception]) -> None:
        super().__init__()
        self.refusal = refusal


def _not_differentiated(name: str, shown: str, default: Any) -> NotDifferentiableError:
    return NotDifferentiableError(
        f"{name}: the argument {shown} is not differentiated; leave it at its "
        f"default {default!r}, or pass adarray.value_of(x)"
    )


def operation(
    name: str,
    evaluate: Callable[..., Any],
    rules: Sequence[Callable[..., Any] | None],
    *,
    jvp: Any,
    samples: Callable[[np.random.Generator], list[Any]],
    operands: tuple[str, ...],
    params: tuple[str, ...] = (),
    outputs: int = 1,
    drops: bool = False,
    batch: Callable[[Any], Any] = members,
    note: str = "",
) -> Callable[..., Any]:
    """Register an operation that NumPy has no function for; return the one that dispatches.

    Parameters
    ----------
    name, rules, jvp, samples, operands, params, outputs, drops, note
        As in `adarray.base.op.Op`.
    batch : callable
        As there; member by member if not given.
    evaluate : callable
        Computes on plain arrays.
    """
    cell: list[Op] = []

    @functools.wraps(evaluate)
    def dispatching(*args: Any, **kwargs: Any) -> Any:
        bound, params, _ = cell[0].bind(args, kwargs)
        if any(isinstance(x, Handle) for x in bound):
            check_params(cell[0], params)
            return finish(apply(cell[0], tuple(bound), params), None, name)
        if BATCHED and stands_for_many((*bound, *params.values())) is not None:
            return run(cell[0], *bound, **params)
        return evaluate(*bound, **params)

    op = Op(
        name, dispatching, Opaque(), rules, jvp=jvp, samples=samples, operands=operands,
        params=params, evaluate=evaluate, outputs=outputs, drops=drops, batch=batch, note=note,
    )  # fmt: skip
    cell.append(register(op))
    RECORDS[name] = op
    return dispatching


def by_original(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    refusal: Callable[[], Exception],
) -> Any:
    """Run SciPy's own code on traced arguments, where NumPy's protocols allow it.

    Parameters
    ----------
    function : callable
        SciPy's.
    args, kwargs : tuple, dict
    refusal : callable
        Makes the error for where they do not.

    Raises
    ------
    UnsupportedFunctionError, NotDifferentiableError
        What `refusal` returns; SciPy's own error where plain arguments raise it, too.
    """
    before = remembered()
    try:
        return function(*args, **kwargs)
    except (TraceError, NotDifferentiableError, DTypeError) as error:
        restore(before)
        raise refusal() from error
    except _SCIPYS as error:
        restore(before)
        if _fails(function, args, kwargs):
            raise
        raise refusal() from error


# Errors that code which knows nothing of ADArrays may raise for them, or for its arguments.
_SCIPYS = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, NotImplementedError)


def _fails(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a function raises for plain arguments."""
    try:
        function(*concrete(args), **concrete(kwargs))
    except Exception:
        return True
    return False


def no_rule(name: str, why: str = "") -> UnsupportedFunctionError:
    """Return the error for a function without a derivative rule."""
    return UnsupportedFunctionError(
        f"{name}: {why or 'adarray has no derivative rule for this function'}; write it "
        "with functions that have one, or pass adarray.value_of(x) if no gradient "
        "should flow through it"
    )


def guarded(function: Callable[..., Any], where: str, why: str = "") -> Callable[..., Any]:
    """Return a SciPy function that has no rule here, such that no derivative is lost in it.

    Traced arguments go through SciPy's own code where NumPy's protocols carry the derivative, and
    are refused by name elsewhere; everywhere, if `why` says what is wrong with it.
    """
    name = f"{where}.{getattr(function, '__name__', function)}"

    @functools.wraps(function)
    def either(*args: Any, **kwargs: Any) -> Any:
        if not (holds(args) or holds(kwargs)):
            return function(*args, **kwargs)
        if not (traced(args) or traced(kwargs)):
            # A function among the arguments may give traced values where it is given ADArrays.
            arguments = (*args, *kwargs.values())
            if any(map(callable, arguments)) and not followed(arguments):
                return function(*args, **kwargs)
            return untraced(function, args, kwargs, name)
        if why:
            raise no_rule(name, why)
        return by_original(function, args, kwargs, lambda: no_rule(name))

    return either


def constant(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a SciPy function whose result carries no derivative: it gets plain values."""

    @functools.wraps(function)
    def either(*args: Any, **kwargs: Any) -> Any:
        if not (holds(args) or holds(kwargs)):
            return function(*args, **kwargs)
        return untraced(function, args, kwargs, function.__name__)

    REPLACEMENTS[function] = either
    CONSTANTS.add(function)
    return either


def fill_in(
    space: dict[str, Any], module: types.ModuleType, refused: dict[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of the drop-in for a SciPy module.

    `refused` gives the reason why a function has no derivative here.
    """
    reasons = refused or {}

    def getattribute(name: str) -> Any:
        try:
            member = getattr(module, name)
        except AttributeError:
            raise AttributeError(
                f"module {space['__name__']!r} has no attribute {name!r}"
            ) from None
        if name.startswith("_") or isinstance(member, (type, types.ModuleType)):
            return member
        if callable(member):
            member = guarded(member, module.__name__, reasons.get(name, ""))
        space[name] = member  # the same object the next time
        return member

    def names() -> list[str]:
        return sorted({*public, *space})

    public = list(getattr(module, "__all__", [n for n in dir(module) if n[0] != "_"]))
    return getattribute, names, public


def over_batch(*cores: tuple[str, int | str]) -> Callable[[Callable[..., Any]], Any]:
    """Run the decorated body on each slice of batches, as SciPy's linear algebra does.

    `cores` names the array arguments with their numbers of core dimensions; ``"1|2"``
    stands for 2 where there are so many. The results of the slices are stacked.
    """

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(body)

        @functools.wraps(body)
        def over(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs).arguments
            arrays = {n: array(bound[n]) for n, _ in cores if bound.get(n) is not None}
            depth = {
                n: (2 if arrays[n].ndim >= 2 else 1) if isinstance(core, str) else core
                for n, core in cores
                if n in arrays
            }
            batches = [x.shape[: x.ndim - depth[n]] for n, x in arrays.items()]
            if not any(batches):
                return body(**{**bound, **arrays})
            batch = np.broadcast_shapes(*batches)
            for n, x in arrays.items():
                arrays[n] = np.broadcast_to(x, batch + x.shape[x.ndim - depth[n] :])
            parts = [
                body(**{**bound, **{n: x[index] for n, x in arrays.items()}})
                for index in np.ndindex(batch)
            ]
            if not isinstance(parts[0], tuple):
                return _stack(parts, batch)
            return tuple(_stack(list(part), batch) for part in zip(*parts, strict=True))

        return over

    return decorate


def _stack(parts: list[Any], batch: tuple[int, ...]) -> Any:
    stacked = np.stack(parts)
    return np.reshape(stacked, batch + stacked.shape[1:])


def refuse_traced(name: str, **arguments: Any) -> None:
    """Raise for arguments that have no derivative rule and are traced."""
    for key, x in arguments.items():
        if traced(x):
            raise NotDifferentiableError(
                f"{name}: there is no derivative with respect to the argument {key}; pass "
                f"adarray.value_of({key})"
            )
