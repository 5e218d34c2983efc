"""Every operation record on the second GPU of a machine, while the first one is the current one."""

from __future__ import annotations

import numpy as np
import pytest
import second_gpu
from records import CORE

from adarray.testing import opcheck

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(second_gpu.count_of_gpus() < 2, reason="needs two GPUs"),
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("op", CORE)
def test_op(op: str, dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    second_gpu.installed(monkeypatch)
    opcheck(op, "second", dtype)
