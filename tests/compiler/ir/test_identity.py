"""Maps and sets by identity."""

from __future__ import annotations

import gc

from adarray.compiler.ir.identity import IdentityMap, IdentitySet
from adarray.compiler.ir.loopir import Fail


def test_equal_statements_are_different_keys() -> None:
    first, second = Fail(1), Fail(1)
    assert first == second
    numbers = IdentityMap([(first, 1)])
    assert first in numbers
    assert second not in numbers
    numbers[second] = 2
    assert [numbers[s] for s in (first, second)] == [1, 2]
    assert list(numbers) == [first, second]
    assert len(numbers) == 2
    del numbers[first]
    assert numbers.get(first) is None
    assert numbers.setdefault(second, 3) == 2


def test_maps_are_equal_with_the_same_keys_and_equal_values() -> None:
    first, second = Fail(1), Fail(1)
    assert IdentityMap([(first, 1)]) == IdentityMap([(first, 1)])
    assert IdentityMap([(first, 1)]) != IdentityMap([(first, 2)])
    assert IdentityMap([(first, 1)]) != IdentityMap([(second, 1)])


def test_sets_have_each_object_once() -> None:
    first, second = Fail(1), Fail(1)
    statements = IdentitySet([first, first])
    assert len(statements) == 1
    assert second not in statements
    statements.add(second)
    statements.discard(first)
    statements.discard(first)
    assert len(statements) == 1
    assert next(iter(statements)) is second


def test_keys_stay_alive() -> None:
    seen: IdentitySet[Fail] = IdentitySet()
    for i in range(100):
        seen.add(Fail(i))
        gc.collect(0)
    assert [s.code for s in seen] == list(range(100))
