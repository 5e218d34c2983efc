"""Measurements: one line of JSON for each training, appended by concurrent processes."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]
RUNS, SPEED = "runs.jsonl", "speed.jsonl"
# What makes two trainings the same.
KEY = ("problem", "data", "network", "method", "settings", "backend", "precision", "epochs", "seed")


def key(row: Row) -> tuple[Any, ...]:
    """Return the key of a training."""
    return tuple(row.get(k) for k in KEY)


def read(path: Path) -> list[Row]:
    """Return the rows of a file, the last one of each key; none if there is no file.

    A line that was cut, since its process was stopped, is left out.
    """
    rows: dict[tuple[Any, ...], Row] = {}
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            rows[key(row)] = row
    return list(rows.values())


def add(path: Path, row: Row) -> None:
    """Append a row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(row) + "\n")
