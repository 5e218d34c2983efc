"""The benchmarks of GPUs: what they compare and report is right; nothing here needs a GPU."""

from __future__ import annotations

import importlib.util
import json
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any, get_args

import device as standin
import numpy as np
import pytest

import adarray
from adarray.compiler.ir.plan import KernelStep
from adarray.compiler.ir.target import GpuTarget
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.memory import shared_names
from adarray.compiler.schedule.gpu.schedules import (
    FlatLoops,
    RegisterRows,
    RowsByBlock,
    RowsByWarp,
    Schedule,
    SharedRows,
    SheetRows,
)
from adarray.jitting import JitWarning

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "asv_bench").is_dir():
    pytest.skip("the benchmarks are not part of this checkout", allow_module_level=True)
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))  # last: an installed adarray stays the one in use

with warnings.catch_warnings():  # the suite makes warnings errors, for itself
    from asv_bench.gpu import __main__ as script
    from asv_bench.gpu import engines, kernels, measure, picture, report, targets
    from asv_bench.gpu.workloads import GPU_WORKLOADS


def script_of_ci() -> Any:
    """Return ``.ci/gpu.py`` as a module."""
    spec = importlib.util.spec_from_file_location("ci_gpu", ROOT / ".ci" / "gpu.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


everything = script_of_ci()


def figures(**medians: float) -> dict[str, Any]:
    """Return what was measured of one workload, three equal rounds."""
    return {
        name.replace("_", " "): {"waited": [m] * 3, "row": [m / 2] * 3, "first": 1.0}
        for name, m in medians.items()
    }


def made_report() -> dict[str, Any]:
    """Return a report with figures that meet some targets."""

    def rate(r: float) -> dict[str, Any]:
        return {"rate": r, "rates": [r] * 3, "relative error": 1e-7}

    rates = {p: rate(1e14) for p in ("float32", "tf32")}
    ours = {"float32": rate(0.97e14), "tf32": rate(0.9e14)}
    fifteen = {"size": 64, "rows": {"add": {
        "adarray": 1.0, "torch": 2.0, "ratio": 0.5, "forward": 1.0, "torch forward": 1.0
    }}}  # fmt: skip
    return {
        "engines": {"adarray jit": "1", "torch": "2", "jax": "3"},
        "machine": {"gpu": "one"},
        "ceilings": {
            "torch": {"copy": {"400": 4e12}, "products": rates},
            "adarray jit": {"products": ours},
        },
        "workloads": {
            "chain 1e3": figures(adarray_jit=1e-5, torch=4e-4, jax=2.9e-5),
            "chain 1e8": figures(adarray_jit=5e-4, jax=8e-4) | {"torch": {"error": "no memory"}},
        },
        "fifteen": fifteen,
    }


def test_every_workload_of_the_goal_is_there_once() -> None:
    names = list(GPU_WORKLOADS)
    assert len(set(names)) == len(names) == 12
    assert GPU_WORKLOADS["mlp b1024 h4096, tf32 step"].precision == "tf32"
    assert GPU_WORKLOADS["heat100 2048"].target == 1.5
    for w in GPU_WORKLOADS.values():
        assert w.base.dtype == "float32"
        assert w.step == bool(w.base.flops)


def test_data_are_single_precision() -> None:
    for name in ("chain 1e3", "tiny200ops n=32", "mlp b128 h128, float32 step"):
        variables, _ = GPU_WORKLOADS[name].workload.data()
        assert {x.dtype for x in variables} == {np.dtype(np.float32)}


def test_long_arrays_are_sampled_at_odd_distances() -> None:
    x = np.arange(5 * engines.SAMPLE)
    sample = engines.sampled(x)
    assert sample[1] % 2 == 1
    assert engines.SAMPLE // 2 < sample.size <= engines.SAMPLE + 1
    assert engines.sampled(x[:9]).size == 9


def test_targets_name_the_best_peer_and_say_what_is_met() -> None:
    verdicts = {x.what: x for x in targets.lines(made_report())}
    short = verdicts["chain 1e3: jax / adarray jit"]
    assert (round(short.figure, 6), short.verdict) == (2.9, "SHORT")
    assert verdicts["chain 1e8: jax / adarray jit"].verdict == "PASS"
    # 800 MB in 250 us, in a row, are 3.2 TB/s of 4.
    share = verdicts["chain 1e8: fraction of copy bandwidth"]
    assert share.figure == pytest.approx(0.8)
    assert verdicts["product of matrices, float32: fraction of ceiling"].verdict == "PASS"
    assert verdicts["product of matrices, tf32: fraction of ceiling"].verdict == "SHORT"
    assert verdicts["add, forward and backward: adarray / torch eager"].verdict == "PASS"
    assert verdicts["heat100 2048: best peer / adarray jit"].verdict == "NOT MEASURED"


def test_reports_are_text_tables_and_a_picture(tmp_path: Path) -> None:
    figures = made_report()
    text = report.text(figures)
    assert "chain 1e8, torch: no memory" in text
    assert "| chain 1e3 " in text
    report.write(figures, tmp_path)
    rst = (tmp_path / "speed.rst").read_text()
    assert "copies at 4.00 TB/s" in rst
    assert ".. list-table:: Targets" in rst
    assert (
        (tmp_path / "speed.tsv")
        .read_text()
        .startswith("workload\tcalls\tadarray jit\ttorch\tjax\n")
    )
    assert json.loads((tmp_path / "speed.json").read_text()) == figures
    pytest.importorskip("matplotlib")
    assert picture.points(figures)["jax"] == {0: pytest.approx(2.9), 1: pytest.approx(1.6)}
    picture.draw(figures, [tmp_path / "speed.svg"])
    assert (tmp_path / "speed.svg").stat().st_size > 1000


def test_figures_can_be_read_again(tmp_path: Path, capsys: Any) -> None:
    saved, more = tmp_path / "kept.json", tmp_path / "fifteen.json"
    figures = made_report()
    more.write_text(json.dumps(figures.pop("fifteen")))
    saved.write_text(json.dumps(figures))
    arguments = ["--load", str(saved), "--fifteen", str(more)]
    assert script.main(arguments) == 0
    assert script.main([*arguments, "--acceptance"]) == 1
    assert "| add, forward and backward: adarray / torch eager" in capsys.readouterr().out


FAKE = """
import sys, time
from pathlib import Path
sys.path.append({root!r})
from asv_bench.engines import Absent
from asv_bench.worker import serving

class Engine:
    version = "1"

class Worker:
    def __init__(self, name):
        if name == "jax":
            raise Absent("no jax here")
        self.engine, self.name = Engine(), name
    def prepare(self, name):
        if self.name == "torch.compile":
            raise ValueError("does not compile")
        value = 2.0 if self.name == "torch.compile, whole" else 1.0
        return dict(digest=[value, 3.0, 1.0], data=0.0, first=0.5, warm=0.25)
    def measure(self, seconds):
        with open({log!r}, "a") as file:
            print(self.name, file=file)
        return dict(waited=1e-3 if self.name == "torch" else 5e-4, row=1e-4)
    def copies(self):
        return dict(copy=dict(x=1e12))
    def product(self, precision):
        if precision == "fp16" and self.name != "torch":
            raise ValueError("no halves")
        return dict(rate=2e12 if self.name == "torch" else 1e12) | {{"relative error": 1e-7}}
    def release(self):
        return dict()

serving(lambda: Worker(sys.argv[1]))
"""


def test_engines_take_turns_and_wrong_results_are_not_timed(
    tmp_path: Path, monkeypatch: Any
) -> None:
    worker, log = tmp_path / "worker.py", tmp_path / "log.txt"
    worker.write_text(textwrap.dedent(FAKE.format(root=str(ROOT), log=str(log))))
    monkeypatch.setattr(measure, "WORKER", worker)
    peers = ["torch", "torch.compile", "torch.compile, whole", "jax", "torch.compile, NumPy text"]
    options = script.parse([
        "--engines", "adarray jit", "--peers", *peers, "--workloads", "chain 1e3", "1e5",
        "--rounds", "3", "--wave", "1", "--patience", "20",
    ])  # fmt: skip
    told: list[str] = []
    actual = measure.measure(options, told.append)
    assert actual["engines"]["jax"] == "no jax here"
    limits, ours = (actual["ceilings"][n] for n in ("torch", "adarray jit"))
    assert limits["copy"] == {"x": 1e12}
    assert ours["products"]["float32"]["rate"] == 1e12
    assert ours["products"]["fp16"] == {"error": "ValueError: no halves"}
    shares = {x.what: x.figure for x in targets.products(actual)}
    assert shares["product of matrices, float32: fraction of ceiling"] == 0.5
    assert shares["product of matrices, fp16: fraction of ceiling"] is None
    assert list(actual["workloads"]) == ["chain 1e3", "chain 1e5"]
    part = actual["workloads"]["chain 1e3"]
    assert part["adarray jit"]["waited"] == [5e-4] * 3
    assert part["adarray jit"]["first"] == 0.75
    assert part["torch.compile"]["error"] == "ValueError: does not compile"
    assert "computed 2, the reference 1" in part["torch.compile, whole"]["error"]
    assert "torch.compile, NumPy text" not in part  # it has no text of its own
    order = log.read_text().split("\n")[:6]
    assert all(set(order[i : i + 2]) == {"torch", "adarray jit"} for i in (0, 2, 4))
    assert targets.ratio(part, "adarray jit", "torch") == pytest.approx(2.0)


def test_a_machine_without_a_gpu_is_told_so(tmp_path: Path, monkeypatch: Any) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(textwrap.dedent(FAKE.format(root=str(ROOT), log="")))
    monkeypatch.setattr(measure, "WORKER", worker)
    options = script.parse(["--engines", "--peers", "jax", "--workloads", "1e3"])
    with pytest.raises(SystemExit, match=r"no engine finds a GPU: .*no jax here"):
        measure.measure(options, lambda _: None)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["eager", "compiled"])
def test_cases_for_the_sanitiser_agree_with_numpy(part: str) -> None:
    if "openmp" not in adarray.backends():
        pytest.skip("no compiled backend")
    names = {"eager": "log", "compiled": "columns"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        count, failed = kernels.run(part, names[part], "openmp")
        first, second = (kernels.run(part, names[part], "openmp", (i, 2))[0] for i in (0, 1))
    assert count == first + second >= 2
    assert failed == []


@pytest.mark.slow
def test_every_schedule_is_among_the_cases_for_the_sanitiser(monkeypatch: Any) -> None:
    """As they are planned for an H200; nothing is computed."""
    standin.installed(monkeypatch)
    schedules: list[Schedule] = []
    past: set[type] = set()

    def executable(plan: Any, precise: bool = False, rerun: Any = None) -> Any:
        for s in plan.steps:
            if isinstance(s, KernelStep):
                ints = dict(zip(s.kernel.ints, s.ints, strict=True))
                target = GpuTarget(sms=132, threads_per_sm=2048)
                schedules.append(schedule_of(s.kernel, ints, target))
                if any(b.stream for b in s.kernel.buffers):
                    past.add(type(schedules[-1]))
        raise NotImplementedError("plans are looked at here, not run")

    monkeypatch.setattr(adarray.use("standin")._engine, "executable", executable)
    for case in kernels.compiled():
        before = len(schedules)
        with adarray.use("standin"), kernels._streaming(case.past), warnings.catch_warnings():
            warnings.simplefilter("ignore", JitWarning)
            f = adarray.jit(case.call)
            args = [adarray.array(x) for x in case.arrays]
            for _ in range(3):
                f(*args)
        assert len(schedules) > before, case.name
    assert {type(s) for s in schedules} == set(get_args(Schedule))
    assert {bool(shared_names(s)) for s in schedules} == {True, False}
    rows = RowsByWarp | RowsByBlock | SharedRows | RegisterRows
    assert {s.far for s in schedules if isinstance(s, rows)} == {True, False}
    assert {FlatLoops, SheetRows} <= past
    assert past & {RowsByWarp, RowsByBlock}


def test_differences_are_reported() -> None:
    x = np.arange(3.0)
    assert kernels.agree([x], [x]) == ""
    assert kernels.agree([x + 1], [x]) == "result 0: largest difference 1"
    assert "expected float64(3,)" in kernels.agree([x.astype(np.float32)], [x])


def test_one_call_runs_steps_in_order_and_tells_what_failed(tmp_path: Path, capsys: Any) -> None:
    jobs = [
        everything.Job("good", everything.python("-c", "print('fine')"), 20),
        everything.Job("bad", everything.python("-c", "raise SystemExit('broken')"), 20),
        everything.Job("slow", everything.python("-c", "import time; time.sleep(60)"), 1.0),
    ]
    outcome = everything.run(jobs, tmp_path)
    assert [r.verdict for r in outcome] == ["passed", "FAILED with status 1", "took too long"]
    assert "fine" in (tmp_path / "good.log").read_text()
    assert "    broken" in capsys.readouterr().out


def test_one_call_measures_into_the_documentation(tmp_path: Path) -> None:
    options = everything.parse(["--docs", str(tmp_path), "--logs", str(tmp_path)])
    jobs = {job.name: job.command for job in everything.timed(options, tmp_path, 300.0)}
    assert list(jobs) == ["fifteen", "speed", "sweep"]
    assert jobs["speed"][jobs["speed"].index("--budget") + 1] == "110"
    assert jobs["speed"][-2:] == ["--fifteen", str(tmp_path / "fifteen.json")]
    assert str(tmp_path) in jobs["sweep"]
    assert "gpu" in everything.tests(options).command
    few = everything.parse(["--steps", "speed"])
    assert [job.name for job in everything.timed(few, tmp_path, float("inf"))] == ["speed"]


def test_the_sanitiser_is_asked_for_where_it_is_missing(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(everything.shutil, "which", lambda _: None)
    (failed,) = everything.run(everything.sanitised(everything.parse([])), tmp_path)
    assert failed.status == 1
    assert "compute-sanitizer is not on PATH" in failed.log.read_text()
    monkeypatch.setattr(everything.shutil, "which", lambda _: "/bin/compute-sanitizer")
    command = everything.sanitised(everything.parse([]))
    names = [job.name for job in command]
    assert names[:5] == ["memcheck-0", "memcheck-1", "memcheck-2", "memcheck-3", "racecheck-0"]
    assert command[1].command[-3:] == ["--shard", "1", "4"]
    assert len(everything.kernels(everything.parse([]))) == 12


LOGS = {
    "tests": "....\n=== 1583 passed, 2 skipped in 96.31s (0:01:36) ===\n",
    "memcheck-0": "eager: 60 cases, 0 wrong\n========= ERROR SUMMARY: 0 errors\n",
    "memcheck-1": "eager: 61 cases, 0 wrong\n========= ERROR SUMMARY: 3 errors\n",
    "sweep": "a table\nwrote bench.md\n",
}


def test_the_summary_says_what_every_step_brought(tmp_path: Path) -> None:
    for name, text in LOGS.items():
        (tmp_path / f"{name}.log").write_text(text)
    status = {"memcheck-1": 9, "sweep": None}
    results = [
        everything.JobResult(name, status.get(name, 0), 1.0, tmp_path / f"{name}.log")
        for name in LOGS
    ]
    figures = tmp_path / "speed.json"
    text = everything.summary(results, figures)
    assert "- **tests**: passed (1 s)\n  - 1583 passed, 2 skipped in 96.31\n" in text
    assert "- **memcheck**: memcheck-1 FAILED with status 9 (1 s)\n" in text
    assert "  - ERROR SUMMARY: 3 errors\n" in text
    assert "- **sweep**: sweep took too long (1 s)\n  - wrote bench.md\n" in text
    figures.write_text(json.dumps(made_report()))
    met, *short = everything.targets_of(figures)
    assert met.endswith("targets met")
    assert "chain 1e3: jax / adarray jit: 2.9, target at least 3, SHORT" in short


@pytest.mark.slow
def test_a_step_that_is_cut_may_write_what_it_has(tmp_path: Path, monkeypatch: Any) -> None:
    """It is asked to end first, with its children; the others still run, and are reported."""
    text = (
        "import signal, subprocess, sys, time\n"
        "def end(*_): print('kept'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    jobs = [
        everything.Job("sweep", everything.python("-c", text), 3.0),
        everything.Job("fifteen", everything.python("-c", "raise SystemExit('broken')"), 20.0),
    ]
    monkeypatch.setattr(everything, "timed", lambda *_: jobs)
    assert everything.main(["--steps", "sweep", "--logs", str(tmp_path)]) == 1
    lines = (tmp_path / "sweep.log").read_text().splitlines()
    assert lines[-1] == "kept"
    child = Path(f"/proc/{lines[-2]}/stat")
    assert not child.exists() or child.read_text().split()[2] == "Z"
    report = (tmp_path / "summary.md").read_text()
    assert "- **sweep**: sweep took too long" in report
    assert "- **fifteen**: fifteen FAILED with status 1" in report
