"""Compiled plans whose products are added to a matrix: by cuBLASLt, or by a copy and cuBLAS."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_driver import view_at
from fake_gpu import FakeArray, FakeGpu
from recorded import recorded

from adarray.compiler.ir.target import GPU
from adarray.compiler.planning import planner as planning
from adarray.compiler.rewrite import accumulate
from adarray.errors import BackendError

pytest.importorskip("adarray_native._device")
from adarray_backends.cuda import plans

RNG = np.random.default_rng(7)
plan = partial(planning.plan, target=GPU)


def stepped(w: Any, x: Any, g: Any) -> Any:
    return w - 0.1 * (x.T @ g), np.sum(g, axis=0)


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: Any) -> FakeGpu:
    """Return a GPU; matrices of any size are added to."""
    monkeypatch.setattr(accumulate, "LEAST", 0)
    return FakeGpu(tmp_path)


def arrays(dtype: Any = np.float64) -> list[np.ndarray]:
    return [RNG.normal(size=s).astype(dtype) for s in ((32, 20), (40, 32), (40, 20))]


def placed(gpu: FakeGpu, x: np.ndarray, offset: int = 0) -> FakeArray:
    """Return a copy that begins so many bytes behind a multiple of 256."""
    memory = gpu.alloc(x.nbytes + offset)
    result = view_at(memory.ptr + offset, x.shape, x.dtype, x.strides, memory.owner)
    result[...] = x
    return result.view(FakeArray)


def operands(gpu: FakeGpu, values: list[np.ndarray], **options: Any) -> Any:
    return plans.CudaExecutable(plan(recorded(stepped, *values).program), gpu, **options)


def check(run: Any, args: list[Any]) -> None:
    expected = stepped(*map(np.asarray, args))
    for got, want in zip(run(args), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lt", [True, False])
def test_both_ways(gpu: FakeGpu, lt: bool, dtype: Any) -> None:
    gpu.lt = lt
    values = arrays(dtype)
    run = operands(gpu, values)
    references = []
    for _ in range(12):
        args = [placed(gpu, RNG.normal(size=x.shape).astype(dtype)) for x in values]
        references.append(args)
        check(run, args)
        names = gpu.driver.names()
        if len(references) < 3:  # launched, later ones are replayed
            assert ("product lt" in names) == lt
            assert ("product" in names) != lt
    assert "replay" in names
    assert run.counts().recordings


def test_unaligned_arrays_are_left_to_cublas(gpu: FakeGpu) -> None:
    values = arrays(np.float32)
    run = operands(gpu, values)
    for which in range(3):
        for _ in range(4):
            check(run, [placed(gpu, x, 4 * (i == which)) for i, x in enumerate(values)])
        assert "product lt" not in gpu.driver.names()
    check(run, [placed(gpu, x) for x in values])
    assert "product lt" in gpu.driver.names()


@pytest.mark.parametrize("offset", [0, 4])
@pytest.mark.parametrize("lt", [True, False])
def test_a_result_in_the_memory_of_an_argument(gpu: FakeGpu, lt: bool, offset: int) -> None:
    gpu.lt = lt
    values = arrays(np.float32)
    program = recorded(lambda w, x, g: w - 0.1 * (x.T @ g), *values).program
    run = plans.CudaExecutable(plan(program, donated=((0, 0),)), gpu)
    for _ in range(5):
        args = [placed(gpu, x, offset) for x in values]
        (actual,) = run(args)
        assert actual is args[0]
        w, x, g = values
        np.testing.assert_allclose(actual, w - 0.1 * (x.T @ g), rtol=1e-5, atol=1e-5)


def test_a_product_that_python_computes_is_added(gpu: FakeGpu, monkeypatch: Any) -> None:
    monkeypatch.setattr(FakeGpu, "product", lambda *_: False)
    values = arrays()
    run = operands(gpu, values)
    check(run, [placed(gpu, x) for x in values])
    assert "multiply" in gpu.driver.names()


def test_errors_name_the_step(gpu: FakeGpu) -> None:
    values = arrays()
    run = operands(gpu, values)
    gpu.driver.failing["product lt"] = 7
    with pytest.raises(BackendError, match=r"subtract.*cuBLAS's status 7"):
        run([placed(gpu, x) for x in values])


def layers(x: Any, w: Any, b: Any, v: Any) -> Any:
    return np.maximum(x @ w + b, 0) @ v + b[: v.shape[1]]


@pytest.mark.parametrize("lt", [True, False])
@pytest.mark.parametrize("offset", [0, 4])
def test_layers(gpu: FakeGpu, lt: bool, offset: int, monkeypatch: Any) -> None:
    gpu.lt = lt
    values = [RNG.normal(size=s).astype(np.float32) for s in ((40, 30), (30, 20), (20,), (20, 9))]
    values[1][:, 3] = np.nan
    run = plans.CudaExecutable(plan(recorded(layers, *values).program), gpu)
    references = []
    for i in range(8):
        args = [placed(gpu, x * (i + 1), offset * (k == i % 4)) for k, x in enumerate(values)]
        (actual,) = run(args)
        references.append((args, actual))
        names = gpu.driver.names()
        fast = lt and offset == 0
        if i < 2:
            assert names.count("product lt") == 2 * fast
            assert names.count("row") == 2 * fast
            assert names.count("product") == 2 * (not fast)
            assert names.count("launch") == 2 * (not fast)
    for args, actual in references:
        np.testing.assert_allclose(actual, layers(*map(np.asarray, args)), rtol=1e-4, atol=1e-4)


def test_a_layer_that_python_computes(gpu: FakeGpu, monkeypatch: Any) -> None:
    monkeypatch.setattr(FakeGpu, "product", lambda *_: False)
    values = [RNG.normal(size=s).astype(np.float32) for s in ((40, 30), (30, 20), (20,), (20, 9))]
    run = plans.CudaExecutable(plan(recorded(layers, *values).program), gpu)
    (actual,) = run([placed(gpu, x) for x in values])
    np.testing.assert_allclose(actual, layers(*values), rtol=1e-4, atol=1e-4)


def test_products_that_come_again_have_graphs_whatever_else_moves(gpu: FakeGpu) -> None:
    def step(w: Any, x: Any, b: Any) -> Any:
        return np.tanh(x @ w) + b

    values = [RNG.normal(size=s) for s in ((30, 20), (40, 30), (20,))]
    run = plans.CudaExecutable(plan(recorded(step, *values).program), gpu)
    weights = [placed(gpu, RNG.normal(size=(30, 20))) for _ in range(3)]
    batches = [placed(gpu, RNG.normal(size=(40, 30))) for _ in range(2)]
    references = []
    for i in range(60):
        b = placed(gpu, RNG.normal(size=20))  # never where one was before
        references.append(b)
        args = [weights[i % 3], batches[i % 2], b]
        (actual,) = run(args)
        np.testing.assert_allclose(actual, step(*args))
        if i == 29:
            before = run.counts()
    counts = run.counts()
    assert counts.captures <= 8
    assert counts.recordings == before.recordings
    assert counts.updates > before.updates


def test_the_graph_that_was_not_used_for_longest_goes(gpu: FakeGpu) -> None:
    def step(w: Any, x: Any) -> Any:
        return np.tanh(x @ w)

    values = [RNG.normal(size=s) for s in ((30, 20), (40, 30))]
    run = plans.CudaExecutable(plan(recorded(step, *values).program), gpu)
    weights = [placed(gpu, RNG.normal(size=(30, 20))) for _ in range(12)]
    x = placed(gpu, values[1])
    for phase in range(3):  # each works with four others
        for i in range(150):
            args = [weights[4 * phase + i % 4], x]
            np.testing.assert_allclose(run(args)[0], step(*args))
            if i == 100:
                before = run.counts()
        assert run.counts().recordings == before.recordings
        assert run.counts().captures == before.captures
