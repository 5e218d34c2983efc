"""No public name of NumPy is unclassified; the table in the documentation is what a run finds.

``python tests/coverage/test_numpy_names.py`` writes the table of the NumPy at hand.
"""

from __future__ import annotations

import csv
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))  # for the command above

from numpy_calls import TABLE, VERSION, Row, classify, lookup, names, table

import adarray.numpy
from adarray.base.op import COMPOSITES, CONSTANT_FUNCTIONS, FUNCTIONS

FIELDS = ("name", "status", "reverse", "forward", "namespace", "note")


def rows_of(name: str) -> dict[str, str]:
    """Return the row of one name: with plain NumPy, and in adarray.numpy where that differs."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        row = classify(name)
        namespace = ""
        if row.status == "refused" and not name.startswith(("numpy.ndarray.", "numpy.lib.")):
            namespace = status_in_namespace(name, row)
    return {**row._asdict(), "namespace": namespace}


def status_in_namespace(name: str, row: Row) -> str:
    """Return the status of a refused name in `adarray.numpy`, empty if it is refused there too."""
    try:
        lookup(name, adarray.numpy)
    except AttributeError:
        return ""
    status = classify(name, adarray.numpy).status
    return "" if status == row.status else status


ROWS = table()


def test_there_is_a_table_for_this_numpy() -> None:
    assert ROWS, f"run python {Path(__file__).name} and look at what it finds for NumPy {VERSION}"
    assert set(ROWS) == set(names())


@pytest.mark.parametrize("name", sorted(names()))
def test_name_is_classified_and_the_table_is_true(
    name: str, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    row = rows_of(name)
    assert not list(tmp_path.iterdir())
    assert row["status"] in {"differentiable", "constant", "no arrays", "type", "refused"}
    if row["status"] == "refused":
        assert row["note"]
    assert row == ROWS.get(name)


def test_every_dispatching_function_is_known() -> None:
    """A function that NumPy hands to us is an operation, a composite, a constant or refused."""
    from adarray.base.op import REFUSED

    known = {*FUNCTIONS, *COMPOSITES, *CONSTANT_FUNCTIONS, *REFUSED}
    missing = []
    for name in names():
        if not name.startswith("numpy.ndarray."):
            function = lookup(name)
            dispatches = isinstance(function, np.ufunc) or hasattr(function, "_implementation")
            if dispatches and function not in known:
                missing.append(name)
    assert not missing


def write() -> None:
    """Write the table of this version of NumPy."""
    TABLE.parent.mkdir(exist_ok=True)
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        for name in sorted(names()):
            writer.writerow(rows_of(name))


if __name__ == "__main__":
    write()
