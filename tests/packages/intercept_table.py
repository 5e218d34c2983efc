r"""Differentiate functions of packages that never heard of adarray, and list what came of it.

Run it where the packages are installed::

    pip install numpy-financial seawater empyrical-reloaded haversine pvlib lmfit filterpy \
        control astropy statsmodels skyfield fluids chemicals ht colour-science transforms3d \
        ahrs python-speech-features hydroeval scikit-fuzzy nashpy peakutils
    python tests/packages/intercept_table.py                     # prints one line per call
    python tests/packages/intercept_table.py fluids pvlib        # of these packages only
    python tests/packages/intercept_table.py --write             # docs/coverage/packages.tsv

A package that is not installed is left out, with a line that says so.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import intercept_calls_colour
import intercept_calls_engineering
import intercept_calls_rotations
import intercept_calls_science
import intercept_calls_statistics
import intercept_calls_tristimulus
from intercept_failures import FAILURES
from intercept_measure import Call, Result, measure

TABLE = Path(__file__).parents[2] / "docs" / "coverage" / "packages.tsv"
COLUMNS = (
    "package", "version", "field", "function", "status", "max relative error", "reason",
)  # fmt: skip
# Packages with compiled modules of their own, which `adarray.intercept` reaches when named.
NAMED: dict[str, tuple[str, ...]] = {"astropy": ("astropy",), "statsmodels": ("statsmodels",)}
FIELD = {
    "ahrs": "navigation", "astropy": "astronomy", "chemicals": "chemistry",
    "colour": "colour science", "control": "control theory", "empyrical": "finance",
    "filterpy": "Kalman filters", "fluids": "fluid dynamics", "haversine": "geography",
    "ht": "heat transfer", "hydroeval": "hydrology", "lmfit": "spectroscopy",
    "nashpy": "game theory", "numpy_financial": "finance", "peakutils": "signal processing",
    "pvlib": "photovoltaics", "python_speech_features": "speech", "seawater": "oceanography",
    "skfuzzy": "fuzzy logic", "skyfield": "astronomy", "statsmodels": "statistics",
    "transforms3d": "geometry",
}  # fmt: skip
DISTRIBUTION = {
    "colour": "colour-science", "empyrical": "empyrical-reloaded", "skfuzzy": "scikit-fuzzy",
}  # fmt: skip


def _merged(*parts: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    calls: dict[str, dict[str, str]] = {}
    for part in parts:
        for package, rows in part.items():
            twice = rows.keys() & calls.get(package, {}).keys()
            if twice:
                raise ValueError(f"{package}: listed twice: {sorted(twice)}")
            calls.setdefault(package, {}).update(rows)
    return dict(sorted(calls.items()))


CALLS = _merged(
    intercept_calls_science.CALLS,
    intercept_calls_engineering.CALLS,
    intercept_calls_colour.CALLS,
    intercept_calls_tristimulus.CALLS,
    intercept_calls_rotations.CALLS,
    intercept_calls_statistics.CALLS,
)


def installed(packages: list[str]) -> Iterator[str]:
    """Yield those of the packages that can be imported here."""
    for package in packages or list(CALLS):
        try:
            importlib.import_module(package)
        except ImportError as error:
            print(f"{package}: left out: {error}")
            continue
        yield package


def results(package: str) -> Iterator[Result]:
    """Yield what comes of every call of one package, the failures that are known included."""
    named = NAMED.get(package, ())
    for name, arguments in CALLS.get(package, {}).items():
        yield measure(Call(package, name, arguments, named))
    for name, (arguments, _) in FAILURES.get(package, {}).items():
        yield measure(Call(package, name, arguments, named))


def known(result: Result) -> str:
    """Return the reason why a call is known to fail; "" for the others."""
    return FAILURES.get(result.call.package, {}).get(result.call.name, ("", ""))[1]


def version(package: str) -> str:
    """Return the version of a package's distribution."""
    return importlib.metadata.version(DISTRIBUTION.get(package, package))


def row(result: Result) -> dict[str, str]:
    """Return a row of the table in the documentation."""
    error = "" if result.error is None else f"{result.error:.0e}"
    package = result.call.package
    values = (
        package, version(package), FIELD[package], result.call.name, result.status, error,
        "" if result.passed else known(result) or result.reason,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def write(rows: list[Result], path: Path = TABLE) -> None:
    """Write the table for the documentation."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(row, rows))


def main() -> int:
    """Print the table; return the number of unexpected failures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="*")
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.name} for the docs")
    options = parser.parse_args()
    collected: list[Result] = []
    unexpected = 0
    for package in installed(options.packages):
        for result in results(package):
            collected.append(result)
            unexpected += result.passed == bool(known(result))
            shown = f"{result.error:.1e}" if result.error is not None else ""
            why = f"{known(result)} [{result.reason}]" if not result.passed else ""
            line = f"{package}.{result.call.name}: {result.status} {shown} {why}".rstrip()
            if result.passed and known(result):
                line += ", though listed among the failures"
            print(line, flush=True)
    passed = [r for r in collected if r.passed]
    print(f"{len(passed)} functions of {len({r.call.package for r in passed})} packages agree "
          f"with differences; {unexpected} rows are not what is expected")  # fmt: skip
    if options.write:
        if options.packages or unexpected:
            print("not written: packages are left out, or rows are not what is expected")
            return 1
        write(collected)
    return unexpected


if __name__ == "__main__":
    sys.exit(min(main(), 1))
