"""Calls of functions that are one operation each: `checkpoint` and `custom_vjp`.

The function runs with values of which no derivative is taken, and leaves one node. The rule of the
node runs the function again, with its derivative, or the rule that its author gave. Where the rule
itself is differentiated, its operands are traced, and everything in it is computed from them.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adarray.array import ADArray
from adarray.aval import Symbolic, aval_of
from adarray.device import is_device
from adarray.dispatch import pick
from adarray.errors import ForwardModeError, ShapeError, TraceError
from adarray.graph import Node, merge_spans
from adarray.inplace import sync_if_view
from adarray.op import Op, Opaque
from adarray.protocol import concrete, traced
from adarray.runtime import MODE
from adarray.trace import Extras, Handle, is_weak, save
from adarray.transforms.modes import shape_of, vjp
from adarray.transforms.running import check_function, prepared
from adarray.transforms.tree import flatten, is_array


@dataclasses.dataclass
class _Made:
    """One call, as its rule needs it; no tuple, which the walk would take for results.

    Parameters
    ----------
    args : tuple
        As the caller gave them.
    rebuild : callable
        Puts leaves into the structure of those that are differentiated.
    kept : any
        Of what the rule asked to be kept.
    places : list of int
        The floating leaves of the result.
    leaves : int
        How many leaves the result has.
    rebuild_result : callable
    avals : tuple of Aval
        Of the floating leaves of the result.
    followed : list of int
        The leaves of the arguments that have a node.
    """

    args: tuple[Any, ...]
    rebuild: Any
    kept: Any
    places: list[int]
    leaves: int
    rebuild_result: Any
    avals: tuple[Any, ...] = ()
    followed: list[int] = dataclasses.field(default_factory=list)


class Whole:
    """A function whose calls are one operation each, where a derivative is taken.

    Parameters
    ----------
    name : str
        Of the transform, for errors.
    f : callable
    fixed : sequence of int
        Positions of the arguments that are not differentiated, and passed as they are.
    """

    def __init__(self, name: str, f: Callable[..., Any], fixed: Sequence[int] = ()) -> None:
        check_function(name, f)
        with contextlib.suppress(AttributeError, TypeError):
            functools.update_wrapper(self, f)
        self._name = name
        self._f = f
        self._fixed = tuple(fixed)
        self._prepare()

    def _prepare(self) -> None:
        """Make the operation that calls of this object are."""
        text = f"{self._name}({getattr(self._f, '__name__', 'f')})"
        self._op = Op(text, self._f, Opaque(), (self._rule,), operands=("*inputs",))
        self._memory = threading.local()

    def functions(self) -> tuple[str, ...]:
        """Return the names of the attributes that hold functions of the user's."""
        return ("_f",)

    def over(self, functions: dict[str, Any]) -> Any:
        """Return the same over other functions in the places of these."""
        made = copy.copy(self)
        made.__dict__.update(functions)
        made._prepare()
        return made

    def __repr__(self) -> str:
        return f"<{self._name} of {self._f!r}>"

    def __get__(self, obj: Any, cls: type | None = None) -> Any:
        return self if obj is None else functools.partial(self, obj)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        if kwargs:
            bound = inspect.signature(self._f).bind(*args, **kwargs)
            args, kwargs = bound.args, bound.kwargs
        leaves, rebuild = flatten(self._moving(args))
        mode = MODE.get()
        if not any(map(traced, leaves)) or (mode is not None and not mode.record):
            return self._f(*args, **kwargs)
        if kwargs:
            raise TypeError(
                f"{self._op.name}: the keyword-only arguments {', '.join(kwargs)} cannot be told "
                "apart from those that are differentiated; make them positional"
            )
        if any(isinstance(x, Handle) and x._x is not None and x._x.tangents for x in leaves):
            return self._along(args)
        return self._joined(args, leaves, rebuild)

    def _moving(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments that are differentiated."""
        return tuple(x for k, x in enumerate(args) if k not in self._fixed)

    def _full(self, args: tuple[Any, ...], moving: Sequence[Any]) -> list[Any]:
        """Return all arguments, with others in the places of those that are differentiated."""
        rest = iter(moving)
        return [x if k in self._fixed else next(rest) for k, x in enumerate(args)]

    def _joined(self, args: tuple[Any, ...], leaves: list[Any], rebuild: Any) -> Any:
        """Run the function on values alone, and hang what it returns on one node."""
        values = [_untraced(x) for x in leaves]
        before = [x._v if isinstance(x, Handle) else None for x in values]
        y, kept = self._evaluate(self._full(args, rebuild(values)))
        for x, v in zip(values, before, strict=True):
            if isinstance(x, Handle) and sync_if_view(x)._v is not v:
                raise TraceError(
                    f"{self._op.name}: the function writes into an argument, which would not be "
                    "seen outside; copy it first, or return the new value"
                )
        found, rebuild_y = flatten(y)
        if any(map(traced, found)) or any(map(traced, flatten(kept)[0])):
            raise TraceError(
                f"{self._op.name}: the function reads a traced value that is no argument of it, "
                "and its gradient would be lost; pass it as an argument"
            )
        results = [_result(x, before) for x in found]
        places = [
            k for k, x in enumerate(results) if isinstance(x, ADArray) and _dtype(x).kind in "fc"
        ]
        if places:
            made = _Made(args, rebuild, kept, places, len(results), rebuild_y)
            self._hang([results[k] for k in places], leaves, made)
        return rebuild_y(results)

    def _hang(self, floating: list[ADArray], leaves: list[Any], call: _Made) -> None:
        """Give results a node whose parents are the arguments."""
        nodes = [x._node if isinstance(x, Handle) else None for x in leaves]
        spans = [n.span for n in nodes if n is not None]
        call.avals = tuple(aval_of(x._v) for x in floating)
        call.followed = [k for k, n in enumerate(nodes) if n is not None]
        saved = [save(x) if isinstance(x, Handle) else x for x in leaves]
        span = functools.reduce(merge_spans, spans)
        made = Node(self._op, tuple(nodes), (call, *saved), None, call.avals[0], span, None)
        for k, x in enumerate(floating):
            x._node = pick(made, k, call.avals[k])

    def _rule(self, g: dict[int, Any], i: int, call: _Made, *operands: Any) -> Any:
        """Return the cotangent of operand `i`; those of all are computed at once."""
        known: Any = getattr(self._memory, "last", None)
        same = known is not None and known[0] is g
        if not same or any(a is not b for a, b in zip(known[1], operands, strict=True)):
            cotangents = [
                g[k] if k in g else np.zeros(a.shape, a.dtype)[()] for k, a in enumerate(call.avals)
            ]
            parts = self._pull(call, list(operands), cotangents)
            known = self._memory.last = (g, operands, parts)
        if i == call.followed[-1]:
            self._memory.last = None
        return known[2][i]

    def _evaluate(self, args: list[Any]) -> tuple[Any, Any]:
        """Return the result for arguments, and what the rule needs of the call besides."""
        return prepared(self._f, True)(*args), None

    def _along(self, args: tuple[Any, ...]) -> Any:
        """Run it where tangents are computed."""
        return self._f(*args)

    def _pull(self, call: _Made, operands: list[Any], cotangents: list[Any]) -> dict[int, Any]:
        """Return the cotangents of the operands with these numbers."""
        raise NotImplementedError


def _untraced(x: Any) -> Any:
    """Return the value of an argument as an ADArray of which no derivative is taken."""
    if not isinstance(x, Handle):
        return x
    value = sync_if_view(x)._v
    return ADArray(value, None, Extras(weak=True) if is_weak(x) else None, True)


def _result(x: Any, arguments: list[Any]) -> Any:
    """Return a leaf of a result as an array that can be hung on a node."""
    if isinstance(x, Handle):
        value, weak = sync_if_view(x)._v, is_weak(x)
    elif isinstance(x, (float, complex, np.ndarray, np.generic)):
        value, weak = x, isinstance(x, (float, complex)) and not isinstance(x, np.generic)
    else:
        return x
    if isinstance(value, np.ndarray) and any(
        isinstance(v, np.ndarray) and np.may_share_memory(value, v) for v in arguments
    ):
        value = value.copy()
    return ADArray(value, None, Extras(weak=True) if weak else None)


def _dtype(x: Any) -> Any:
    return x.dtype if hasattr(x, "dtype") else np.result_type(x)


def _plain_number(x: Any) -> Any:
    """Return a Python number as NumPy's, which cotangents are."""
    return np.asarray(x)[()] if isinstance(x, (int, float, complex)) else x


def _sums(x: list[Any]) -> list[Any] | None:
    """Return what tells arrays apart: their sums. None where they are recorded, or on a device."""
    values = [concrete(v) for v in x]
    if any(is_device(v) or (isinstance(h, Handle) and isinstance(h._v, Symbolic))
           for h, v in zip(x, values, strict=True)):  # fmt: skip
        return None
    return [np.sum(v) for v in values]


def _agree(before: list[Any] | None, now: list[Any] | None) -> bool:
    """Whether a function has computed the same twice, as far as it is known."""
    if before is None or now is None:
        return True
    return len(before) == len(now) and all(
        np.array_equal(a, b, equal_nan=True) for a, b in zip(before, now, strict=True)
    )


class Checkpoint(Whole):
    """A function of which only the arguments are kept; see `checkpoint`."""

    def _evaluate(self, args: list[Any]) -> tuple[Any, Any]:
        mode = MODE.get()
        drawn = getattr(mode.engine, "drawn", int) if mode is not None else int
        before = drawn()
        y, _ = super()._evaluate(args)
        if drawn() != before:
            raise TraceError(
                f"{self._op.name}: the function draws random numbers, which would be others when "
                "it runs again for its derivative; draw them outside, and pass them"
            )
        leaves = [x for x in flatten(y)[0] if is_array(x) and _dtype(x).kind in "fc"]
        with np.errstate(all="ignore"):
            return y, _sums(leaves)

    def _pull(self, call: _Made, operands: list[Any], cotangents: list[Any]) -> dict[int, Any]:
        def differentiated(*xs: Any) -> list[Any]:
            leaves = list(operands)
            for k, x in zip(call.followed, xs, strict=True):
                leaves[k] = x
            again, _ = flatten(self._f(*self._full(call.args, call.rebuild(leaves))))
            made = [x for x in again if is_array(x) and _dtype(x).kind in "fc"]
            with np.errstate(all="ignore"):
                same = _agree(call.kept, _sums(made))
            if not same:
                raise TraceError(
                    f"{self._op.name}: the function computed something else when it ran again for "
                    "its derivative; random numbers and what changes meanwhile must be arguments"
                )
            return made

        _, pullback = vjp(differentiated, *[operands[k] for k in call.followed])
        return dict(zip(call.followed, map(_plain_number, pullback(cotangents)), strict=True))


def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
    r"""Return `f` such that its intermediate values are computed again for its derivative.

    Reverse mode keeps what each operation has computed until the gradient is known. Of a call of
    ``checkpoint(f)`` it keeps the arguments alone, and runs `f` once more on the way back: less
    memory for the time of one more evaluation. With about :math:`\sqrt n` checkpoints in a
    loop of n steps, about :math:`2 \sqrt n` states are held at a time.

    Parameters
    ----------
    f : callable
        Returns an array or a nest of arrays. It must compute the same both times: random numbers
        come from a generator that is made in it, or are arguments.

    Returns
    -------
    callable
        Takes and returns what `f` does; also a decorator. In forward mode, and where no derivative
        is taken, it is `f`.

    Raises
    ------
    TraceError
        If `f` reads a traced value that is no argument (a variable of the function around it), or
        writes into an argument.

    Notes
    -----
    Derivatives of any order are those of `f`. Under `adarray.jit`, the compiler sees both runs;
    there, ``jit(f, memory_limit=...)`` chooses what is computed again.

    References
    ----------
    A. Griewank, A. Walther: Evaluating Derivatives, 2nd ed., SIAM 2008, chapter 12.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> @adarray.checkpoint
    ... def layer(x, w):
    ...     return np.tanh(np.sin(x @ w))
    >>> def loss(w):
    ...     x = np.ones(2)
    ...     for _ in range(3):
    ...         x = layer(x, w)
    ...     return np.sum(x)
    >>> adarray.grad(loss)(np.eye(2)).round(4)
    array([[0.6955, 0.6955],
           [0.6955, 0.6955]])
    """
    return Checkpoint("checkpoint", f)


class custom_vjp(Whole):  # noqa: N801  (the name that it has in JAX)
    """A function with a derivative rule of its own for reverse mode; also a decorator.

    Parameters
    ----------
    f : callable
        Returns an array or a nest of arrays.
    nondiff_argnums : sequence of int
        Positions of arguments of which no derivative is taken, such as functions and options.

    Raises
    ------
    TypeError
        If a derivative is taken before `defvjp` has set the rule.
    TraceError
        If `f` reads a traced value that is no argument, or writes into an argument.
    ForwardModeError
        In forward mode.

    See Also
    --------
    register_rule : Rules for functions of other packages, operand by operand.

    Notes
    -----
    Second derivatives are those of the rule, which is plain NumPy code, as `f` is.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> @adarray.custom_vjp
    ... def clipped(x, limit):          # its gradient is clipped
    ...     return x
    >>> def forward(x, limit):
    ...     return x, limit
    >>> def backward(limit, g):
    ...     return np.clip(g, -limit, limit), None
    >>> clipped.defvjp(forward, backward)
    >>> adarray.grad(lambda x: np.sum(clipped(x, 1.0) * np.array([0.5, 3.0])))(np.ones(2))
    array([0.5, 1. ])
    """

    def __init__(self, f: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        super().__init__("custom_vjp", f, nondiff_argnums)
        self._forward: Callable[..., Any] | None = None
        self._backward: Callable[..., Any] | None = None

    def functions(self) -> tuple[str, ...]:
        """Return the names of the attributes that hold functions of the user's."""
        return ("_f", "_forward", "_backward") if self._forward is not None else ("_f",)

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Set the derivative rule.

        Parameters
        ----------
        fwd : callable
            Takes what the function takes; returns a pair: what the function returns, and what
            `bwd` needs (a nest of arrays and other objects).
        bwd : callable
            ``bwd(*nondiff, residuals, g)``: takes the arguments of `nondiff_argnums`, the second
            part of what `fwd` returned, and the cotangent of the result, of its structure.
            Returns a tuple with the cotangent of each other argument, of its structure; None
            where it is zero.
        """
        check_function("custom_vjp.defvjp", fwd)
        check_function("custom_vjp.defvjp", bwd)
        self._forward, self._backward = fwd, bwd

    def _rules(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        if self._forward is None or self._backward is None:
            raise TypeError(f"{self._op.name}: no rule; set it by defvjp(fwd, bwd)")
        return self._forward, self._backward

    def _along(self, args: tuple[Any, ...]) -> Any:  # noqa: ARG002
        raise ForwardModeError(
            f"{self._op.name}: it has a rule of reverse mode and none of forward mode; take grad, "
            "vjp or jacrev, or register_rule with jvp="
        )

    def _evaluate(self, args: list[Any]) -> tuple[Any, Any]:
        made = prepared(self._rules()[0], True)(*args)
        if not isinstance(made, tuple) or len(made) != 2:
            raise TypeError(
                f"{self._op.name}: fwd returned {type(made).__name__}; it returns a pair, of the "
                "result and of what bwd needs"
            )
        return made

    def _pull(self, call: _Made, operands: list[Any], cotangents: list[Any]) -> dict[int, Any]:
        moving = call.rebuild(operands)
        kept = call.kept
        if any(map(traced, operands)):  # a derivative of the rule is taken
            _, kept = self._evaluate(self._full(call.args, moving))
        whole: list[Any] = [None] * call.leaves
        for k, g in zip(call.places, cotangents, strict=True):
            whole[k] = g
        fixed = [x for k, x in enumerate(call.args) if k in self._fixed]
        parts = prepared(self._rules()[1], True)(*fixed, kept, call.rebuild_result(whole))
        if not isinstance(parts, (tuple, list)) or len(parts) != len(moving):
            raise TypeError(
                f"{self._op.name}: bwd returned {type(parts).__name__}; it returns a tuple of "
                f"{len(moving)} cotangents, one for each argument that is differentiated"
            )
        given: dict[int, Any] = {}
        at = 0
        for part, x in zip(parts, moving, strict=True):
            leaves, _ = flatten(x)
            own = [None] * len(leaves) if part is None else flatten(part)[0]
            if len(own) != len(leaves):
                raise ShapeError(
                    f"{self._op.name}: a cotangent of bwd has {len(own)} arrays, and its argument "
                    f"{len(leaves)}; their structures must be equal"
                )
            for leaf, ct in zip(leaves, own, strict=True):
                given[at] = self._fitting(ct, leaf)
                at += 1
        return {k: given[k] for k in call.followed}

    def _fitting(self, ct: Any, x: Any) -> Any:
        if ct is None:
            return np.zeros(shape_of(x), _dtype(x))[()] if is_array(x) else None
        if shape_of(ct) != shape_of(x):
            raise ShapeError(
                f"{self._op.name}: a cotangent of bwd has shape {shape_of(ct)}, and its argument "
                f"{shape_of(x)}; they must be equal"
            )
        return _plain_number(ct)
