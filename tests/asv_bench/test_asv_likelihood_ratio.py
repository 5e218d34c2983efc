"""The experiments of likelihood-ratio training: what they compute and report is right."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.estimators import likelihood_ratio

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "asv_bench").is_dir():
    pytest.skip("the benchmarks are not part of this checkout", allow_module_level=True)
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))  # last: an installed adarray stays the one in use

with warnings.catch_warnings():  # the suite makes warnings errors, for itself
    from asv_bench.likelihood_ratio import (
        __main__ as script,
    )
    from asv_bench.likelihood_ratio import (
        data,
        models,
        problems,
        report,
        robustness,
        run,
        schedule,
        store,
        training,
    )


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(data.DATA_VARIABLE, raising=False)


def small(name: str) -> problems.Problem:
    result = problems.PROBLEMS[name](epochs=1, quick=True)
    if name == "agnews":
        result.length = 3
    return result


# -- data ------------------------------------------------------------------------------------


def test_the_graph_is_normalised_by_the_sums_of_a_plus_i() -> None:
    edges = np.array([[0, 1], [1, 2]])
    features, nodes = np.array([[2.0, 2.0], [0.0, 0.0], [1.0, 0.0]]), np.arange(3)
    g = data.graph("", features, edges, nodes, nodes, nodes, nodes)
    sums = np.array([2.0, 3.0, 2.0])  # with the node itself
    a = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]]) / np.sqrt(sums[:, None] * sums)
    np.testing.assert_allclose(g.adjacency, a, rtol=1e-6)
    np.testing.assert_array_equal(g.features, [[0.5, 0.5], [0, 0], [1, 0]])


def test_generated_data_are_the_same_every_time_and_cover_all_classes() -> None:
    for name, classes in (("mnist", 10), ("agnews", 4), ("cora", 4)):
        a, b = data.load(name), data.load(name)
        for field, value in vars(a).items():
            np.testing.assert_array_equal(value, getattr(b, field))
        labels = a.labels if name == "cora" else a.y_train
        assert set(labels) == set(range(classes))
    nodes = np.concatenate([a.train, a.val, a.test])
    assert sorted(nodes) == list(range(len(a.labels)))


def test_arrays_of_the_data_sets_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.arange(1700 * 3, dtype=np.uint16).reshape(1700, 3) % 50
    labels = (np.arange(1700) % 4).astype(np.uint8)
    (tmp_path / "agnews").mkdir()
    np.savez(
        tmp_path / "agnews" / "agnews_ids.npz",
        x_train=rows, y_train=labels, x_test=rows[:5], y_test=labels[:5],
    )  # fmt: skip
    (tmp_path / "cora").mkdir()
    np.savez(
        tmp_path / "cora" / "cora.npz",
        feat_row=np.array([0, 1], np.uint16), feat_col=np.array([2, 0], np.uint16),
        edges=np.array([[0, 1]], np.uint16), labels=np.array([0, 1, 1], np.uint8),
        train_idx=np.array([0], np.uint16), val_idx=np.array([1], np.uint16),
        test_idx=np.array([2], np.uint16),
    )  # fmt: skip
    monkeypatch.setenv(data.DATA_VARIABLE, str(tmp_path))
    texts = data.load("agnews")
    assert (len(texts.y_train), len(texts.y_val), texts.words) == (100, data.HELD_OUT, 50)
    both = np.concatenate([texts.x_train, texts.x_val])
    assert sorted(map(tuple, both)) == sorted(map(tuple, rows.astype(np.int64)))
    graph = data.load("cora")
    np.testing.assert_array_equal(graph.features, [[0, 0, 1], [1, 0, 0], [0, 0, 0]])
    assert graph.adjacency[0, 1] == graph.adjacency[1, 0] == pytest.approx(0.5)
    with pytest.raises(data.DataError, match=r"mnist\.npz cannot be read as mnist .* or be unset"):
        data.load("mnist")


def test_shifts_move_images_and_fill_with_black() -> None:
    image = np.arange(1, 10, dtype=np.uint8).reshape(1, 3, 3)
    np.testing.assert_array_equal(
        problems.shifted(image, 1, -1), [[[0, 0, 0], [2, 3, 0], [5, 6, 0]]]
    )
    np.testing.assert_array_equal(problems.shifted(image, 0, 0), image)


# -- networks --------------------------------------------------------------------------------


def test_words_after_the_end_of_a_text_change_nothing() -> None:
    params = models.lstm_init(np.random.default_rng(0), 9, 3, 4, 2)
    short = np.array([[3, 5], [2, 8]])
    long = np.pad(short, ((0, 0), (0, 3)))
    one = np.float32(1.0)
    a, b = models.lstm(params, short, one), models.lstm(params, long, one)
    np.testing.assert_allclose(a, b, rtol=1e-6)


def test_cross_entropy_is_minus_the_logarithm_of_the_softmax() -> None:
    logits = np.random.default_rng(0).normal(size=(4, 3))
    p = np.exp(logits) / np.sum(np.exp(logits), axis=1, keepdims=True)
    labels = np.array([2, 0, 1, 1])
    got = models.cross_entropy(logits, problems.one_hot(labels, 3))
    np.testing.assert_allclose(got, -np.log(p[np.arange(4), labels]))


@pytest.mark.parametrize(
    ("name", "method"),
    [(n, m) for n in problems.PROBLEMS for m in ("lr-f-pairs", "lr-l", "lr-m")],
)
def test_estimates_of_every_problem_point_along_its_gradient(name: str, method: str) -> None:
    problem = small(name)
    params = problem.init(np.random.default_rng(0))
    batch = next(iter(problem.batches(np.random.default_rng(1))))
    exact = adarray.grad(lambda p: np.mean(problem.losses(p, *batch)))(params)
    how = problem.methods[method].estimator
    # Many copies of small noise: little variance, and little bias.
    options = {**how, "copies": 512, "sigma": 0.02}
    estimator = likelihood_ratio(problem.losses, **options, **problem.estimator_options())
    gradient = estimator(params, *batch, rng=3).gradient
    a, b = (np.concatenate([g[k].ravel() for k in params]) for g in (exact, gradient))
    cosine = np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)
    assert cosine > (0.999 if method == "lr-m" else 0.8)


# -- training --------------------------------------------------------------------------------


def test_adam_takes_the_steps_of_its_paper() -> None:
    rng = np.random.default_rng(0)
    p, m, v = rng.normal(size=3), np.zeros(3), np.zeros(3)
    ours = {"w": p}, {"w": m}, {"w": v}
    for t in range(1, 4):
        g = rng.normal(size=3)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        p = p - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        ours = training.adam(*ours, {"w": g}, 0.1 / (1 - 0.9**t), 1 / (1 - 0.999**t))
    np.testing.assert_allclose(ours[0]["w"], p, rtol=1e-12)


def test_attacks_move_each_pixel_to_where_the_loss_is_larger() -> None:
    x = np.array([[0.0, 0.5, 0.95]])
    got = robustness.attack(x, np.array([[-2.0, 3.0, 0.1]]), 0.1)
    np.testing.assert_allclose(got, [[0.0, 0.6, 1.0]])


@pytest.mark.parametrize(
    "name", ["cora", *(pytest.param(n, marks=pytest.mark.slow) for n in ("mnist", "agnews"))]
)
def test_an_experiment_learns_resumes_and_is_reported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("matplotlib")  # draws the curves
    command = [
        name, "--methods", "bp", "lr-m", "--seeds", "2", "--backend", "numpy", "--quick",
        "--epochs", "2", "--out", str(tmp_path),
    ]  # fmt: skip
    assert script.main(command) == 0
    rows = store.read(tmp_path / store.RUNS)
    assert [(r["method"], r["seed"]) for r in rows] == [
        ("bp", 0), ("bp", 1), ("lr-m", 0), ("lr-m", 1)
    ]  # fmt: skip
    for row in rows:
        assert len(row["accuracy"]["test"]) == 2
        assert 0.0 <= row["test"] <= 100.0
    # The same weights and batches; LR-M is exact up to the square of sigma here.
    assert abs(rows[0]["test"] - rows[2]["test"]) < 5.0
    lines = (tmp_path / f"{name}.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == ["", "BP", "LR-M"]
    assert {len(line.split("\t")) for line in lines} == {len(report.HEAD)}
    assert (tmp_path / "curves.svg").stat().st_size > 1000
    assert (name == "mnist") == (tmp_path / "attacks.svg").exists()

    def never(*args: Any) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(run, "train", never)
    assert script.main(command) == 0  # nothing is left to do
    capsys.readouterr()
    assert script.main([*command[:-1], str(tmp_path / "other")]) == 1  # a failure is told
    assert "AssertionError: trained again" in capsys.readouterr().err
    failed = store.read(tmp_path / "other" / store.RUNS)
    assert [r["error"] for r in failed] == ["AssertionError: trained again"] * 4


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["speed", "--methods", "bp", "lr-x"], "no method 'lr-x'; there are bp, lr-f"),
        (["cora", "--methods", "lr-l-64", "--backend", "numpy"], "cora has no method 'lr-l-64'"),
        (["cora", "--backend", "none"], "none"),
        (["cora", "--seeds", "0"], "0 is not above 0"),
        (["cora", "--precision", "tf32", "bf16"], "one --precision for cora"),
        (["report", "--precision", "tf16"], "invalid choice: 'tf16'"),
    ],
)
def test_wrong_arguments_are_told_in_a_sentence(
    arguments: list[str], text: str, tmp_path: Path, capsys: Any
) -> None:
    try:
        status = script.main([*arguments, "--out", str(tmp_path)])
    except SystemExit as end:  # argparse
        status = int(end.code or 0)
    assert status == 2
    told = capsys.readouterr().err
    assert text in told
    assert "Traceback" not in told


def test_missing_data_are_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv(data.DATA_VARIABLE, str(tmp_path))
    assert script.main(["mnist", "--backend", "numpy", "--out", str(tmp_path)]) == 2
    assert "must name a folder with mnist/mnist.npz" in capsys.readouterr().err


# -- schedule and files ----------------------------------------------------------------------


def test_a_job_that_fails_or_takes_too_long_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    codes = {"bp": "raise SystemExit(3)", "lr-l": "import time; time.sleep(60)", "lr-m": "pass"}
    monkeypatch.setattr(
        schedule, "command", lambda job, options: [sys.executable, "-c", codes[job.method]]
    )
    options = run.Options(
        ("bp", "lr-l", "lr-m"), 1, training.Place("numpy"), 1, True, tmp_path / "out"
    )
    # Per experiment one job ends with 3, one takes too long and one goes well.
    assert schedule.all_jobs(options, ("float32",), 9, 1.5) == 6
    told = capsys.readouterr().out
    assert (told.count("FAILED"), told.count("cut after")) == (3, 3)


def test_jobs_cover_all_methods_and_few_roundings() -> None:
    result = schedule.jobs((), ("float32", "tf32", "bf16"), quick=True)
    assert len(set(result)) == len(result)
    for name, problem in problems.PROBLEMS.items():
        methods = {j.method for j in result if j.what == name}
        assert methods == set(problem(quick=True).methods)
        used = {j.precision for j in result if j.what == name}
        assert used == {"float32", "tf32", *(["bf16"] if name == "mnist" else [])}


def test_lines_that_were_cut_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    store.add(path, {"problem": "cora", "seed": 0, "test": 1.0})
    store.add(path, {"problem": "cora", "seed": 1, "test": 2.0})
    store.add(path, {"problem": "cora", "seed": 0, "test": 3.0})  # made again: the last counts
    with path.open("a") as file:
        file.write(json.dumps({"problem": "cora", "seed": 2})[:-4])
    assert [(r["seed"], r["test"]) for r in store.read(path)] == [(0, 3.0), (1, 2.0)]


def test_means_and_spreads_are_those_of_the_seeds(tmp_path: Path) -> None:
    row = {
        "problem": "cora", "data": "d", "network": "n", "method": "bp", "title": "BP",
        "settings": "exact", "backend": "cuda", "precision": "tf32", "epochs": 2, "epoch_s": 0.5,
    }  # fmt: skip
    for seed, test in enumerate((80.0, 82.0, 84.0)):
        store.add(tmp_path / store.RUNS, {**row, "seed": seed, "test": test, "peak_bytes": 2**20})
    store.add(tmp_path / store.RUNS, {**row, "seed": 3, "error": "none"})
    line = report.cells(report.groups(tmp_path)[0])
    assert line[2:] == ["cuda, tf32", "2", "82.00 ± 2.00", "3", "500 ms *", "1 MiB"]
    store.add(tmp_path / store.SPEED, {**row, "epoch_s": 0.25})
    assert report.cells(report.groups(tmp_path)[0])[6] == "250 ms"
