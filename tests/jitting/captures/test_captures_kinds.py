"""No stale constants: every kind of state that a function reads, changed between calls.

Each case makes a function and a list of changes. The jitted function must do what the plain one
does after every change, whether it had been called once before it, had recorded twice, or ran
compiled code. Each has state of its own, so that what calls change is compared, too.
"""

from __future__ import annotations

import pytest
from captured_kinds import KINDS, X
from captured_kinds_all import NEEDS
from captured_runs import plain, same

import adarray


@pytest.mark.sampled(2)
@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore::adarray.jitting.JitWarning")
def test_changes_are_seen(name: str, calls: int) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    with adarray.use("numpy"):
        f, changes = KINDS[name]()
        jf = adarray.jit(f)
        twin, others = KINDS[name]()
        for number in range(len(changes) + 1):
            if number:
                changes[number - 1]()
                others[number - 1]()
            for k in range(calls):
                x = X * (1 + 0.1 * k)
                same(plain(jf, x), plain(twin, x), f"{name}: change {number}, call {k}")


def test_there_are_many_kinds() -> None:
    assert len(KINDS) >= 90
