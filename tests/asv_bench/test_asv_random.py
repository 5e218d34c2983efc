"""Random array programs: valid, the same everywhere, and compared and reported rightly."""

from __future__ import annotations

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
    from asv_bench.gpu import random as on_gpus
    from asv_bench.jit import random as on_processors
    from asv_bench.random_programs import race, report, rounding, writer
    from asv_bench.random_programs.named import NAMED
    from asv_bench.random_programs.programs import (
        described,
        elements_of,
        program_of,
        workload,
        workload_of,
    )

SMALL = {"n-body": 20, "burgers": 30, "rosenbrock": 40, "attention": 1, "gaussian-process": 12}


def value(name: str) -> Any:
    """Return what a program computes with NumPy."""
    w = workload_of(name)
    variables, constants = w.data()
    return w.body(np, *variables, *constants)


@pytest.mark.parametrize("seed", range(60))
def test_programs_are_valid_and_of_one_magnitude(seed: int) -> None:
    y = value(f"{seed}:1000:4000")
    assert y.shape == ()
    assert y.dtype == np.float32
    assert 0.0 < abs(float(y)) < 1e6


def test_all_kinds_of_statements_are_written() -> None:
    kinds = {k for seed in range(200) for k in writer.write(seed, 3000).kinds}
    assert kinds == set(writer.STATEMENTS) | {"recurrent"}


def test_a_seed_gives_one_program() -> None:
    assert writer.write(11, 5000) == writer.write(11, 5000)
    texts = {writer.write(seed, 5000).text for seed in range(50)}
    assert len(texts) == 50
    assert elements_of(4, 1e5, 1e8) == elements_of(4, 1e5, 1e8)


@pytest.mark.parametrize("seed", range(40))
def test_sizes_are_as_asked_for(seed: int) -> None:
    low, high = 2000.0, 50_000.0
    p = program_of(f"{seed}:{low}:{high}")
    largest = max(np.prod(a.shape, dtype=int) for a in p.arguments)
    assert largest <= 8 * high
    assert {a.varies for a in p.arguments} >= {True}
    order = [a.varies for a in p.arguments]
    assert order == sorted(order, reverse=True)  # differentiated ones come first


@pytest.mark.parametrize("seed", [3, 8, 17, 29, 41])
def test_gradients_are_right(seed: int) -> None:
    w = workload(writer.write(seed, 300))
    variables, constants = w.data()
    count = len(variables)
    wide = [np.asarray(x, np.float64) for x in variables]

    def f(*arrays: Any) -> Any:
        return w.body(np, *arrays, *constants)

    slopes = adarray.grad(f, argnums=tuple(range(count)))(*wide)
    rng = np.random.default_rng(0)
    steps = [rng.normal(size=x.shape) for x in wide]
    h = 1e-6
    up, down = (f(*(x + s * h * d for x, d in zip(wide, steps, strict=True))) for s in (1, -1))
    along = sum(float(np.sum(s * d)) for s, d in zip(slopes, steps, strict=True))
    assert along == pytest.approx((up - down) / (2 * h), rel=2e-3, abs=1e-6)


@pytest.mark.parametrize("name", NAMED)
def test_named_programs_run_at_any_size(name: str) -> None:
    text = f"{name}:{SMALL[name]}"
    assert np.isfinite(value(text))
    assert described(text).startswith(f"# {text}: {name}\n")
    w = workload_of(text)
    variables, _ = w.data()
    slopes = adarray.grad(lambda *xs: w.body(np, *xs), argnums=tuple(range(len(variables))))(
        *variables
    )
    assert all(np.all(np.isfinite(g)) for g in slopes)


@pytest.mark.parametrize(("script", "elements"), [(on_gpus, "1e+08"), (on_processors, "1e+07")])
def test_the_scripts_show_programs(script: Any, elements: str, capsys: Any) -> None:
    assert script.main(["--show", "--n", "2", "--seed", "5"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("def f(np, ") == 2
    assert f"# 5:{'100000' if script is on_gpus else '10000'}:{elements}" in shown


def test_unknown_programs_are_refused(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        on_processors.main(["--programs", "n-bodies"])
    assert "no program is called 'n-bodies'; there are n-body, burgers" in capsys.readouterr().err


# -- what is reported --------------------------------------------------------------------------


def figures(ours: float, *peers: float, **rest: Any) -> dict[str, Any]:
    """Return what was measured of one program."""
    times = {"us": ours} | {f"peer {k}": t for k, t in enumerate(peers)}
    spent = {e: {"waited": [t] * 3, "row": [t / 2] * 3} for e, t in times.items()}
    return {"text": "def f(np): ...", "times": spent, "errors": {}, "first": {}} | rest


def test_the_best_peer_counts() -> None:
    assert report.ratio(figures(2.0, 3.0, 5.0), "us", "waited") == 1.5
    assert report.ratio(figures(2.0), "us", "waited") is None
    assert report.ratio(figures(2.0, 3.0), "them", "waited") is None


def test_the_report_has_means_percentiles_and_the_worst() -> None:
    programs = {str(k): figures(1.0, 2.0 ** (k - 5)) for k in range(10)}
    programs["lost"] = figures(1.0, errors={"peer 0": "no answer in 60 s"})
    text = report.text({"ours": "us", "programs": programs}, 2)
    assert "0.71 |  0.03 | 0.06" in text  # the geometric mean, the worst, a tenth
    assert "lost" in text
    assert "no answer in 60 s" in text
    assert text.index("0: 0.03") < text.index("1: 0.06")
    assert "2: 0.12" not in text


def test_wrong_results_are_found() -> None:
    answers = {
        ("7", "us"): {"digest": [1.0, 5.0, 2.0], "first": 1.0},
        ("7", "peer"): {"digest": [1.0, 4.0, 2.0], "first": 1.0},
    }
    options = race.parse(race.Judged("x", None, "us", ("peer",), (1e3, 1e4)), ["--n", "1"])
    compared = race.compared(
        "7:1000:1000", {(f"{n}:1000:1000", e): a for (n, e), a in answers.items()}, options
    )
    assert compared["wrong"]
    assert compared["errors"] == {"us": "computed 5, the reference 4"}


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "random.json"
    path.write_text(json.dumps({"ours": "us", "programs": {"3:1:1": figures(1.0, 2.0)}}))
    judged = race.Judged("x", None, "us", (), (1e3, 1e4))
    options = race.parse(judged, ["--n", "1", "--output", str(path)])
    assert list(race.resumed(options)["programs"]) == ["3:1:1"]


@pytest.mark.slow
def test_ours_is_timed_beside_a_peer(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "random.json"
    arguments = ["--n", "1", "--seed", "3", "--elements", "1000", "2000", "--rounds", "1"]
    arguments += ["--ours", "jit-serial", "--peers", "adarray-numpy", "--output", str(path)]
    assert on_processors.main(arguments) == 0
    (measured,) = json.loads(path.read_text())["programs"].values()
    assert set(measured["times"]) == {"jit-serial", "adarray-numpy"}
    assert "jit-serial on random programs" in capsys.readouterr().out


def test_what_cancels_is_judged_by_its_rounding_errors() -> None:
    true = [2.5, 1e-20, 0.0, 3.0, -1.0]
    reference = [2.5, 2e-9, 1e-9, 3.0, -1.0]
    good = [2.5, 9e-9, -4e-9, 3.0, -1.0]
    alike = rounding.rounded_alike
    assert alike(good, reference, true, 2e-3)
    assert alike(reference, reference, true, 2e-3)
    for k, wrong in ((0, 2.6), (1, 1e-7), (3, 3.1), (4, -0.9), (2, float("nan"))):
        assert not alike([*good[:k], wrong, *good[k + 1 :]], reference, true, 2e-3)
    assert not alike(good[:3], reference, true, 2e-3)
    assert not alike([2.5, 1e-3, 0.0, 3.0, -1.0], [2.5, 1e-3, 0.0, 3.0, -1.0], true, 2e-3)


def test_double_precision_tells_the_gradient_that_is_zero() -> None:
    """The variance does not depend on a shift, except by rounding."""
    name = "9522:1000:2000"
    assert "np.var(a1, axis=0)" in described(name)
    digest = rounding.exact(name)
    w = workload_of(name)
    variables, constants = w.data()
    assert len(digest) == 1 + 2 * len(variables)
    assert digest[0] == pytest.approx(float(w.body(np, *variables, *constants)), rel=1e-4)
    assert min(map(abs, digest)) < 1e-14
