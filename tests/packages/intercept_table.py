r"""Differentiate functions of packages that never heard of adarray, and list what came of it.

Run it where the packages are installed::

    pip install numpy-financial seawater empyrical-reloaded haversine pvlib lmfit filterpy \
        control astropy statsmodels skyfield fluids chemicals ht colour-science
    python tests/packages/intercept_table.py                     # prints one line per call
    python tests/packages/intercept_table.py fluids pvlib        # of these packages only
    python tests/packages/intercept_table.py --rst docs/packages.rst

A package that is not installed is left out, with a line that says so.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import intercept_calls_colour
import intercept_calls_engineering
import intercept_calls_science
from intercept_failures import FAILURES
from intercept_measure import TOLERANCE, Call, Result, measure

CALLS: dict[str, dict[str, str]] = {
    **intercept_calls_science.CALLS,
    **intercept_calls_engineering.CALLS,
    **intercept_calls_colour.CALLS,
}
# Packages with compiled modules of their own, which `adarray.intercept` reaches when named.
NAMED: dict[str, tuple[str, ...]] = {"astropy": ("astropy",), "statsmodels": ("statsmodels",)}
ABOUT = {
    "astropy": "astronomy", "chemicals": "chemistry", "colour": "colour science",
    "control": "control theory", "empyrical": "finance", "filterpy": "signal (Kalman filters)",
    "fluids": "fluid dynamics", "haversine": "geography", "ht": "heat transfer",
    "lmfit": "spectroscopy", "numpy_financial": "finance", "pvlib": "photovoltaics",
    "seawater": "oceanography", "skyfield": "astronomy", "statsmodels": "statistics",
}  # fmt: skip
DISTRIBUTION = {"colour": "colour-science", "empyrical": "empyrical-reloaded"}


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
    for name, (arguments, why) in FAILURES.get(package, {}).items():
        result = measure(Call(package, name, arguments, named))
        yield result if result.passed else result._replace(reason=f"{why} [{result.reason}]")


def version(package: str) -> str:
    """Return the version of a package's distribution."""
    try:
        return importlib.metadata.version(DISTRIBUTION.get(package, package))
    except importlib.metadata.PackageNotFoundError:
        return ""


def page(found: dict[str, list[Result]]) -> str:
    """Return the page of the documentation."""
    passed = {p: [r for r in rows if r.passed] for p, rows in found.items()}
    lines = [
        "Packages",
        "========",
        "",
        "Functions of packages that use NumPy and never heard of adarray, differentiated by",
        ":func:`adarray.intercept` as they are, in every floating point argument, and compared",
        f"with central differences (relative error below {TOLERANCE:g}). With plain arguments,",
        "each gives the same inside of the context as outside, to the last bit.",
        f"{sum(map(len, passed.values()))} functions of {len(passed)} packages pass; the page is",
        "made",
        "by ``python tests/packages/intercept_table.py --rst docs/packages.rst``.",
        "",
        ".. list-table::",
        "    :header-rows: 1",
        "    :widths: 20 30 20 30",
        "",
        "    * - Package",
        "      - Field",
        "      - Functions",
        "      - Largest relative error",
    ]
    for package, rows in passed.items():
        worst = max(r.error or 0.0 for r in rows)
        lines += [
            f"    * - {package} {version(package)}",
            f"      - {ABOUT.get(package, '')}",
            f"      - {len(rows)}",
            f"      - {worst:.0e}",
        ]
    for package, rows in passed.items():
        names = [f"``{r.call.name}``" for r in rows]
        lines += ["", package, "-" * len(package), "", ", ".join(names) + "."]
    failed = [r for rows in found.values() for r in rows if not r.passed]
    lines += ["", "What fails, and why", "-------------------", "", ".. list-table::",
              "    :header-rows: 1", "    :widths: 35 65", "", "    * - Function",
              "      - Reason"]  # fmt: skip
    for r in failed:
        lines += [f"    * - ``{r.call.package}.{r.call.name}``", f"      - {_text(r.reason)}"]
    return "\n".join(lines) + "\n"


def _text(reason: str) -> str:
    """Return a reason for the page: its own words, without the paths of this machine."""
    words = reason.partition(" [")[0]
    return words.replace("*", "\\*").replace("`", "'").replace("_", "\\_")


def main() -> int:
    """Print the table; return the number of unexpected failures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="*")
    parser.add_argument("--rst", type=Path, help="write the page of the documentation")
    options = parser.parse_args()
    found: dict[str, list[Result]] = {}
    unexpected = 0
    for package in installed(options.packages):
        for result in results(package):
            found.setdefault(package, []).append(result)
            known = result.call.name in FAILURES.get(package, {})
            unexpected += not result.passed and not known
            shown = f"{result.error:.1e}" if result.passed else f"FAILS: {result.reason}"
            print(f"{package}.{result.call.name}: {shown}", flush=True)
    passed = sum(r.passed for rows in found.values() for r in rows)
    print(f"{passed} functions of {len(found)} packages agree with differences; "
          f"{unexpected} fail unexpectedly")  # fmt: skip
    if options.rst:
        options.rst.write_text(page(found))
    return unexpected


if __name__ == "__main__":
    sys.exit(min(main(), 1))
