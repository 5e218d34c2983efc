"""The benchmarks are well-formed and compute what they say; no time is judged here."""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from apart import apart

import adarray
from adarray.base.op import Pointwise, all_ops

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "asv_bench").is_dir():
    pytest.skip("the benchmarks are not part of this checkout", allow_module_level=True)
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))  # last: an installed adarray stays the one in use

with warnings.catch_warnings():  # the suite makes warnings errors, for itself
    from asv_bench import acceptance, engines, fleet, peers, tables, worker
    from asv_bench.benchmarks import (
        apps,
        common,
        equations,
        estimators,
        images,
        jit,
        memory,
        ops,
        trace,
        workloads,
    )

MODULES = (apps, equations, estimators, images, jit, memory, ops, trace)
KINDS = ("time_", "timeraw_", "peakmem_", "track_")


def benchmarks() -> list[tuple[type, str]]:
    """Return every class of the suite with each of its benchmark methods."""
    return [
        (cls, name)
        for module in MODULES
        for cls in vars(module).values()
        if inspect.isclass(cls)
        and cls.__module__ == module.__name__
        and not cls.__name__.startswith("_")
        for name in dir(cls)
        if name.startswith(KINDS)
    ]


SUITE = benchmarks()


def identifier(value: Any) -> str:
    return getattr(value, "__name__", str(value))


def test_configuration_builds_a_wheel_with_pinned_requirements() -> None:
    conf = json.loads((ROOT / "asv_bench" / "asv.conf.json").read_text())
    assert conf["repo"] == ".."
    assert conf["environment_type"] == "virtualenv"
    assert (ROOT / "asv_bench" / conf["benchmark_dir"]).is_dir()
    assert any("pip wheel" in command for command in conf["build_command"])
    assert "{wheel_file}" in conf["install_command"][0]
    pins = [pin for versions in conf["matrix"]["req"].values() for pin in versions]
    assert all(re.fullmatch(r"\d[\w.]*", pin) for pin in pins)
    declared = (ROOT / "pyproject.toml").read_text()
    assert all(f'"{name}>' in declared for name in conf["matrix"]["req"])


def test_suite_has_every_kind_of_benchmark() -> None:
    assert {kind for _, name in SUITE for kind in KINDS if name.startswith(kind)} == set(KINDS)


@pytest.mark.parametrize(("cls", "name"), SUITE, ids=identifier)
def test_parameters_have_names_and_values(cls: Any, name: str) -> None:
    params = getattr(cls, "params", ())
    assert len(params) == len(getattr(cls, "param_names", ()))
    for values in params:
        assert len(values) > 0
        assert len({repr(v) for v in values}) == len(values)


FIFTEEN = (
    "add broadcast copy divide exp log matmul max multiply negate power relu subtract sum transpose"
)


def test_the_fifteen_operations_of_the_study_are_there() -> None:
    assert sorted(ops.STUDY) == FIFTEEN.split()


def test_elementwise_benchmarks_come_from_the_registry() -> None:
    registered = {op.name for op in all_ops() if isinstance(op.lower, Pointwise)}
    assert set(ops.ElementwiseForward.params[1]) == registered
    assert ops.ElementwiseForward.params == ops.ElementwiseBackward.params


ON_NUMPY = [
    (cls, name)
    for cls, name in SUITE
    if not name.startswith(("peakmem_", "timeraw_")) and cls not in (apps.Gradient, jit.JitGradient)
]


def combinations(cls: Any) -> list[tuple[Any, ...]]:
    """Return parameters with every name of an operation or kind; of the rest the first."""
    names = ("op", "kind", "function")
    axes = zip(cls.params, cls.param_names, strict=True)
    return list(itertools.product(*(p if name in names else p[:1] for p, name in axes)))


@pytest.mark.parametrize(("cls", "name"), ON_NUMPY, ids=identifier)
def test_benchmarks_run(cls: Any, name: str) -> None:
    for params in combinations(cls):
        if cls is memory.Counts and params[0] in workloads.WORKLOADS:
            continue  # minutes on a small machine
        bench = cls()
        with np.errstate(all="ignore"):
            bench.setup(*params)
            value = getattr(bench, name)(*params)
        if name.startswith("track_"):
            assert isinstance(value, int)
            assert value >= 0
        if hasattr(bench, "teardown"):
            bench.teardown(*params)
        assert adarray.current_backend() == "numpy"


def test_counts_see_what_is_saved() -> None:
    x = np.ones(1000)
    nodes = memory.graph(lambda x: np.sum(np.exp(np.sin(x)) + x), x)
    assert [n.op.name for n in nodes] == ["sum", "add", "exp", "sin"]
    assert memory.saved_bytes(nodes) == 2 * x.nbytes  # sin's operand and exp's result


def test_an_absent_backend_is_skipped_unless_required(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = common.OnEngine()
    with pytest.raises(NotImplementedError, match="nowhere"):
        bench.enter("nowhere")
    monkeypatch.setattr(common, "REQUIRED", ["nowhere"])
    with pytest.raises(adarray.BackendError, match="nowhere"):
        bench.enter("nowhere")


SMALL = {
    "chain 1e3": workloads.Workload("chain", workloads.chain, lambda rng: (rng.normal(size=7),)),
    "blackscholes 1e6": workloads.Workload(
        "blackscholes", workloads.black_scholes, workloads._options(5)
    ),
    "logreg 20000x500": workloads.make_logistic_regression(9, 4),
    "mlp b128 h128 f32": workloads.make_network(4, 5, np.float64),
    "rosenbrock 1e6": workloads.Workload(
        "rosenbrock", workloads.rosenbrock, lambda rng: (rng.normal(size=6),)
    ),
    "heat20 1024": workloads.Workload(
        "heat", workloads.heat, lambda rng: (rng.normal(size=(4, 5)),)
    ),
    "tiny200ops n=32": workloads.WORKLOADS["tiny200ops n=32"],
    "sin100 n=3": workloads.OVERHEAD,
}


@pytest.mark.parametrize("name", SMALL)
def test_workloads_have_the_right_gradients(name: str) -> None:
    f, variables = apps.bound(SMALL[name])
    rng = np.random.default_rng(1)
    directions = [rng.normal(size=x.shape) for x in variables]
    gradient = adarray.grad(f, argnums=tuple(range(len(variables))))(*variables)
    along = sum(np.vdot(g, d) for g, d in zip(gradient, directions, strict=True))
    h = 1e-6

    def moved(step: float) -> float:
        return float(f(*(x + step * d for x, d in zip(variables, directions, strict=True))))

    assert along == pytest.approx((moved(h) - moved(-h)) / (2 * h), rel=1e-5, abs=1e-7)


def test_softmax_workload_has_the_right_gradient() -> None:
    f, (scores,) = apps.bound(workloads.make_softmax(3, 4))
    scores = scores.astype(np.float64)
    (_, constants) = workloads.make_softmax(3, 4).data()
    e = np.exp(scores)
    expected = (e / e.sum(1, keepdims=True) - np.eye(4)[constants[1]]) / 3
    np.testing.assert_allclose(adarray.grad(f)(scores), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", workloads.INPLACE)
def test_inplace_workloads_have_the_right_gradients(kind: str) -> None:
    x = np.random.default_rng(0).normal(size=6)
    g = adarray.grad(lambda x: workloads.INPLACE[kind](np, x, 6))(x)
    h = 1e-6
    for i, unit in enumerate(np.eye(6)):
        high, low = (workloads.INPLACE[kind](np, x + s * unit, 6) for s in (h, -h))
        assert g[i] == pytest.approx((high - low) / (2 * h), rel=1e-6, abs=1e-7)


def test_data_are_the_same_on_every_call() -> None:
    for w in SMALL.values():
        for first, second in zip(
            itertools.chain(*w.data()), itertools.chain(*w.data()), strict=True
        ):
            np.testing.assert_array_equal(first, second)


@apart  # engines choose their backend for good
def test_numpy_and_adarray_engines_agree() -> None:
    w = SMALL["mlp b128 h128 f32"]
    gradient = [engines.make(name, 1).gradient(w) for name in ("numpy",)]
    engine = engines.make("adarray-numpy", 1)
    gradient.append(engine.gradient(w))
    (value, none), (traced, gradients) = (p.result(p.call()) for p in gradient)
    assert none == []
    assert traced == pytest.approx(value)
    assert [g.shape for g in gradients] == [x.shape for x in w.data()[0]]


def test_a_peer_that_is_not_installed_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "autograd", None)
    with pytest.raises(engines.Absent, match="not installed"):
        engines.make("autograd", 1)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure as briefly as possible, whatever else runs on the machine."""
    monkeypatch.setattr(fleet, "ROUND_S", 0.0)
    monkeypatch.setattr(fleet, "ATTEMPTS", 1)


@pytest.mark.usefixtures("hasty")
def test_workers_answer_over_pipes() -> None:
    names = ["numpy", "adarray-numpy", "adarray-nowhere"]
    with fleet.Fleet(names, sys.executable, threads=1, rounds=2) as workers:
        assert workers.members["numpy"].version == np.__version__
        results = workers.race("gradient", "chain 1e3")
        pairs = workers.race("inplace", "recurrence", ["adarray-numpy"], n=8)
        unknown = workers.race("gradient", "no such workload", ["numpy"])
    assert results["adarray-nowhere"].error == "absent"
    assert all(len(results[n].times) == 2 for n in names[:2])
    value = fleet.ratio(results["adarray-numpy"], results["numpy"])
    assert value is not None
    assert value > 0
    assert len(pairs["adarray-numpy"].times[0]) == 2
    assert pairs["adarray-numpy"].ratios[0] > 0
    assert unknown["numpy"].error == "KeyError: 'no such workload'"


def test_a_worker_that_dies_is_reported_and_replaced() -> None:
    with fleet.Fleet(["numpy"], sys.executable, threads=1, rounds=1) as result:
        member = result.members["numpy"]
        member.process.kill()
        with pytest.raises(fleet.Failed, match=r"ended with status -9|Broken pipe"):
            member.ask(do="prepare", kind="kernel", name="sum")
        assert member.ask(do="prepare", kind="kernel", name="sum")["digest"]


def test_results_that_differ_are_not_timed() -> None:
    reference = fleet.agreed([1.0, 2.0, 3.0], None)
    assert fleet.agreed([1.0 + 1e-5], reference) == reference
    with pytest.raises(fleet.Failed, match=r"computed 2\.1, the reference 2"):
        fleet.agreed([1.0, 2.1, 3.0], reference)


@apart  # engines choose their backend for good
def test_the_guard_is_back_after_measuring_without() -> None:
    from adarray.core import guard

    before = guard.WriteGuard
    result = worker.Worker("adarray-numpy", 1)
    _, unguarded = result._guard()
    seen: list[Any] = []
    result.engine.gradient = lambda w: engines.Prepared(
        lambda: seen.append(guard.WriteGuard(np.ones(3))), lambda r: r
    )
    _, unguarded = result._guard()
    unguarded()
    assert seen == [None]
    assert guard.WriteGuard is before


def test_tables() -> None:
    assert tables.table("T", ["a", "bb"], [["long", "1"]]) == (
        "**T**\n\n| a    | bb |\n| :--- | -: |\n| long |  1 |"
    )
    assert [tables.time_text(s) for s in (2.0, 0.00212, 3.3e-6)] == ["2 s", "2.12 ms", "3.3 us"]
    assert [tables.ratio_text(r) for r in (None, 0.12345)] == ["-", "0.123"]


def result(*times: float) -> fleet.Result:
    return fleet.Result([[t] for t in times], [1.0 for _ in times], [0.0 for _ in times])


def test_ratio_is_the_median_over_rounds() -> None:
    assert fleet.ratio(result(2.0, 2.0, 9.0), result(1.0, 4.0, 3.0)) == 2.0
    assert fleet.ratio(result(1.0), fleet.Result([], [], [], "absent")) is None


def test_rounds_that_others_disturbed_do_not_count() -> None:
    ones = result(1.0, 1.0, 1.0, 1.0, 1.0)
    disturbed = ones._replace(
        times=[[2.0], [9.0], [2.0], [9.0], [9.0]], others=[0.0, 1.5, 0.0, 0.0, 1.5]
    )
    assert fleet.ratio(disturbed, ones) == 2.0
    assert fleet.ratio(disturbed._replace(others=[1.5] * 5), ones) == 9.0


class FakeFleet:
    """A fleet in which every engine takes a known time."""

    def __init__(self, times: dict[str, float]) -> None:
        self.times = times

    def race(self, kind: str, name: str, engines: Any = None, **_: Any) -> dict[str, Any]:
        wanted = self.times if engines is None else engines
        absent = fleet.Result([], [], [], "absent")
        return {n: result(self.times[n]) if n in self.times else absent for n in wanted}


def test_targets_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        acceptance, "import_times", lambda: {"adarray": [1.6, 1.6], "numpy": [1.0, 1.0]}
    )
    monkeypatch.setattr(acceptance, "vector_targets", lambda: acceptance.VECTOR)
    times = {"numpy": 4.0, "adarray-serial": 1.0, "torch": 1.25, "autograd": 1.9}
    text, rows = acceptance.acceptance(FakeFleet(times), ["adarray-serial"])  # type: ignore[arg-type]
    met = {row["what"]: row["met"] for row in rows}
    assert not met["import adarray / import numpy"]
    assert met["exp, 1e6 float64: numpy / adarray-serial"]
    assert not met["exp, 1e6 float64: adarray-serial / adarray-openmp"]  # not measured
    assert not met["gradient per recorded op, 100 sin on 3 numbers: adarray-serial / torch"]
    assert met["gradient per recorded op, 100 sin on 3 numbers: adarray-serial / autograd"]
    assert not met["gradient of mlp b128 784-256-256-10 f32: autograd / adarray-serial"]
    assert re.search(r"adarray-openmp +\|.*not measured \|   - \|", text)
    assert text.count("\n") == len(rows) + 3


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    options = peers.parse(["--workloads", "mlp", "--peers", "torch", "--rounds", "2"])
    assert options.workloads == [n for n in workloads.WORKLOADS if n.startswith("mlp")]
    for bad, text in [
        (["--workloads", "nothing"], "no workload has 'nothing' in its name"),
        (["--output", "x.txt"], "ends in .md or .json"),
        (["--rounds", "0"], "at least 1"),
    ]:
        with pytest.raises(SystemExit):
            peers.parse(bad)
        assert text in capsys.readouterr().err


def test_gradient_tables_have_times_ratios_and_failures() -> None:
    row = {
        "numpy": result(0.001),
        "adarray-serial": result(0.002),
        "torch": result(0.004),
        "jax": fleet.Result([], [], [], "ValueError: no"),
    }
    text = "\n".join(
        peers.gradient_tables({"sin100 n=3": row}, ["adarray-serial"], ["torch", "jax"])
    )
    assert re.search(r"sin100 n=3 \|\s+1 ms \|\s+2 ms \| +4 ms \| +- \|", text)
    assert re.search(r"adarray-serial \|\s+2 \|\s+0\.5 \|\s+- \|", text)
    assert re.search(r"sin100 n=3 \|\s+20\.00 \|\s+40\.00 \|", text)
    assert "- sin100 n=3, jax: ValueError: no" in text


@pytest.mark.usefixtures("hasty")
def test_script_writes_its_files(tmp_path: Path) -> None:
    json_file, md_file = tmp_path / "x.json", tmp_path / "x.md"
    words = ["--peers", "--engines", "numpy", "--groups", "gradients", "--rounds", "1"]
    files = ["--output", str(json_file), "--output", str(md_file)]
    status = peers.main([*words, "--workloads", "chain 1e3", *files])
    assert status == 0
    report = json.loads(json_file.read_text())
    assert report["results"]["gradients"]["chain 1e3"]["adarray-numpy"]["times"]
    assert "Value and gradient" in md_file.read_text()


def test_worker_modules_import_without_adarray() -> None:
    # Interpreters that hold the peers need not have adarray.
    modules = ("worker", "engines", "jit.once", "benchmarks.workloads", "benchmarks.jit_workloads")
    for module in modules:
        source = inspect.getsource(importlib.import_module(f"asv_bench.{module}"))
        assert not re.search(r"^(import|from) adarray", source, re.M)
