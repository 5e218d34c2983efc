"""The package is typed (PEP 561), and its types are what users see."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

import adarray

HERE = pathlib.Path(__file__).parent


def check(name, tmp_path):
    """Return what ``mypy --strict`` says about a file here."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    command = [
        sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent",
        f"--cache-dir={tmp_path}", "--no-error-summary", "--hide-error-codes", str(HERE / name),
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert not ran.stderr, ran.stderr
    return ran.stdout


def test_the_marker_is_there():
    assert (pathlib.Path(adarray.__file__).parent / "py.typed").exists()


@pytest.mark.slow
def test_usage_is_accepted(tmp_path):
    assert check("usage.py", tmp_path) == ""


@pytest.mark.slow
def test_mistakes_are_found(tmp_path):
    errors = dict(re.findall(r"mistakes\.py:(\d+): error: (.*)", check("mistakes.py", tmp_path)))
    expected = {
        str(k): line.split("# error: ")[1]
        for k, line in enumerate((HERE / "mistakes.py").read_text().splitlines(), 1)
        if "# error: " in line
    }
    assert errors.keys() == expected.keys()
    for line, message in expected.items():
        assert message in errors[line]
