"""Every operation record for all members of a batch, beside a loop, on compiled backends."""

from __future__ import annotations

import pytest
from differential import skip_unless_long
from members import check_gradients, check_values
from records import CORE

from adarray.base.op import OPS
from adarray.testing._ops import use_all_sizes

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("compiled", ["serial", "openmp"])
@pytest.mark.parametrize("op", CORE)
def test_as_a_loop(op: str, compiled: str) -> None:
    skip_unless_long(compiled == "serial")  # the text of openmp's kernels is the same
    with use_all_sizes(compiled):
        check_values(OPS[op])
        check_gradients(OPS[op])
