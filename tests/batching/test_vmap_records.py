"""Every operation record for all members of a batch, beside a loop over them."""

from __future__ import annotations

import pytest
from members import check_gradients, check_values
from records import CORE

from adarray.base.op import OPS
from adarray.batching.rules import rule_of


@pytest.mark.parametrize("op", CORE)
def test_values_are_those_of_a_loop(op: str) -> None:
    check_values(OPS[op])


@pytest.mark.slow
@pytest.mark.parametrize("op", CORE)
def test_gradients_and_tangents_are_those_of_a_loop(op: str) -> None:
    check_gradients(OPS[op])


@pytest.mark.parametrize("op", CORE)
def test_every_record_has_a_rule(op: str) -> None:
    assert rule_of(OPS[op]) is not None
