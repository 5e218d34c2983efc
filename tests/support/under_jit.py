"""The test-suite's functions under jit: what ``ADARRAY_JIT=numpy`` adds to the tests.

The value is the backend that runs what was recorded.

`adarray.grad`, `value_and_grad`, `jacobian` and `hessian` return functions that compute as
always, and once for each function of the tests also under `adarray.jit`: three times, so that
it records, records again and runs what was compiled. `check_grads` does the same with the
values, the cotangents and the tangents of the function that it checks. The results must agree.
A function that returns something else when it is called again, because it counts its calls or
writes into what it reads, is left alone; so are the tests of `SINGLE`, and tests/jitting.

For runs of the whole suite in compiled code.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import adarray
from adarray import testing
from adarray.base.levels import LEVEL
from adarray.base.runtime import MODE
from adarray.core.trace import Handle
from adarray.jitting import JitWarning
from adarray.testing import _grads
from adarray.transforms.tree import flatten

BACKEND = os.environ.get("ADARRAY_JIT", "")
COUNTS: Counter[str] = Counter()
# Why functions were not compiled, and where: the test, and what it differentiated.
REASONS: dict[str, list[str]] = {}
CALLS = 3
# Tests that look at how often their functions were called, at what calls leave behind, at
# backends of their own, or that judge rounding otherwise than by precision.
SINGLE = (
    "test_all_nan_warns_as_numpy_does_and_has_no_derivative",
    "test_arrays_outlive_the_block",
    "ops/test_reduction.py::test_dtype[",
    "test_memory_is_kept_inside_of_the_block_only",
    "test_programs_agree_with_numpy",
    "test_threads_do_not_meet",
    "test_use_inside_a_traced_function",
    "test_cached_functions_keep_nothing_of_the_context",
    "test_text_shows_traced_numbers",
    "test_traced_python_number_promotes_weakly",
    "test_traced_python_numbers_are_weak",
    "test_docstring_examples",
    "test_page_examples",
    "test_demo_fails_at_a_wrong_gradient",
    "test_every_parameter_makes_the_difference_that_it_makes_in_numpy",
    "test_a_dead_branch_is_freed_while_tracing",
)


def install() -> None:
    """Replace the transforms, and the check that most tests use."""
    for name in ("grad", "value_and_grad", "jacobian", "hessian"):
        setattr(adarray, name, _transform(getattr(adarray, name)))
    original = testing.check_grads

    @functools.wraps(original)
    def check_grads(f: Any, args: Any, *rest: Any, **options: Any) -> None:
        original(f, args, *rest, **options)
        _check_parts(f, tuple(args), options.get("argnums"))

    testing.check_grads = _grads.check_grads = check_grads  # type: ignore[assignment]


def _transform(transform: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(transform)
    def made(f: Any, *options: Any, **named: Any) -> Any:
        eager = transform(f, *options, **named)
        checked = False

        @functools.wraps(eager)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal checked
            if checked or _inside() or not _plain((args, kwargs)):
                return eager(*args, **kwargs)
            checked = True
            copy = _copied((args, kwargs))
            expected = eager(*args, **kwargs)
            compare(f"{transform.__name__} of {_name(f)}", eager, copy, expected)
            return expected

        return call

    return made


def _inside() -> bool:
    """Whether a transform or a jit runs around the call, or the test is one of `SINGLE`."""
    mode = MODE.get()
    inside = bool(LEVEL.get()) or (mode is not None and mode.symbolic)
    return inside or any(name in _test() for name in SINGLE)


def _test() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]


def _plain(tree: Any) -> bool:
    """Whether arguments are arrays and numbers, which can be passed again."""
    return not any(
        isinstance(x, (Handle, np.random.Generator, np.random.RandomState)) or callable(x)
        for x in flatten(tree)[0]
    )


def _copied(tree: Any) -> Any:
    leaves, rebuild = flatten(tree)
    return rebuild([x.copy("K") if isinstance(x, np.ndarray) else x for x in leaves])


def _name(f: Any) -> str:
    return getattr(f, "__qualname__", type(f).__name__)


def compare(name: str, function: Callable[..., Any], original: Any, expected: Any) -> None:
    """Call a function under jit, and compare what it returns with `expected`.

    Parameters
    ----------
    name : str
    function : callable
    given : tuple
        ``(args, kwargs)``.
    expected : object
        What the eager call returned.
    """
    leaves = flatten(expected)[0]
    scale = max(map(_size, (*leaves, *flatten(original)[0])), default=0.0)
    args, kwargs = _copied(original)
    again = flatten(function(*args, **kwargs))[0]
    try:
        for g, e in zip(again, leaves, strict=True):
            _same(g, e, name, scale)
    except (AssertionError, ValueError):
        COUNTS["not repeatable"] += 1
        return
    jitted = adarray.jit(function)
    for k in range(CALLS):
        args, kwargs = _copied(original)
        with adarray.use(BACKEND), warnings.catch_warnings():
            warnings.simplefilter("ignore", JitWarning)
            warnings.simplefilter("ignore", RuntimeWarning)
            got = flatten(jitted(*args, **kwargs))[0]
        assert len(got) == len(leaves), f"jit, {name}, call {k}: other results than eager"
        for g, e in zip(got, leaves, strict=True):
            _same(g, e, f"jit, {name}, call {k}", scale)
    eager = {e.eager for e in jitted.entries if e.eager}
    COUNTS["eager" if eager else "compiled"] += 1
    for reason in eager:
        REASONS.setdefault(reason, []).append(f"{_test()}, {name}")


def _size(x: Any) -> float:
    """Return the largest magnitude among finite numbers."""
    x = np.asarray(x)
    if x.dtype.kind not in "fc":
        return 0.0
    return float(np.max(np.abs(x[np.isfinite(x)]), initial=0.0))


def _same(g: Any, e: Any, title: str, scale: float) -> None:
    """Compare results; numbers of size `scale` may have cancelled in them."""
    if not isinstance(e, (np.ndarray, np.generic, float, complex, int)):
        return
    g, e = np.asarray(g), np.asarray(e)
    assert g.dtype == e.dtype, f"{title}: got {g.dtype}, expected {e.dtype}"
    assert g.shape == e.shape, f"{title}: got shape {g.shape}, expected {e.shape}"
    if e.dtype.kind not in "fc":
        np.testing.assert_array_equal(g, e, err_msg=title)
        return
    eps = float(np.finfo(e.dtype).eps)
    np.testing.assert_allclose(
        g, e, rtol=2e4 * eps, atol=2e4 * eps * _size(e) + 16 * eps * scale, err_msg=title
    )


def _check_parts(f: Any, args: tuple[Any, ...], argnums: Any) -> None:
    """Compare value, cotangents and tangents of what `check_grads` checked."""
    if _inside() or not _plain(args):
        return
    picked = (argnums,) if isinstance(argnums, int) else argnums
    fun, xs, _ = _grads.flat_function(f, args, picked)
    rng = np.random.default_rng(0)
    ts = tuple(np.asarray(_grads.random_like(rng, x), _grads.dtype_of(x)) for x in xs)
    ys = adarray.vjp(fun, *xs)[0]
    try:
        adarray.jvp(fun, xs, ts)
        forward = True
    except adarray.NotDifferentiableError:  # rules of reverse mode only
        forward = False
    gs = tuple(np.asarray(_grads.random_like(rng, y), _grads.dtype_of(y)) for y in ys)

    def parts(*xs: Any) -> Any:
        values, pullback = adarray.vjp(fun, *xs)
        return values, pullback(gs), adarray.jvp(fun, xs, ts)[1] if forward else None

    compare(f"check_grads of {_name(f)}", parts, (tuple(xs), {}), parts(*xs))


def summary() -> list[str]:
    """Return what to print when the tests have run."""
    counts = ", ".join(f"{COUNTS[k]} {k}" for k in ("compiled", "eager", "not repeatable"))
    lines = [f"under jit, functions: {counts}"]
    for reason, places in sorted(REASONS.items(), key=lambda item: -len(item[1])):
        lines += [f"  {len(places):4d} {reason}", *(f"         {place}" for place in places)]
    return lines
