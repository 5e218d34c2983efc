"""Functions with a derivative rule of their own: `custom_jvp` and `custom_vjp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adarray.arrays.adarray import ADArray
from adarray.base.errors import ForwardModeError, ShapeError
from adarray.base.runtime import MODE
from adarray.core.inplace import sync_if_view
from adarray.core.protocol import concrete, traced
from adarray.core.tangents import SERIES, attach, save_tangents, strip, tangent_of
from adarray.core.trace import Handle, snapshot
from adarray.ops.common import zero_beside
from adarray.transforms.calls import RuleCall, Whole, dtype_of, plain_number
from adarray.transforms.linearity import are_transposes
from adarray.transforms.modes import shape_of, vjp
from adarray.transforms.replay import tangents_of
from adarray.transforms.running import check_function, prepared
from adarray.transforms.tree import flatten, is_array


class custom_vjp(Whole):  # noqa: N801  (the name that it has in JAX)
    """Give a function a custom derivative rule for reverse mode; also a decorator.

    Parameters
    ----------
    f : callable
        Returns an array or a nest of arrays.
    nondiff_argnums : sequence of int
        Positions of arguments that are not differentiated, such as functions and options.

    Raises
    ------
    TypeError
        If a derivative is taken before the rule was set by `defvjp`.
    TraceError
        If `f` reads a traced value that is not one of its arguments, or writes into an argument.
    ForwardModeError
        In forward mode.

    See Also
    --------
    custom_jvp : A rule for both modes.
    register_rule : Rules for functions of other packages, operand by operand.

    Notes
    -----
    The rule is plain NumPy code like `f`; second derivatives are derivatives of the rule.

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
            "vjp or jacrev, or give it a rule by custom_jvp, which serves both"
        )

    def _evaluate(self, args: list[Any]) -> tuple[Any, Any]:
        pair = prepared(self._rules()[0], True)(*args)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(
                f"{self._op.name}: fwd returned {type(pair).__name__}; it returns a pair, of the "
                "result and of what bwd needs"
            )
        return pair

    def _pull(self, call: RuleCall, operands: list[Any], cotangents: list[Any]) -> dict[int, Any]:
        moving = call.rebuild(operands)
        residuals = call.residuals
        if any(map(traced, operands)):  # a derivative of the rule is taken
            _, residuals = self._evaluate(self._full(call.args, moving))
        whole: list[Any] = [None] * call.leaves
        for k, g in zip(call.places, cotangents, strict=True):
            whole[k] = g
        fixed = [x for k, x in enumerate(call.args) if k in self._fixed]
        parts = prepared(self._rules()[1], True)(*fixed, residuals, call.rebuild_result(whole))
        if not isinstance(parts, (tuple, list)) or len(parts) != len(moving):
            raise TypeError(
                f"{self._op.name}: bwd returned {type(parts).__name__}; it returns a tuple of "
                f"{len(moving)} cotangents, one for each argument that is differentiated"
            )
        by_leaf: dict[int, Any] = {}
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
                by_leaf[at] = self._fitting(ct, leaf)
                at += 1
        return {k: by_leaf[k] for k in call.followed}

    def _fitting(self, ct: Any, x: Any) -> Any:
        if ct is None:
            return np.zeros(shape_of(x), dtype_of(x))[()] if is_array(x) else None
        if shape_of(ct) != shape_of(x):
            raise ShapeError(
                f"{self._op.name}: a cotangent of bwd has shape {shape_of(ct)}, and its argument "
                f"{shape_of(x)}; they must be equal"
            )
        return plain_number(ct)


class custom_jvp(Whole):  # noqa: N801  (the name that it has in JAX)
    """Give a function a custom derivative rule for both modes; also a decorator.

    Parameters
    ----------
    f : callable
        Returns an array or a nest of arrays.
    nondiff_argnums : sequence of int
        Positions of arguments that are not differentiated, such as functions and options.

    Raises
    ------
    TypeError
        If a derivative is taken before the rule was set by `defjvp` or `defjvps`.
    TraceError
        If `f` reads a traced value that is not one of its arguments, or writes into an argument.

    See Also
    --------
    custom_vjp : A rule for reverse mode only.
    black_box : For compiled functions.

    Notes
    -----
    The rule computes the tangent of the result. Reverse mode transposes it: the rule runs once more
    on the way back, and must be linear in the tangents. Second derivatives are derivatives of the
    rule; if it calls the function itself, the rule is used again.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> @adarray.custom_jvp
    ... def log1pexp(x):
    ...     return np.logaddexp(0.0, x)
    >>> @log1pexp.defjvp
    ... def log1pexp_jvp(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return log1pexp(x), t / (1.0 + np.exp(-x))
    >>> adarray.grad(log1pexp)(1000.0)
    1.0
    >>> adarray.jvp(log1pexp, (0.0,), (1.0,))[1]
    np.float64(0.5)
    """

    keeps_tangents = True

    def __init__(self, f: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        super().__init__("custom_jvp", f, nondiff_argnums)
        self._linear: set[Any] = set()  # shapes and dtypes for which the rule was found to be
        self._tangent: Callable[..., Any] | None = None
        self._each: tuple[Any, ...] | None = None

    def functions(self) -> tuple[str, ...]:
        """Return the names of the attributes that hold functions of the user's."""
        return (
            ("_f",)
            + (("_tangent",) if self._tangent is not None else ())
            + (("_each",) if self._each is not None else ())
        )

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the derivative rule; also a decorator.

        Parameters
        ----------
        rule : callable
            ``rule(*nondiff, primals, tangents)``: takes the arguments of `nondiff_argnums`, a
            tuple of the others, and one of their tangents, of the same structures: zeros where
            an argument does not move, None for what is no floating-point array. Returns a pair:
            the result, and its tangent, of the same structure. It must be linear in the tangents:
            for gradients it is transposed, and tried with random ones the first time.

        Returns
        -------
        callable
            `rule`.
        """
        check_function("custom_jvp.defjvp", rule)
        self._tangent, self._each = rule, None
        self._linear.clear()
        return rule

    def defjvps(self, *rules: Callable[..., Any] | None) -> None:
        """Set one rule for each argument, for functions of arrays that return one array.

        Parameters
        ----------
        *rules : callable or None
            ``rule(t, out, *primals)``: the tangent of the result `out` for the tangent `t` of
            this argument alone. None where it is zero.
        """
        for rule in rules:
            if rule is not None:
                check_function("custom_jvp.defjvps", rule)
        self._tangent, self._each = None, rules
        self._linear.clear()

    def _along(self, args: tuple[Any, ...]) -> Any:
        moving = self._moving(args)
        leaves, rebuild = flatten(moving)
        level = max(t.level for t in tangents_of(leaves))
        if level in SERIES:
            return self._along_series(args, leaves, rebuild, SERIES[level])
        primals = [strip(x, level) for x in map(_synced, leaves)]
        tangents = [tangent_of(x, level) for x in leaves]
        y, dy = self._moved(args, rebuild(primals), tangents, rebuild)
        if any(map(traced, primals)):  # a derivative of the result takes the rule, too
            y = self(*self._full(args, rebuild(primals)))
        outputs, rebuild_y = flatten(y)
        self._remember(outputs, leaves)
        duals = [
            x if t is None else self._attached(x, t, level)
            for x, t in zip(outputs, dy, strict=True)
        ]
        return rebuild_y(duals)

    def _along_series(
        self, args: tuple[Any, ...], leaves: list[Any], rebuild: Any, series: Any
    ) -> Any:
        """Run it where Taylor coefficients are computed: the rule is run on series."""
        inputs = list(map(_synced, leaves))
        y = self(*self._full(args, rebuild(list(map(series.strip, inputs)))))
        outputs, rebuild_y = flatten(y)
        self._remember(outputs, leaves)
        outputs = [
            snapshot(_synced(x)) if isinstance(x, Handle)
            else ADArray(np.asarray(x)[()]) if _floats(x) else x
            for x in outputs
        ]  # fmt: skip
        series.by_rule(
            inputs,
            outputs,
            lambda tangents: self._moved(args, rebuild(inputs), tangents, rebuild)[1],
        )
        return rebuild_y(outputs)

    def _remember(self, outputs: list[Any], leaves: list[Any]) -> None:
        """Let the node of a result save the tangents of the arguments, for walks of inner traces.

        They differentiate the rule, as it is run with what the node has saved.
        """
        for x in outputs:
            node = x._node if isinstance(x, Handle) else None
            whole = node.parents[0] if node is not None and node.parents else None
            if node is not None and whole is not None and whole.op is self._op:
                save_tangents(whole, (None, *leaves))
                node.span = whole.span

    def _moved(
        self, args: tuple[Any, ...], primals: Any, tangents: list[Any], rebuild: Any
    ) -> tuple[Any, list[Any]]:
        """Return the result and the tangents of its leaves, by the rule."""
        leaves, _ = flatten(primals)
        if self._each is not None:
            return self._by_argument(args, primals, tangents)
        if self._tangent is None:
            raise TypeError(f"{self._op.name}: no rule; set it by defjvp(rule)")
        full = [
            t if t is not None or not _floats(x) else _zeros(x)
            for x, t in zip(leaves, tangents, strict=True)
        ]
        fixed = [x for k, x in enumerate(args) if k in self._fixed]
        pair = prepared(self._tangent, True)(*fixed, primals, rebuild(full))
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(
                f"{self._op.name}: the rule returned {type(pair).__name__}; it returns a pair, of "
                "the result and of its tangent"
            )
        y, dy = pair
        outputs, along = flatten(y)[0], flatten(dy)[0]
        if len(outputs) != len(along):
            along = _aligned(outputs, dy)
        if len(outputs) != len(along):
            raise ShapeError(
                f"{self._op.name}: the tangent has {len(along)} arrays, and the result "
                f"{len(outputs)}; their structures must be equal"
            )
        return y, [self._checked(t, x) for x, t in zip(outputs, along, strict=True)]

    def _by_argument(
        self, args: tuple[Any, ...], primals: Any, tangents: list[Any]
    ) -> tuple[Any, list[Any]]:
        """Return the result and its tangent by the rules of `defjvps`."""
        assert self._each is not None
        leaves, _ = flatten(primals)
        if len(self._each) != len(leaves):
            raise TypeError(
                f"{self._op.name}: {len(self._each)} rules were given to defjvps, and "
                f"{len(leaves)} arrays as arguments; give one for each, or set defjvp"
            )
        y = self(*self._full(args, primals))
        total: Any = None
        for t, rule in zip(tangents, self._each, strict=True):
            if t is not None and rule is not None:
                part = prepared(rule, True)(t, y, *primals)
                total = part if total is None else total + part
        return y, [None if total is None else self._checked(total, y)]

    def _checked(self, t: Any, x: Any) -> Any:
        if t is None or not _floats(x):
            return None
        if shape_of(t) != shape_of(x):
            raise ShapeError(
                f"{self._op.name}: the tangent has shape {shape_of(t)}, and the result "
                f"{shape_of(x)}; they must be equal"
            )
        return t

    @staticmethod
    def _attached(x: Any, t: Any, level: int) -> Any:
        """Return a leaf of the result with its tangent."""
        dual = snapshot(_synced(x)) if isinstance(x, Handle) else ADArray(np.asarray(x)[()])
        attach(dual, level, t)
        return dual

    def _evaluate(self, args: list[Any]) -> tuple[Any, Any]:
        leaves, _ = flatten(self._moving(tuple(args)))
        if tangents_of(leaves):
            return self._along(tuple(args)), None
        if self._tangent is None and self._each is None:
            raise TypeError(f"{self._op.name}: no rule; set it by defjvp(rule)")
        return prepared(self._f, True)(*args), None

    def _pull(self, call: RuleCall, operands: list[Any], cotangents: list[Any]) -> dict[int, Any]:
        self._check_linear(call, operands)
        along = self._map(call, operands, call.args)
        zeros = [_zeros(operands[k]) for k in call.followed]
        _, pullback = vjp(along, *zeros, intercept=False)
        return dict(zip(call.followed, map(plain_number, pullback(cotangents)), strict=True))

    def _map(self, call: RuleCall, operands: list[Any], args: Any) -> Callable[..., list[Any]]:
        """Return the map from the tangents of the followed operands to those of the results."""
        primals = call.rebuild(operands)

        def along(*ts: Any) -> list[Any]:
            tangents: list[Any] = [None] * len(operands)
            for k, t in zip(call.followed, ts, strict=True):
                tangents[k] = t
            _, dy = self._moved(args, primals, tangents, call.rebuild)
            return [
                zero_beside(None, a.shape, a.dtype) if dy[k] is None else dy[k]
                for k, a in zip(call.places, call.avals, strict=True)
            ]

        return along

    def _check_linear(self, call: RuleCall, operands: list[Any]) -> None:
        """Raise unless the rule is linear in the tangents, where it is transposed the first time.

        A rule that is not would give the derivative at tangents of zero, which is nothing's.

        Raises
        ------
        ValueError
        """
        followed = [concrete(operands[k]) for k in call.followed]
        key = tuple((shape_of(x), dtype_of(x)) for x in followed)
        if key in self._linear or not all(isinstance(x, _VALUES) for x in followed):
            return
        self._linear.add(key)
        token = MODE.set(None)  # not recorded
        try:
            along = self._map(call, list(map(concrete, operands)), concrete(call.args))
            y, pullback = vjp(along, *map(_zeros, followed), intercept=False)
            linear = are_transposes(
                lambda vs: along(*vs), lambda gs: list(pullback(gs)), followed, y
            )
        finally:
            MODE.reset(token)
        if not linear:
            self._linear.discard(key)
            raise ValueError(
                f"{self._op.name}: the rule of custom_jvp is not linear in the tangents, so that "
                "no gradient can be made of it; multiply the tangents by what depends on the "
                "primals alone"
            )


_VALUES = (np.ndarray, np.generic, float, complex)


def _synced(x: Any) -> Any:
    return sync_if_view(x) if isinstance(x, Handle) else x


def _floats(x: Any) -> bool:
    return is_array(x) and dtype_of(x).kind in "fc"


def _zeros(x: Any) -> Any:
    """Return the tangent of what does not move."""
    if isinstance(x, (float, complex)) and not isinstance(x, np.generic):
        return type(x)(0.0)
    value = x._plain if isinstance(x, Handle) else x
    return zero_beside(value, shape_of(x), dtype_of(x))


def _aligned(outputs: list[Any], dy: Any) -> list[Any]:
    """Return tangents of all leaves, where None holds the places of those without one."""
    import optree

    along = optree.tree_leaves(dy, none_is_leaf=True, namespace="adarray")
    return along if len(along) == len(outputs) else flatten(dy)[0]
