"""What the launcher of compiled plans does, with a driver that is none: see fake_gpu.py."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_gpu import FakeArray, FakeGpu
from launched import SHAPES, check, executable, moved, values
from random_recordings import random_recordings
from recorded import recorded

from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning import planner as planning
from adarray.compiler.rewrite.fourier import fourier
from adarray.compiler.schedule.gpu.schedules import ColumnStrips
from adarray.compiler.stencil import strips
from adarray.errors import BackendError, CompileError

pytest.importorskip("adarray_native._device")
from adarray_backends.cuda import instances, operands, plans

plan = partial(planning.plan, target=GPU)
RNG = np.random.default_rng(12)


@pytest.fixture
def gpu(tmp_path: Path) -> FakeGpu:
    return FakeGpu(tmp_path)


@pytest.mark.slow
def test_random_programs(tmp_path: Path) -> None:
    gpu = FakeGpu(tmp_path)
    done = 0
    for r in random_recordings(range(12), gradients=False):
        run = plans.CudaExecutable(plan(r.program), gpu)
        for _ in range(2):
            check(r, run, r.arrays)
        done += 1
    assert done > 6


def test_one_kernel(gpu: FakeGpu) -> None:
    r, run = executable(gpu, lambda x: np.exp(x) * 2 + 1, [RNG.normal(size=100)])
    x = [moved(a) for a in r.arrays]
    ways = []
    for _ in range(40):
        actual = run(x)[0]
        np.testing.assert_allclose(actual, np.exp(r.arrays[0]) * 2 + 1)
        ways.append("+".join(gpu.driver.names()))
    assert ways[:2] == ["launch", "launch"]
    assert all(w.endswith("replay") for w in ways[2:])
    assert ways[-1] in ("replay", "set+replay")
    _, run = executable(gpu, lambda x: np.exp(x) * 2 + 1, [RNG.normal(size=100)], graphs=False)
    gpu.driver.names()
    for _ in range(4):
        check(r, run, r.arrays)
        assert gpu.driver.names() == ["launch"]


def replayed(r: Any, run: Any, inputs: list[Any], driver: Any) -> list[str]:
    """Run; compare with the interpreter; return what the driver was asked for."""
    driver.names()
    expected = interpret(r.program, [np.asarray(a) for a in inputs])
    for got, want in zip(run(inputs), expected, strict=True):
        np.testing.assert_allclose(got, want)
    names = driver.names()
    assert "replay" in names
    return names  # type: ignore[no-any-return]


def test_kernels_in_a_graph_are_given_new_addresses(gpu: FakeGpu) -> None:
    r, run = executable(
        gpu, lambda x, y: (np.exp(x) * y, np.sum(x * y)), [np.ones(300), np.ones(300)]
    )
    references = []
    for _ in range(40):
        inputs = [moved(RNG.normal(size=300)) for _ in range(2)]
        references.append((run(inputs), interpret(r.program, [np.asarray(a) for a in inputs])))
    for actual, expected in references:  # no result was overwritten by a later run
        for got, want in zip(actual, expected, strict=True):
            np.testing.assert_allclose(got, want)
    counts = run.counts()
    assert counts.replays == 38
    assert counts.captures == 1
    assert counts.updates >= 37
    assert counts.recordings == 0


@pytest.mark.parametrize("product", [False, True])
def test_a_graph_of_the_caller_holds_the_steps(gpu: FakeGpu, product: bool) -> None:
    f = (lambda x: np.exp(x) @ x) if product else (lambda x: np.exp(x) * 2 + 1)
    r, run = executable(gpu, f, [RNG.normal(size=(20, 20))])
    stream, graph = gpu.stream().ptr, gpu.driver.ffi.new("void *[1]")
    for calls in (0, 1, 40):  # before plans have graphs, and where they have
        for _ in range(calls):
            run([moved(RNG.normal(size=(20, 20)))])
        x = moved(RNG.normal(size=(20, 20)))
        gpu.driver.names()
        pointer = gpu.driver.ffi.cast("void *", stream)
        gpu.driver.cuStreamBeginCapture_v2(pointer, 0)
        (result,) = run([x])
        gpu.driver.cuStreamEndCapture(pointer, graph)
        assert not {"replay", "synchronize", "instantiate"} & set(gpu.driver.names())
        for _ in range(2):
            np.asarray(x)[...] = RNG.normal(size=(20, 20))
            assert gpu.driver.cuGraphLaunch(graph[0], pointer) == 0
            np.testing.assert_allclose(result, interpret(r.program, [np.asarray(x)])[0])
        check(r, run, r.arrays)


def test_graphs_with_products_are_recorded_again(gpu: FakeGpu) -> None:
    r, run = executable(gpu)
    inputs = [moved(a) for a in r.arrays]
    references = []
    for k in range(14):
        inputs[3] = moved(RNG.normal(size=SHAPES[3]))
        references.append(inputs[3])  # no address comes twice
        if k < 2:
            run(inputs)
        else:
            names = replayed(r, run, inputs, gpu.driver)
            assert ("instantiate" in names) == (k == 2)
            assert ("update" in names) == (k > 2)
    counts = run.counts()
    assert counts == (12, 1, 0, 11)


@pytest.mark.parametrize("gaps", [False, True])
def test_an_input_of_products_that_moves_all_the_time_is_copied(gpu: FakeGpu, gaps: bool) -> None:
    def batch() -> np.ndarray:
        rows, columns = SHAPES[3]
        return (
            RNG.normal(size=(rows, 2 * columns))[:, columns:]
            if gaps
            else RNG.normal(size=SHAPES[3])
        )

    r, run = executable(gpu, args=[*values()[:3], batch()])
    inputs = [moved(a) for a in r.arrays]
    references, copies = [], 0
    for k in range(60):
        inputs[3] = moved(batch())
        references.append(inputs[3])
        if k < 2:
            run(inputs)
            continue
        names = replayed(r, run, inputs, gpu.driver)
        copies += names.count("copy")
        if k > 22:
            assert names.count("copy") == 1
            assert "update" not in names
    assert copies > 30
    assert run.counts().captures <= instances.GRAPHS


def test_addresses_that_come_again_have_graphs_of_their_own(gpu: FakeGpu) -> None:
    r, run = executable(gpu)
    sets = [[moved(a) for a in r.arrays] for _ in range(3)]
    expected = interpret(r.program, r.arrays)
    actual: Any = None
    for k in range(60):
        actual = run(sets[k % 3])
        for got, want in zip(actual, expected, strict=True):
            np.testing.assert_allclose(got, want)
    assert gpu.driver.names()[-1] == "replay"
    counts = run.counts()
    assert counts.captures <= instances.GRAPHS
    before = counts.recordings
    for k in range(30):
        actual = run(sets[k % 3])
    assert run.counts().replays == 88
    assert run.counts().captures + run.counts().recordings <= counts.captures + before + 5


def test_graphs_are_not_made_without_end(gpu: FakeGpu) -> None:
    _, run = executable(gpu)
    many = [[moved(a) for a in values()] for _ in range(12)]
    for k in range(300):
        run(many[int(RNG.integers(12))] if k % 2 else many[k % 12])
    counts = run.counts()
    assert counts.captures <= 2 * instances.GRAPHS
    assert len([n for n, _ in gpu.driver.log if n == "instantiate"]) == counts.captures


def test_what_cannot_be_recorded_is_launched(gpu: FakeGpu) -> None:
    for name in ("begin", "end", "instantiate"):
        r, run = executable(gpu)
        inputs = [moved(a) for a in r.arrays]
        gpu.driver.failing[name] = 900
        for _ in range(5):
            run(inputs)
        assert run.counts().replays == 0
        check(r, run, r.arrays)


def test_one_runner_at_a_time_records(gpu: FakeGpu) -> None:
    r, run = executable(gpu)
    inputs = [moved(a) for a in r.arrays]
    gpu.busy[0] = 1  # somebody else does
    for _ in range(5):
        run(inputs)
    assert run.counts() == (0, 0, 0, 0)
    gpu.busy[0] = 0
    replayed(r, run, inputs, gpu.driver)
    assert gpu.busy[0] == 0


def test_graphs_that_cannot_be_changed_are_made_anew(gpu: FakeGpu) -> None:
    r, run = executable(gpu)
    inputs = [moved(a) for a in r.arrays]
    for _ in range(6):
        run(inputs)
    gpu.driver.failing["set"] = 900
    inputs[1] = moved(r.arrays[1] + 3)  # the bias is read by kernels alone
    replayed(r, run, inputs, gpu.driver)
    gpu.driver.failing["update"] = 910
    for _ in range(20):  # no more than are paid for
        gpu.driver.failing["update"] = 910
        inputs[3] = moved(RNG.normal(size=SHAPES[3]))
        expected = interpret(r.program, [np.asarray(a) for a in inputs])
        for got, want in zip(run(inputs), expected, strict=True):
            np.testing.assert_allclose(got, want)
    assert run.counts().captures <= instances.GRAPHS


def test_threads_on_one_stream(gpu: FakeGpu) -> None:
    r, run = executable(gpu)
    expected = interpret(r.program, r.arrays)
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(10):
            for got, want in zip(run([moved(a) for a in r.arrays]), expected, strict=True):
                if not np.allclose(got, want):
                    wrong.append((got, want))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_numbers_stand_for_arrays(gpu: FakeGpu) -> None:
    r, run = executable(gpu, lambda x, k: x * k + 1, [RNG.normal(size=50), np.array(3.0)])
    x = moved(r.arrays[0])
    for k in (2.5, np.float32(4), np.float64(-1), 7):
        np.testing.assert_allclose(run([x, k])[0], np.asarray(x) * float(k) + 1)
    assert "send" in gpu.driver.names()
    with pytest.raises(TypeError, match="input 0 is not the array of 50 elements of float64"):
        run([2.0, 2.0])


def test_wrong_arrays_are_refused(gpu: FakeGpu) -> None:
    r, run = executable(gpu, np.exp, [RNG.normal(size=50)])
    with pytest.raises(TypeError, match="input 0 is not the array of 50 elements of float64 on"):
        run([moved(np.zeros(49))])
    with pytest.raises(TypeError, match="input 0 is not the array of 50 elements of float64 on"):
        run([moved(np.zeros(50, np.float32))])
    check(r, run, r.arrays)


def gathered(x: Any, k: Any) -> Any:
    return np.exp(x[k])


def test_an_index_out_of_range_is_an_error_of_that_call(gpu: FakeGpu) -> None:
    args = [RNG.normal(size=9), np.array([1, 2, 8])]
    r, run = executable(gpu, gathered, args)
    check(r, run, r.arrays)
    assert gpu.driver.names() == ["launch", "launch"]  # a check, which says that it is over
    x = moved(r.arrays[0])
    with pytest.raises(BackendError, match="refused its data with code"):
        run([x, moved(np.array([1, 2, 9]))])
    check(r, run, r.arrays)
    requests = []
    _, other = executable(
        gpu, gathered, args, rerun=lambda *args: requests.append(args) or ["again"]
    )
    assert other([x, moved(np.array([1, 2, 9]))]) == ["again"]
    assert requests[0][1] == 0
    assert requests[0][2] != 0
    assert requests[0][3] is None


def test_a_launch_that_fails_names_its_step(gpu: FakeGpu) -> None:
    r, run = executable(gpu)
    gpu.driver.failing["launch"] = 719
    with pytest.raises(BackendError) as caught:
        run([moved(a) for a in r.arrays])
    text = str(caught.value)
    assert "could not be launched: CUDA_ERROR_719" in text
    assert "ADARRAY_CHECK=1" in text
    source = text.split("its source is ")[1].split(";")[0]
    assert "__global__" in Path(source).read_text()
    check(r, run, r.arrays)
    gpu.driver.failing["product"] = 13
    with pytest.raises(BackendError, match=r"\(matmul.*cuBLAS's status 13"):
        run([moved(a) for a in r.arrays])


def test_checks_find_the_step_that_faults(gpu: FakeGpu, monkeypatch: Any) -> None:
    monkeypatch.setenv("ADARRAY_CHECK", "1")
    r, run = executable(gpu)
    check(r, run, r.arrays)
    names = gpu.driver.names()
    assert names.count("synchronize") == len(run.plan.steps)
    gpu.driver.failing["synchronize"] = 700
    with pytest.raises(BackendError, match=r"step 0 of .* failed: CUDA_ERROR_700") as caught:
        run([moved(a) for a in r.arrays])
    assert "ADARRAY_CHECK" not in str(caught.value)


def test_a_thread_that_has_not_called_the_driver(gpu: FakeGpu) -> None:
    r, run = executable(gpu)
    gpu.driver.failing["launch" if run.encoder.kernels.get(0) else "product"] = (
        201 if run.encoder.kernels.get(0) else 13
    )
    if not run.encoder.kernels.get(0):
        gpu.driver.failing.clear()
        r, run = executable(gpu, np.exp, [RNG.normal(size=50)])
        gpu.driver.failing["launch"] = 201
    check(r, run, r.arrays)
    assert "attach" in gpu.driver.names()


def test_steps_that_python_runs_split_the_graph(gpu: FakeGpu) -> None:
    def f(x: Any, w: Any) -> Any:
        h = np.exp(x @ w)
        k = np.sort(h, axis=None)
        return np.sum(np.tanh((k[:20].reshape(4, 5) @ w[:5]) * 2)), h + 1

    r, run = executable(gpu, f, [RNG.normal(size=(6, 7)), RNG.normal(size=(7, 9))])
    assert len(run.segments) > 1
    for _ in range(3):
        check(r, run, r.arrays)
    assert "call" in gpu.driver.names()


def test_transforms_and_complex_values_are_copied_once(gpu: FakeGpu) -> None:
    """Where cuFFT has no plan, and of functions that kernels do not compute."""
    gpu.cufft = False

    def filtered(x: Any, w: Any) -> Any:
        return np.fft.irfft(np.log(np.fft.rfft(np.tanh(x)) * w + 20))

    r, run = executable(gpu, filtered, [RNG.normal(size=(6, 16)), RNG.normal(size=9)])
    for _ in range(3):
        check(r, run, r.arrays)
    log = [(name, about) for name, about in gpu.driver.log if name in ("call", "write")]
    assert log == [("call", fourier), ("write", np.log), ("call", fourier)] * 3


def test_complex_ufuncs_that_a_library_lacks_are_called(gpu: FakeGpu) -> None:
    z = RNG.normal(size=(5, 4)) + 1j
    r, run = executable(gpu, lambda z: (np.arctan(np.log(z)), np.sum(z, axis=0)), [z])
    check(r, run, r.arrays)
    log = [x for x in gpu.driver.log if x[0] in ("call", "write")]
    assert log == [("write", np.log), ("call", np.arctan)]


def test_functions_of_users_may_keep_their_operands(gpu: FakeGpu) -> None:
    assert operands.keeps_nothing(np.multiply)
    assert operands.keeps_nothing(fourier)
    assert operands.keeps_nothing(np.fft.rfft)
    assert not operands.keeps_nothing(lambda x: x)


def test_donated_inputs_come_back(gpu: FakeGpu) -> None:
    r = recorded(lambda x, y: x + y, RNG.normal(size=40), RNG.normal(size=40))
    run = plans.CudaExecutable(plan(r.program, donated=((0, 0),)), gpu)
    assert [b.donor for b in run.plan.buffers if b.kind == "output"] == [0]
    x, y = (moved(a) for a in r.arrays)
    (actual,) = run([x, y])
    assert actual is x
    np.testing.assert_allclose(actual, r.arrays[0] + r.arrays[1])


def test_products_of_other_kinds_are_made_by_python(gpu: FakeGpu) -> None:
    r, run = executable(
        gpu, lambda a, b: np.exp(a @ b), [RNG.normal(size=(3, 4)), RNG.normal(size=4)]
    )
    check(r, run, r.arrays)
    a = RNG.normal(size=(2, 1, 3, 4))
    r, run = executable(gpu, lambda a, b: np.exp(a @ b), [a, RNG.normal(size=(5, 4, 6))])
    check(r, run, r.arrays)
    assert "multiply" in gpu.driver.names()
    a = RNG.normal(size=(5, 30, 40))
    r, run = executable(gpu, lambda a, b: np.exp(a @ b), [a, RNG.normal(size=(40, 60))])
    check(r, run, r.arrays)
    assert "product" in gpu.driver.names()


def test_arrays_of_another_gpu_are_refused(gpu: FakeGpu, monkeypatch: Any) -> None:
    monkeypatch.setattr(FakeGpu, "several", True)
    r, run = executable(gpu, np.exp, [RNG.normal(size=50)])
    check(r, run, r.arrays)

    class Elsewhere:
        size = 50
        data = type("Pointer", (), {"device_id": 1, "ptr": 0})

    with pytest.raises(BackendError, match=r"input 0 is on GPU 1, and .*to_device\('cuda:0'\)"):
        run([Elsewhere()])


def test_operands_that_are_converted_before_a_product(gpu: FakeGpu) -> None:
    r, run = executable(gpu, precision="bf16")
    inputs = [moved(a) for a in r.arrays]
    expected = interpret(r.program, r.arrays)
    for _ in range(5):
        for got, want in zip(run(inputs), expected, strict=True):
            np.testing.assert_allclose(got, want)
    names = gpu.driver.names()
    assert "multiply" not in names
    assert run.counts().replays > 0
    # An input that lies between multiples of 16 bytes has a plan of its own.
    memory = np.zeros(inputs[0].nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 16 + 8
    odd = memory[start : start + inputs[0].nbytes].view(np.float64).reshape(SHAPES[0])
    odd[...] = r.arrays[0]
    inputs[0] = odd.view(FakeArray)
    for got, want in zip(run(inputs), expected, strict=True):
        np.testing.assert_allclose(got, want)
    assert run.loose is not None
    run.instances.idle.clear()
    for got, want in zip(run.timed(inputs)[0], expected, strict=True):
        np.testing.assert_allclose(got, want)
    assert not run.instances.idle  # it ran there as well


@pytest.mark.parametrize("kind", [float, np.float64])
def test_numbers_where_inputs_must_be_aligned(
    kind: Any, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def heat(u: Any, rate: Any) -> Any:
        for _ in range(4):
            u = u + rate * (np.roll(u, 1, 0) + np.roll(u, -1, 1) - 2.0 * u)
        return u

    monkeypatch.setattr(strips, "LARGE", 1)
    r, run = executable(gpu, heat, [RNG.normal(size=(40, 128)), kind(0.5)])
    assert {type(k.schedule) for k in run.encoder.kernels.values()} == {ColumnStrips}
    assert run.encoder.wants_aligned  # the number's slot is among them
    u = moved(r.arrays[0])
    for rate in (0.5, 0.25, 0.125, 0.5):
        (got,) = run([u, kind(rate)])
        np.testing.assert_allclose(got, heat(r.arrays[0], rate), rtol=1e-12)
    assert run.loose is None


def test_source_that_does_not_compile_is_kept(tmp_path: Path, monkeypatch: Any) -> None:
    from types import SimpleNamespace

    from adarray_backends.cuda import nvrtc
    from adarray_native import cache

    class RefusedError(Exception):
        pass

    def refuse(source: str, options: Any, arch: str, name: str) -> None:
        raise RefusedError("expected a ;")

    monkeypatch.setattr(cache, "usual_folder", lambda: tmp_path)
    compiler = SimpleNamespace(CompileException=RefusedError, compile_using_nvrtc=refuse)
    cupy = SimpleNamespace(
        cuda=SimpleNamespace(
            compiler=compiler,
            Device=lambda: SimpleNamespace(compute_capability="90"),
            nvrtc=SimpleNamespace(getVersion=lambda: (13, 0)),
            function=SimpleNamespace(Module=lambda: SimpleNamespace(load=len)),
        )
    )
    with pytest.raises(CompileError, match=r"NVRTC does not compile .*: expected a ;") as caught:
        nvrtc.load(cupy, "void f() { x }", ("f",))
    assert Path(caught.value.source).read_text() == "void f() { x }"


def test_a_plan_without_steps_gives_its_inputs(gpu: FakeGpu) -> None:
    x = RNG.normal(size=5)
    r, run = executable(gpu, lambda x: x, [x])
    check(r, run, [x])
