"""Functions of packages that never heard of adarray, for those packages that are installed.

numpy-financial and seawater are; the others are left to whoever installs them. The whole
table is made by `intercept_table.py`.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
try:
    import intercept_table
    from intercept_measure import Call, measure
finally:
    sys.path.pop(0)

CALLS, FAILURES = intercept_table.CALLS, intercept_table.FAILURES


def _rows() -> list[dict[str, str]]:
    with intercept_table.TABLE.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_the_table_of_the_documentation_has_every_call() -> None:
    rows = _rows()
    assert tuple(rows[0]) == intercept_table.COLUMNS
    listed = [(package, name) for part in (CALLS, FAILURES) for package in part
              for name in part[package]]  # fmt: skip
    assert sorted((r["package"], r["function"]) for r in rows) == sorted(listed)


def test_the_table_says_that_150_functions_of_six_packages_agree_with_differences() -> None:
    passed = [r for r in _rows() if r["status"] == "differentiable"]
    assert len(passed) >= 150
    assert len({r["package"] for r in passed}) >= 6
    assert all(float(r["max relative error"]) < 1e-5 for r in passed)


def test_every_failure_in_the_table_has_a_reason() -> None:
    for r in _rows():
        known = FAILURES.get(r["package"], {}).get(r["function"])
        assert (r["status"] != "differentiable") == (known is not None), r["function"]
        assert r["reason"] == ("" if known is None else known[1]), r["function"]
        assert r["status"] in ("differentiable", "constant", "refused", "wrong"), r["function"]


@pytest.mark.filterwarnings("default")  # the packages' own
@pytest.mark.parametrize("package", CALLS)
def test_functions_of(package: str) -> None:
    pytest.importorskip(package)
    results = list(intercept_table.results(package))
    unexpected = {
        r.call.name: f"{r.status}: {r.reason}"
        for r in results
        if r.passed == bool(intercept_table.known(r))
    }
    assert unexpected == {}


@pytest.mark.parametrize(
    ("name", "arguments", "status", "reason"),
    [
        ("shift", "np.array([1.0, 2.0]), 3.0", "differentiable", ""),
        ("steps", "np.array([1.2, 2.3])", "constant", ""),
        ("wrong", "np.array([1.0, 2.0])", "wrong", "the gradient differs"),
        ("Box().scaled", "np.array([1.0, 2.0])", "differentiable", ""),
        ("infinite", "np.array([2.0, 4.0])", "wrong", "the gradient is not finite"),
        ("leaves", "np.array([1.0, 2.0])", "refused", "TraceError: "),
        ("inside", "np.array([1.0, 2.0])", "wrong", "plain arguments give another result inside"),
        ("shift", "1, 2", "unusable", "no floating point argument"),
    ],
)
def test_the_measurement_tells_these_apart(
    name: str, arguments: str, status: str, reason: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    # A gradient that is stopped on purpose is wrong; a result that depends on the context too.
    (tmp_path / "measured_client.py").write_text(
        "import numpy as np\n"
        "import adarray\n"
        "def shift(x, y):\n    x += 1.0\n    return np.array([x[0] * y, x[1]])\n"
        "def steps(x):\n    return np.floor(x)\n"
        "def wrong(x):\n    return x * adarray.value_of(x)\n"
        "def infinite(x):\n    return np.sqrt(x - x[0])\n"
        "def leaves(x):\n    return np.frombuffer(x.tobytes())\n"
        "def inside(x):\n    return x + isinstance(np.zeros(1), adarray.ADArray)\n"
        "class Box:\n    def scaled(self, x):\n        return 2.0 * x**2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        result = measure(Call("measured_client", name, arguments))
    finally:
        sys.modules.pop("measured_client", None)
    assert result.status == status
    assert result.reason.startswith(reason)
