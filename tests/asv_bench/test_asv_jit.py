"""The benchmarks of `jit`: what they compute and report is right; no time is judged here."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adarray

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "asv_bench").is_dir():
    pytest.skip("the benchmarks are not part of this checkout", allow_module_level=True)
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))  # last: an installed adarray stays the one in use

with warnings.catch_warnings():  # the suite makes warnings errors, for itself
    from asv_bench import engines, fleet
    from asv_bench.benchmarks import jit as suite
    from asv_bench.benchmarks import jit_workloads as made
    from asv_bench.benchmarks.workloads import Workload
    from asv_bench.jit import __main__ as script
    from asv_bench.jit import ceilings, measure, once, picture, report, targets

SMALL = {
    "chain": made.make_chain(10, "float64"),
    "blackscholes": made.make_black_scholes(7),
    "logreg": made.make_regression(9, 4),
    "mlp": made.sized_network(made.make_network(4, 5, np.float64), 4, 5),
    "heat": made.make_heat_equation(5, 3),
    "nbody": made.make_n_body(6),
    "mixture": made.make_mixture(11, 3, 2),
    "kepler": made.make_kepler(10),
    "tiny": made.TINY,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_bodies_have_the_right_gradients_under_jit(name: str) -> None:
    f, arrays = suite.jitted(SMALL[name])
    variables, constants = SMALL[name].workload.data()
    rng = np.random.default_rng(1)
    directions = [rng.normal(size=x.shape) for x in variables]
    for _ in range(3):  # recorded, recorded, compiled
        value, gradient = f(*arrays)
        along = sum(np.vdot(g, d) for g, d in zip(gradient, directions, strict=True))
        h = 1e-6

        def moved(step: float) -> float:
            xs = (x + step * d for x, d in zip(variables, directions, strict=True))
            return float(SMALL[name].workload.body(np, *xs, *constants))

        assert float(value) == pytest.approx(moved(0.0), rel=1e-12)
        expected = (moved(h) - moved(-h)) / (2 * h)
        assert along == pytest.approx(expected, rel=2e-5, abs=1e-6)


SINGLE = {
    "softmax": made.make_cross_entropy(6, 9),
    "layernorm": made.make_layer_norm(5, 8),
    "rnn": made.make_recurrent_network(4, 3, 5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SINGLE)
def test_single_precision_bodies_agree_with_double(name: str) -> None:
    f, arrays = suite.jitted(SINGLE[name])
    wide = tuple(x.astype(np.float64) if x.dtype == np.float32 else x for x in arrays)
    k = len(SINGLE[name].workload.data()[0])
    g = adarray.value_and_grad(
        lambda *xs: SINGLE[name].workload.body(np, *xs), argnums=tuple(range(k))
    )
    reference, gradients = g(*wide)
    for _ in range(3):
        value, gradient = f(*arrays)
        assert value.dtype == np.float32
        assert float(value) == pytest.approx(float(reference), rel=1e-4)
        for x, y in zip(gradient, gradients, strict=True):
            assert x.dtype == np.float32
            np.testing.assert_allclose(x, y, rtol=2e-3, atol=1e-6)


def test_every_workload_states_its_work() -> None:
    assert len(made.JIT_WORKLOADS) >= 14
    for name, w in made.EVERY.items():
        assert w.name == name
        assert w.kind in targets.FASTER
        assert w.moved > 0
        assert w.kind != "product" or w.flops > 0
        assert w.kind != "elementwise" or w.functions
        assert set(w.functions) <= {
            "exp", "log", "log1p", "sin", "cos", "tanh", "sqrt", "divide"
        }  # fmt: skip


def test_named_sizes_are_the_sizes_of_the_data() -> None:
    (x,), (labels,) = made.EVERY["softmax-xent 2048x4096 f32"].workload.data()
    assert (x.shape, x.dtype, labels.shape) == ((2048, 4096), np.float32, (2048,))
    (x, *_), _ = made.EVERY["layernorm 4096x1024 f32"].workload.data()
    assert (x.shape, x.dtype) == ((4096, 1024), np.float32)
    for n, precision in itertools.product(("1e3", "1e5"), ("", " f32")):
        (x,), _ = made.EVERY[f"chain {n}{precision}"].workload.data()
        assert x.shape == (int(float(n)),)
        assert x.dtype == (np.float32 if precision else np.float64)


def test_kepler_takes_the_steps_that_its_floor_counts() -> None:
    (mean, eccentricity), _ = made.EVERY["while-kepler 1e5"].workload.data()
    sines = 0

    class Counting:
        def __getattr__(self, name: str) -> Any:
            nonlocal sines
            sines += name == "sin"
            return getattr(np, name)

    made.kepler(Counting(), mean, eccentricity)
    counted = made.EVERY["while-kepler 1e5"].functions["sin"] / mean.size
    assert sines + 1 == counted  # and one for the gradient of the last cosine


# -- ceilings and floors ------------------------------------------------------------------

LIMITS = ceilings.Ceilings(
    {1 << 10: 100.0, 1 << 12: 25.0},
    {1 << 10: 200.0, 1 << 12: 50.0},
    {"float64": {"exp": 10.0, "log": 5.0}, "float32": {"exp": 20.0, "log": 10.0}},
    {"float64": 4.0, "float32": 8.0},
)


def test_bandwidth_lies_between_the_sizes_that_were_measured() -> None:
    assert LIMITS.bandwidth(1) == 100.0
    assert LIMITS.bandwidth(1 << 11) == pytest.approx(50.0)
    assert LIMITS.bandwidth(1 << 20) == 25.0
    assert LIMITS.bandwidth(1 << 11, "read") == pytest.approx(100.0)


def test_floor_is_the_largest_of_three() -> None:
    w = Workload("w", made.chain, lambda _: ())
    least = ceilings.floor(
        made.JitWorkload(w, "float64", "memory", 1 << 12, 40.0, {"exp": 20.0, "log": 15.0}), LIMITS
    )
    assert least == pytest.approx(((1 << 12) / 25.0, 5.0, 10.0))
    assert (least.seconds, least.limit) == (least.memory, "memory")
    product = made.JitWorkload(w, "float32", "product", 1.0, 80.0)
    assert ceilings.floor(product, LIMITS).limit == "products"
    small = made.JitWorkload(w, "float64", "memory", 1 << 12, footprint=1 << 10, reads_only=True)
    assert ceilings.floor(small, LIMITS).memory == (1 << 12) / 200.0


def test_ceilings_take_the_better_way_to_store() -> None:
    ceilings_by_name = {
        "copy": {"8": 1.0, "16": 4.0}, "stream": {"8": 2.0, "16": 3.0}, "read": {"8": 5.0},
        "functions": {},
    }  # fmt: skip
    assert ceilings.ceilings(ceilings_by_name, {}).copy == {8: 2.0, 16: 4.0}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_ceilings_are_measured() -> None:
    measured = ceilings.measure(1)
    limits = ceilings.ceilings(measured, {"float64": 1.0, "float32": 1.0})
    assert all(rate > 0 for rate in (*limits.copy.values(), *limits.read.values()))
    for dtype in ("float64", "float32"):
        for w in made.EVERY.values():
            assert set(w.functions) <= set(limits.functions[dtype])
        assert all(rate > 0 for rate in limits.functions[dtype].values())
    assert limits.functions["float32"]["exp"] > limits.functions["float64"]["exp"]


def test_small_gradients_are_compared_by_their_own_size() -> None:
    reference = [1e6, 2.0, 1e-9]
    assert fleet.agreed([1e6 + 1, 2.0001, 1e-4], reference) == reference
    with pytest.raises(fleet.Failed, match=r"computed 2\.1"):
        fleet.agreed([1e6, 2.1, 0.0], reference)
    with pytest.raises(fleet.Failed, match=r"computed 0\.1"):
        fleet.agreed([1e6, 2.0, 0.1], reference)


# -- once per process ---------------------------------------------------------------------


class Hungry:
    """An engine whose steady calls hold 64 MB, and 128 MB while it compiles."""

    def gradient(self, w: Workload) -> engines.Prepared:
        left = iter([16_000_000] if w is not once.TRIVIAL else [])

        def call() -> float:
            return float(np.ones(next(left, 8_000_000 if w is not once.TRIVIAL else 8)).sum())

        return engines.Prepared(call, lambda r: (r, []))


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_peaks_are_those_of_first_and_of_steady_calls() -> None:
    peaks = once.measure(Hungry(), Workload("w", made.chain, lambda _: ()))
    assert peaks["peak first"] == pytest.approx(128e6, rel=0.2)
    assert peaks["peak"] == pytest.approx(64e6, rel=0.2)
    assert len(peaks["first"]) == once.CALLS
    assert peaks["extra"] >= 0
    assert peaks["facts"] == {}


@pytest.fixture
def compiling() -> Iterator[Any]:
    """Return an engine that compiles, if one is here."""
    result = engines.make("jit-serial" if "serial" in adarray.backends() else "jit-numpy", 1)
    yield result
    result.close()


def test_engine_tells_what_it_compiled(compiling: Any) -> None:
    prepared = compiling.gradient(SMALL["chain"].workload)
    assert adarray.current_backend() != "numpy" or "serial" not in adarray.backends()
    values = [float(prepared.result(prepared.call())[0]) for _ in range(3)]
    assert values == pytest.approx([values[0]] * 3, rel=1e-12)
    facts = compiling.facts()
    assert facts["segments"] == 1
    assert facts["calls"] > 5
    rate = once.record_rate(compiling, 40)
    assert 40 <= rate["calls"] <= 44
    assert rate["trace"] >= 0


def test_a_workload_that_is_not_compiled_is_no_result(
    compiling: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "serial" not in adarray.backends():
        pytest.skip("needs the serial backend")
    prepared = compiling.gradient(SMALL["chain"].workload)
    for _ in range(3):
        prepared.call()
    compiling.confirm()
    facts = compiling.facts()
    monkeypatch.setattr(compiling, "facts", lambda: facts | {"compiled": 0})
    with pytest.raises(RuntimeError, match="not compiled: 0 of 1 parts"):
        compiling.confirm()


# -- the report ---------------------------------------------------------------------------


def timings(*times: float) -> dict[str, Any]:
    return {"median": sorted(times)[len(times) // 2], "times": list(times), "others": []}


FACTS = {
    "kernels": 3, "distinct": 2, "products": 1, "other": 0, "calls": 20, "segments": 1,
    "seconds": {"trace": 9.0, "passes": 0.25, "plan": 0.25, "compile": 0.5},
}  # fmt: skip
REPORT: dict[str, Any] = {
    "machine": {"cpu": "a processor"},
    "engines": {"numpy": "2", "jit-openmp": "1", "jax": "absent"},
    "ceilings": {
        "copy": {"1024": 1e9}, "stream": {"1024": 1e9}, "read": {"1024": 2e9},
        "functions": {t: dict.fromkeys(
            ("exp", "log", "log1p", "sin", "cos", "tanh", "sqrt", "divide"), 1e9
        ) for t in ("float64", "float32")},
        "products": {"float32": 1e11, "float64": 5e10},
    },
    "workloads": {
        "chain 1e3": {
            "gradients": {
                "jit-openmp": timings(1e-5, 2e-5, 1e-5),
                "torch": timings(4e-5, 6e-5, 3e-5),
                "jax": {"error": "no answer"},
                "autograd": timings(1e-3, 1e-3, 1e-3),
            },
            "gradient/value": [2.0, 1.5, 2.5],
            "cold": {
                "jit-openmp": {"facts": FACTS, "extra": 1.5, "peak": 5e6, "peak first": 6e6},
                "torch": {"extra": 0.1, "peak": 9e6},
            },
            "warm": {"jit-openmp": {"facts": FACTS | {"seconds": {"compile": 0.01}},
                                    "extra": 0.2}},
        },
        "rosenbrock 1e6": {
            "gradients": {"jit-openmp": timings(0.02), "torch": timings(0.01)},
        },
    },
    "overhead": {"jit-openmp": timings(4e-6), "jax": timings(18e-6)},
    "recording": {"2000": {"trace": 30.0, "passes": 30.0, "compile": 500.0},
                  "20000": {"trace": 60.0, "passes": 60.0}},
}  # fmt: skip


def test_rows_compare_with_the_best_peer() -> None:
    first, second = report.rows(REPORT)
    assert first["peer"] == "torch"
    assert first["ratio"] == pytest.approx(3.0)  # the median of 4, 3 and 3
    assert first["gradient/value"] == pytest.approx(2.0)
    assert first["floor"] == pytest.approx(16e-6)
    assert first["limit"] == "memory"
    assert first["fraction"] == pytest.approx(1.6)
    assert first["compile"] == pytest.approx(1.0)  # without the recorded run
    assert (first["load"], first["distinct"], first["steps"]) == (0.01, 2, 4)
    assert first["errors"] == {"jax": "no answer"}
    assert second["ratio"] == pytest.approx(0.5)
    assert second["bandwidth"] == pytest.approx(0.8)
    assert second["compile"] is None
    assert report.mean_ratio([first, second]) == pytest.approx(np.sqrt(1.5))
    assert report.mean_ratio([]) is None


def test_targets_say_what_is_met() -> None:
    verdicts = {line.what: line for line in targets.lines(REPORT)}
    assert verdicts["speed, chain 1e3: torch / adarray jit"].verdict == "PASS"
    assert verdicts["speed, rosenbrock 1e6: torch / adarray jit"].verdict == "SHORT"
    assert verdicts["speed: geometric mean of best peer / adarray jit"].verdict == "SHORT"
    assert verdicts["fraction of copy bandwidth, rosenbrock 1e6"].verdict == "PASS"
    assert verdicts["compile time, cold, chain 1e3, s"].figure == pytest.approx(1.0)
    assert verdicts["compile time, cold, rosenbrock 1e6, s"].verdict == "NOT MEASURED"
    assert verdicts["loading from the disk cache, chain 1e3, s"].verdict == "PASS"
    assert verdicts["call of a compiled function: jax / adarray jit"].figure == pytest.approx(4.5)
    long = "tracing and passes per operation, 20,000 operations, us"
    assert (verdicts[long].figure, verdicts[long].verdict) == (120.0, "SHORT")
    assert verdicts["tracing and passes per operation, 20,000 / 2,000 operations"].figure == 2.0
    text = targets.text(list(verdicts.values()))
    assert "NOT MEASURED" in text
    assert f"of {len(verdicts)} met." in text


def test_bandwidth_is_asked_of_what_memory_limits() -> None:
    limited = [row | {"limit": "functions"} for row in report.rows(REPORT)]
    assert len(targets.bandwidth(report.rows(REPORT))) == 1  # the other one is no such workload
    assert targets.bandwidth(limited) == []


def test_tables_show_the_figures() -> None:
    text = report.text(REPORT)
    assert "chain 1e3, jax: no answer" in text
    assert "Geometric mean of best peer / adarray jit: 1.22" in text
    head, *lines = report.tsv(REPORT).splitlines()
    assert len(lines) == 2
    cells = dict(zip(head.split("\t"), lines[0].split("\t"), strict=True))
    assert (cells["ours"], cells["ratio"], cells["autograd"]) == ("1e-05", "3", "0.001")
    rst = report.rst(REPORT)
    assert rst.count(".. list-table::") == 3
    assert "    * - chain 1e3\n      - 10\u00a0us\n      - torch\n" in rst


def test_script_shows_a_report_from_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "report.json"
    path.write_text(json.dumps(REPORT))
    folder = tmp_path / "docs"
    assert script.main(["--load", str(path), "--acceptance", "--docs", str(folder)]) == 1
    assert "SHORT" in capsys.readouterr().out
    names = {"speed.json", "speed.tsv", "speed.rst", "speed.svg", "speed.png"}
    assert {p.name for p in folder.iterdir()} == names
    first = (folder / "speed.svg").read_bytes()
    assert script.main(["--load", str(path), "--docs", str(folder)]) == 0
    assert (folder / "speed.svg").read_bytes() == first


def test_picture_counts_second_texts_for_their_library() -> None:
    rows = [
        {"ours": 1.0, "times": {"jax": 4.0, "jax, lax.scan": 2.0, "torch": None, "jit-openmp": 1}},
        {"ours": None, "times": {"jax": 4.0}},
    ]
    points = picture.points(rows)
    assert points["jax"] == [(2.0, 0)]
    assert points["torch"] == []


def test_second_texts_run_where_there_is_one() -> None:
    w = made.EVERY["layernorm 4096x1024 f32"].workload
    assert measure.suits("torch.compile, NumPy text", w)
    assert not measure.suits("jax, lax.scan", w)
    assert measure.suits("jax, lax.scan", made.EVERY["heat20 1024"].workload)
    assert measure.suits("torch", w)


def test_unknown_workloads_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        script.parse(["--workloads", "nothing"])
    assert "no workload has 'nothing' in its name" in capsys.readouterr().err


@pytest.mark.slow
def test_script_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "ROUND_S", 0.0)
    monkeypatch.setattr(fleet, "ATTEMPTS", 1)
    monkeypatch.setattr(measure, "OURS", "jit-numpy")
    monkeypatch.setattr(report, "OURS", "jit-numpy")
    monkeypatch.setattr(measure, "ENGINES", ("jit-numpy", "adarray-numpy"))
    monkeypatch.setattr(ceilings, "measure", lambda _: REPORT["ceilings"])
    path = tmp_path / "x.json"
    words = ["--peers", "--workloads", "chain 1e3", "--rounds", "1", "--no-compile"]
    assert script.main([*words, "--threads", "1", "--output", str(path)]) == 0
    text = json.loads(path.read_text())
    assert set(text["workloads"]) == {"chain 1e3", "chain 1e3 f32"}
    assert text["workloads"]["chain 1e3"]["gradients"]["jit-numpy"]["median"] > 0
    assert text["ceilings"]["products"]["float64"] > 0
    assert text["overhead"]["jit-numpy"]["median"] > 0


# -- the suite ----------------------------------------------------------------------------


def test_compile_benchmarks_are_statements_with_a_setup() -> None:
    bench = suite.JitCompile()
    for method in (bench.timeraw_cold, bench.timeraw_from_disk):
        statement, setup = method("numpy", "chain 1e3")
        compile(statement, "statement", "exec")
        compile(setup, "setup", "exec")
        assert "EVERY['chain 1e3']" in setup
    assert "ADARRAY_CACHE_DIR" in bench.timeraw_cold("numpy", "chain 1e3")[1]
    assert "fork" in bench.timeraw_from_disk("numpy", "chain 1e3")[1]


def test_engines_in_these_tests_leave_the_backend_alone() -> None:
    assert adarray.current_backend() == "numpy"
