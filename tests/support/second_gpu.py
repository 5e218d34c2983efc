"""The second GPU of a machine as a backend of its own, for tests that name a backend.

For ``tests/device`` on a machine with two GPUs.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

from adarray import backend


def count_of_gpus() -> int:
    """Return the number of GPUs that CuPy finds, 0 without CuPy."""
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount())
    except Exception:  # as many classes as there are ways to have no GPU
        return 0


class SecondGpu:
    """The cuda backend on GPU 1."""

    name = "second"

    def engine(self, **options: Any) -> Any:
        return backend.load("cuda").engine(device=1, **options)

    def info(self) -> dict[str, str]:
        return {"status": "available"}


def installed(monkeypatch: Any) -> None:
    """Let `adarray.use` find it under the name ``second`` until the test ends."""
    entry_points = dict(backend._entry_points())
    entry_points["second"] = [EntryPoint("second", "second_gpu:SecondGpu", backend.GROUP)]
    backend.refresh()
    monkeypatch.setattr(backend, "_entry_points", lambda: entry_points)
