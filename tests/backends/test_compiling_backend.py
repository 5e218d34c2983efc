"""A backend of somebody else compiles: an example that has the public paths alone."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import interpreting_backend
import loop_interpreter
import numpy as np
import plan_runner
import pytest
from interpreting_backend import DONE, InterpretedPlan, InterpretingEngine

import adarray
from adarray.jitting.tree.build import JitWarning
from adarray.runtime import CompilingEngine
from adarray.testing import check_backend
from adarray.testing._compiling import checks

PUBLIC = {
    "adarray", "adarray.compiling", "adarray.device", "adarray.errors", "adarray.op",
    "adarray.runtime", "adarray.scalar", "adarray.testing",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _backend(monkeypatch: pytest.MonkeyPatch) -> None:
    interpreting_backend.installed(monkeypatch)


def smooth(x: Any) -> Any:
    return np.sum(np.tanh(x) * np.exp(-x * x))


def layer(x: Any) -> Any:
    w = np.linspace(-1.0, 1.0, 12).reshape(4, 3)
    h = np.maximum(w @ x, 0.1)
    return np.sum(h / np.sum(h)) + np.log(np.sum(np.exp(h))) * h[1]


def windows(x: Any) -> Any:
    for _ in range(3):
        x = x[1:-1] * 0.5 + (x[2:] + x[:-2]) * 0.25
    return np.sum(x * x)


def sums(x: Any) -> Any:
    table = x[:, None] * x
    return np.max(np.cumsum(table, axis=1)[:, -1]) + np.prod(np.where(x > 0.4, x, 1.0))


def gathered(x: Any) -> Any:
    return np.sum(x[np.array([2, 0, 2, 1])] ** 2 * np.arange(4.0))


FUNCTIONS: list[tuple[Callable[[Any], Any], int]] = [
    (smooth, 5), (layer, 3), (windows, 9), (sums, 4), (gathered, 3),
]  # fmt: skip


@pytest.mark.parametrize(("f", "n"), FUNCTIONS, ids=lambda p: getattr(p, "__name__", None))
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_jit_of_grad_runs_its_executables(f: Callable[[Any], Any], n: int, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    jitted = adarray.jit(adarray.grad(f))
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    with adarray.use("interpreting"):
        for call in range(5):
            x = rng.uniform(0.1, 1.0, n).astype(dtype)
            before = DONE["run"]
            got = jitted(x)
            if call >= 2:  # the second call is compiled, and compared with the recording
                assert DONE["run"] > before
            with adarray.use("numpy"):
                expected = adarray.grad(f)(x)
            assert got.dtype == expected.dtype
            np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
    assert DONE["executable"] >= 1
    assert DONE["kernels"] >= 3


def test_what_explain_and_profile_show() -> None:
    jitted = adarray.jit(adarray.value_and_grad(smooth))
    x = np.linspace(0.1, 0.9, 4)
    with adarray.use("interpreting"):
        for _ in range(3):
            jitted(x)
        with adarray.profile() as profile:
            jitted(x)
        text = str(jitted.explain(x))
    assert "interpreting (1 thread)" in text
    assert "Kernel(buffers=" in text
    assert any(s.kind == "kernel" for s in profile.spans)


def test_a_refused_index_raises_numpys_error() -> None:
    jitted = adarray.jit(lambda x, i: np.sum(x[i] * 2.0))
    x, i = np.arange(4.0), np.array([0, 3])
    with adarray.use("interpreting"):
        for _ in range(4):
            assert jitted(x, i) == 6.0
        with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0 with size 4"):
            jitted(x, np.array([0, 4]))
        assert jitted(x, i) == 6.0


def test_threads_at_once() -> None:
    jitted = adarray.jit(adarray.grad(smooth))
    xs = [np.linspace(0.1, 0.9, 4) + k for k in range(3)]
    expected = [adarray.grad(smooth)(x) for x in xs]
    wrong: list[Any] = []

    def work(k: int) -> None:
        with adarray.use("interpreting"):
            results = [jitted(xs[k]) for _ in range(6)]
        wrong.extend(k for g in results if not np.allclose(g, expected[k], rtol=1e-12))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_code_of_the_backend_is_not_intercepted() -> None:
    def f(x: Any) -> Any:
        return np.sum(np.tanh(x) * x)

    x = np.linspace(0.1, 0.9, 4)
    expected = adarray.grad(f)(x)
    with adarray.use("interpreting"), adarray.intercept():
        jitted = adarray.jit(adarray.grad(f))
        for _ in range(4):
            np.testing.assert_allclose(jitted(x), expected, rtol=1e-12)
    assert DONE["run"] >= 2


def test_the_kit_passes() -> None:
    check_backend("interpreting", dtypes=())


def _off(run: Any, plan: Any, arrays: Any) -> Any:
    return [x * 1.01 for x in run(plan, arrays)]


def _wrong_dtype(run: Any, plan: Any, arrays: Any) -> Any:
    return [x.astype(np.float64) for x in run(plan, arrays)]


def _not_scalar(run: Any, plan: Any, arrays: Any) -> Any:
    return [np.asarray(x) for x in run(plan, arrays)]


def _transposed(run: Any, plan: Any, arrays: Any) -> Any:
    return [np.asfortranarray(x) if np.ndim(x) else x for x in run(plan, arrays)]


def _copied(run: Any, plan: Any, arrays: Any) -> Any:
    return [x.copy() for x in run(plan, arrays)]


def _in_place(run: Any, plan: Any, arrays: Any) -> Any:
    result = run(plan, arrays)
    arrays[0][...] = 0.5
    return result


def _same_memory(run: Any, plan: Any, arrays: Any) -> Any:
    result = run(plan, arrays)
    for old, new in zip(RESULTS.setdefault(plan, result), result, strict=True):
        if np.ndim(new):
            old[...] = new  # into what an earlier run has returned
    return result


def _one_thread(run: Any, plan: Any, arrays: Any) -> Any:
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("one thread only")
    return run(plan, arrays)


def _deaf(run: Any, plan: Any, arrays: Any) -> Any:
    plan._rerun = lambda *_: None
    return run(plan, arrays)


RESULTS: dict[InterpretedPlan, Any] = {}
SPOILT = {
    "value": (_off, "gradients", r"^jit of _smooth: got .*, expected "),
    "dtype": (_wrong_dtype, "gradients", "got shape .* and dtype float64, expected .* float32"),
    "0-d": (_not_scalar, "results", "^run: a result is ndarray, not generic$"),
    "order": (_transposed, "results", "^run: a result is not in C order$"),
    "donated": (_copied, "donation", "^a donated argument: the result is in other memory$"),
    "input": (_in_place, "results", "^run: it wrote into an input$"),
    "memory": (_same_memory, "results", "^run: a later run wrote into the results of an earlier"),
    "threads": (_one_thread, "threads", "^threads that run one executable: .*one thread only"),
    "refusal": (_deaf, "refusals", "^rerun: what it returned is not the result$"),
}


def _check(which: str) -> None:
    engine = adarray.use("interpreting")._engine
    assert isinstance(engine, CompilingEngine)
    (check,) = (c for c in checks("interpreting", engine) if c.__name__ == which)
    check()


@pytest.mark.unchecked  # the checks of every call find some of it first
@pytest.mark.parametrize("what", SPOILT)
def test_the_kit_finds_what_is_wrong(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil, which, message = SPOILT[what]
    run = InterpretedPlan.run
    monkeypatch.setattr(InterpretedPlan, "run", lambda self, arrays: spoil(run, self, arrays))
    with pytest.raises(AssertionError, match=message):
        _check(which)


FACTS = {
    "timed": (InterpretedPlan, lambda _self, arrays: ([], [0]), "^timed: got stamps .0. for"),
    "source_of": (InterpretedPlan, lambda _self, step: None, r"^source_of\(0\): not a str$"),
    "from_disk": (InterpretedPlan, "many", "^from_disk: got 'many', expected a count$"),
}


@pytest.mark.parametrize("name", FACTS)
def test_the_kit_checks_facts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, value, message = FACTS[name]
    monkeypatch.setattr(owner, name, value)
    with pytest.raises(AssertionError, match=message):
        _check("facts")


def test_the_kit_checks_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InterpretingEngine, "target", "a computer")
    with pytest.raises(
        AssertionError, match=r"^target: got 'a computer', expected an adarray.comp"
    ):
        _check("target")


def test_what_is_no_compiled_plan_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InterpretingEngine, "executable", lambda *_, **__: len)
    message = (
        r"backend 'interpreting': executable\(\) of InterpretingEngine returned an object of "
        r"builtin_function_or_method, which does not derive from adarray.runtime.CompiledPlan"
    )
    jitted = adarray.jit(smooth)
    x = np.linspace(0.1, 0.9, 4)
    with adarray.use("interpreting"):
        jitted(x)
        with pytest.warns(JitWarning, match=message):
            jitted(x)
        assert np.isclose(jitted(x), smooth(x))


def test_the_example_knows_the_public_paths_alone() -> None:
    for module in (interpreting_backend, loop_interpreter, plan_runner):
        assert module.__file__ is not None
        tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
        for function in ast.walk(tree):  # what only tests use
            if isinstance(function, ast.FunctionDef) and function.name == "installed":
                function.body = []
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("adarray"):
                assert node.module in PUBLIC, f"{module.__file__}:{node.lineno}"
            if isinstance(node, ast.Import):
                assert not any(a.name.startswith("adarray.") for a in node.names)


def test_an_engine_without_its_contract_is_refused() -> None:
    class Half(CompilingEngine):
        name = "half"

    with pytest.raises(TypeError, match="abstract"):
        Half()  # type: ignore[abstract]
