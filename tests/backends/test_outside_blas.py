"""Plans call LAPACK from one thread, for small matrices, and leave its threads as they were."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import adarray

outside_blas = pytest.importorskip("adarray_backends.cpu.outside_blas")


@pytest.fixture
def libraries() -> Any:
    """Give the libraries of NumPy's and SciPy's wheels three threads each, for the test."""
    pytest.importorskip("scipy.linalg")
    found = outside_blas._libraries()
    if not found:
        pytest.skip("neither NumPy nor SciPy has the OpenBLAS of its wheel")
    before = [library.threads() for library in found]
    for library in found:
        library.set_threads(3)
    if any(library.threads() != 3 for library in found):
        pytest.skip("OpenBLAS was built with fewer threads")
    yield found
    for library, threads in zip(found, before, strict=True):
        library.set_threads(threads)


def counts(libraries: Any) -> set[int]:
    return {library.threads() for library in libraries}


def test_threads_come_back(libraries: Any) -> None:
    with outside_blas.one_thread():
        assert counts(libraries) == {1}
        with outside_blas.one_thread():
            assert counts(libraries) == {1}
        assert counts(libraries) == {1}
    assert counts(libraries) == {3}
    with pytest.raises(KeyError), outside_blas.one_thread():
        raise KeyError
    assert counts(libraries) == {3}


def test_the_last_of_several_threads_brings_them_back(libraries: Any) -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with outside_blas.one_thread():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(10)
    with outside_blas.one_thread():
        pass
    assert counts(libraries) == {1}
    leave.set()
    thread.join()
    assert counts(libraries) == {3}


@pytest.mark.parametrize(("n", "during"), [(6, {1}), (520, {3})])
def test_compiled_calls(
    libraries: Any, n: int, during: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small matrices are factorised by one thread, large ones by as many as there were."""
    if "openmp" not in adarray.backends():
        pytest.skip("no openmp backend")
    seen: list[set[int]] = []
    cholesky = np.linalg.cholesky

    def noted(run: Any) -> Any:
        def with_note(operands: list[Any]) -> list[Any]:
            seen.append(counts(libraries))
            return run(operands)  # type: ignore[no-any-return]

        return with_note

    from adarray_backends.cpu import encoding

    under = encoding.under
    monkeypatch.setattr(encoding, "under", lambda errors, run: noted(under(errors, run)))
    x = np.eye(n) * 4.0 + 0.5 / n
    f = adarray.jit(lambda x: cholesky(x) * 2.0)
    with adarray.use("openmp"):
        for _ in range(4):
            got = f(x)
    np.testing.assert_allclose(got, cholesky(x) * 2.0, rtol=1e-10)
    assert seen
    assert all(s == during for s in seen)
    assert counts(libraries) == {3}
