"""Every operation record, on every backend, in both precisions."""

from __future__ import annotations

import numpy as np
import pytest
from records import CORE

import adarray
from adarray.base.op import OPS
from adarray.testing import check_backend, opcheck


@pytest.mark.slow_on("openmp")  # the text of its kernels is that of the serial ones
@pytest.mark.parametrize("op", CORE)
def test_op(op: str, backend: str) -> None:
    opcheck(op, backend)


@pytest.mark.slow_on("serial", "openmp")  # their kernels are made of the text of those above
@pytest.mark.parametrize("op", CORE)
def test_op_in_single_precision(op: str, backend: str) -> None:
    opcheck(op, backend, np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.complex128, np.complex64], ids=["complex128", "complex64"])
@pytest.mark.parametrize("op", CORE)
def test_op_with_complex_operands(op: str, backend: str, dtype: type) -> None:
    if (backend, dtype) in (("serial", np.complex64), ("openmp", np.complex128)):
        pytest.skip("NumPy computes it, as on the other compiled backend")
    opcheck(op, backend, dtype)


def test_the_package_installs_its_backends() -> None:
    """Without the entry points the tests above would run on nothing."""
    assert {"numpy", "serial", "openmp", "cuda"} <= set(adarray.backends())


def test_registry_holds_the_operations_of_everyday_numpy() -> None:
    """The fifteen of the first benchmark, and every kind of lowering."""
    assert {
        "add", "broadcast_to", "copy", "divide", "exp", "log", "matmul", "max", "multiply",
        "negative", "power", "relu", "subtract", "sum", "transpose",
    } <= set(OPS)  # fmt: skip
    kinds = {type(op.lower).__name__ for op in OPS.values()}
    assert {"Pointwise", "Reduction", "Contraction", "Layout", "Scatter", "Scan"} <= kinds


@pytest.mark.parametrize("op", CORE)
def test_every_record_has_samples_and_a_name(op: str) -> None:
    record = OPS[op]
    assert record.name == op
    assert record.samples is not None
    if record.pointwise:
        assert len(record.samples) == record.arity == len(record.rules)


@pytest.mark.slow_on("openmp")
def test_backend_conformance(backend: str) -> None:
    # The operations have run above: here it is the behaviour of `use`.
    check_backend(backend, dtypes=())
