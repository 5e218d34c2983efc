"""Functions with a derivative rule of their own: `custom_vjp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adarray.errors import ForwardModeError, ShapeError
from adarray.protocol import traced
from adarray.transforms.calls import Made, Whole, dtype_of, plain_number
from adarray.transforms.modes import shape_of
from adarray.transforms.running import check_function, prepared
from adarray.transforms.tree import flatten, is_array


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

    def _pull(self, call: Made, operands: list[Any], cotangents: list[Any]) -> dict[int, Any]:
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
            return np.zeros(shape_of(x), dtype_of(x))[()] if is_array(x) else None
        if shape_of(ct) != shape_of(x):
            raise ShapeError(
                f"{self._op.name}: a cotangent of bwd has shape {shape_of(ct)}, and its argument "
                f"{shape_of(x)}; they must be equal"
            )
        return plain_number(ct)
