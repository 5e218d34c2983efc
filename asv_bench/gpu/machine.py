"""The machine that the figures of a GPU depend on."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess

FIELDS = ("name", "driver_version", "memory.total")


def machine() -> dict[str, str]:
    """Return the GPU, its driver, and the processor that launches."""
    facts = {"gpu": "none"}
    tool = shutil.which("nvidia-smi")
    if tool is not None:
        done = subprocess.run(
            [tool, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader"],
            capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        cells = [c.strip() for c in done.stdout.partition("\n")[0].split(",")]
        if len(cells) == len(FIELDS):
            facts = dict(zip(("gpu", "driver", "memory"), cells, strict=True))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {**facts, "cores": str(cores), "python": platform.python_version()}
