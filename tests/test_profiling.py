"""`profile`: what is measured, how it adds up, nesting, threads, and the trace file."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from planned import Executable, M, N, example

import adarray
from adarray.base.runtime import MODE, WRAP
from adarray.base.spans import RECORDER, Span, span
from adarray.compiler.ir.interpret import Interpreted
from adarray.jitting.explain.costs import cost
from adarray.jitting.tree.timed import run_timed
from adarray.profiling import ProfilingEngine, own_times

X = np.linspace(0.1, 2, 50)


def loss(x):
    return np.sum(np.sin(x) * x)


def by_name(p, kind):
    return {row.name: row for row in p.rows() if row.kind == kind}


@pytest.fixture
def product():
    """Matrices and a function with a product, whose rules have operations inside."""
    a = np.random.default_rng(0).normal(size=(20, 20))
    return a, lambda x: np.sum((x @ a) ** 2)


def test_operations_and_rules_are_counted():
    adarray.grad(loss)(X)
    with adarray.profile() as p:
        for _ in range(3):
            adarray.grad(loss)(X)
    ops, rules = by_name(p, "op"), by_name(p, "rule")
    assert {name: row.calls for name, row in ops.items()} == {"sin": 3, "multiply": 3, "sum": 3}
    assert {name: row.calls for name, row in rules.items()} == {
        "sum, operand 0": 3,
        "multiply, operand 0": 3,
        "multiply, operand 1": 3,
        "sin, operand 0": 3,
    }
    assert by_name(p, "backward")["reverse walk"].calls == 3


def test_bytes_and_shapes():
    with adarray.profile() as p:
        np.multiply(adarray.array(np.ones((4, 5))), np.ones(5, np.float32))
    (s,) = p.spans
    assert s[:2] == ("op", "multiply")
    assert s.moved == 8 * 20 + 4 * 5 + 8 * 20
    assert s.shapes == ((4, 5), (5,))
    (row,) = p.rows("shapes")
    assert row.at == "4x5 5"
    assert row.rate == pytest.approx(s.moved / row.total)


def test_times_add_up(product):
    a, f = product
    with adarray.profile() as p:
        adarray.grad(f)(a)
    rows = p.rows()
    assert sum(r.own for r in rows) <= p.elapsed
    assert sum(r.share for r in rows) == pytest.approx(sum(r.own for r in rows) / p.elapsed)
    assert all(
        r.own <= r.total + 1e-12 and r.mean * r.calls == pytest.approx(r.total) for r in rows
    )
    assert rows == sorted(rows, key=lambda r: -r.total)
    walk = by_name(p, "backward")["reverse walk"]
    rules = sum(r.total for r in rows if r.kind == "rule")
    assert walk.total > rules
    assert walk.own == pytest.approx(walk.total - rules, abs=1e-9)
    # the product's rule is itself a product
    assert (
        by_name(p, "rule")["matmul, operand 0"].own < by_name(p, "rule")["matmul, operand 0"].total
    )
    assert by_name(p, "op")["matmul"].calls == 2


def test_results_are_those_without(product):
    a, f = product
    for name in ("numpy", "serial", "openmp"):
        with adarray.use(name):
            plain = adarray.grad(f)(a), adarray.hessian(loss)(X)
            with adarray.profile():
                measured = adarray.grad(f)(a), adarray.hessian(loss)(X)
        for x, y in zip(plain, measured, strict=True):
            np.testing.assert_array_equal(x, y)


def test_backends_chosen_inside_are_measured_and_left():
    with adarray.profile() as p, adarray.use("serial"):
        assert adarray.current_backend() == "serial"
        large = adarray.array(np.ones(100_000))
        np.exp(large)
    assert by_name(p, "op")["exp"].calls == 1
    assert adarray.current_backend() == "numpy"
    assert MODE.get() is None
    assert WRAP.get() is None
    assert RECORDER.get() is None


def test_profiles_nest():
    with adarray.profile() as outer:
        np.sin(adarray.array(X))
        with adarray.profile() as inner:
            np.cos(adarray.array(X))
        np.tan(adarray.array(X))
    assert [s.name for s in outer.spans] == ["sin", "cos", "tan"]
    assert [s.name for s in inner.spans] == ["cos"]
    assert inner.elapsed < outer.elapsed


def test_an_engine_is_wrapped_once():
    with adarray.profile(), adarray.profile(), adarray.use("serial"):
        engine = MODE.get().engine
        assert isinstance(engine, ProfilingEngine)
        assert not isinstance(engine.wrapped, ProfilingEngine)
        assert engine.innermost is engine.wrapped


def test_it_ends_with_the_block_whatever_happens():
    p = adarray.profile()

    def fail():
        with p:
            np.sin(adarray.array(X))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    np.cos(adarray.array(X))
    assert [s.name for s in p.spans] == ["sin"]
    assert MODE.get() is None
    with pytest.raises(RuntimeError, match="profile: this one was entered before; make a new one"):
        p.__enter__()


def test_errors_are_measured_and_raised():
    with adarray.profile() as p, pytest.raises(ValueError, match="broadcast"):
        adarray.array(np.ones(3)) + np.ones(4)
    assert p.spans == []
    with adarray.profile() as p, pytest.raises(KeyError), span("trace", "f"):
        raise KeyError
    assert [s[:2] for s in p.spans] == [("trace", "f")]


def test_debug_nans_within_and_around():
    def bad(x):
        return np.sum(np.sqrt(x) * x)

    with adarray.profile() as p, adarray.debug_nans():
        adarray.grad(bad)(np.ones(3))
        with pytest.raises(FloatingPointError, match="derivative with respect to operand 0"):
            adarray.grad(bad)(np.zeros(3))
    assert by_name(p, "op")["sqrt"].calls == 2
    error = pytest.raises(FloatingPointError, match="derivative with respect to operand 0")
    with adarray.debug_nans(), adarray.profile() as p, error:
        adarray.grad(bad)(np.zeros(3))
    assert by_name(p, "op")["sqrt"].calls == 1


def test_workers_in_a_copied_context():
    barrier = threading.Barrier(2)

    def work(k):
        barrier.wait()
        return [np.sin(adarray.array(X)) for _ in range(k)]

    with adarray.profile() as p, ThreadPoolExecutor(2, "worker") as pool:
        list(pool.map(adarray.copy_context(work), (5, 7)))
    assert by_name(p, "op")["sin"].calls == 12
    counts = {}
    for s in p.spans:
        counts[s.thread] = counts.get(s.thread, 0) + 1
    assert sorted(counts.values()) == [5, 7]


def test_other_threads_and_their_profiles_are_apart():
    mine = []

    def work():
        np.cos(adarray.array(X))
        with adarray.profile() as p:
            np.tan(adarray.array(X))
        mine.append(p)

    with adarray.profile() as p:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        np.sin(adarray.array(X))
    assert [s.name for s in p.spans] == ["sin"]
    assert [s.name for s in mine[0].spans] == ["tan"]


def test_a_context_that_outlives_the_block_measures_nothing():
    with adarray.profile() as p:
        later = adarray.copy_context(lambda: np.sin(adarray.array(X)))
    later()
    assert p.spans == []


def test_lines():
    with adarray.profile(lines=True) as p:
        for _ in range(2):
            np.sin(adarray.array(X))
    (row,) = p.rows("line")
    line = test_lines.__code__.co_firstlineno + 3
    assert (row.at, row.calls) == (f"test_profiling.py:{line}", 2)
    assert f"test_profiling.py:{line}" in p.table("line")
    with pytest.raises(ValueError, match="by is 'size'; pass 'name', 'shapes' or 'line'"):
        p.rows("size")


def test_own_times_of_spans_inside_of_each_other():
    def made(name, start, stop, thread=1):
        return Span("op", name, start, stop, thread)

    spans = [
        made("inner", 10, 20), made("inner", 30, 45), made("outer", 5, 50), made("first", 0, 5),
        made("same", 50, 60), made("around", 50, 60), made("other", 7, 12, 2),
    ]  # fmt: skip
    own = {(s.name, s.start): t for s, t in own_times(spans)}
    assert own["outer", 5] == 45 - 25
    assert own["inner", 10] == 10
    assert own["first", 0] == 5
    assert own["other", 7] == 5
    assert own["same", 50] + own["around", 50] == 10


def test_the_table():
    with adarray.profile() as p:
        adarray.grad(loss)(X)
    lines = str(p).splitlines()
    assert lines[0].split() == [
        "kind", "name", "at", "calls", "total", "own", "mean", "share", "rate",
    ]  # fmt: skip
    assert set(lines[1]) == {"-"}
    rows = p.rows()
    assert [line.split()[0] for line in lines[2:-1]] == [r.kind for r in rows]
    assert lines[-1].startswith("measured ")
    short = p.table(limit=2).splitlines()
    assert short[-2] == f"and {len(rows) - 2} more"
    html = p._repr_html_()
    assert html.count("<tr>") == len(rows) + 1
    assert str(adarray.profile()).splitlines()[-1] == "measured 0 ns of 0 ns"


def test_the_trace_file_is_what_perfetto_reads(tmp_path, product):
    a, f = product
    with adarray.profile(lines=True) as p:
        adarray.grad(f)(a)
        thread = threading.Thread(
            target=adarray.copy_context(lambda: np.sin(adarray.array(X))), name="second"
        )
        thread.start()
        thread.join()
    p.trace(tmp_path / "t.json")
    told = json.loads((tmp_path / "t.json").read_text())
    events = told["traceEvents"]
    complete = [e for e in events if e["ph"] == "X"]
    assert len(complete) == len(p.spans)
    assert all(e["dur"] >= 0 and e["ts"] >= 0 and e["name"] and e["cat"] for e in complete)
    assert max(e["ts"] + e["dur"] for e in complete) <= p.elapsed * 1e6
    assert sum(e["dur"] for e in complete) == pytest.approx(
        sum(s.stop - s.start for s in p.spans) / 1e3
    )
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert sorted(names.values()) == ["MainThread", "second"]
    by_tid = {e["tid"] for e in complete}
    assert by_tid == set(names)
    (sin,) = (e for e in complete if e["name"] == "sin")
    assert names[sin["tid"]] == "second"
    assert sin["args"]["bytes"] == 2 * X.nbytes
    assert sin["args"]["shapes"] == "50"
    assert "test_profiling.py:" in sin["args"]["line"]


def test_steps_of_a_plan():
    _, plan = example()
    arrays = [np.linspace(0, 1, N), np.ones((N, M))]
    executable = Executable()
    node = SimpleNamespace(plan=plan, executable=executable)
    with adarray.profile() as p:
        for _ in range(2):
            with span("jit", "f"):
                results = run_timed(RECORDER.get(), node, arrays)
    np.testing.assert_array_equal(results[2], np.sin(2 * arrays[0]))
    rows = {(r.kind, r.name): r for r in p.rows()}
    assert {key: r.calls for key, r in rows.items()} == {
        ("jit", "f"): 2,
        ("kernel", "multiply, sin, reduce add"): 2,
        ("product", "matmul"): 2,
        ("kernel", "multiply"): 2,
        ("call", "call sort"): 2,
    }
    whole = rows["jit", "f"]
    steps = [r for key, r in rows.items() if key[0] != "jit"]
    assert whole.own == pytest.approx(whole.total - sum(r.total for r in steps), abs=1e-9)
    kernel = rows["kernel", "multiply, sin, reduce add"]
    assert kernel.rate == pytest.approx(2 * cost(plan.steps[0]).moved / kernel.total)
    last = [s for s in p.spans if s.kind == "product"][-1]
    assert (last.start, last.stop) == (executable.stamps[1], executable.stamps[2])
    assert last.work == 2 * N * M


def test_steps_are_seen_by_the_profiles_around_until_they_end():
    _, plan = example()
    arrays = [np.linspace(0, 1, N), np.ones((N, M))]
    node = SimpleNamespace(plan=plan, executable=Executable())
    with adarray.profile() as outer:
        with adarray.profile() as inner:
            run_timed(RECORDER.get(), node, arrays)
            recorder = RECORDER.get()
        assert outer.spans == inner.spans
        assert len(inner.spans) == len(plan.steps)
        run_timed(recorder, node, arrays)
    assert len(inner.spans) == len(plan.steps)
    assert len(outer.spans) == 2 * len(plan.steps)
    assert {s.thread for s in outer.spans} == {threading.get_ident()}


def test_steps_of_an_interpreted_program():
    program, _ = example()
    arrays = [np.linspace(0, 1, N), np.ones((N, M))]
    node = SimpleNamespace(executable=None, after=program, compiled=((), Interpreted(program)))
    with adarray.profile() as p, span("jit", "f"):
        results = run_timed(RECORDER.get(), node, arrays)
    np.testing.assert_allclose(results[1], np.sum(np.sin(2 * arrays[0])))
    steps = [r for r in p.rows() if r.kind == "step"]
    assert {r.name: r.calls for r in steps} == {
        "multiply": 2, "sin": 1, "reduce add": 1, "matmul": 1, "call sort": 1,
    }  # fmt: skip
    (whole,) = (r for r in p.rows() if r.kind == "jit")
    assert whole.total >= sum(r.total for r in steps)


def test_it_costs_nothing_when_off():
    assert MODE.get() is None
    s = span("passes", "cse")
    start = time.perf_counter()
    with s:
        pass
    assert s.recorder is None
    assert time.perf_counter() - start < 1e-3
