"""Every public name of SciPy's modules is classified; the table in the documentation is true.

``python tests/coverage/test_scipy_names.py`` writes the table of the SciPy at hand.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

pytest.importorskip("scipy")
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))  # for the command above

import scipy
from scipy_calls import MODULES, Row, classify, names

FOLDER = Path(__file__).parents[2] / "docs" / "coverage"
VERSION = ".".join(scipy.__version__.split(".")[:2])
TABLE = FOLDER / f"scipy-{VERSION}.tsv"
STATUSES = {"differentiable", "constant", "type", "refused"}


def stored() -> dict[str, dict[str, str]]:
    """Return the rows of the table of this version of SciPy, empty if there is none."""
    if not TABLE.exists():
        return {}
    with TABLE.open(newline="") as file:
        return {r["name"]: r for r in csv.DictReader(file, delimiter="\t")}


ROWS = stored()


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_names_are_classified_and_the_table_is_true(module: str) -> None:
    """A version without a table is classified too; only the comparison is left out."""
    different = []
    rows = [classify(m, n) for m, n in names() if m == module]
    assert rows
    for row in rows:
        assert row.status in STATUSES
        assert row.note or row.status != "refused"
        if ROWS and row._asdict() != ROWS.get(row.name):
            different.append((row, ROWS.get(row.name)))
    assert not different
    prefix = f"scipy.{module}."
    mine = {n for n in ROWS if n.startswith(prefix) and not (module == "sparse" and "linalg." in n)}
    assert not ROWS or mine == {row.name for row in rows}


@pytest.mark.slow  # after the one above, which imports the modules
def test_what_users_need_most_is_differentiable() -> None:
    for module, name in (
        ("special", "gammaln"), ("special", "erf"), ("special", "logsumexp"), ("linalg", "solve"),
        ("linalg", "expm"), ("signal", "convolve"), ("ndimage", "gaussian_filter"),
        ("integrate", "simpson"), ("stats", "norm.logpdf"), ("stats", "beta.cdf"),
        ("fft", "dct"), ("sparse.linalg", "spsolve"),
    ):  # fmt: skip
        assert classify(module, name).status == "differentiable", (module, name)


def write() -> None:
    """Write the table of this version of SciPy."""
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, Row._fields, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        for module, name in sorted(names()):
            writer.writerow(classify(module, name)._asdict())


if __name__ == "__main__":
    write()
