"""The comparison on NPBench's programs, on a checkout that is made up: no time is judged here."""

from __future__ import annotations

import copy
import json
import sys
import warnings
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
    from asv_bench.engines import Absent
    from asv_bench.fleet import Failed
    from asv_bench.npbench import __main__ as script
    from asv_bench.npbench import engines, measure, picture, programs, report, worker

TEXTS = {
    # Writes into an argument, and returns nothing.
    "sweep": {
        "info": {
            "parameters": {"S": {"N": 6, "T": 2}, "M": {"N": 9, "T": 3}},
            "init": {"func_name": "initialize", "input_args": ["N"], "output_args": ["a", "b"]},
            "input_args": ["T", "a", "b"], "array_args": ["a", "b"],
        },
        "": "import numpy as np\ndef initialize(n):\n"
            "    return np.linspace(0.1, 1.0, n), np.cos(np.arange(n) * 1.0)\n",
        "numpy": "import numpy as np\ndef kernel(T, a, b):\n    for t in range(T):\n"
                 "        for i in range(1, len(a)):\n            a[i] = np.sin(a[i - 1]) * b[i]\n",
        "jax": "def kernel(T, a, b):\n    return a\n",
    },
    # Returns several things, one of them an argument that it writes into, and one of whole numbers.
    "pieces": {
        "info": {
            "parameters": {"S": {"N": 5, "scale": 0.5}},
            "init": {"func_name": "make", "input_args": ["N"], "output_args": ["x"]},
            "input_args": ["x", "scale"], "array_args": ["x"],
        },
        "": "import numpy as np\ndef make(n):\n    return np.arange(1.0, n + 1)\n",
        "numpy": "import numpy as np\ndef kernel(x, scale):\n    x *= scale\n"
                 "    y = np.exp(-x)\n    return x, (y, np.argmax(y)), np.sum(y)\n",
        "jax": "raise ImportError('only for a test')\n",
    },
    # Complex numbers, as argument and as result.
    "waves": {
        "info": {
            "parameters": {"S": {"N": 4}},
            "init": {"func_name": "initialize", "input_args": ["N"], "output_args": ["z", "n"]},
            "input_args": ["z", "n"], "array_args": ["z"],
        },
        "": "import numpy as np\ndef initialize(n):\n"
            "    return np.exp(1j * np.arange(n)) * (1 + np.arange(n)), n\n",
        "numpy": "import numpy as np\ndef kernel(z, n):\n"
                 "    y = np.empty(n, np.complex128)\n    y[:] = z * z\n    return y * (2 - 1j)\n",
    },
    # Writes into both of its arguments what they hold.
    "still": {
        "info": {
            "parameters": {"S": {"N": 3}},
            "init": {"func_name": "make", "input_args": ["N"], "output_args": ["x", "y", "z"]},
            "input_args": ["x", "y", "z"], "array_args": ["x", "y", "z"],
        },
        "": "import numpy as np\ndef make(n):\n    return np.ones(n), np.zeros(n), np.ones(n)\n",
        "numpy": "def kernel(x, y, z):\n    x *= 1 + y\n    y += x - z\n    return z * y\n",
    },
    # Numbers alone; in single precision.
    "numbers": {
        "info": {
            "parameters": {"S": {"low": 0.25, "N": 3}},
            "input_args": ["low", "N"], "array_args": [],
        },
        "numpy": "import numpy as np\ndef kernel(low, N):\n"
                 "    return low * np.arange(N, dtype=np.float64)\n",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that is laid out as a checkout is."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "bench_info").mkdir()
    for name, texts in TEXTS.items():
        place = folder / "npbench" / "benchmarks" / "group" / name
        place.mkdir(parents=True)
        info = {"relative_path": f"group/{name}", "module_name": name, "func_name": "kernel"}
        info |= texts["info"]
        (folder / "bench_info" / f"{name}.json").write_text(json.dumps({"benchmark": info}))
        for postfix, text in texts.items():
            if postfix != "info":
                ending = f"_{postfix}" if postfix else ""
                (place / f"{name}{ending}.py").write_text(text)
    return folder


def task(root: Path, name: str) -> engines.Task:
    program = programs.find(root)[name]
    data = program.data("S")
    return engines.Task(program, data, programs.objective(program, data))


def test_what_a_program_computes(root: Path) -> None:
    assert list(programs.find(root)) == sorted(TEXTS)
    sweep = task(root, "sweep")
    assert list(sweep.data) == ["T", "a", "b"]
    assert sweep.names == ["a", "b"]
    assert (sweep.objective.returned, sweep.objective.written) == (0, ["a"])
    np.testing.assert_array_equal(sweep.data["a"], np.linspace(0.1, 1.0, 6))  # as it was
    assert programs.find(root)["sweep"].data("M")["a"].size == 9
    pieces = task(root, "pieces").objective
    assert pieces.counted == [0, 1, 3]  # the argument is there once, and a whole number is not
    assert [x.shape for x in pieces.outputs] == [(5,), (5,), ()]
    assert task(root, "waves").objective.weights[0].dtype == complex
    assert task(root, "numbers").names == ["low"]
    assert task(root, "still").objective.written == ["x", "y"]  # though nothing changes


def test_folders_and_texts_that_are_not_there(root: Path, tmp_path: Path) -> None:
    with pytest.raises(LookupError, match=r"is no checkout of NPBench: it has no bench_info"):
        programs.find(tmp_path)
    with pytest.raises(LookupError, match="waves has no text for jax"):
        programs.find(root)["waves"].function("jax")


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("kind", ["adarray-serial", "jit-serial"])
def test_gradients_are_those_of_differences(root: Path, name: str, kind: str) -> None:
    if "serial" not in adarray.backends():
        pytest.skip("no C compiler here")
    one = task(root, name)
    engine = engines.make(kind, 1)
    try:
        prepared = engine.prepare(one)
        for _ in range(4):
            value, gradients = prepared.result(prepared.call())
    finally:
        engine.close()
    assert prepared.note() == ""
    expected, none = engines.make("numpy", 1).prepare(one), {}
    assert (pytest.approx(value, rel=1e-12), none) == expected.result(expected.call())
    along = programs.directions(one.program, one.data)
    products = programs.slopes(gradients, along)
    assert programs.deviation(products, programs.differences(one.program, one.data)) < 1e-6
    wrong = {k: g * 1.01 + 0.01 for k, g in gradients.items()}
    bad = programs.slopes(wrong, along)
    assert programs.deviation(bad, programs.differences(one.program, one.data)) > 1e-4


def with_text(root: Path, name: str, text: str, data: str) -> engines.Task:
    """Return a task of a program of one argument, which is written now."""
    place = root / "npbench" / "benchmarks" / "group" / name
    place.mkdir(parents=True)
    info = {"relative_path": f"group/{name}", "module_name": name, "func_name": "kernel"}
    info |= {
        "parameters": {"S": {"N": 5}}, "input_args": ["x"], "array_args": ["x"],
        "init": {"func_name": "make", "input_args": ["N"], "output_args": ["x"]},
    }  # fmt: skip
    (place / f"{name}.py").write_text(f"import numpy as np\ndef make(n):\n    return {data}\n")
    (place / f"{name}_numpy.py").write_text(f"import numpy as np\n{text}")
    program = programs.Program(name, root, info)
    arguments = program.data("S")
    return engines.Task(program, arguments, programs.objective(program, arguments))


def test_slopes_that_differences_do_not_find(tmp_path: Path) -> None:
    # Any step crosses one of the kinks.
    kinks = "def kernel(x):\n    return np.where(np.sin(1e12 * x) > 0, x, 2 * x)\n"
    one = with_text(tmp_path, "kinks", kinks, "np.linspace(0.1, 1.0, n)")
    factor = np.where(np.sin(1e12 * one.data["x"]) > 0, 1.0, 2.0) * one.objective.weights[0]
    products = programs.slopes({"x": factor}, programs.directions(one.program, one.data))
    assert programs.deviation(products, programs.differences(one.program, one.data)) < 1e-12
    # Larger steps leave the domain; the text keeps real numbers alone.
    narrow = "def kernel(x):\n    y = np.empty(len(x))\n    y[:] = x\n"
    narrow += "    if (y < 0).any():\n        raise np.linalg.LinAlgError('negative')\n"
    narrow += "    return np.sqrt(y)\n"
    two = with_text(tmp_path, "narrow", narrow, "np.array([1e-5, 1.0, 2.0])")
    slope = two.objective.weights[0] / (2 * np.sqrt(two.data["x"]))
    products = programs.slopes({"x": slope}, programs.directions(two.program, two.data))
    assert programs.deviation(products, programs.differences(two.program, two.data)) < 1e-5
    assert programs.deviation(products, [[], []]) == 1.0


def test_last_digits_are_not_weighed(tmp_path: Path) -> None:
    chaos = "def kernel(x):\n    y = x.copy()\n    for _ in range(60):\n"
    chaos += "        y[:3] = 3.99 * y[:3] * (1 - y[:3])\n    return y\n"
    one = with_text(tmp_path, "chaos", chaos, "np.linspace(0.1, 0.4, n)")
    np.testing.assert_array_equal(one.objective.weights[0] != 0, [False] * 3 + [True] * 2)


def test_results_are_matched_by_shape_and_values() -> None:
    outputs = [np.arange(3.0), np.arange(3.0) + 1, np.array(2.0)]
    results = [np.array([[1.0, 2.0, 3.0]]), 2.0, np.arange(3), np.arange(3.0)]
    assert engines.matched(results, outputs) == [3, 0, 1]
    with pytest.raises(LookupError, match="does not return output 1 of the NumPy text"):
        engines.matched(results[1:], outputs)


def test_engines_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in engines.PEERS:
        monkeypatch.setitem(sys.modules, name, None)  # an import fails
        with pytest.raises(Absent, match="not installed"):
            engines.make(name, 1)
    with pytest.raises(Absent, match="there is no engine 'julia-serial'"):
        engines.make("julia-serial", 1)


def test_a_worker_computes_and_is_timed(root: Path) -> None:
    numpy_worker = worker.ProgramWorker("numpy", 1)
    answer = numpy_worker.prepare("S", "sweep", str(root))
    assert answer["slopes"] == []
    assert len(answer["digest"]) == 1
    assert answer["first"] > 0.0
    one = numpy_worker.differences(str(root), "sweep", "S", budget=0.0)["slopes"]
    assert len(one) == 1
    slopes = numpy_worker.differences(str(root), "sweep", "S")["slopes"]
    assert len(slopes) == programs.DIRECTIONS
    assert numpy_worker.measure(0.0)["times"][0] > 0.0


def test_seconds_until_calls_are_fast() -> None:
    later = [0.1, 0.12, 0.1]
    assert worker.until_fast([0.5, 2.0, 1.0, 0.11], later) == 3.5
    assert worker.until_fast([0.5, 2.0, 0.1, 1.0], later) == 3.6  # an own turn of the program
    assert worker.until_fast([0.5, 0.1, 0.1, 0.1], later) == 0.5


@pytest.fixture(scope="module")
def figures(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the report of a run of the script on two programs."""
    if "serial" not in adarray.backends():
        pytest.skip("no C compiler here")
    folder = tmp_path_factory.mktemp("docs")
    output = folder / "run.json"
    engines_ = ["adarray-serial", "jit-serial"]
    options = ["--root", str(root), "--programs", "sweep", "waves", "--engines", *engines_]
    options += ["--rounds", "2", "--sizes", "S", "M", "--threads", "1", "--output", str(output)]
    assert script.main([*options, "--docs", str(folder)]) == 0
    return {"folder": folder, **json.loads(output.read_text())}


@pytest.mark.slow
def test_a_run_from_end_to_end(figures: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    figures = copy.deepcopy(figures)
    folder = figures.pop("folder")
    assert list(figures["programs"]) == ["sweep", "waves"]
    assert list(figures["programs"]["waves"]) == ["S"]  # it has no other size
    row = figures["programs"]["sweep"]["M"]
    assert row["jit-serial"]["right"]
    assert len(row["jit-serial"]["times"]) == 2
    assert "right" not in row["numpy"]  # it has no gradient
    lines = (folder / "npbench-S.tsv").read_text().splitlines()
    assert lines[0].split("\t") == ["program", "numpy", "adarray-serial", "jit-serial"]
    assert [line.split("\t")[0] for line in lines[1:]] == ["sweep", "waves"]
    assert (folder / "npbench-S.svg").stat().st_size > 1000
    assert (folder / "npbench-M.png").stat().st_size > 1000
    assert script.main(["--load", str(folder / "run.json")]) == 0
    shown = capsys.readouterr().out
    assert "value and gradient, size M" in shown
    figures["programs"]["sweep"]["S"]["jit-serial"]["right"] = False
    (folder / "wrong.json").write_text(json.dumps(figures))
    assert script.main(["--load", str(folder / "wrong.json")]) == 1


@pytest.mark.slow
def test_reports_in_several_files(figures: dict[str, Any], tmp_path: Path) -> None:
    parts = []
    for name in ("waves", "sweep"):
        parts.append(str(tmp_path / f"{name}.json"))
        alone = {**figures, "programs": {name: figures["programs"][name]}}
        alone.pop("folder", None)
        if name == "waves":
            alone["sizes"] = ["S"]
        Path(parts[-1]).write_text(json.dumps(alone))
    output = tmp_path / "both.json"
    assert script.main(["--load", *parts, "--output", str(output)]) == 0
    both = json.loads(output.read_text())
    assert both["programs"] == figures["programs"]
    assert list(both["programs"]) == ["sweep", "waves"]
    assert both["sizes"] == ["S", "M"]
    assert "median" in both["machine"]["cores used by others"]


def made_up() -> dict[str, Any]:
    def times(*rounds: float, **more: Any) -> dict[str, Any]:
        return {"median": sorted(rounds)[len(rounds) // 2], "times": list(rounds), "note": "",
                "right": True, "first": 2.0, "peak": 3 << 20, **more}  # fmt: skip

    return {
        "sizes": ["S"],
        "engines": {"numpy": "2", "jit-openmp": "1", "jax": "0", "dace": "absent"},
        "programs": {
            "one": {"S": {"jit-openmp": times(1.0, 1.0), "jax": times(4.0, 4.0)}},
            "two": {
                "S": {"jit-openmp": times(1.0, 2.0, note="it is slow"), "jax": times(1.0, 2.0)}
            },
            "three": {"S": {"jit-openmp": times(1.0), "jax": times(9.0, right=False)}},
            "four": {"S": {"jit-openmp": {"error": "no"}, "jax": times(9.0)}},
        },
    }


def test_tables_and_means() -> None:
    figures = made_up()
    assert report.engines(figures) == ["jit-openmp", "jax"]
    assert report.lines(figures, "S") == [
        ["one", "1 s", "4 s"],
        ["two", "2 s eager", "2 s"],
        ["three", "1 s", "9 s wrong"],
        ["four", "-", "9 s"],
    ]
    # Wrong gradients and errors do not count.
    assert report.geometric_mean(figures, "S", "jit-openmp", "jax") == (pytest.approx(2.0), 2)
    assert report.geometric_mean(figures, "S", "jit-openmp", "dace") == (None, 0)
    assert report.summary(figures, "S") == [
        ["jit-openmp", "3", "0", "1", "1", "2"],
        ["jax", "3", "1", "0", "0.5", "1"],
    ]
    assert report.costs(figures, "S")[-2:] == [
        ["three", "2 s", "2 s", "3", "3"],
        ["four", "-", "2 s", "-", "3"],
    ]
    assert report.slowest(figures, "S", "jit-openmp", "jax") == [["two", "1"], ["one", "4"]]
    shown = report.text(figures)
    assert "two, S, jit-openmp: it is slow" in shown
    assert "four, S, jit-openmp: no" in shown
    assert picture.unit(figures) == "jit-openmp"
    assert picture.points(figures, "S") == {"jax": [(4.0, "one"), (1.0, "two")]}


def test_what_the_report_says_of_an_engine() -> None:
    from asv_bench.fleet import Result

    said: dict[str, Any] = {
        "first": 1.0,
        "peak": 2.0,
        "note": "",
        "single": False,
        "slopes": [(1.0, 1.0)],
    }
    said["gradients"] = True
    result = Result([[0.5], [0.7]], [1.0, 1.0], [0.0, 0.0], prepared=said)
    assert measure.figures(result, [[0.9, 1.00001]])["right"]
    assert not measure.figures(result, [[0.9, 1.1]])["right"]
    assert measure.figures(result, [])["right"] is None  # nothing to compare it with
    single = result._replace(prepared={**said, "single": True})
    assert measure.figures(single, [[0.99]])["right"]
    assert measure.figures(Result([], [], [], "broken"), []) == {"error": "broken"}
    whole = result._replace(prepared={**said, "slopes": []})  # of whole numbers alone
    assert measure.figures(whole, []) == {"error": "it has no floating-point inputs"}
    value = result._replace(prepared={**said, "slopes": [], "gradients": False})
    assert "right" not in measure.figures(value, [])


class Slow:
    """Engines of which NumPy does not answer in time."""

    budget = 1.0

    def __init__(self, slopes: list[tuple[float, float]]) -> None:
        from asv_bench.fleet import Result

        said = {"first": 1.0, "peak": 2.0, "note": "", "single": False, "gradients": True}
        self.members = {"numpy": self}
        self.results = {
            "numpy": Result([], [], [], "no answer in 60 s"),
            "jit-openmp": Result([[0.5]], [1.0], [0.0], "", {**said, "slopes": [(1.0, 1.0)]}),
            "jax": Result([[0.5]], [1.0], [0.0], "", {**said, "slopes": slopes}),
        }

    def ask(self, **request: Any) -> Any:
        raise Failed(f"no answer to {request['do']}")

    def race(self, *args: Any, **options: Any) -> Any:
        return self.results


def test_gradients_without_differences_are_not_wrong() -> None:
    rows = measure.one(Slow([(1.1, 1.0)]), "one", "", "M")  # type: ignore[arg-type]
    assert [rows[k]["right"] for k in ("jit-openmp", "jax")] == [None, None]
    assert report.cell(rows["jit-openmp"]) == "500 ms not checked"
    assert report.cell({**rows["jit-openmp"], "note": "why"}) == "500 ms not checked eager"
    rows = measure.one(Slow([(1.0, 1.0)]), "one", "", "M")  # type: ignore[arg-type]
    assert rows["jit-openmp"]["right"]  # as another library says
    assert rows["jit-openmp"]["by"] == "jax"


def test_random_numbers_of_large_arrays_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "PERIOD", 7)
    drawn = []

    def draw(n: int) -> np.ndarray:
        drawn.append(n)
        return np.arange(n)

    x = programs._random((5, 4), draw)
    assert (drawn, x.shape) == ([7], (5, 4))
    np.testing.assert_array_equal(np.ravel(x), np.arange(20) % 7)
    assert programs._random((), draw).shape == ()


def test_engines_that_agree() -> None:
    said = {"single": False, "slopes": [(1.0, 2.0), (3.0, 1.0)]}
    assert measure.agree(said, [(1.0, 2.0), (3.00001, 1.0)])
    assert not measure.agree(said, [(1.0, 2.0), (3.1, 1.0)])


WRONG = {
    "no root": ([], "--root is the folder of a checkout of NPBench"),
    "another folder": (["--root", "/"], "is no checkout of NPBench"),
    "no program": (["--root", "ROOT", "--programs", "none"], "there is no program 'none'; there"),
    "no size": (["--root", "ROOT", "--sizes", "XL"], "invalid choice: 'XL'"),
    "no rounds": (["--root", "ROOT", "--rounds", "0"], "--rounds and --threads are at least 1"),
    "no file": (["--load", "/no/file.json"], "there is no file"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options(name: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, message = WRONG[name]
    with pytest.raises(SystemExit) as caught:
        script.main([str(root) if a == "ROOT" else a for a in arguments])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_one_run_tells_that_a_program_writes_into_nothing() -> None:
    runs = []

    def reads(a: Any, b: Any) -> Any:
        runs.append("reads")
        return a @ b

    def writes(a: Any, b: Any) -> Any:
        runs.append("writes")
        b += a
        return a

    data = {"a": np.ones(3), "b": np.arange(3.0)}
    _, results, untouched = programs._first_run(reads, data)
    assert (results, untouched, runs) == ([3.0], True, ["reads"])
    arguments, _, untouched = programs._first_run(writes, data)
    assert not untouched
    np.testing.assert_array_equal(arguments["b"], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(data["b"], [0.0, 1.0, 2.0])
