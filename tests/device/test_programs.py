"""Random programs on a device: values and gradients as NumPy computes them.

``ADARRAY_LONG=1000`` runs that many, ``ADARRAY_FIRST`` is the seed of the first.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from differential import eager_gradients, eager_values, rounding
from random_programs import seeded

import adarray

LONG = int(os.environ.get("ADARRAY_LONG", "0"))
FIRST = int(os.environ.get("ADARRAY_FIRST", "0"))
GROUPS = 10


@pytest.mark.sampled(2)
@pytest.mark.parametrize("group", range(GROUPS))
def test_programs_agree_with_numpy(group: int, device_backend: str) -> None:
    each = -(-(LONG or 60) // GROUPS)
    compared = 0
    for seed in range(FIRST + group * each, FIRST + (group + 1) * each):
        program = seeded(seed)
        args = program.args(0)
        for name, eager in (("f", eager_values), ("loss", eager_gradients)):
            expected = eager(program.function(name), args)
            with adarray.use(device_backend):
                got = eager(program.function(name), args)
            title = f"program {seed}, {name}\n{program.source}"
            assert len(got) == len(expected), title
            if all(_same(g, e) for g, e in zip(got, expected, strict=True)):
                compared += 1
                continue
            bounds, same_path = rounding(program, name, eager, args, expected)
            if not same_path:
                continue  # on a jump: another rounding takes another branch
            compared += 1
            for g, e, limit in zip(got, expected, bounds, strict=True):
                assert np.shape(g) == np.shape(e), title
                assert np.asarray(g).dtype == np.asarray(e).dtype, title
                apart = np.abs(np.float64(g) - np.float64(e))
                # Devices may take numbers below the smallest normal one for zero.
                limit = limit + np.finfo(np.float32).tiny
                assert np.all(apart <= 4 * limit), f"{title}\n{apart.max()} > {np.max(limit)}"
    assert compared > each


def _same(g, e) -> bool:
    return (
        np.shape(g) == np.shape(e)
        and np.asarray(g).dtype == np.asarray(e).dtype
        and bool(np.array_equal(g, e, equal_nan=True))
    )
