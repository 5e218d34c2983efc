"""Which tests a run chooses: the core, all, and samples of sets of parameters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULE = """
import pytest

@pytest.mark.sampled(4)
@pytest.mark.parametrize("k", range(10))
def test_many(k): ...

@pytest.mark.parametrize("k", range(3))
def test_few(k): ...

@pytest.mark.slow
def test_long(): ...
"""


def chosen(folder: Path, *options: str) -> set[str]:
    """Return the names of the tests that a run with these options collects."""
    (folder / "test_module.py").write_text(MODULE)
    command = [
        sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"),
        "--rootdir", str(folder), "-p", "conftest", "-p", "no:cacheprovider", "-n0", "-q",
        "--collect-only", *options,
        str(folder),
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    names = {line.partition("::")[2] for line in run.stdout.splitlines() if "::" in line}
    assert names, run.stdout + run.stderr
    return names


def test_what_is_sampled_is_slow_but_for_a_share(tmp_path: Path) -> None:
    core, slow = chosen(tmp_path), chosen(tmp_path, "-m", "slow")
    every = chosen(tmp_path, "-m", "slow or not slow")
    assert not core & slow
    assert core | slow == every
    assert len(every) == 14
    many = {name for name in core if name.startswith("test_many")}
    assert len(many) == 3  # one of four, rounded up
    assert {f"test_few[{k}]" for k in range(3)} <= core
    assert chosen(tmp_path) == core  # always the same


@pytest.mark.parametrize("share", [2, 8])
def test_samples_hold_a_set_of_parameters_of_each_test(tmp_path: Path, share: int) -> None:
    sample = chosen(tmp_path, "-m", "slow or not slow", "--sample", str(share))
    counts = [
        sum(name.startswith(test) for name in sample)
        for test in ("test_many", "test_few", "test_long")
    ]
    assert counts == [-(-10 // share), -(-3 // share), 1]


def test_parts_hold_each_test_once(tmp_path: Path) -> None:
    parts = [chosen(tmp_path, "-m", "slow or not slow", "--part", f"{i}/3") for i in (2, 3)]
    functions = [{name.partition("[")[0] for name in names} for names in parts]
    assert functions == [{"test_few", "test_long"}, {"test_many"}]  # by checksums of names
    assert sum(map(len, parts)) == 14
