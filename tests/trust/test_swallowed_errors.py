"""Code that catches an error of adarray goes another way than with NumPy: that is refused.

``ADARRAY_LONG=2000`` runs that many random programs.
"""

# ruff: noqa: UP031  (text made by % is what is tested)

from __future__ import annotations

import ast
import concurrent.futures
import contextlib
import datetime
import decimal
import fractions
import functools
import io
import json
import logging
import math
import operator
import pickle
import re
import statistics
import struct
import threading
import time
import types
import unittest
import warnings
from collections import Counter
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from trust import BACKENDS, check, seeds

import adarray

X = np.array([0.8, 1.25, 0.5])
W = np.array([0.5, -1.5, 2.0])
# Functions of a table are not rebound by interception.
ELSEWHERE: dict[str, Any] = {
    "asarray": np.asarray, "array": np.array, "float64": np.float64, "exp": math.exp,
    "float": float, "decimal": lambda x: decimal.Decimal(ELSEWHERE["float"](x)),
}  # fmt: skip

# Ways by which a number leaves an array: {x} is an array, {s} one of its elements.
WAYS = (
    "float({s})", "math.exp({s})", "complex({s}).real", "math.fsum({x})", "sum(map(float, {x}))",
    "ELSEWHERE['asarray']({x})[0]", "ELSEWHERE['array']([{s}, 1.0])[0]",
    "ELSEWHERE['float64']({s})", "ELSEWHERE['exp']({s})", "ELSEWHERE['float']({s})",
    "float(ELSEWHERE['decimal']({s}))", "struct.unpack('d', struct.pack('d', {s}))[0]",
    "array.array('d', {x})[0]", "np.frombuffer({x}.tobytes())[0]", "{x}.tolist()[0]",
    "pickle.loads(pickle.dumps({x}))[0]", "np.load(saved({x}))[0]", "statistics.fmean({x})",
    "float(str({s}))", "float(f'{{{s}}}')", "float(f'{{{s}:.17g}}')", "float('%.17g' % {s})",
    "float(repr({s})[8:-1])", "np.float64(str({s}))", "float('%r' % {s})", "{s}.item()",
    "float(format({s}, '.16e'))", "into_plain({s})", "np.format_float_positional({s}) and 0.5",
    "{x}[7]", "np.linalg.inv({x}[:, None] * 0.0)[0, 0]", "np.reshape({x}, (2, 2))[0, 0]",
    "{x}['name']", "np.linalg.cholesky(-np.eye(2) * {s})[0, 0]", "({x} @ np.ones((2, 2)))[0]",
    "np.exp({s})", "{x}[1]", "np.dot({x}, W)",
    # Of these, C code or a parser raises, and asks nobody.
    "float(decimal.Decimal({s}))", "float(Decimal({s}))", "float(sorted({x}, key=Decimal)[0])",
    "float(fractions.Fraction({s}))", "memoryview({x})[0]", "json.loads(json.dumps({s}))",
    "float(Decimal.from_float({s}))", "float(Decimal(str({s})))", "json.loads(str({s}))",
    "ast.literal_eval(str({s}))", "eval(str({s}))", "dict.fromkeys([{s}, 0.5]).popitem()[0]",
    "[k * 1.0 for k in dict.fromkeys([{s}])][0]", "float.__add__({s}, 1.0)",
    "np.loadtxt(io.StringIO(str({s}))) * 1.0", "np.ndarray.sum({x})",
    "np.fromstring(str({x})[1:-1], sep=' ')[0]",
    "threading.Event().wait({s} * 1e-6) + 2.0", "float(fractions.Fraction(2) * {s})",
)  # fmt: skip
# Ways to go on: {way} is one of WAYS.
CATCHES = (
    "    try:\n        s = {way}\n    except {error}:\n        s = 1.0\n",
    "    s = 1.0\n    with contextlib.suppress({error}):\n        s = {way}\n",
    "    try:\n        s = {way}\n    except {error} as e:\n        s = 1.0 * bool(str(e))\n",
    "    s = 1.0\n    with suppress({error}):\n        s = {way}\n",
    "    s = attempt(lambda: {way})\n",
    "    s = in_thread(lambda: attempt(lambda: {way}))\n",
    "    s = next(generated(lambda: {way}))\n",
    "    s = nested(lambda x: {way}, x)\n",
)


# A package of somebody else.
helping = types.ModuleType("helping")
exec("def attempt(f):\n  try: return f()\n  except Exception: return 0.5\n", vars(helping))


class Errors:
    some = (TypeError, ValueError, ArithmeticError, NameError)


class Eats:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> bool:
        return True


@contextlib.contextmanager
def eaten() -> Any:
    with contextlib.suppress(BaseException):
        yield


def returned_in_the_end(f: Any) -> Any:
    s = 0.75
    try:
        s = f()
    finally:
        return s  # noqa: B012


def in_future(f: Any) -> Any:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(f)
    return future.result() if future.exception() is None else 0.75


def saved(x: Any) -> Any:
    file = io.BytesIO()
    np.save(file, x)
    file.seek(0)
    return file


def into_plain(s: Any) -> Any:
    buffer = ELSEWHERE["asarray"]([0.0, 0.0])
    buffer[0] = s
    return buffer[0]


def attempt(f: Any) -> Any:
    try:
        return f()
    except Exception:
        return 0.5


def generated(f: Any) -> Any:
    try:
        yield f()
    except Exception:
        yield 0.25


def in_thread(f: Any) -> Any:
    results = [2.0]
    thread = threading.Thread(target=lambda: results.__setitem__(0, f()))
    thread.start()
    thread.join()
    return results[0]


def nested(f: Any, x: Any) -> Any:
    """Differentiate a function of another variable, which may catch what concerns `x` alone."""
    return adarray.grad(lambda t: t**2 * attempt(lambda: f(x)))(0.5)


def program(seed: int) -> tuple[Any, str]:
    """Return a random function of ``x``, shape (3,), and its text."""
    rng = np.random.default_rng(seed)
    text = "def f(x):\n    y = np.sin(x) + x\n"
    for _ in range(int(rng.integers(1, 3))):
        x = str(rng.choice(["x", "y", "(x * y)", "x[::-1]"]))
        way = str(rng.choice(WAYS)).format(x=x, s=f"{x}[{rng.integers(3)}]")
        error = str(rng.choice(["Exception", "(TypeError, ValueError, IndexError)", "TypeError"]))
        text += str(rng.choice(CATCHES)).format(way=way, error=error)
        text += "    y = y * s + x\n"
    text += "    return y * W\n"
    space = {**globals(), "__name__": "swallower"}
    exec(compile(text, f"<program {seed}>", "exec"), space)
    return space["f"], text


@pytest.mark.slow
def test_random_programs() -> None:
    counts: Counter[str] = Counter()
    for seed in seeds(120):
        f, text = program(seed)
        try:
            f(X.copy())
        except Exception:
            counts["wrong for NumPy, too"] += 1
            continue
        try:
            counts += check(
                f, (X,), backends=(BACKENDS[seed % len(BACKENDS)],), calls=2,
                refusals=(
                    adarray.ADArrayError, TypeError, ValueError, ArithmeticError, NameError,
                    struct.error,
                ),
            )  # fmt: skip
        except Exception as error:
            raise AssertionError(f"seed {seed}:\n{text}\n{error}") from error
    print(counts.most_common(8))
    assert counts["right"] > len(seeds(120)) // 2


@pytest.mark.parametrize("transform", [adarray.grad, adarray.hessian, adarray.value_and_grad])
def test_a_caught_refusal_ends_the_transform(transform: Any) -> None:
    """It gave the gradient of the branch that NumPy never takes."""

    def f(x: Any) -> Any:
        try:
            s = float(x[0])
        except TypeError:
            s = 1.0
        return np.sum(x * s)

    with pytest.raises(adarray.TraceError, match=": the function caught an error") as info:
        transform(f, intercept=False)(X)
    assert isinstance(info.value.__cause__, adarray.TraceError)
    assert "float: a traced value would leave the graph" in str(info.value.__cause__)
    np.testing.assert_allclose(adarray.grad(f)(X), X[0] + [np.sum(X), 0, 0])
    np.testing.assert_allclose(adarray.jit(adarray.grad(f))(X), X[0] + [np.sum(X), 0, 0])
    with pytest.raises(adarray.TraceError, match=r"jvp: the function caught an error"):
        adarray.jvp(f, (X,), (X,), intercept=False)


def _tried(x: Any, read: Any) -> Any:
    try:
        return read(x)
    except (TypeError, decimal.InvalidOperation, ValueError, NameError):
        return 1.0


def _tried_barely(x: Any, read: Any) -> Any:
    try:
        return read(x)
    except:  # noqa: E722
        return 1.0


def _tried_by_local_names(x: Any, read: Any) -> Any:
    kinds = (TypeError, decimal.InvalidOperation, ValueError, NameError)
    try:
        return read(x)
    except kinds:
        return 1.0


def _tried_in_groups(x: Any, read: Any) -> Any:
    s = 1.0
    try:
        s = read(x)
    except* Exception:
        pass
    return s


def _suppressed(x: Any, read: Any) -> Any:
    with suppress(Exception):
        return read(x)
    return 1.0


def _suppressed_by_alias(x: Any, read: Any) -> Any:
    hush = contextlib.suppress
    with contextlib.ExitStack() as stack, hush(Exception):
        stack.enter_context(hush(Exception))
        return read(x)
    return 1.0


def _eaten(x: Any, read: Any) -> Any:
    with Eats():
        return read(x)
    return 1.0


def _eaten_by_a_generator(x: Any, read: Any) -> Any:
    with eaten():
        return read(x)
    return 1.0


def _in_the_end(x: Any, read: Any) -> Any:
    return returned_in_the_end(lambda: read(x))


def _of_a_generator(x: Any, read: Any) -> Any:
    return next(generated(lambda: read(x)))


def _by_a_helper(x: Any, read: Any) -> Any:
    return helping.attempt(lambda: read(x))


def _in_a_future(x: Any, read: Any) -> Any:
    return in_future(lambda: read(x))


def _in_a_thread(x: Any, read: Any) -> Any:
    return in_thread(lambda: read(x))


def _expected(x: Any, read: Any) -> Any:
    try:
        with unittest.TestCase().assertRaises(Exception):  # noqa: B017, PT027
            read(x)
    except AssertionError:
        return read(x)
    return 1.0


@pytest.mark.filterwarnings("ignore::adarray.JitWarning")
@pytest.mark.parametrize("read", [
    lambda x: json.loads(json.dumps(x[0])), lambda x: json.loads(json.dumps([1.0, x[0] * 2]))[1],
    lambda x: float(str(x[0])), lambda x: float(Decimal(x[0])),
])  # fmt: skip
@pytest.mark.parametrize("way", [in_thread, in_future])
def test_refusals_that_other_threads_catch_end_a_recording(way: Any, read: Any) -> None:
    """The recorder of another thread did not learn of them: a value of the first call stayed."""

    def f(x: Any) -> Any:
        return np.sin(x) * way(lambda: attempt(lambda: read(x)))

    jitted = adarray.jit(f)
    for k in range(4):
        np.testing.assert_allclose(jitted(X * (1 + k)), f(X * (1 + k)), rtol=1e-12)


@pytest.mark.parametrize("catching", [
    _tried, _tried_barely, _tried_by_local_names, _tried_in_groups, _suppressed,
    _suppressed_by_alias, _eaten, _eaten_by_a_generator, _in_the_end, _of_a_generator,
    _by_a_helper, _in_a_future, _in_a_thread, _expected,
])  # fmt: skip
@pytest.mark.parametrize("read", [
    lambda x: float(Decimal(x[0])), lambda x: float(fractions.Fraction(x[0])),
    lambda x: json.loads(json.dumps(x[0])), lambda x: memoryview(x)[0], lambda x: {x[0]: 2.0}[0.8],
    lambda x: json.loads(str(x[0])), lambda x: float(Decimal(f"{x[0]}")),
    lambda x: eval(str(x[0])), lambda x: ast.literal_eval(str(x[0])),
    lambda x: threading.Event().wait(x[0] * 1e-6) + 2.0,
    lambda x: (datetime.timedelta(1) * x[0]).total_seconds(),
])  # fmt: skip
def test_errors_of_python_that_are_caught(
    catching: Any, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's own TypeError or ValueError was nobody's: the gradient was wrong."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def f(x: Any) -> Any:
        return np.sum(x * catching(x, read))

    f(X)
    for transform in (adarray.grad, lambda f: lambda x: adarray.jvp(f, (x,), (x,))):
        with pytest.raises(adarray.TraceError, match=r"the function caught an error that NumPy"):
            transform(f)(X)


def test_errors_that_plain_code_meets_too_are_caught_in_peace() -> None:
    class OwnError(TypeError):
        pass

    def number(text: Any) -> Any:
        try:
            return float(text)
        except (ValueError, TypeError):
            return 2.0

    def f(x: Any) -> Any:
        s = number("none") * number(None)
        for wrong in (lambda: x(), lambda: {x: 1}[x], lambda: 1 / 0, lambda: int("a"), lambda: +{}):
            try:
                wrong()
            except (TypeError, ValueError, ZeroDivisionError):
                s = s * 1.5
        try:
            raise OwnError(f"on purpose: {x[0]}")
        except OwnError:
            return np.sum(s * x**2)

    np.testing.assert_allclose(adarray.grad(f)(X), 8 * 1.5**5 * X)


def test_what_numpy_raises_may_be_caught() -> None:
    def f(x: Any) -> Any:
        for wrong in (
            lambda: x[9], lambda: x["a"], lambda: x @ np.ones((2, 2)), lambda: x.reshape(2, 2),
            lambda: np.linalg.inv(np.zeros((2, 2)) * x[0]), lambda: x.missing, lambda: len(x[0]),
            lambda: np.concatenate([x, np.ones((2, 2))]),
        ):  # fmt: skip
            with pytest.raises((IndexError, ValueError, AttributeError, TypeError)):
                wrong()
        return np.sum(x**2)

    np.testing.assert_allclose(adarray.grad(f)(X), 2 * X)


def test_traces_of_other_threads_and_inner_ones_are_apart() -> None:
    started, done = threading.Event(), threading.Event()

    def waits(x: Any) -> Any:
        started.set()
        assert done.wait(10)
        return np.sum(x**2)

    def inner(t: Any) -> Any:
        return t * attempt(lambda: float(t))

    def outer(x: Any) -> Any:
        # The inner trace is refused with plain arguments, too.
        return np.sum(x) * attempt(lambda: adarray.grad(inner, intercept=False)(2.0))

    errors = []
    thread = threading.Thread(target=lambda: errors.append(adarray.grad(waits)(X)))
    thread.start()
    assert started.wait(10)
    with pytest.raises(adarray.TraceError):
        adarray.grad(inner, intercept=False)(1.0)
    np.testing.assert_allclose(adarray.grad(outer, intercept=False)(X), 0.5)
    done.set()
    thread.join()
    np.testing.assert_allclose(errors[0], 2 * X)


def test_nothing_is_kept_of_a_trace() -> None:
    from adarray.base import levels

    with pytest.raises(adarray.TraceError):
        adarray.grad(lambda x: attempt(lambda: float(x)) * x, intercept=False)(1.0)
    with pytest.raises(ZeroDivisionError):
        adarray.grad(lambda x: attempt(lambda: float(x)) * x / (1 // 0), intercept=False)(1.0)
    assert not levels.OPEN
    assert not levels._refused


def test_text_is_shown_and_not_read(capsys: Any, caplog: Any) -> None:
    """``float(str(x))`` lost the gradient without an error."""
    references: list[str] = []

    def f(x: Any) -> Any:
        print(f"{x[0]:.2f}", x, "%.1f and %s" % (x[1], x[2]), str(x[0]))
        logging.getLogger("shown").warning("%f of %s", x[0], x)
        warnings.warn(f"at {x[0]}", stacklevel=1)
        references.append(f"x is {x[0]}")
        try:
            raise KeyError(f"no {x[0]:.1f}")
        except KeyError as error:
            print(error)
        return np.sum(x**2)

    with pytest.warns(UserWarning, match=r"^at 0\.8$"):
        np.testing.assert_allclose(adarray.grad(f)(X), 2 * X)
    assert capsys.readouterr().out == "0.80 [0.8  1.25 0.5 ] 1.2 and 0.5 0.8\n'no 0.8'\n"
    assert caplog.messages == ["0.800000 of [0.8  1.25 0.5 ]"]
    assert references == ["x is traced(0.8)"]


@pytest.mark.parametrize("read", [
    lambda x: float(str(x[0])), lambda x: float(f"{x[0]:.17g}"), lambda x: float("%.17g" % x[0]),
    lambda x: complex(str(x[0])).real, lambda x: float(decimal.Decimal(str(x[0]))),
    lambda x: json.loads(str(x[0])), lambda x: eval(str(x[0])), lambda x: np.float64(str(x[0])),
    lambda x: float("".join([str(x[0])])), lambda x: float(str(x).strip("[]").split()[0]),
    lambda x: float(np.array2string(x[0])), lambda x: np.fromstring(str(x)[1:-1], sep=" ")[0],
    lambda x: float(str(x[0]).encode()), lambda x: float(pickle.loads(pickle.dumps(str(x[0])))),
    lambda x: np.loadtxt(io.StringIO(str(x[0]))), lambda x: int(str(x[0])[0]),
    lambda x: statistics.mean(x), lambda x: x[0].as_integer_ratio()[0],
])  # fmt: skip
@pytest.mark.parametrize("inside", [False, True])
def test_text_is_no_number(read: Any, inside: bool) -> None:
    kinds = (adarray.TraceError, ValueError, NameError, TypeError, ArithmeticError, AttributeError)
    with pytest.raises(kinds):
        adarray.grad(lambda x: np.sum(x) * read(x), intercept=inside)(X)


def test_rounded_text_may_be_kept_inside() -> None:
    """Packages that cannot be edited name things by numbers."""
    names = []

    def f(x: Any) -> Any:
        name = "%.3f, %d and %s" % (x[0], 3, "more")
        names.append(name)
        return np.sum(x**2)

    adarray.grad(f)(X)
    assert names == ["0.800, 3 and more"]
    with pytest.raises(adarray.TraceError, match="text: a traced value would leave the graph"):
        adarray.grad(f, intercept=False)(X)


def test_code_that_goes_to_the_limit_of_recursion_ends() -> None:
    """Python 3.12 and newer asked us about each handler, at the limit forever."""

    def deeper(x: Any) -> Any:
        try:
            return deeper(x)
        except ValueError:
            return x

    def f(x: Any) -> Any:
        with contextlib.suppress(RecursionError):
            deeper(x)
        return np.sum(x * 2.0)

    np.testing.assert_array_equal(adarray.grad(f)(X), np.full(3, 2.0))


def test_nothing_is_said_of_errors_at_the_limit_of_recursion(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Python 3.12 and newer printed "Exception ignored in" for each."""

    def caught(text: str) -> int:
        try:
            return int(text)
        except ValueError:
            return 0

    def deeper(n: int) -> int:
        return deeper(n + caught("a") + 1)

    nest: list[Any] = []
    nest.append(nest)

    def f(x: Any) -> Any:
        with contextlib.suppress(RecursionError):
            deeper(0)
        with contextlib.suppress(ValueError):
            json.dumps(nest)
        return np.sum(x * 2.0)

    np.testing.assert_array_equal(adarray.grad(f)(X), np.full(3, 2.0))
    assert capfd.readouterr() == ("", "")


@pytest.mark.filterwarnings("ignore::adarray.JitWarning")
def test_attributes_that_recorded_values_lack() -> None:
    """Under jit the handler ran, and its value was compiled."""

    def f(x: Any) -> Any:
        try:
            s = float.fromhex(float(x[0]).hex())
        except AttributeError:
            s = 5.0
        return x * s

    def constant(x: Any) -> Any:
        return x * float.fromhex((np.zeros(3) + 1.5)[0].hex())

    x = np.array([1.5, 2.0])
    jitted = adarray.jit(f)
    for k in range(4):
        np.testing.assert_array_equal(jitted(x + k), f(x + k))
        np.testing.assert_array_equal(adarray.jit(constant)(x), x * 1.5)
    gradient = adarray.grad(lambda x: np.sum(constant(x)), intercept=True)(x)
    np.testing.assert_array_equal(gradient, [1.5, 1.5])


_alias, _table = time.sleep, {"nap": time.sleep}
_kept_function = types.SimpleNamespace(nap=time.sleep)
_number = re.compile(r"[\d.]+")


def _parsed(text: str) -> float:
    match = _number.search(text)
    return float(match.group()) if match else 1.0


@pytest.mark.parametrize("nap", [
    lambda s: _alias(s), lambda s: _table["nap"](s), lambda s: _kept_function.nap(s),
    lambda s: (lambda t, f=time.sleep: f(t))(s), lambda s: functools.partial(_alias)(s),
    lambda s: next(map(_alias, [s])),
])  # fmt: skip
def test_functions_of_time_by_other_names(nap: Any) -> None:
    """They ask a traced number for an integer; the error was taken for a plain run's."""

    def f(x: Any) -> Any:
        try:
            nap(x[0] * 1e-9)
        except Exception:
            return np.sum(x)
        return np.sum(x * 2.0)

    with pytest.raises(adarray.TraceError, match="the function caught an error that NumPy"):
        adarray.grad(f)(X)


@pytest.mark.parametrize("divide", [
    lambda a, b: a / b, lambda a, b: a // b, lambda a, b: a % b, lambda a, b: divmod(a, b)[0],
    lambda a, b: 1 / b, lambda a, b: 1.0 % b, lambda a, b: 2 // b, lambda a, b: a / 0,
    lambda a, b: a // 0.0, lambda a, b: a % False, lambda a, b: True / b,
    lambda a, b: operator.truediv(a, b), lambda a, b: a.__truediv__(b),
])  # fmt: skip
@pytest.mark.parametrize("number", [lambda s: float(s), lambda s: s.item(), lambda s: s.tolist()])
def test_numbers_of_python_are_not_divided_by_zero(divide: Any, number: Any) -> None:
    """They gave infinities, where Python raises an error that code catches."""

    def f(x: Any) -> Any:
        try:
            s = divide(number(x[1]), number(x[0] - 0.8))
        except ZeroDivisionError:
            s = x[1]
        return np.sum(x * s)

    expected = adarray.grad(lambda x: np.sum(x * x[1]))(X)
    jitted = adarray.jit(adarray.grad(f))
    for transformed in (adarray.grad(f), jitted, jitted, jitted):
        np.testing.assert_allclose(transformed(X), expected)


def test_a_divisor_that_becomes_zero_between_compiled_calls() -> None:
    def f(x: Any) -> Any:
        try:
            s = float(x[1]) / float(x[0])
        except ZeroDivisionError:
            s = x[1]
        return np.sum(x * s)

    jitted = adarray.jit(adarray.grad(f))
    for first in (0.5, 0.25, 2.0, 0.0, 0.5, 0.0):
        x = np.array([first, 1.25, 0.5])
        np.testing.assert_allclose(jitted(x), adarray.grad(f)(x))
    with np.errstate(divide="ignore"):  # of a rule, which is no division of Python's
        assert np.isinf(adarray.grad(lambda x: math.sqrt(x))(0.0))


@pytest.mark.parametrize("read", [
    lambda x: _parsed(str(x[0])), lambda x: _parsed(f"{x[0]}"), lambda x: _parsed(str(x)),
    lambda x: float(re.findall(r"[\d.]+", str(x))[0]),
    lambda x: 2.0 if re.fullmatch(r"[\d.]+", str(x[0])) else 3.0,
    lambda x: float(_number.search(str(x[0])).group()),
])  # fmt: skip
def test_text_is_not_matched_with_patterns(read: Any) -> None:
    with pytest.raises(adarray.TraceError, match="text: a traced value would leave the graph"):
        adarray.grad(lambda x: np.sum(x) * read(x))(X)


def test_what_a_cache_does_not_take() -> None:
    """A traced array was a key of the cache, and code that falls back did not."""

    @functools.lru_cache
    def cached(a: Any, b: Any = 1.0) -> Any:
        return 3.0 * np.sum(a) * b

    def f(x: Any) -> Any:
        total: Any = 0.0
        for arguments in ((x,), (x[0], x), (x[0], [1.0]), ((x,),)):
            try:
                total = total + cached(*arguments)
            except TypeError:
                total = total + np.sum(x)
        return total + cached(x[0]) + cached(x[0], 2.0)

    np.testing.assert_allclose(f(X), 4 * np.sum(X) + 9 * X[0])
    expected = np.full(3, 4.0) + np.array([9.0, 0.0, 0.0])
    np.testing.assert_allclose(adarray.grad(f)(X), expected)
    jitted = adarray.jit(adarray.grad(f))
    for _ in range(3):
        np.testing.assert_allclose(jitted(X), expected)
