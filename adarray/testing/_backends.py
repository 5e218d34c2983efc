"""`check_backend`: the conformance kit that every backend passes, ours and others'."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.arrays.adarray import ADArray
from adarray.backend import backends, current_backend, load, use
from adarray.base.engines import CompilingEngine
from adarray.base.errors import BackendError
from adarray.base.op import Op, all_ops
from adarray.testing._compiling import checks
from adarray.testing._ops import opcheck, use_all_sizes
from adarray.transforms import grad, hessian


def check_backend(name: str, dtypes: tuple[Any, ...] = (np.float64, np.float32)) -> None:
    """Check that a backend computes every operation of NumPy, and behaves in ``use``.

    Parameters
    ----------
    name : str
        Name of an installed backend.
    dtypes : tuple of dtype
        Precisions to run `opcheck` in.

    Raises
    ------
    AssertionError
        If something fails; the message lists every failure.
    BackendError
        If the backend is unknown or cannot be loaded.

    Notes
    -----
    Runs `opcheck` on every registered operation, and checks that `info` describes
    the backend; that unknown options are refused; that ``use`` nests, restores the
    mode when an exception passes, keeps threads and asyncio tasks apart; that
    threads which differentiate at once get right gradients; that operands are never
    written to; and that integers and truth values are computed as NumPy computes them. Of an
    engine that compiles, `adarray.runtime.CompilingEngine`, it also checks what it compiles:
    gradients of several functions under `adarray.jit`, inputs of any strides, donated memory,
    fresh results, threads that run one executable at once, and kernels that refuse their data.

    Examples
    --------
    >>> from adarray.testing import check_backend
    >>> check_backend("numpy")  # doctest: +SKIP
    """
    load(name)
    failures: list[str] = []
    for check in (
        _info, _unknown_option, _nesting, _exception, _threads, _tasks, _concurrent_gradients,
        _operands_unchanged, _other_dtypes, _error_messages,
    ):  # fmt: skip
        _collect(failures, check, name)
    engine = use(name)._engine
    if isinstance(engine, CompilingEngine):
        for compiles in checks(name, engine):
            _collect(failures, compiles)
    for dtype in dtypes:
        for op in filter(_is_ours, list(all_ops())):
            _collect(failures, opcheck, op, name, dtype)
    if failures:
        raise AssertionError(
            f"check_backend({name}): {len(failures)} checks failed\n- " + "\n- ".join(failures)
        )


def _is_ours(op: Op) -> bool:
    """Whether a backend may compute `op`: functions of users and SciPy compute themselves."""
    rules = [rule for rule in op.rules if rule is not None]
    outside = any(rule.__module__.startswith("adarray.scipy") for rule in rules)
    return op.samples is not None and not outside


def _collect(failures: list[str], check: Callable[..., None], *args: Any) -> None:
    """Run a check; note an assertion, or any other error, that it raises."""
    try:
        check(*args)
    except AssertionError as error:
        failures.append(str(error))
    except Exception as error:  # an operation that crashes must not hide the others
        failures.append(f"{check.__name__}{args}: raised {type(error).__name__}: {error}")


def _require(condition: bool, message: str) -> None:
    """Raise an AssertionError that also survives ``python -O``."""
    if not condition:
        raise AssertionError(message)


def _info(name: str) -> None:
    facts = load(name).info()
    _require(
        isinstance(facts, dict) and all(isinstance(x, str) for kv in facts.items() for x in kv),
        f"info: got {facts!r}, expected a dict of strings",
    )


def _unknown_option(name: str) -> None:
    try:
        use(name, no_such_option=1)
    except BackendError as error:
        _require(
            "no_such_option" in str(error), f"use: the error does not name the option: {error}"
        )
    else:
        raise AssertionError("use: an unknown option was taken without an error")


def _nesting(name: str) -> None:
    before = current_backend()
    with use(name):
        with use("numpy"):
            _require(current_backend() == "numpy", "use: the inner block is not in effect")
        _require(current_backend() == name, "use: the outer block is not restored")
        with use(name):
            pass
        _require(current_backend() == name, "use: entering twice does not restore")
    _require(current_backend() == before, "use: the default is not restored")


def _exception(name: str) -> None:
    before = current_backend()
    try:
        with use(name):
            np.dot(np.zeros(2), np.zeros(3))
    except ValueError:
        pass
    _require(current_backend() == before, "use: an exception leaves the backend in effect")


def _threads(name: str) -> None:
    seen: list[str] = []
    with use(name):
        worker = threading.Thread(target=lambda: seen.append(current_backend()))
        worker.start()
        worker.join()
        _require(current_backend() == name, "use: a thread changed the backend of another")
    _require(seen == ["numpy"], f"use: a new thread computes with {seen}, not the default")


def _tasks(name: str) -> None:
    async def one(backend: str) -> str:
        with use(backend):
            await asyncio.sleep(0)
            return current_backend()

    async def both() -> list[str]:
        return list(await asyncio.gather(one(name), one("numpy"), one(name)))

    _require(asyncio.run(both()) == [name, "numpy", name], "use: asyncio tasks meet")


def _loss(x: Any) -> Any:
    return np.sum(np.tanh(x) * np.exp(-x * x) + np.max(x, axis=0))


def _concurrent_gradients(name: str) -> None:
    """Two threads on this backend and one on NumPy; gradients and second derivatives."""
    x = np.random.default_rng(0).normal(size=(40, 30))
    expected = grad(_loss)(x)
    wrong: list[str] = []

    def work(backend: str) -> None:
        try:
            with use_all_sizes(backend):
                for _ in range(20):
                    np.testing.assert_allclose(grad(_loss)(x), expected, rtol=1e-10, atol=1e-12)
                hessian(_loss)(x[:2, :2])
        except Exception as error:
            wrong.append(f"{backend}: {type(error).__name__}: {error}")

    workers = [threading.Thread(target=work, args=(b,)) for b in (name, name, "numpy")]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    _require(not wrong, f"threads that differentiate at once: {wrong}")


def _operands_unchanged(name: str) -> None:
    x = np.linspace(0.1, 2.0, 12).reshape(3, 4)
    y, before = x + 1, x.copy()
    with use_all_sizes(name):
        for value in (ADArray(x), x):
            np.log(value), np.sqrt(value), np.multiply(value, ADArray(y)), np.sum(value)
        grad(lambda v: np.sum(np.log(v) * np.sqrt(v) / v))(ADArray(x))
    _require(
        bool(np.array_equal(x, before) and np.array_equal(y, before + 1)),
        "an operand was written to",
    )


def _other_dtypes(name: str) -> None:
    """Integers, truth values, half precision, complex numbers, other byte orders, objects."""
    arrays = [np.arange(-3, 4), np.array([True, False, True]), np.arange(4, dtype=np.uint8),
              np.linspace(-1, 1, 5, dtype=np.float16), np.array([1 + 2j, 3 - 1j]),
              np.linspace(-1, 1, 5).astype(">f8")]  # fmt: skip
    for x in arrays:
        for function in (np.add, np.multiply, np.maximum):
            expected = function(x, x)
            with use_all_sizes(name):
                got = function(ADArray(x), x).numpy()
            _require(
                got.dtype == expected.dtype and bool(np.array_equal(got, expected)),
                f"{function.__name__} of {x.dtype}: got {got!r}, expected {expected!r}",
            )


def _error_messages(name: str) -> None:
    with use_all_sizes(name):
        try:
            np.add(ADArray(np.zeros(3)), np.zeros(4))
        except ValueError:
            pass
        else:
            raise AssertionError("add: shapes (3,) and (4,) do not broadcast, but no error came")
    _require(name in backends(), f"backends(): {name!r} is not listed")
