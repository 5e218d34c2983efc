"""What is not in a calculus book says where it comes from, in a References section."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import adarray  # noqa: F401  (registers)
from adarray.base.op import OPS

ROOT = Path(__file__).resolve().parents[2]

# Who is named where. C has its references in the comment at its head.
SOURCES = {
    # derivatives
    "adarray/ad/forward.py": "Wengert Griewank",
    "adarray/ad/reverse.py": "Linnainmaa Griewank",
    "adarray/ad/series.py": "Griewank",
    "adarray/base/levels.py": "Siskind",
    "adarray/core/saving.py": "Hascoët",
    "adarray/batching/__init__.py": "Blelloch",
    "adarray/transforms/checkpointing.py": "Griewank Chen",
    "adarray/transforms/linear_solves.py": "Giles Christianson",
    "adarray/transforms/products.py": "Pearlmutter",
    "adarray/transforms/schedules.py": "Revolve Stumm Wang Maddison",
    # operations
    "adarray/ops/complex.py": "Wirtinger",
    "adarray/ops/contraction.py": "Laue",
    "adarray/ops/decompositions.py": "Giles Murray Walter Townsend Wan",
    "adarray/ops/eigen.py": "Giles Magnus Boeddeker",
    "adarray/ops/elementwise.py": "Clarke",
    "adarray/ops/fft.py": "Claerbout Cooley",
    "adarray/ops/nn.py": "Dumoulin",
    "adarray/ops/norms.py": "Watson",
    "adarray/ops/order.py": "Blondel",
    "adarray/ops/pseudoinverse.py": "Golub",
    "adarray/ops/quantiles.py": "Hyndman",
    "adarray/ops/scan.py": "Blelloch",
    "adarray/ops/solvers.py": "Giles Stewart Faddeev",
    "adarray/ops/windows.py": "Chellapilla",
    # SciPy
    "adarray/scipy/_active.py": "Fiacco",
    "adarray/scipy/_bsplines.py": "Boor",
    "adarray/scipy/_decompositions.py": "Walter Hoog",
    "adarray/scipy/_image_splines.py": "Unser",
    "adarray/scipy/_implicit.py": "Griewank Christianson",
    "adarray/scipy/_matrix_functions.py": "Higham Al-Mohy Mathias Kao",
    "adarray/scipy/_ode.py": "Hairer Hager",
    "adarray/scipy/_ode_adjoint.py": "Pontryagin",
    "adarray/scipy/_ode_steps.py": "Hager",
    "adarray/scipy/_quadrature.py": "Takahasi Carlson",
    "adarray/scipy/_special_rules_bessel.py": "NIST",
    "adarray/scipy/_special_rules_gamma.py": "NIST",
    "adarray/scipy/_special_rules_hyper.py": "NIST",
    "adarray/scipy/_special_rules_poly.py": "NIST",
    "adarray/scipy/_splines.py": "Boor Fritsch Akima",
    # sparse derivatives, estimators
    "adarray/sparsity/bidirectional.py": "Coleman",
    "adarray/sparsity/coloring.py": "Curtis Toint Gebremedhin",
    "adarray/sparsity/detection.py": "Griewank",
    "adarray/estimators/hadamard.py": "Paley",
    "adarray/estimators/likelihood.py": "Glynn",
    "adarray/estimators/perturbation.py": "Spall Salimans Baydin",
    # the compiler
    "adarray/compiler/fusion/fuse.py": "Kennedy Halide",
    "adarray/compiler/ir/program.py": "Cytron",
    "adarray/compiler/planning/buffers.py": "Wilson",
    "adarray/compiler/planning/launches.py": "Li",
    "adarray/compiler/planning/remat.py": "Chen Briggs",
    "adarray/compiler/planning/remat_values.py": "Briggs",
    "adarray/compiler/print_c/vectors.py": "Higham",
    "adarray/compiler/rewrite/scipy_transforms.py": "Frigo",
    "adarray/compiler/print_cuda/running.py": "Blelloch Sengupta Merrill",
    "adarray/compiler/print_cuda/totals.py": "Harris",
    "adarray/compiler/rewrite/cse.py": "Briggs",
    "adarray/compiler/schedule/gpu/shared_rows.py": "Bauer",
    "adarray/compiler/schedule/gpu/register_rows.py": "Milakov",
    "adarray/compiler/schedule/gpu/tiles.py": "Volkov",
    "adarray/compiler/stencil/lower_rings.py": "Wonnacott Halide",
    "adarray/compiler/stencil/lower_strips.py": "Wonnacott Holewinski",
    # jit and backends
    "adarray/jitting/tree/tree.py": "Gal",
    "backends/cuda/conv.py": "Chetlur",
    "backends/cuda/reductions.py": "Harris Higham",
    "backends/cuda/winograd.py": "Winograd Lavin",
    "native/cpu/adarray_vector.h": "Cody Moshier",
    "native/cpu/coloring.c": "Curtis Gebremedhin",
    "native/cpu/product_kernel.h": "Goto",
    "native/cpu/reduce.h": "Higham",
    "native/cuda/adarray_conv_winograd.h": "Winograd Lavin",
    "native/cuda/adarray_groups.h": "Harris",
    "native/cuda/adarray_quick.h": "Cody Muller",
}
# Every module of these folders is an algorithm, but for what the others share.
FOLDERS = ("adarray/compiler/rewrite", "adarray/compiler/stencil")
SHARED = {"__init__.py", "rebuild.py"}
# Rules that name their formulas, by record.
FORMULAS = {"cholesky": "L P(", "eig": "dv =", "eigh": "dV =", "qr": "dQ =", "svd": "dU ="}


def sections(path: Path) -> str:
    """Return the References of a file: of its docstrings, or of the comment at its head."""
    text = path.read_text()
    if path.suffix != ".py":
        return text[: text.index("*/")].partition(" * References:\n")[2]
    if "References\n" not in text:  # most files need not be parsed
        return ""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = [ast.get_docstring(n) or "" for n in ast.walk(ast.parse(text)) if isinstance(n, kinds)]
    references = [d.partition("References\n----------\n")[2] for d in docs]
    return "\n".join(re.split(r"\n\w+\n---", text)[0] for text in references)


@pytest.mark.parametrize("name", SOURCES)
def test_an_algorithm_names_its_sources(name: str) -> None:
    text = sections(ROOT / name)
    assert not [who for who in SOURCES[name].split() if not re.search(rf"\b{who}\b", text)]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_module_of_the_folder_names_its_sources(folder: str) -> None:
    modules = [p for p in sorted((ROOT / folder).glob("*.py")) if p.name not in SHARED]
    assert len(modules) > 3
    assert not [p.name for p in modules if not sections(p).strip()]


def rules(name: str) -> Iterator[Callable[..., Any]]:
    """Yield the derivative rules of a record."""
    for rule in (*(OPS[name].rules or ()), *(OPS[name].jvp or ())):
        if callable(rule):
            yield rule


def test_rules_of_linear_algebra_are_in_modules_that_name_their_sources() -> None:
    pytest.importorskip("scipy")
    for module in ("adarray.scipy.linalg", "adarray.scipy.sparse.linalg"):
        importlib.import_module(module)
    homes = {n: str(getattr(op.numpy, "__module__", "")) for n, op in OPS.items()}
    linear = {n for n, home in homes.items() if "linalg" in n or "linalg" in home}
    linear |= {"qr", "svd"}
    assert {"svdvals", "eigh", "inv", "scipy.linalg.expm"} <= linear
    files = {Path(inspect.getsourcefile(rule) or "") for n in sorted(linear) for rule in rules(n)}
    files = {f for f in files if f.name not in ("common.py", "_drop_in.py")}
    assert not [f.name for f in sorted(files) if not sections(f).strip()]


@pytest.mark.parametrize("name", FORMULAS)
def test_decompositions_name_their_formulas(name: str) -> None:
    assert any(FORMULAS[name] in (rule.__doc__ or "") for rule in rules(name))


def test_every_reference_has_a_year_or_another_mark() -> None:
    entries = []
    for folder in ("adarray", "backends", "native"):
        for path in sorted((ROOT / folder).rglob("*.[pch]*")):
            if path.suffix in (".py", ".c", ".h"):
                text = re.sub(r"\n \*(?=  )", "\n ", sections(path))  # lines that go on, in C
                parts = re.split(r"^(?: \* )?(?:- |\.\. \[\d+\] )", text, flags=re.MULTILINE)[1:]
                entries += [(path.name, " ".join(p.split())) for p in parts]
    assert len(entries) > 150
    dated = re.compile(r"\b(?:18|19|20)\d\d\b|arXiv:\d{4}\.\d{4,5}|https://|lecture \d")
    assert not [e for e in entries if not dated.search(e[1])]
