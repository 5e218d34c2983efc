"""The checks find what is wrong: in values, in each mode, in each order, in dtypes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from records import CORE

import adarray
from adarray.base.op import OPS, Op, Opaque, Pointwise
from adarray.base.probe import call_plain
from adarray.errors import BackendError
from adarray.ops.common import Placed, s
from adarray.testing import check_backend, check_grads, opcheck
from adarray.testing._compare import mismatch, ulp_errors, worst
from adarray.testing._samples import cases

X = np.array([0.3, 0.8, -0.4])


class Pair(NamedTuple):
    """Some container."""

    a: Any
    b: Any


# -- check_grads on what is right --------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (lambda x: np.sum(np.sin(x)), (X,)),
        (np.sin, (0.3,)),
        (np.tanh, (np.float64(0.3),)),
        (lambda x: x[:, None] * x, (X,)),
        (lambda a, b: a * np.exp(b), (X, 0.5)),
        (lambda p: {"y": p["w"] @ p["x"], "z": p["w"][0]}, ({"w": np.eye(3), "x": X},)),
        (lambda p: p.a * p.b, (Pair(X, 2.0),)),
        (lambda p: [p[0] + p[1][0], p[1][0] ** 2], ([X, (X * 2,)],)),
        (lambda x: (np.cumsum(x), np.argmax(x)), (X,)),
        (lambda x: np.exp(x), (adarray.array(X),)),
        (lambda x: np.exp(x) * X.astype(np.float32), (X.astype(np.float32),)),
        (lambda x: np.exp(x).astype(np.float32), (X,)),
        (lambda x: np.sum(x, axis=0), (np.zeros((0, 3)),)),
        (lambda x: np.sum(x * x), (np.array(2.0),)),
        (lambda x: x * 1e8, (X,)),
        (lambda x: np.sum(x[::-1] * x), (np.arange(6.0)[::-2],)),
        (lambda x: 3.0, (X,)),
        (lambda x: np.sum(np.exp(x)), (X.astype(np.float16),)),
    ],
)  # fmt: skip
def test_right_derivatives_pass(f: Callable[..., Any], args: tuple[Any, ...]) -> None:
    assert check_grads(f, args) is None


def test_arguments_are_not_written_to() -> None:
    x = X.copy()

    def f(v: Any) -> Any:
        v *= 2
        v[0] = v[1]
        return np.sum(v * v)

    check_grads(f, (x,))
    np.testing.assert_array_equal(x, X)


def test_integers_are_left_alone_and_argnums_choose() -> None:
    check_grads(lambda n, x: x**n, (2, X))
    wrong = _with_rule(lambda g, x: g)
    check_grads(lambda x, y: np.sum(wrong(x)) + y**2, (X, 2.0), argnums=1)
    with pytest.raises(AssertionError, match="argument 0"):
        check_grads(lambda x, y: np.sum(wrong(x)) + y**2, (X, 2.0), argnums=(0, 1))


# -- check_grads on what is wrong --------------------------------------------------------------


def _with_rule(rule: Callable[[Any, Any], Any], jvp: Any = None) -> Callable[[Any], Any]:
    """Return the square, with a reverse rule (and a forward rule) of the test's making."""
    op = Op(
        "square_of_test", np.square, Opaque(), [lambda g, out, x: rule(g, x)],
        jvp=[lambda t, out, x: (jvp or rule)(t, x)],
        samples=lambda rng: [s(rng.normal(size=3))], operands=("x",), signature="x",
    )  # fmt: skip
    from adarray.core.dispatch import run

    return lambda x: run(op, x)


def test_wrong_forward_rule() -> None:
    f = _with_rule(lambda g, x: g * 2 * x, jvp=lambda t, x: t * 2.001 * x)
    with pytest.raises(AssertionError, match=r"check_grads: fwd, order 1, argument 0: got "):
        check_grads(f, (X,))


def test_wrong_reverse_rule() -> None:
    f = _with_rule(lambda g, x: g * 2.001 * x, jvp=lambda t, x: t * 2 * x)
    with pytest.raises(AssertionError) as caught:
        check_grads(f, (X,))
    text = str(caught.value)
    assert text.startswith("check_grads: rev, order 1, argument 0: got ")
    for words in ("expected", "from forward mode", "relative error 0.0005", "; correct the "):
        assert words in text
    with pytest.raises(AssertionError, match="from central differences"):
        check_grads(f, (X,), modes=("rev",))
    check_grads(f, (X,), modes=("fwd",), order=1)


def test_wrong_second_derivative() -> None:
    def detached(g: Any, x: Any) -> Any:
        return g * 2 * adarray.stop_gradient(x)

    f = _with_rule(detached)
    check_grads(f, (X,), order=1)
    with pytest.raises(
        AssertionError, match=r"order 2 \((fwd|rev) of (fwd|rev)\), argument 0: got"
    ):
        check_grads(f, (X,), order=2)


def test_the_culprit_is_named() -> None:
    f = _with_rule(lambda g, x: g * 3 * x)
    with pytest.raises(AssertionError, match=r"argument 1, leaf 1: got"):
        check_grads(lambda a, p: np.sum(a) * p[0] + np.sum(f(p[1])), (X, [2.0, X]))


def test_a_silent_zero_is_found() -> None:
    with pytest.raises(AssertionError, match=r"got 0\.0"):
        check_grads(lambda x: np.sum(adarray.value_of(x) ** 2), (X,))


def test_wrong_float32_rule() -> None:
    f = _with_rule(lambda g, x: g * 2 * x * (1 + (np.result_type(x) == np.float32)))
    check_grads(f, (X,))
    with pytest.raises(AssertionError, match=r"fwd, order 1, result 0: got .* from float64"):
        check_grads(f, (X.astype(np.float32),))


def test_wrong_shape_of_a_tangent() -> None:
    f = _with_rule(lambda g, x: g * 2 * x, jvp=lambda t, x: np.sum(t * 2 * x))
    with pytest.raises(AssertionError):
        check_grads(f, (X,))


def test_tolerance_and_step() -> None:
    f = _with_rule(lambda g, x: g * 2.001 * x)
    check_grads(f, (X,), rtol=0.01)
    check_grads(f, (X,), atol=0.1)
    check_grads(lambda x: x**3, (X,), eps=1e-3, rtol=1e-3, order=1)
    with pytest.raises(AssertionError):
        check_grads(lambda x: x**5, (X,), eps=0.5, order=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check_grads(np.sin, (X,), modes=("up",)),
         "check_grads: modes=('up',); choose from ('fwd', 'rev')"),
        (lambda: check_grads(np.sin, (3,)),
         "check_grads: no argument is floating point; pass for instance 3.0 for 3"),
        (lambda: check_grads(np.sin, (3,), argnums=0),
         "check_grads: argument 0, leaf 0: has no floating point dtype; choose the arguments to "
         "differentiate with argnums"),
        (lambda: check_grads(np.argmax, (X,)),
         "check_grads: the function returned nothing of floating point"),
    ],
)  # fmt: skip
def test_misuse(call: Callable[[], None], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == message


# -- opcheck -----------------------------------------------------------------------------------


@contextlib.contextmanager
def changed(op: Op, **attributes: Any) -> Iterator[None]:
    """Change a record for a while."""
    before = {name: getattr(op, name) for name in attributes}
    try:
        for name, value in attributes.items():
            setattr(op, name, value)
        op._plans.clear()
        yield
    finally:
        for name, value in before.items():
            setattr(op, name, value)
        op._plans.clear()


def _scaled(rule: Callable[..., Any], by: float) -> Callable[..., Any]:
    def wrong(*args: Any, **kwargs: Any) -> Any:
        result = rule(*args, **kwargs)
        if isinstance(result, Placed):
            return Placed(result.aval, result.index, result.g * by, result.steps)
        return result * by

    return wrong


def _found(op: Op) -> str:
    """Return what `opcheck` raises, or nothing."""
    try:
        opcheck(op)
    except AssertionError as error:
        return str(error)
    return ""


# Rules that are zero stay right when they are scaled.
def _gives_zeros(op: Op, operand: int) -> bool:
    """Whether a rule is zero wherever it is asked, so that no factor can make it wrong."""
    zeros = []
    rng = np.random.default_rng(0)
    rule = op.rules[operand]
    assert rule is not None
    for case in cases(op, np.dtype(float), rng):
        if case.order:
            out = call_plain(op, case.operands, case.params)
            ones = (
                tuple(np.ones(np.shape(y)) for y in out)
                if op.outputs > 1
                else np.ones(np.shape(out))
            )
            zeros.append(np.any(rule(ones, out, *case.operands, **case.params)))
    return not any(zeros)


@pytest.mark.parametrize(
    ("name", "operand"),
    [
        (name, i)
        for name, op in CORE.items()
        if op.samples is not None  # rules of other test files have none
        for i, rule in enumerate(op.rules)
        if rule is not None
    ],
)
def test_every_rule_is_really_checked(name: str, operand: int) -> None:
    """A rule that is wrong by a thousandth does not pass; tests/test_ops.py passes right ones."""
    op = OPS[name]
    rules = list(op.rules)
    rules[operand] = _scaled(rules[operand], 1.001)  # type: ignore[arg-type]
    with changed(op, rules=tuple(rules)):
        problem = _found(op)
    assert problem.startswith(f"opcheck({name}") or (not problem and _gives_zeros(op, operand))


@pytest.mark.parametrize("name", ["sum", "max", "prod", "norm", "cumprod", "concatenate", "einsum"])
def test_every_forward_rule_is_really_checked(name: str) -> None:
    op = OPS[name]
    linear = [lambda t, out, x, **params: op.evaluate(t, **params)]
    jvp = [_scaled(rule, 1.001) for rule in (linear if op.jvp == "linear" else op.jvp)]  # type: ignore[union-attr]
    with changed(op, jvp=jvp), pytest.raises(AssertionError, match="fwd, order 1"):
        opcheck(op)


@pytest.mark.parametrize(
    ("name", "attributes", "message"),
    [
        ("exp", {"evaluate": lambda x: np.exp(x) * (1 + 1e-14)},
         r"scalar expression .* ulp apart, at most 4 are allowed"),
        ("square", {"lower": Pointwise(lambda x: x * x * (1 + 1e-14))},
         r"scalar expression .* ulp apart, at most 4 are allowed"),
        ("relu", {"lower": Pointwise(lambda x: np.where(x > 0, x, 0.0))},
         r"special values: scalar expression"),
    ],
)  # fmt: skip
def test_wrong_values_are_found(name: str, attributes: dict[str, Any], message: str) -> None:
    with changed(OPS[name], **attributes), pytest.raises(AssertionError, match=message):
        opcheck(name)


def test_a_rule_that_loses_float32_is_found() -> None:
    op = OPS["sin"]
    rule = op.rules[0]
    assert rule is not None

    def wide(g: Any, out: Any, x: Any) -> Any:
        return rule(g, out, x) * np.ones((), np.float64)[()]

    message = r"dtype float64, the input .* float32"
    with changed(op, rules=(wide,)):
        op._plans[1] = (False, True)  # what the symbols cannot tell of such a rule
        with pytest.raises(AssertionError, match=message):
            opcheck(op, dtype=np.float32)


def test_an_unknown_backend() -> None:
    with pytest.raises(BackendError, match="backend 'nope': there is none of that name"):
        opcheck("sin", backend="nope")
    with pytest.raises(BackendError, match="backend 'nope': there is none of that name"):
        check_backend("nope")


def test_check_backend_lists_all_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    # All operations are checked where none is wrong: in test_check_backend.py.
    some = [OPS[n] for n in ("sin", "cbrt", "sum", "hypot", "cumsum")]
    monkeypatch.setattr("adarray.testing._backends.all_ops", lambda: iter(some))
    wrong = [{"rules": (_scaled(op.rules[0], 2.0), *op.rules[1:])} for op in some]  # type: ignore[arg-type]
    with (
        changed(OPS["cbrt"], **wrong[1]),
        changed(OPS["cumsum"], **wrong[4]),
        pytest.raises(AssertionError) as caught,
    ):
        check_backend("numpy", dtypes=(np.float64,))
    title, *failures = str(caught.value).split("\n- ")
    assert title == "check_backend(numpy): 2 checks failed"
    assert [f.partition(")")[0] for f in failures] == [
        "opcheck(cbrt, numpy, float64", "opcheck(cumsum, numpy, float64"
    ]  # fmt: skip


# -- comparing ---------------------------------------------------------------------------------


def test_ulp_errors() -> None:
    one, eps = np.float64(1.0), np.finfo(float).eps
    values = np.array([1.0, 1.0 + 3 * eps, np.inf, np.nan, 0.0, -0.0, np.inf, 1e-320, 1e308])
    others = np.array([1.0, 1.0, np.inf, np.nan, 0.0, 0.0, 1.0, 0.0, -1e308])
    errors = ulp_errors(values, others)
    np.testing.assert_array_equal(errors[:5], [0, 3, 0, 0, 0])
    assert errors[5] == errors[6] == errors[7] == np.inf
    assert 1e15 < errors[8] < np.inf
    assert ulp_errors(np.array([one + eps]), np.array([one]), np.array([8.0]))[0] == 0.125
    assert ulp_errors(np.float32([1.0]), np.nextafter(np.float32([1.0]), np.float32(2)))[0] == 1


def test_mismatch_looks_at_type_dtype_and_shape() -> None:
    x = np.ones(2)
    assert mismatch(x, x, 0) is None
    assert mismatch(np.float64(1), np.ones(()), 0) == "got a float64, expected a ndarray"
    assert mismatch(x.astype(np.float32), x, 0) == "got dtype float32, expected float64"
    assert mismatch(x[None], x, 0) == "got shape (1, 2), expected (2,)"
    assert "index (1,)" in str(mismatch(np.array([1, 2]), np.array([1, 3]), 0))
    assert "2 ulp apart, at most 1 are allowed" in str(
        mismatch(np.array([1.0 + 2 * np.finfo(float).eps]), np.array([1.0]), 1)
    )


def test_worst() -> None:
    assert worst([1.0, np.nan, np.inf], [1.0, np.nan, np.inf], 0.0) is None
    assert worst([], [], 0.0) is None
    difference = worst([1.0, 2.0], [1.0, 4.0], 0.1)
    assert difference == (2.0, 4.0, 0.5, " at index (1,)")
    assert worst([np.nan], [1.0], 1e9) is not None


# -- the module --------------------------------------------------------------------------------


def test_testing_is_imported_on_demand() -> None:
    code = (
        "import sys, adarray; assert 'adarray.testing' not in sys.modules; "
        "adarray.testing.check_grads(abs, (2.0,)); assert 'pytest' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names() -> None:
    import adarray.testing as module

    assert module.__all__ == ["check_backend", "check_grads", "opcheck"]
    for name in module.__all__:
        assert "Raises\n" in getattr(module, name).__doc__
        assert ">>> " in getattr(module, name).__doc__
