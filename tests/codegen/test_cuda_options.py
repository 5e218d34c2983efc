"""Options of the cuda backend that need no GPU to be checked."""

from __future__ import annotations

import re
from typing import Any

import pytest
from adarray_backends.cuda import extrema, pointwise, reductions
from adarray_backends.cuda.engine import THREADS, USUAL_THREADS, CudaEngine, checked_threads

import adarray  # noqa: F401  (registers)
from adarray.errors import BackendError
from adarray.op import OPS


@pytest.mark.parametrize("given", [None, 32, 256, 1024])
def test_threads_that_a_block_may_have(given: Any) -> None:
    assert checked_threads(given) == given


@pytest.mark.parametrize("given", [0, 33, 1056, -32, 64.0, True, "64"])
def test_other_threads_are_refused(given: Any) -> None:
    text = (
        f"backend 'cuda': the option threads_per_block is {given!r}; pass a multiple of 32 from "
        "32 to 1024, or leave it out"
    )
    with pytest.raises(BackendError, match=re.escape(text)):
        checked_threads(given)


class NoLibrary:
    """What an engine asks of a library."""

    name = "cuda:none"
    place = pointwise = derivative = compute = synchronize = None


def test_blocks_of_nested_engines_follow_each_other(monkeypatch: Any) -> None:
    from adarray.device import DEVICES

    library: Any = NoLibrary()
    outer, inner = CudaEngine(library, threads_per_block=64), CudaEngine(library)
    monkeypatch.delitem(DEVICES, "cuda:none")
    assert THREADS.get() == USUAL_THREADS
    first = outer.enter()
    assert THREADS.get() == 64
    second = inner.enter()
    assert THREADS.get() == USUAL_THREADS
    inner.leave(second)
    assert THREADS.get() == 64
    outer.leave(first)
    assert THREADS.get() == USUAL_THREADS


def test_texts_of_eager_kernels_have_the_threads_that_are_asked_for() -> None:
    text = pointwise.text_of(OPS["exp"], -1, "float32", None)
    assert text is not None
    fold = reductions.fold_of(OPS["sum"], "float32")
    assert fold is not None
    for source in (
        pointwise.source(text, "f", 4, "unsigned int", 96),
        reductions.source(fold, True, True, 4, 4, 96),
        reductions.source(fold, False, True, 4, 4, 96),
        extrema.source(True, "float32", 4, 96),
    ):
        assert "__launch_bounds__(96)" in source
        assert "256" not in source
