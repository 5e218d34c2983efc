"""``python -m adarray bench``: what it measures and writes; no time is judged here."""

from __future__ import annotations

import csv
import json
import os
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.__main__ import main
from adarray.bench import BenchOptions, bench, measure, picture, report, run, studies, sweep
from adarray.bench.measure import Measurement
from adarray.errors import BackendError


def works(name: str) -> bool:
    try:
        adarray.use(name)
    except BackendError:
        return False
    return True


ROWS = [
    Measurement("sizes", "add", "serial", None, 8, 4e-6, 8e-6),
    Measurement("sizes", "add", "cuda", None, 8, 2e-6, 2e-6),
    Measurement("sizes", "add", "serial", None, 64, 8e-6, 16e-6),
    Measurement("sizes", "add", "cuda", None, 64, 2e-6, 2e-6),
    Measurement("threads", "add", "cuda", 32, 64, 4e-6, 2e-6),
    Measurement("threads", "add", "cuda", 256, 64, 2e-6, 4e-6),
    Measurement("network", "network", "serial", None, 26506, 3e-4, 0.0),
    Measurement("network", "network", "cuda", None, 26506, 1e-4, 0.0),
]


def test_there_are_the_fifteen_operations_in_three_groups() -> None:
    assert len(studies.OPERATORS) == 15
    assert {o.group for o in studies.OPERATORS.values()} == {"arithmetic", "product", "function"}


@pytest.mark.parametrize("name", studies.OPERATORS)
def test_operations_have_gradients_of_their_operands(name: str) -> None:
    xs = studies.operands(studies.OPERATORS[name], 5, "float64")
    y, pullback = adarray.vjp(studies.OPERATORS[name].function, *xs)
    gradients = pullback(np.ones(np.shape(y)))
    assert [g.shape for g in gradients] == [x.shape for x in xs]
    again = studies.operands(studies.OPERATORS[name], 5, "float64")
    assert all(np.array_equal(a, b) for a, b in zip(xs, again, strict=True))


def test_the_number_of_parameters_is_that_of_the_network() -> None:
    weights, (x, labels) = studies.network(7, "float32")
    assert sum(w.size for w in weights) == studies.parameters(7)
    value = studies.network_loss(*weights, x, labels)
    assert 0.1 < value < 20


def test_speed_ups_compare_with_the_serial_backend_at_the_same_size() -> None:
    assert report.faster(ROWS, ROWS[1]) == (2.0, 4.0)
    assert report.faster(ROWS, ROWS[4]) == (2.0, 8.0)
    assert report.faster(ROWS, ROWS[7]) == (pytest.approx(3.0), None)
    assert report.faster(ROWS[1:2], ROWS[1]) == (None, None)


def test_tables_hold_times_ratios_and_the_fastest_block() -> None:
    tables = {t.name: t for t in report.tables(ROWS)}
    assert set(tables) == {"largest", "threads", "network", "sizes"}
    assert tables["largest"].cells == [["add", "64", "8", "16", "2", "2", "4", "8"]]
    assert [line[-1] for line in tables["threads"].cells] == ["256", "32"]
    assert tables["threads"].cells[0][:4] == ["add", "forward", "2", "4"]
    assert tables["network"].cells == [["26506", "300", "100", "3"]]
    text = report.text(ROWS, {"GPU": "one"})
    assert "Measured on: GPU one." in text
    assert "| add " in text


def test_blocks_without_a_serial_time_are_shown_as_times() -> None:
    assert report.threads(ROWS[4:6]).cells[0][2:4] == ["4 us", "2 us"]


def test_pictures_are_drawn_of_every_study(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    names = {p.name for p in picture.draw(ROWS, tmp_path)}
    assert names == {
        f"bench_{study}.{suffix}"
        for study in ("threads", "sizes", "network")
        for suffix in ("svg", "png")
    }
    assert all((tmp_path / n).stat().st_size > 1000 for n in names)
    assert not list(picture.draw(ROWS[:1], tmp_path))  # nothing to compare


def test_numpy_by_itself_has_a_column_of_forward_times() -> None:
    alone = [
        Measurement("sizes", "add", "numpy", None, 64, 4e-6, 0.0),
        Measurement("network", "network", "numpy", None, 26506, 6e-4, 0.0),
    ]
    tables = {t.name: t for t in report.tables([*ROWS, *alone])}
    largest = dict(zip(tables["largest"].head, tables["largest"].cells[0], strict=True))
    assert largest["numpy forward, us"] == "4"
    assert largest["serial / numpy, forward"] == "2"
    assert not any("numpy" in h and "backward" in h for h in tables["sizes"].head)
    assert tables["network"].cells == [["26506", "600", "300", "100", "0.5", "3"]]
    assert "its loss alone" in tables["network"].title
    row = measure.size_row("sizes", "add", "numpy", 4, None, measure.Data("float32"), 0.0)
    assert row.forward > 0
    assert row.backward == 0
    assert measure.network_row("numpy", 3, "float32", 0.0).forward > 0


@pytest.mark.parametrize("count", [1, 2], ids=["one backend", "two"])
def test_pictures_have_no_empty_panels(count: int) -> None:
    pytest.importorskip("matplotlib")
    rows = [r for r in ROWS if r.backend in ("serial", "cuda")[:count]]
    figures = [picture._network(rows), picture._panels(rows, "sizes", "n")]
    assert [f is None for f in figures] == [False, count == 1]
    for figure in figures:
        for panel in figure.axes if figure else ():
            assert panel.lines, count


@pytest.mark.skipif(not works("serial"), reason="no compiled backend")
def test_a_short_run_writes_everything(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(measure, "SAMPLE_S", 1e-5)
    arguments = ["bench", "--backend", "serial", "--operators", "add,sum", "--sizes", "4,8",
                 "--widths", "3", "--output", str(tmp_path)]  # fmt: skip
    assert main(arguments) == 0
    content = json.loads((tmp_path / "bench.json").read_text())
    rows = [Measurement(**r) for r in content["rows"]]
    # What was fast with few elements comes first with many.
    assert sorted((r.study, r.name, r.n) for r in rows) == [
        ("network", "network", studies.parameters(3)),
        ("sizes", "add", 4), ("sizes", "add", 8), ("sizes", "sum", 4), ("sizes", "sum", 8),
    ]  # fmt: skip
    assert all(r.forward > 0 for r in rows)
    with (tmp_path / "bench_sizes.csv").open() as file:
        head, *lines = csv.reader(file)
    assert head[:2] == ["operation", "n"]
    assert len(lines) == 4
    assert content["measured on"]["dtype"] == "float32"
    assert "wrote" in capsys.readouterr().out


@pytest.mark.skipif(works("cuda"), reason="there is a GPU")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--threads-per-block", "32,64"], "threads of a block are those of a GPU"),
        (["--threads-per-block"], "threads of a block are those of a GPU"),
        (["--study", "threads"], "leave --threads-per-block out, or take --study sizes"),
        (["--backend", "cuda"], "bench: backend 'cuda': "),
        (["--backend", "serial", "--threads-per-block", "64"], "--backend leaves cuda out"),
    ],
)
def test_what_needs_a_gpu_says_so(arguments: list[str], text: str, capsys: Any) -> None:
    assert main(["bench", *arguments]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--threads-per-block", "33"], "33 is not a multiple of 32 up to 1024"),
        (["--threads-per-block", "2048"], "2048 is not a multiple of 32 up to 1024"),
        (["--operators", "add,cat"], "'cat' is no operation to measure; there are add, "),
        (["--sizes", "0"], "'0' is not a whole number above 0"),
        (["--seconds", "0"], "'0' is no number of seconds above 0"),
        (["--seconds", "soon"], "'soon' is no number of seconds above 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], text: str, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main(["bench", *arguments])
    assert text in capsys.readouterr().err


def test_without_any_backend_it_says_what_to_install(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(run, "_working", lambda names: ([], dict.fromkeys(names, "none")))
    assert bench(BenchOptions(operators=("add",))) == 1
    assert "pip install adarray" in capsys.readouterr().err


class Clock:
    """A clock that goes on where something is measured."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A sweep whose measurements take as long as `seconds` says, and are not made.

    `seconds` takes the name, the backend and the size of matrices, or the number of parameters.
    """

    def __init__(self, monkeypatch: Any, seconds: Any) -> None:
        self.clock, self.used, self.told, self.allowed = Clock(), [], [], []
        self._seconds = seconds

        def use(name: str, **options: Any) -> Any:
            self.used.append({"name": name, **options})
            return nullcontext()

        monkeypatch.setattr(sweep.adarray, "use", use)
        monkeypatch.setattr(sweep, "perf_counter", self.clock)
        monkeypatch.setattr(sweep, "size_row", self._size)
        monkeypatch.setattr(sweep, "network_row", self._network)

    def _size(
        self, study: str, name: str, backend: str, n: int, threads: int | None, data: Any,
        allowed: float,
    ) -> Measurement:  # fmt: skip
        took = self._seconds(name, backend, n)
        self.clock.now += 4 * took  # both passes, twice
        self.allowed.append(allowed)
        return Measurement(study, name, backend, threads, n, took, took)

    def _network(self, backend: str, width: int, dtype: str, allowed: float) -> Measurement:
        n = studies.parameters(width)
        took = self._seconds("network", backend, n)
        self.clock.now += 1.0 + 5 * took  # it is compiled
        return Measurement("network", "network", backend, None, n, took, 0.0)

    def run(self, options: BenchOptions, working: list[str], seconds: float) -> sweep.Sweep:
        result = sweep.Sweep(options, working, seconds, lambda rows, done: self.told.extend(done))
        result.run()
        return result


def test_blocks_are_swept_where_there_is_a_gpu(monkeypatch: Any) -> None:
    """Every block is measured once, in a `use` block of its own, beside the serial backend."""
    result = Bench(monkeypatch, lambda *_: 1e-6)
    options = BenchOptions(
        studies=("threads",), operators=("add",), threads=(64, 512), sizes=(8, 16)
    )
    rows = result.run(options, ["serial", "cuda"], 60.0).rows
    assert [(r.study, r.backend, r.threads, r.n) for r in rows] == [
        ("sizes", "serial", None, 16), ("threads", "cuda", 64, 16), ("threads", "cuda", 512, 16),
    ]  # fmt: skip
    assert result.used[-2:] == [
        {"name": "cuda", "threads_per_block": 64}, {"name": "cuda", "threads_per_block": 512}
    ]  # fmt: skip
    assert result.told == ["threads"]


def test_small_matrices_come_first_and_long_operations_last(monkeypatch: Any) -> None:
    bench = Bench(monkeypatch, lambda name, *_: {"matmul": 3e-3}.get(name, 1e-3))
    options = BenchOptions(
        studies=("sizes", "network"), operators=("matmul", "add"), sizes=(64, 16), widths=(9, 3)
    )
    rows = bench.run(options, ["serial", "cuda"], 60.0)
    assert not rows.left_out
    assert [(r.n, r.backend, r.name) for r in rows.rows if r.study == "sizes"] == [
        (16, "cuda", "matmul"), (16, "cuda", "add"),
        (16, "serial", "matmul"), (16, "serial", "add"),
        (64, "cuda", "add"), (64, "cuda", "matmul"),
        (64, "serial", "add"), (64, "serial", "matmul"),
    ]  # fmt: skip
    widths = [studies.parameters(n) for n in (3, 3, 9, 9)]
    assert [r.n for r in rows.rows if r.study == "network"] == widths
    assert bench.told == ["sizes", "network"]


def test_what_would_take_too_long_is_left_out(monkeypatch: Any, capsys: Any) -> None:
    """The largest products of one processor are, and the time is kept."""

    def seconds(name: str, backend: str, n: int) -> float:
        power = 3 if name == "matmul" else 2
        return 1e-9 * n**power * {"cuda": 1e-3}.get(backend, 1.0)

    bench = Bench(monkeypatch, seconds)
    options = BenchOptions(studies=("sizes",), operators=("matmul", "add"), sizes=(256, 1024, 4096))
    rows = bench.run(options, ["serial", "cuda"], 30.0)
    assert [str(t) for t in rows.left_out] == ["serial: matmul on rows of 4096"]
    assert len(rows.rows) == 11
    assert bench.clock.now < 30
    assert "left out, since it would take too long: serial: matmul" in capsys.readouterr().err
    assert min(bench.allowed) > 0


def test_time_that_later_studies_leave_is_used(monkeypatch: Any) -> None:
    """Half of the time is for sizes at first; the network needs little of the rest."""
    bench = Bench(monkeypatch, lambda name, *_: 1e-6 if name == "network" else 1.0)
    options = BenchOptions(
        studies=("sizes", "network"), operators=("add",), sizes=(64, 70), widths=(3,)
    )
    rows = bench.run(options, ["serial"], 10.0)
    assert [r.name for r in rows.rows] == ["add", "network", "add"]
    assert not rows.left_out
    assert bench.told == ["sizes", "network", "sizes"]


def test_calls_are_repeated_as_time_allows(monkeypatch: Any) -> None:
    clock = Clock()
    monkeypatch.setattr(measure, "perf_counter", clock)
    monkeypatch.setattr(measure, "wait", lambda: None)
    calls: list[float] = []

    def taking(first: float, later: float) -> Any:
        calls.clear()

        def call() -> None:
            calls.append(clock.now)
            clock.now += first if len(calls) == 1 else later

        return call

    assert measure.seconds(taking(9e-3, 2e-3)) == pytest.approx(2e-3)
    assert len(calls) == 2 + 5 * 2
    assert measure.seconds(taking(9e-3, 2e-3), 10e-3) == pytest.approx(2e-3)
    assert len(calls) == 2 + 2 * 2
    assert measure.seconds(taking(9e-3, 2e-3), 0.0) == pytest.approx(2e-3)
    assert len(calls) == 2
    assert measure.seconds(taking(3.5, 3.5)) == pytest.approx(3.5)
    assert len(calls) == 1


@pytest.mark.skipif(not works("serial"), reason="no compiled backend")
@pytest.mark.parametrize("terminated", [False, True], ids=["by the keyboard", "by a signal"])
def test_an_interrupted_run_writes_what_it_has(
    terminated: bool, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    count = 0

    def measured(study: str, name: str, backend: str, n: int, threads: Any, *_: Any) -> Measurement:
        nonlocal count
        count += 1
        if count == 3:
            if terminated:
                os.kill(os.getpid(), signal.SIGTERM)
            raise KeyboardInterrupt
        return Measurement(study, name, backend, threads, n, 1e-6, 1e-6)

    monkeypatch.setattr(sweep, "size_row", measured)
    before = signal.getsignal(signal.SIGTERM)
    options = BenchOptions(("serial",), operators=("add", "sum"), sizes=(4, 8), output=tmp_path)
    assert bench(options) == 130
    assert signal.getsignal(signal.SIGTERM) is before
    assert "interrupted: what was measured is written" in capsys.readouterr().err
    rows, facts = report.read(tmp_path / "bench.json")
    assert [(r.name, r.n) for r in rows] == [("add", 4), ("sum", 4)]
    assert facts["dtype"] == "float32"


def test_tables_are_there_after_every_group(tmp_path: Path, monkeypatch: Any) -> None:
    """Even where the process is killed."""
    references: list[int] = []

    def measured(study: str, name: str, backend: str, n: int, threads: Any, *_: Any) -> Measurement:
        path = tmp_path / "bench.json"
        references.append(len(report.read(path)[0]) if path.exists() else 0)
        return Measurement(study, name, backend, threads, n, 1e-6, 1e-6)

    monkeypatch.setattr(sweep, "size_row", measured)
    options = BenchOptions(("numpy",), ("sizes",), ("add", "sum"), sizes=(4, 8), output=tmp_path)
    assert bench(options) == 0
    assert references == [0, 0, 2, 2]


def test_figures_are_drawn_again_from_a_file(tmp_path: Path, capsys: Any) -> None:
    list(report.write(ROWS, {"GPU": "one"}, tmp_path / "first"))
    again = tmp_path / "second"
    figures = str(tmp_path / "first" / "bench.json")
    assert main(["bench", "--redraw", figures, "--output", str(again)]) == 0
    assert "Measured on: GPU one." in capsys.readouterr().out
    for path in (tmp_path / "first").iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes()


def test_the_order_of_measuring_does_not_change_tables() -> None:
    facts = {"GPU": "one"}
    assert report.text(ROWS, facts) == report.text(ROWS[::-1], facts)


def test_tables_of_a_part_have_gaps() -> None:
    """As of a run that was cut."""
    rows = [*ROWS[:4], Measurement("threads", "sum", "cuda", 32, 64, 1e-6, 1e-6), *ROWS[4:6]]
    tables = {t.name: t for t in report.tables(rows)}
    cells = {(line[0], line[1]): line[2:] for line in tables["threads"].cells}
    assert cells["sum", "forward"] == ["1 us", "-", "32"]
    assert cells["add", "forward"] == ["2", "4", "256"]
    only = [r for r in ROWS if r.backend == "cuda" or r.n != 64]
    tables = {t.name: t for t in report.tables(only)}
    assert tables["largest"].cells == [["add", "64", "-", "-", "2", "2", "-", "-"]]
