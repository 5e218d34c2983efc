"""``python -m adarray bench``: what it measures and writes; no time is judged here."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.__main__ import main
from adarray.bench import Options, bench, measure, picture, report, run, studies
from adarray.bench.measure import Row
from adarray.errors import BackendError


def works(name: str) -> bool:
    try:
        adarray.use(name)
    except BackendError:
        return False
    return True


ROWS = [
    Row("sizes", "add", "serial", None, 8, 4e-6, 8e-6),
    Row("sizes", "add", "cuda", None, 8, 2e-6, 2e-6),
    Row("sizes", "add", "serial", None, 64, 8e-6, 16e-6),
    Row("sizes", "add", "cuda", None, 64, 2e-6, 2e-6),
    Row("threads", "add", "cuda", 32, 64, 4e-6, 2e-6),
    Row("threads", "add", "cuda", 256, 64, 2e-6, 4e-6),
    Row("network", "network", "serial", None, 26506, 3e-4, 0.0),
    Row("network", "network", "cuda", None, 26506, 1e-4, 0.0),
]


def test_there_are_the_fifteen_operations_in_three_groups() -> None:
    assert len(studies.OPERATORS) == 15
    assert {o.group for o in studies.OPERATORS.values()} == {"arithmetic", "product", "function"}


@pytest.mark.parametrize("name", studies.OPERATORS)
def test_operations_have_gradients_of_their_operands(name: str) -> None:
    xs = studies.operands(studies.OPERATORS[name], 5, "float64")
    y, pullback = adarray.vjp(studies.OPERATORS[name].function, *xs)
    found = pullback(np.ones(np.shape(y)))
    assert [g.shape for g in found] == [x.shape for x in xs]
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
    found = {t.name: t for t in report.tables(ROWS)}
    assert set(found) == {"largest", "threads", "network", "sizes"}
    assert found["largest"].cells == [["add", "64", "8", "16", "2", "2", "4", "8"]]
    assert [line[-1] for line in found["threads"].cells] == ["256", "32"]
    assert found["threads"].cells[0][:4] == ["add", "forward", "2", "4"]
    assert found["network"].cells == [["26506", "300", "100", "3"]]
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


@pytest.mark.skipif(not works("serial"), reason="no compiled backend")
def test_a_short_run_writes_everything(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(measure, "SAMPLE_S", 1e-5)
    arguments = ["bench", "--backend", "serial", "--operators", "add,sum", "--sizes", "4,8",
                 "--widths", "3", "--output", str(tmp_path)]  # fmt: skip
    assert main(arguments) == 0
    content = json.loads((tmp_path / "bench.json").read_text())
    rows = [Row(**r) for r in content["rows"]]
    assert [(r.study, r.name, r.n) for r in rows] == [
        ("sizes", "add", 4), ("sizes", "add", 8), ("sizes", "sum", 4), ("sizes", "sum", 8),
        ("network", "network", studies.parameters(3)),
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
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], text: str, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main(["bench", *arguments])
    assert text in capsys.readouterr().err


def test_without_any_backend_it_says_what_to_install(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(run, "_working", lambda names: ([], dict.fromkeys(names, "none")))
    assert bench(Options(operators=("add",))) == 1
    assert "pip install adarray" in capsys.readouterr().err


def test_blocks_are_swept_where_there_is_a_gpu(monkeypatch: Any) -> None:
    """Every block is measured once, in a `use` block of its own, beside the serial backend."""
    used: list[dict[str, Any]] = []

    class Used:
        def __init__(self, name: str, **options: Any) -> None:
            used.append({"name": name, **options})

        def __enter__(self) -> None:
            pass

        def __exit__(self, *error: object) -> None:
            pass

    monkeypatch.setattr(run.adarray, "use", Used)
    monkeypatch.setattr(run, "size_row", lambda *a: Row(*a[:-1], 1e-6, 1e-6))
    options = Options(studies=("threads",), operators=("add",), threads=(64, 512), sizes=(8, 16))
    rows = list(run._measured(options, ["serial", "cuda"]))
    assert [(r.study, r.backend, r.threads, r.n) for r in rows] == [
        ("sizes", "serial", None, 16), ("threads", "cuda", 64, 16), ("threads", "cuda", 512, 16),
    ]  # fmt: skip
    assert used[-2:] == [
        {"name": "cuda", "threads_per_block": 64}, {"name": "cuda", "threads_per_block": 512}
    ]  # fmt: skip
