"""Random programs over arrays that share memory: values, writes, and which results share it."""

from __future__ import annotations

import pytest
from shared_arrays import compare
from trust import BACKENDS, seeds


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(80))
def test_random_programs(seed: int) -> None:
    backend = BACKENDS[seed % len(BACKENDS)]
    compare(seed, backend, views=backend != "cuda")
