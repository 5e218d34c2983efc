"""`check_grads`: derivatives of a function against differences and against each other.

References
----------
- A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 3.
- J. F. Claerbout, "Earth Soundings Analysis: Processing versus Inversion", Blackwell 1992.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from adarray.base.runtime import MODE
from adarray.core.trace import Handle
from adarray.testing._compare import worst
from adarray.transforms import jvp, vjp
from adarray.transforms.running import prepared
from adarray.transforms.tree import flatten, is_floating
from adarray.transforms.variables import Variables

Function = Callable[..., tuple[Any, ...]]
MODES = ("fwd", "rev")


class Tolerance(NamedTuple):
    """When values count as equal: ``|got - expected| <= atol + rtol * |expected|``, plus noise."""

    atol: float
    rtol: float
    eps: float | None


class CheckStep(NamedTuple):
    """Where a check stands: the modes of the derivatives so far, and names of the inputs."""

    title: str
    names: tuple[str, ...]
    modes: tuple[str, ...] = ()

    def after(self, mode: str) -> CheckStep:
        """Return the step that differentiates once more by `mode`."""
        return self._replace(modes=(*self.modes, mode))


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int = 2,
    modes: Sequence[str] = MODES,
    argnums: int | Sequence[int] | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
    seed: int = 0,
    *,
    intercept: bool = True,
) -> None:
    """Check the derivatives of `f` at `args`, up to a given order.

    Parameters
    ----------
    f : callable
        Plain NumPy code; returns an array, a number, or a nest of them. Results
        that are not floating point are ignored.
    args : sequence
        Arguments of `f`: arrays, ADArrays, Python floats, or nests of them, real or
        complex. Other leaves of nests reach `f` as they are.
    order : int
        Highest order of differentiation.
    modes : sequence of {"fwd", "rev"}
        Every sequence of these modes up to `order` is checked.
    argnums : int or sequence of int, optional
        Positions of the arguments to differentiate. If not given: every argument
        in which there is a floating point array or number.
    atol, rtol : float, optional
        Absolute and relative tolerance; 1e-6 each if not given. The rounding noise
        of the differences is added to them.
    eps : float, optional
        Length h of the step; the cube root of the precision if not given.
    seed : int
        Seed of the random directions and cotangents.
    intercept : bool
        Whether `f` may convert its arguments with ``np.asarray``, call `math` or SciPy, and fill
        arrays that it creates (see `adarray.intercept`). If False, such code raises `TraceError`.

    Raises
    ------
    AssertionError
        If a derivative is wrong; the message names the mode, the order, the
        argument, what was got and expected, and the relative error.
    TypeError
        If nothing can be differentiated, or a mode is unknown.

    Notes
    -----
    Forward mode is compared with central differences along a random unit
    direction d, taken in float64 [1]_::

        (f(x + h d) - f(x - h d)) / (2 h) = J d + O(h**2)

    reverse mode with forward mode by ``<g, J d> = <J^T g, d>``, the real part of
    the sum of products, for a random cotangent g (with differences where ``"fwd"`` is
    not among the modes), and the derivative so found is differentiated again.
    Differences in float32 are too coarse to tell anything: the derivatives of float32
    inputs are compared with those of the same inputs in float64, and must have the
    dtype of the inputs.

    References
    ----------
    .. [1] T. Chen, "Automatic Differentiation", lecture 15-884: Machine Learning
       Systems, Carnegie Mellon University, "Numerical Gradient Checking".

    Examples
    --------
    >>> import numpy as np
    >>> from adarray.testing import check_grads
    >>> check_grads(lambda x: np.sum(np.sin(x) ** 2), (np.array([0.1, 0.7]),))
    """
    unknown = [m for m in modes if m not in MODES]
    if unknown or not modes:
        raise TypeError(f"check_grads: modes={modes!r}; choose from {MODES}")
    tolerance = Tolerance(1e-6 if atol is None else atol, 1e-6 if rtol is None else rtol, eps)
    if isinstance(argnums, int):
        argnums = (argnums,)
    fun, xs, names = flat_function(f, tuple(args), argnums, intercept)
    rng = np.random.default_rng(seed)
    step = CheckStep("check_grads", names)
    wide = [widened(x) for x in xs]
    check_wide(fun, wide, order, tuple(modes), tolerance, rng, step)
    if any(dtype_of(x) != wide_dtype(x) for x in xs):
        check_narrow(fun, xs, order, tuple(modes), rng, step)


# -- flattening ----------------------------------------------------------------------------


def dtype_of(x: Any) -> np.dtype[Any]:
    """Return the dtype of an array, an ADArray or a number."""
    return np.dtype(x.dtype) if hasattr(x, "dtype") else np.result_type(x)


def flat_function(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    argnums: Sequence[int] | None,
    intercept: bool = True,
) -> tuple[Function, list[Any], tuple[str, ...]]:
    """Return `f` as a function of its differentiated leaves, the leaves, and their names.

    The function returns a tuple: the floating point leaves of what `f` returns.
    """
    trees: list[tuple[int, Variables]] = []
    xs: list[Any] = []
    names: list[str] = []
    for k in range(len(args)) if argnums is None else argnums:
        tree = Variables(args[k])
        if not tree.moving:
            if argnums is None or not tree.leaves:
                continue
            raise TypeError(
                f"check_grads: argument {k}, leaf 0: has no floating point dtype; "
                "choose the arguments to differentiate with argnums"
            )
        several = len(tree.leaves) > 1
        names += [f"argument {k}" + (f", leaf {i}" if several else "") for i in tree.places]
        xs += tree.moving
        trees.append((k, tree.emptied(others=False)))  # f may write into them: none is captured
    if not xs:
        raise TypeError("check_grads: no argument is floating point; pass for instance 3.0 for 3")

    # Not those that are differentiated: f may write into what it is given.
    chosen = {k for k, _ in trees}
    others = [None if k in chosen else x for k, x in enumerate(args)]

    run = prepared(f, intercept)

    def fun(*leaves: Any) -> tuple[Any, ...]:
        new, at = list(others), 0
        for k, tree in trees:
            count = len(tree.places)
            new[k] = tree.argument(leaves[at : at + count])
            at += count
        call = run if any(isinstance(x, Handle) for x in leaves) else f
        results, _ = flatten(call(*new))
        floating = tuple(y for y in results if is_floating(y))
        if not floating:
            raise TypeError("check_grads: the function returned nothing of floating point")
        return floating

    return fun, xs, tuple(names)


def widened(x: Any) -> Any:
    """Return an input in float64 or complex128; one that is so already keeps its memory layout."""
    return cast_like(x, wide_dtype(x))


def wide_dtype(x: Any) -> np.dtype[Any]:
    """Return complex128 for complex values, else float64."""
    return np.dtype(np.complex128 if dtype_of(x).kind == "c" else np.float64)


def cast_like(x: Any, dtype: np.dtype[Any]) -> Any:
    """Return `x` in another dtype, with the order and the signs of its strides."""
    if isinstance(x, (float, complex)) and not isinstance(x, np.generic):
        return x
    if x.dtype == dtype:
        return x
    if isinstance(x, (Handle, np.generic)):
        return x.astype(dtype)  # type: ignore[union-attr]
    # The ellipsis keeps a 0-d array from becoming a scalar.
    flips = (*(slice(None, None, -1 if n < 0 else 1) for n in x.strides), ...)
    return x[flips].astype(dtype)[flips]


def _values(x: Any) -> np.ndarray:
    """Return the values of a plain array, a number or an ADArray, in float64 or complex128."""
    return np.asarray(x.numpy() if isinstance(x, Handle) else x, wide_dtype(x))  # type: ignore[attr-defined]


def _moved(x: Any, by: np.ndarray) -> Any:
    """Return a fresh input ``x + by`` of the kind of `x`."""
    if isinstance(x, (float, complex)) and not isinstance(x, np.generic):
        return type(x)(x + by)
    shifted = _values(x) + by
    if isinstance(x, Handle):
        return type(x)(shifted)
    return shifted[()] if isinstance(x, np.generic) else np.asarray(shifted)


# -- directions ------------------------------------------------------------------------------


def random_like(rng: np.random.Generator, x: Any) -> Any:
    """Return normal random numbers of the shape of `x`, complex if `x` is."""
    drawn = rng.normal(size=np.shape(x))
    return drawn + 1j * rng.normal(size=np.shape(x)) if dtype_of(x).kind == "c" else drawn


def unit_direction(
    rng: np.random.Generator, xs: Sequence[Any], only: int | None = None
) -> list[np.ndarray]:
    """Return a random direction of length 1 for the inputs; zero for all but `only`, if given."""
    ts = [random_like(rng, x) for x in xs]
    if only is not None:
        ts = [t if k == only else np.zeros_like(t) for k, t in enumerate(ts)]
    length = np.sqrt(sum(float(np.sum(np.square(np.abs(t)))) for t in ts))
    return [np.asarray(t / (length or 1.0)) for t in ts]


def forward(fun: Function, ts: Sequence[np.ndarray]) -> Function:
    """Return the function that gives the tangents of `fun` along `ts`."""

    def tangents(*xs: Any) -> tuple[Any, ...]:
        cast = tuple(np.asarray(t, dtype_of(x)) for t, x in zip(ts, xs, strict=True))
        return tuple(jvp(fun, xs, cast, intercept=False)[1])

    return tangents


def reverse(fun: Function, gs: Sequence[np.ndarray]) -> Function:
    """Return the function that pulls the cotangents `gs` of the results of `fun` back."""

    def cotangents(*xs: Any) -> tuple[Any, ...]:
        _, pullback = vjp(fun, *xs, intercept=False)
        return tuple(pullback(tuple(gs)))

    return cotangents


# -- the checks ------------------------------------------------------------------------------


def differences(
    fun: Function, xs: Sequence[Any], ts: Sequence[np.ndarray], eps: float | None
) -> tuple[list[np.ndarray], list[float]]:
    """Return central differences along `ts`, and their rounding noise, for each result.

    NumPy computes them, whatever backend is in use: what is checked has no part in it.
    """
    token = MODE.set(None)
    try:
        return _differences(fun, xs, ts, eps)
    finally:
        MODE.reset(token)


def _differences(
    fun: Function, xs: Sequence[Any], ts: Sequence[np.ndarray], eps: float | None
) -> tuple[list[np.ndarray], list[float]]:
    ys = fun(*(_moved(x, np.zeros(np.shape(x))) for x in xs))
    precision = max(float(np.finfo(dtype_of(y)).eps) for y in ys)
    h = eps if eps is not None else precision ** (1 / 3)
    above = fun(*(_moved(x, h * t) for x, t in zip(xs, ts, strict=True)))
    below = fun(*(_moved(x, -h * t) for x, t in zip(xs, ts, strict=True)))
    slopes, noise = [], []
    for y, a, b in zip(ys, above, below, strict=True):
        v = _values(y)
        size = float(np.max(np.abs(v[np.isfinite(v)]), initial=0.0))
        noise.append(10 * float(np.finfo(dtype_of(y)).eps) * size / h)
        slopes.append((_values(a) - _values(b)) / (2 * h))
    return slopes, noise


def _dots(left: Sequence[Any], right: Sequence[Any]) -> float:
    """Return how cotangents and tangents are paired: the real part of the sum of products."""
    return sum(
        float(np.sum(_values(a) * _values(b)).real) for a, b in zip(left, right, strict=True)
    )


def _fail(step: CheckStep, mode: str, against: str, name: str, mismatch: Any) -> AssertionError:
    got, expected, relative, at = mismatch
    order = len(step.modes) + 1
    path = "" if order == 1 else f" ({' of '.join([mode, *reversed(step.modes)])})"
    return AssertionError(
        f"{step.title}: {mode}, order {order}{path}, {name}: got {got!r}, expected {expected!r} "
        f"from {against}{at}, relative error {relative:.2g}; "
        "correct the derivative rule, or move the inputs away from kinks and jumps"
    )


def check_wide(
    fun: Function,
    xs: Sequence[Any],
    order: int,
    modes: tuple[str, ...],
    tolerance: Tolerance,
    rng: np.random.Generator,
    step: CheckStep,
) -> None:
    """Check derivatives of `fun` in float64 against differences and each other."""
    if order < 1:
        return
    ts = unit_direction(rng, xs)
    gs = [random_like(rng, y) for y in fun(*(_moved(x, np.zeros(np.shape(x))) for x in xs))]
    broken = _first_order(fun, xs, ts, gs, modes, tolerance, step)
    if broken is not None:
        # Ask again one argument at a time, so that the message names the culprit.
        for k in range(len(xs)) if len(xs) > 1 else ():
            alone = unit_direction(rng, xs, only=k)
            failure = _first_order(fun, xs, alone, gs, modes, tolerance, step)
            if failure is not None:
                raise _fail(step, failure[0], failure[1], step.names[k], failure[2])
        name = step.names[0] if len(xs) == 1 else "all arguments together"
        raise _fail(step, broken[0], broken[1], name, broken[2])
    for mode in modes:
        deeper = forward(fun, ts) if mode == "fwd" else reverse(fun, gs)
        check_wide(deeper, xs, order - 1, modes, tolerance, rng, step.after(mode))


def _first_order(
    fun: Function,
    xs: Sequence[Any],
    ts: Sequence[np.ndarray],
    gs: Sequence[np.ndarray],
    modes: tuple[str, ...],
    tolerance: Tolerance,
    step: CheckStep,
) -> tuple[str, str, Any] | None:
    """Return ``(mode, reference, mismatch)`` of the first disagreement, None if all agree."""
    slopes, noise = differences(fun, xs, ts, tolerance.eps)
    reference: Sequence[Any] = slopes
    against = "central differences"
    if "fwd" in modes:
        tangents = forward(fun, ts)(*xs)
        for dy, slope, rounding in zip(tangents, slopes, noise, strict=True):
            if np.shape(dy) != slope.shape:
                raise AssertionError(
                    f"{step.title}: fwd: the tangent has shape {np.shape(dy)} and the result "
                    f"{slope.shape}; correct the derivative rule"
                )
            limit = tolerance.atol + tolerance.rtol * np.abs(slope) + rounding
            mismatch = worst(_values(dy), slope, limit)
            if mismatch is not None:
                return "fwd", against, mismatch
        reference, against = tangents, "forward mode"
    if "rev" in modes:
        cotangents = reverse(fun, gs)(*xs)
        check_kinds(cotangents, xs, step)
        size = sum(
            float(np.sum(np.abs(g * _values(r)))) for g, r in zip(gs, reference, strict=True)
        )
        weight = sum(float(np.max(np.abs(g), initial=0.0)) for g in gs)
        limit = tolerance.atol + tolerance.rtol * size
        limit += weight * max(noise) if reference is slopes else 0.0
        mismatch = worst(_dots(cotangents, ts), _dots(gs, reference), limit)
        if mismatch is not None:
            return "rev", against, mismatch
    return None


def check_kinds(cotangents: Sequence[Any], xs: Sequence[Any], step: CheckStep) -> None:
    """Raise unless cotangents have the shapes and dtypes of their inputs."""
    for ct, x, name in zip(cotangents, xs, step.names, strict=True):
        # The byte order may be the machine's where the input's is another.
        same = dtype_of(ct) == dtype_of(x).newbyteorder(dtype_of(ct).byteorder)
        if np.shape(ct) != np.shape(x) or not same:
            raise AssertionError(
                f"{step.title}: rev, {name}: the cotangent has shape {np.shape(ct)} and dtype "
                f"{dtype_of(ct)}, the input {np.shape(x)} and {dtype_of(x)}; they must be equal"
            )


def _rounded(t: Any, dtype: np.dtype[Any]) -> Any:
    """Return `t` rounded to `dtype`, both parts if it is complex, in its own dtype."""
    narrow = np.result_type(dtype, np.complex64) if np.iscomplexobj(t) else dtype
    return np.asarray(t).astype(narrow).astype(wide_dtype(t))


def check_narrow(
    fun: Function,
    xs: Sequence[Any],
    order: int,
    modes: tuple[str, ...],
    rng: np.random.Generator,
    step: CheckStep,
) -> None:
    """Compare derivatives of narrow inputs with those of float64 or complex128 inputs."""
    if order < 1:
        return
    wide = [widened(x) for x in xs]
    ys = fun(*(_moved(x, np.zeros(np.shape(x))) for x in wide))
    # Directions that the narrow dtype holds exactly, so that both see the same ones.
    coarse = min((np.finfo(dtype_of(x)).dtype for x in xs), key=lambda d: d.itemsize)
    ts = [_rounded(t, coarse) for t in unit_direction(rng, wide)]
    gs = [_rounded(random_like(rng, y), coarse) for y in ys]
    precision = max(float(np.finfo(d).eps) for d in (coarse, np.dtype(np.float64)))
    for mode in modes:
        derive = forward(fun, ts) if mode == "fwd" else reverse(fun, gs)
        got, expected = derive(*xs), derive(*wide)
        if mode == "rev":
            check_kinds(got, xs, step)
        for k, (a, b) in enumerate(zip(got, expected, strict=True)):
            v = _values(b)
            size = float(np.max(np.abs(v[np.isfinite(v)]), initial=0.0))
            mismatch = worst(_values(a), v, 500 * precision * max(size, 1.0))
            if mismatch is not None:
                name = step.names[k] if mode == "rev" else f"result {k}"
                raise _fail(step, mode, f"float64 (got in {coarse})", name, mismatch)
        check_narrow(derive, xs, order - 1, modes, rng, step.after(mode))
