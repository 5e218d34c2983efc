"""Algorithms of cuBLASLt on a GPU: measured once, kept, and right."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import recorded

import adarray
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning import planner as planning
from adarray.compiler.rewrite import accumulate
from adarray.errors import BackendError

pytestmark = pytest.mark.gpu
plan = partial(planning.plan, target=GPU)
SHAPE = 320, 272, 416  # more than algorithms.LARGE


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    """Return a folder that choices are kept in, which knows of none; skip without a GPU."""
    try:
        adarray.use("cuda")
    except BackendError as error:
        pytest.skip(str(error))
    from adarray_backends.cuda import algorithms, lt

    if lt.library() is None:
        pytest.skip("there is no cuBLASLt")
    monkeypatch.setenv("ADARRAY_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(algorithms, "_choices", {})
    return tmp_path / "adarray-kernels" / "cuda"


def forms() -> list[Any]:
    """Return products of several kinds, as cuBLAS knows them."""
    from adarray_backends.cuda import cublas, lt
    from adarray_backends.cuda.cublas import Matrix

    m, n, k = SHAPE
    forms_of = []
    for dtype, value in (("float32", ""), ("float64", ""), ("float32", "float16")):
        for transposed in range(4):
            a = Matrix(0, m, k, (1, m) if transposed & 1 else (k, 1))
            b = Matrix(0, k, n, (1, k) if transposed & 2 else (n, 1))
            numbers = cublas.numbers(a, b, Matrix(0, m, n, (n, 1)), dtype, factors=value)
            forms_of += [lt.MatmulForm(numbers), lt.MatmulForm(numbers, -0.5, n)]
    return forms_of


def test_every_proposal_is_right() -> None:
    import cupy
    from adarray_backends.cuda import lt

    rng = np.random.default_rng(0)
    m, n, k = SHAPE
    workspace = cupy.cuda.alloc(lt.WORKSPACE)
    for form in forms():
        turned_b, turned_a = form.numbers[:2]
        kind, output = form.numbers[12:14]
        options = {0: np.float32, 1: np.float64, 2: np.float16}[kind]
        result = np.float64 if output else np.float32
        x, y = (cupy.asarray(rng.normal(size=s).astype(options)) for s in ((m, k), (k, n)))
        w = cupy.asarray(rng.normal(size=(m, n)).astype(result))
        a = cupy.ascontiguousarray(x.T) if turned_a else x
        b = cupy.ascontiguousarray(y.T) if turned_b else y
        expected = form.scale * (x.astype(np.float64) @ y.astype(np.float64))
        expected += w if form.added else 0
        product = lt.LtMatmul(form)
        proposals = product.proposals(8)
        assert proposals
        for algorithm in proposals:
            assert product.suits(algorithm)
            product.take(algorithm)
            out = cupy.full((m, n), np.nan, result)
            stream = cupy.cuda.get_current_stream().ptr
            added = w.data.ptr if form.added else 0
            places = b.data.ptr, a.data.ptr, out.data.ptr, added, workspace.ptr
            assert product.run(*places, stream) == 0
            # Sums of float32 have 416 terms of either sign.
            np.testing.assert_allclose(out.get(), expected.get(), rtol=0, atol=2e-4)


def test_a_choice_is_measured_once(folder: Path, monkeypatch: Any) -> None:
    from adarray_backends.cuda import algorithms

    chosen = forms()
    first = [algorithms.chosen(f) for f in chosen]
    assert len(list(folder.glob("*.algorithm"))) == len(chosen)
    assert all(p is not None for p, f in zip(first, chosen, strict=True) if f.added)

    def again(*_: Any) -> Any:
        raise AssertionError("measured a second time")

    monkeypatch.setattr(algorithms, "_choices", {})
    monkeypatch.setattr(algorithms, "_fastest", again)
    for form, before in zip(chosen, first, strict=True):
        now = algorithms.chosen(form)
        assert (now is None) == (before is None)
        if now is not None and before is not None:
            assert tuple(now.algorithm.words) == tuple(before.algorithm.words)
            assert now.workspace == before.workspace


def test_damaged_choices_are_made_again(folder: Path, monkeypatch: Any) -> None:
    from adarray_backends.cuda import algorithms

    form = forms()[1]
    algorithms.chosen(form)
    (path,) = folder.glob("*.algorithm")
    whole = path.read_text()
    for text in ("", whole[:-5], "{}", json.dumps({"words": [1, 2], "workspace": 0})):
        path.write_text(text)
        monkeypatch.setattr(algorithms, "_choices", {})
        assert algorithms.chosen(form) is not None
        assert json.loads(path.read_text()).keys() == {"words", "workspace"}
    # No algorithm of this library: nothing is computed with it.
    path.write_text(json.dumps({"words": [2**60] * 8, "workspace": 0}))
    monkeypatch.setattr(algorithms, "_choices", {})
    assert algorithms.chosen(form) is None


def test_nothing_is_measured_if_that_is_switched_off(folder: Path, monkeypatch: Any) -> None:
    from adarray_backends.cuda import algorithms

    monkeypatch.setenv("ADARRAY_TUNE", "0")
    plain, added = forms()[:2]
    assert algorithms.chosen(plain) is None
    assert algorithms.chosen(added) is not None
    assert not list(folder.glob("*.algorithm"))


def test_nothing_is_measured_in_a_capture(folder: Path) -> None:
    import cupy
    from adarray_backends.cuda import algorithms

    form = forms()[0]
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        assert algorithms.chosen(form) is None
        stream.end_capture()
    assert not list(folder.glob("*.algorithm"))
    algorithms.chosen(form)
    assert list(folder.glob("*.algorithm"))


@pytest.mark.parametrize("precision", ["float32", "tf32"])
@pytest.mark.parametrize("aligned", [True, False])
def test_steps_of_gradient_descent(precision: str, aligned: bool, monkeypatch: Any) -> None:
    import cupy
    from adarray_backends.cuda import plans

    monkeypatch.setattr(accumulate, "LEAST", 0)

    def step(w: Any, x: Any, g: Any) -> Any:
        return w - 0.1 * (x.T @ g)

    rng = np.random.default_rng(1)
    m, n, k = SHAPE
    values = [rng.normal(size=s).astype(np.float32) for s in ((m, n), (k, m), (k, n))]
    run = plans.executable(plan(recorded(step, *values).program), precision)
    expected = step(*(v.astype(np.float64) for v in values))
    references = []
    for _ in range(6):
        args = []
        for v in values:
            memory = cupy.empty(v.size + 1, np.float32)
            x = (memory[:-1] if aligned else memory[1:]).reshape(v.shape)
            x[...] = cupy.asarray(v)
            args.append(x)
        references.append((args, run.run(args)))
    for _, (actual,) in references:
        tolerance = 2e-5 if precision == "float32" else 2e-2
        np.testing.assert_allclose(actual.get(), expected, rtol=0, atol=tolerance)


def test_first_operands_are_turned_for_tensor_cores() -> None:
    import cupy
    from adarray_backends.cuda import products, rounding

    for rows, columns in ((64, 64), (100, 260), (67, 131), (1, 5), (1000, 12)):
        x = cupy.random.standard_normal((rows, columns + 4), dtype=np.float32)[:, :columns]
        pitch = rounding.pitch_of(rows)
        to = cupy.full((columns, pitch), np.nan, np.float32)
        rounding.transpose(x.data.ptr, to.data.ptr, rows, columns, columns + 4)
        assert (to[:, :rows] == x.T).all()
        assert cupy.isnan(to[:, rows:]).all()
    k, m, n = 1024, 1100, 1028
    x, g = (cupy.random.standard_normal(s, dtype=np.float32) for s in ((k, m), (k, n)))
    assert products._across(*map(products.stack_of, (x.T, g)), "float32", "tf32")
    actual = products.matmul(x.T, g, "tf32")
    exact = x.T.astype(np.float64) @ g.astype(np.float64)
    assert 1e-4 < float(cupy.linalg.norm(actual - exact) / cupy.linalg.norm(exact)) < 6e-4


@pytest.mark.parametrize("precision", ["float32", "tf32"])
@pytest.mark.parametrize("relu", [True, False])
def test_layers(precision: str, relu: bool) -> None:
    import cupy
    from adarray_backends.cuda import plans

    def layers(x: Any, w: Any, b: Any, v: Any) -> Any:
        h = x @ w + b
        return (np.maximum(h, 0) if relu else h) @ v

    rng = np.random.default_rng(1)
    m, n, k = SHAPE
    values = [rng.normal(size=s).astype(np.float32) for s in ((m, k), (k, n), (n,), (n, 24))]
    new_plan = plan(recorded(layers, *values).program)
    assert new_plan.steps[0].row is not None  # type: ignore[union-attr]
    run = plans.executable(new_plan, precision)
    for i in range(5):
        args = [cupy.asarray(x) for x in values]
        args[0] *= i + 1
        if i == 3:  # what is not a number stays that
            args[0][7] = np.nan
        expected = layers(*(x.get().astype(np.float64) for x in args))
        (actual,) = run.run(args)
        scale = np.nanmax(np.abs(expected))
        tolerance = {"float32": 2e-6, "tf32": 2e-3}[precision] * scale
        np.testing.assert_allclose(actual.get(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_proposals_give_the_same_bits_every_time(precision: str) -> None:
    import cupy
    from adarray_backends.cuda import cublas, lt
    from adarray_backends.cuda.cublas import Matrix

    m, n, k = 512, 1024, 4096
    x, y = (cupy.random.standard_normal(s, dtype=np.float32) for s in ((m, k), (k, n)))
    a, b = Matrix(x.data.ptr, m, k, (k, 1)), Matrix(y.data.ptr, k, n, (n, 1))
    numbers = cublas.numbers(a, b, Matrix(0, m, n, (n, 1)), "float32", precision)
    product = lt.LtMatmul(lt.MatmulForm(numbers))
    workspace = cupy.cuda.alloc(lt.WORKSPACE)
    stream = cupy.cuda.get_current_stream()
    other = cupy.cuda.Stream(non_blocking=True)
    for algorithm in product.proposals(12):
        product.take(algorithm)
        results = []
        for i in range(8):
            out = cupy.empty((m, n), np.float32)
            if i % 2:  # blocks are placed otherwise
                with other:
                    cupy.sin(x)
            places = y.data.ptr, x.data.ptr, out.data.ptr, 0, workspace.ptr
            assert product.run(*places, stream.ptr) == 0
            results.append(out)
        assert all((r == results[0]).all() for r in results)
