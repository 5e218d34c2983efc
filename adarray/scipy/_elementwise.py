"""How the rules of `scipy.special` are written: one partial derivative per operand."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.special

from adarray.base.errors import NotDifferentiableError
from adarray.base.op import COMPOSITES, Op, Opaque, Sample, register
from adarray.batching.rules import pointwise
from adarray.scipy import RECORDS

Slope = Callable[..., Any]


class _Ufuncs:
    """The ufuncs of `scipy.special`, without the coercing wrappers of its array-API mode."""

    def __getattr__(self, name: str) -> Any:
        function = inspect.unwrap(getattr(scipy.special, name))
        setattr(self, name, function)
        return function


sp = _Ufuncs()


def private(name: str) -> Any:
    """Return the ufunc that computes for a Python function of `scipy.special`."""
    import scipy.special._ufuncs as ufuncs  # where SciPy keeps them

    return getattr(ufuncs, name)


def _draw(domain: Any, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Return an array of values from ``(low, high[, "int"])`` or of one constant."""
    if not isinstance(domain, tuple):
        return domain
    low, high, *kind = domain
    if kind == ["int"]:
        return rng.integers(low, high + 1, size=shape)
    return rng.uniform(low, high, size=shape)


def samples_of(domains: Sequence[Any], extra: Sequence[tuple[Any, ...]]) -> Any:
    """Return the function that makes an operation's samples from ranges, one per operand."""

    def samples(rng: np.random.Generator) -> list[Sample]:
        column = [(2, 1)] + [(3,)] * (len(domains) - 1)
        samples = [
            Sample(tuple(_draw(d, (4,), rng) for d in domains)),
            Sample(tuple(_draw(d, shape, rng) for d, shape in zip(domains, column, strict=True))),
        ]
        return samples + [Sample(tuple(np.asarray(x)[()] for x in args)) for args in extra]

    return samples


def is_complex(x: Any) -> bool:
    """Whether an operand is complex."""
    dtype = getattr(x, "dtype", None)
    return dtype.kind == "c" if dtype is not None else isinstance(x, complex)


def _rule(slope: Slope) -> Callable[..., Any]:
    def rule(g: Any, out: Any, *operands: Any) -> Any:
        return g * slope(out, *operands)

    return rule


def _rules_of_many(slope: Slope) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return reverse and forward rule of a function with several results."""

    def reverse(g: Any, out: Any, *operands: Any) -> Any:
        total: Any = None
        for gk, part in zip(g, slope(out, *operands), strict=True):
            total = gk * part if total is None else total + gk * part
        return total

    def forward(t: Any, out: Any, *operands: Any) -> Any:
        return tuple(t * part for part in slope(out, *operands))

    return reverse, forward


def _rules_of_scaled(slope: Slope, growth: Slope) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the rules of analytic functions that are divided by ``exp(|s|)``.

    The exponent s is the real or imaginary part of an analytic function: its change is
    ``Re(c t)``, where `growth` gives c for every result (None: not divided).
    """

    def parts(out: Any, operands: Any) -> Any:
        slopes, rates = slope(out, *operands), growth(out, *operands)
        if isinstance(out, tuple):
            return zip(out, slopes, rates, strict=True)
        return [(out, slopes, rates)]

    def reverse(g: Any, out: Any, *operands: Any) -> Any:
        total: Any = 0.0
        each = g if isinstance(out, tuple) else (g,)
        for gk, (value, part, rate) in zip(each, parts(out, operands), strict=True):
            total = total + gk * part
            if rate is not None:
                total = total - np.real(gk * value) * rate
        return total

    def forward(t: Any, out: Any, *operands: Any) -> Any:
        tangents = [
            t * part if rate is None else t * part - value * np.real(rate * t)
            for value, part, rate in parts(out, operands)
        ]
        return tuple(tangents) if isinstance(out, tuple) else tangents[0]

    return reverse, forward


def elementwise(
    function: Callable[..., Any],
    *slopes: Slope | None,
    domain: Sequence[Any],
    extra: Sequence[tuple[Any, ...]] = (),
    name: str | None = None,
    outputs: int = 1,
    growth: Slope | None = None,
    evaluate: Callable[..., Any] | None = None,
    note: str = "",
) -> Op:
    """Register a function whose result elements depend on one element of each operand.

    Parameters
    ----------
    function : callable
        The ufunc, or another function of the same kind.
    slopes : callable or None
        ``slope(out, *operands)``: the partial derivative with respect to each
        operand (a tuple of them, one per result, where there are several); None
        where there is no formula.
    domain : sequence
        One per operand: ``(low, high)``, ``(low, high, "int")`` or a constant.
    extra : sequence of tuple
        More sample operands, which reach the other branches of the slopes.
    name : str, optional
        Name of the record: ``special.<name>``, unless it has a dot itself.
    outputs : int
        Number of results.
    growth : callable, optional
        For a function that is scaled, and not analytic in its last operand for that:
        ``growth(out, *operands)``, as `_rules_of_scaled` explains.
    evaluate : callable, optional
        As in `Op`.
    note : str
        As in `Op`.
    """
    name = name or function.__name__
    name = name if "." in name else f"special.{name}"
    pairs: list[Any] = []
    for slope in slopes:
        if slope is None:
            pairs.append((None, None))
        elif growth is not None:
            pairs.append(_rules_of_scaled(slope, growth))
        else:
            pairs.append(_rules_of_many(slope) if outputs > 1 else (_rule(slope),) * 2)
    rules, tangents = [r for r, _ in pairs], [t for _, t in pairs]
    names = tuple(f"x{i}" for i in range(len(slopes)))
    op = Op(
        name,
        function,
        Opaque(),
        rules,
        jvp=tangents,
        samples=samples_of(domain, extra),
        operands=names,
        signature=", ".join(names) + ", /, out=None",
        evaluate=evaluate,
        outputs=outputs,
        batch=pointwise,
        # Of real samples one could not see what the rules read for complex operands.
        needs=None if growth is None else lambda _mask: (True,) * (len(slopes) + 1),
        note=note,
    )
    RECORDS[name] = op
    return register(op)


def composed(ufunc: Any, body: Callable[..., Any]) -> None:
    """Register the formula that stands for a ufunc of traced operands."""
    COMPOSITES[ufunc] = body


def refused(reason: str, *ufuncs: Any) -> None:
    """Register ufuncs without derivative; the error for traced operands gives the reason."""
    for ufunc in ufuncs:

        def raising(*operands: Any, name: str = ufunc.__name__) -> Any:
            raise NotDifferentiableError(
                f"{name}: {reason}; pass adarray.value_of(x) if no gradient should flow through it"
            )

        REFUSED[ufunc] = reason
        COMPOSITES[ufunc] = raising


# Ufunc: why it has no derivative.
REFUSED: dict[Any, str] = {}


def lowered(n: Any) -> tuple[Any, Any]:
    """Return ``(n - 1, n != 0)`` with 0 in place of -1: for terms with the factor n."""
    n = np.asarray(n)[()]
    zero = n == 0
    return np.where(zero, 0, n - 1)[()], (~zero) * 1.0 if n.dtype.kind == "f" else ~zero
