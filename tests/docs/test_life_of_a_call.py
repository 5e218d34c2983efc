"""The files that docs/design/life-of-a-call.rst names take part in the calls that it follows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from adarray.backend import backends

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "design" / "life-of-a-call.rst"
CALLS = """
import json, sys, threading
import numpy as np
import adarray, adarray_backends

def f(x):
    return np.sum(np.sin(x) * x)

eager = adarray.grad(f)
jitted = adarray.jit(adarray.grad(f))

def files(g, calls):
    seen = set()
    def note(frame, event, arg):
        seen.add(frame.f_code.co_filename.replace("\\\\", "/"))
    with adarray.use("serial"):
        sys.setprofile(note)
        threading.setprofile(note)
        try:
            for k in range(calls):
                g(np.arange(4.0) + k)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return sorted(seen)

print(json.dumps({"Eager": files(eager, 1), "Under jit": files(jitted, 3)}))
"""


def sections() -> dict[str, list[str]]:
    """Return the files that the numbered lines of each section begin with or name."""
    parts = re.split(r"\n([^\n]+)\n-+\n", PAGE.read_text())
    return {
        title: [
            name
            for line in re.findall(r"^\d+\. (.*)$", text, re.MULTILINE)
            for name in re.findall(r"``((?:adarray|backends)/[\w/]+\.py)``", line)
        ]
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }


@pytest.mark.skipif("serial" not in backends(), reason="the serial backend is not there")
def test_files_take_part(tmp_path: Path) -> None:
    environment = {**os.environ, "ADARRAY_CACHE_DIR": str(tmp_path)}
    environment.pop("ADARRAY_CHECK", None)
    done = subprocess.run(
        [sys.executable, "-P", "-c", CALLS],
        capture_output=True, text=True, check=True, cwd=tmp_path, env=environment,
    )  # fmt: skip
    seen = json.loads(done.stdout)
    named = sections()
    for title, most in (("Eager", 12), ("Under jit", 20)):
        assert len(named[title]) == most
        for name in named[title]:
            ending = name.replace("backends/", "/", 1)
            assert any(file.endswith(ending) for file in seen[title]), name


def test_files_exist() -> None:
    names = re.findall(
        r"``((?:adarray|backends|native|core|intercepting)/[\w/.]*)``", PAGE.read_text()
    )
    assert len(names) > 40
    for name in names:
        assert (ROOT / name).exists() or (ROOT / "adarray" / name).exists(), name
