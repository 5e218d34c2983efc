"""Memory whose writes the kernel notes: no write escapes, and only writes are seen."""

from __future__ import annotations

import gc
import multiprocessing.shared_memory
import os
import tempfile
from collections.abc import Iterator

import numpy as np
import pytest

import adarray
from adarray.base import protection, seals
from adarray.core import guard

PAGE = seals._PAGE


@pytest.fixture(autouse=True, params=["C", "Python"])
def _apart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "Python":
        monkeypatch.setattr(seals.native_hook, "call", lambda: None)
        monkeypatch.setattr(protection, "protect", protection._protect)
        monkeypatch.setattr(protection, "unprotect", protection._unprotect)
        seals._forked()  # opens the kernel's account anew
    kernel = seals._open_kernel()
    if kernel is None:
        pytest.skip("the kernel keeps no account of writes")
    if request.param == "C" and kernel.native is None:
        pytest.skip("the C module of seals was not compiled")
    yield
    for x in list(seals._resting.values()):
        x.drop()
    if seals._live:  # something waits for the collector, which takes long after other tests
        gc.collect()
    assert seals._live == {}
    if request.param == "Python":
        monkeypatch.undo()
        seals._forked()


def _bounds(x: np.ndarray) -> tuple[int, int]:
    return np.lib.array_utils.byte_bounds(x)


def _seal(x: np.ndarray, own: bool = True) -> seals.Seal:
    sealed = seals.seal(*_bounds(x), own)
    assert sealed is not None
    return sealed


@pytest.mark.parametrize("n", [50_000, 300_000, 1_200_000])  # the last one in huge pages
def test_each_byte_counts(n: int) -> None:
    x = np.ones(n)[3:-5]
    view = x[:].view(np.uint8)
    rng = np.random.default_rng(n)
    for at in (0, 1, PAGE - 1, PAGE, x.nbytes - 1, x.nbytes - PAGE, *rng.integers(0, x.nbytes, 9)):
        seal = _seal(x)
        assert x.sum() == x.size
        assert not seal.changed()
        view[at] ^= 1
        assert seal.changed()
        seal.end()
        view[at] ^= 1


def test_neighbours_do_not_count() -> None:
    whole = np.ones(200_000)
    x = whole[5_000:-5_000]
    seal = _seal(x)
    whole[:5_000] = whole[-5_000:] = 2.0
    assert not seal.changed()
    seal.end()


@pytest.mark.parametrize("rests", [False, True])
def test_bytes_beside_those_of_others(rests: bool) -> None:
    whole = np.ones(200_000)
    x = whole[5_000:-5_000]
    for _ in range(seals._STEADY + 1 if rests else 0):
        _seal(x).end()
    assert (_bounds(x) in seals._resting) == rests
    for at in (0, -1):
        other = 4_999 if at == 0 else -5_000
        seal = _seal(x)
        assert not seal.shares_pages
        whole[other] += 1.0  # on the same page
        assert not seal.changed()
        assert seal.shares_pages
        x[at] += 1.0
        assert seal.changed()
        seal.end()


def test_what_is_written_beside_data_that_rests() -> None:
    whole = np.ones(200_000)
    x = whole[5_000:-5_000]
    for _ in range(seals._STEADY + 1):
        _seal(x).end()
    whole[4_999] = 2.0
    x[0] = x[-1] = 3.0  # while nobody asks
    seal = _seal(x)
    assert seal.shares_pages
    assert not seal.changed()
    x[0] = 1.0
    assert seal.changed()
    seal.end()


def test_neighbours_share_a_page() -> None:
    whole = np.ones(200_000)
    left, right = whole[:100_100], whole[100_100:]
    for _ in range(2):
        first = _seal(left)
        second = _seal(right)
        assert (first.shares_pages, second.shares_pages) == (False, True)
        assert not first.changed()
        assert not second.changed()
        right[0] += 1.0
        assert not first.changed()
        assert second.changed()
        left[-1] += 1.0
        assert first.changed()
        first.end()
        second.end()
    inside, around = _seal(whole[100_100:140_000]), _seal(whole)
    assert inside.shares_pages
    whole[140_000] = 5.0
    assert not inside.changed()
    assert around.changed()
    whole[139_999] = 5.0
    assert inside.changed()
    inside.end()
    around.end()


def test_memory_that_was_never_touched() -> None:
    x = np.zeros(500_000)
    seal = _seal(x)
    assert x.sum() == 0.0
    assert not seal.changed()
    x[400_000] = 1.0
    assert seal.changed()
    seal.end()


def test_what_the_system_writes_counts() -> None:
    x = np.ones(100_000)
    memory = memoryview(x).cast("B")
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(b"\1" * 8)
        file.seek(0)
        seal = _seal(x)
        assert file.readinto(memory[400_000:400_008]) == 8
    assert seal.changed()
    seal.end()


def test_seals_that_overlap() -> None:
    x = np.ones(400_000)
    first, second, third = _seal(x[:300_000]), _seal(x[100_000:]), _seal(x[:300_000])
    assert third is first
    x[350_000] = 2.0
    assert (first.changed(), second.changed()) == (False, True)
    x[50_000] = 2.0
    fourth = _seal(x[:300_000])  # of what is there now
    assert (first.changed(), second.changed(), fourth.changed()) == (True, True, False)
    first.end()
    third.end()
    x[200_000] = 2.0
    assert fourth.changed()
    second.end()
    fourth.end()


def test_data_that_stays_the_same_stays_sealed() -> None:
    x = np.ones(100_000)
    for _ in range(2 * seals._STEADY):
        seal = _seal(x)
        seal.end()
    assert _bounds(x) in seals._resting
    again = _seal(x)
    assert again is seal
    assert not again.changed()
    x[60_000] = 2.0
    assert again.changed()
    again.end()
    assert _bounds(x) not in seals._resting
    for _ in range(2 * seals._STEADY):
        seal = _seal(x)
        seal.end()
    x[70_000] = 3.0  # while nobody uses it
    fresh = _seal(x)
    assert not fresh.changed()
    fresh.end()
    x[80_000] = 3.0


def _resting(x: np.ndarray) -> seals.Seal:
    for _ in range(seals._STEADY + 1):
        _seal(x).end()
    return seals._resting[_bounds(x)]


def test_what_rests_is_found() -> None:
    x = np.ones((300, 200))
    seal = _resting(x)
    for same in (x, x[:], x.reshape(-1), x.T, x.view(np.complex128)):
        assert seals.find(same) is seal
        assert seals._resting == {}
        seal.users = 1
        seal.end()
        assert seals._resting[seal.bounds] is seal
    for other in (x[1:], x[:-1], x[:, :-1], x[::-1], x.view("f8,f8"), np.ones((300, 200))):
        assert seals.find(other) is None
    assert not seal.changed()


def test_what_rests_and_was_written_to_is_not_found() -> None:
    memory = np.ones(100 * PAGE, np.uint8)
    start = -memory.__array_interface__["data"][0] % PAGE
    x = memory[start + 8 : start + 90 * PAGE + 8]
    # Bytes on pages of others, too, may change while nobody asks: they are compared, and not noted.
    for at, found in (0, True), (PAGE, False), (40 * PAGE, False), (-1, True):
        seal = _resting(x)
        x[at] += 1
        assert (seals.find(x) is seal) == found
        seal.drop()
        seals._habits.clear()


def test_few_seals_rest() -> None:
    references = [np.ones(4 * PAGE) for _ in range(seals._RESTING + 5)]
    for _ in range(seals._STEADY + 1):
        for x in references:
            _seal(x).end()
    assert len(seals._resting) == seals._RESTING


def test_memory_that_others_may_write_to_is_not_sealed() -> None:
    memory = multiprocessing.shared_memory.SharedMemory(create=True, size=1 << 20)
    try:
        x = np.frombuffer(memory.buf)
        x[:] = 1.0
        assert seals.seal(*_bounds(x), False) is None
        del x
    finally:
        memory.close()
        memory.unlink()
    own = np.frombuffer(bytearray(1 << 20))
    _seal(own, False).end()


def test_writes_by_another_mapping_are_no_matter() -> None:
    """Such an operand is copied: the same memory may have another address."""
    memory = multiprocessing.shared_memory.SharedMemory(create=True, size=1 << 20)
    other = multiprocessing.shared_memory.SharedMemory(memory.name)
    try:
        x, y = np.frombuffer(memory.buf), np.frombuffer(other.buf)
        x[:] = 1.0
        value, pull = adarray.vjp(lambda c: np.sum(c * x), 2.0)
        y[:] = 7.0
        assert (value, pull(1.0)[0]) == (2.0 * x.size, x.size)
        del pull
    finally:
        x = y = None  # type: ignore[assignment]
        other.close()
        memory.close()
        memory.unlink()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_know() -> None:
    x = np.ones(100_000)
    _, pull = adarray.vjp(lambda c: np.sum(c * x), 2.0)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            try:
                pull(1.0)
            except adarray.TraceError as error:
                status = 0 if "this process was forked" in str(error) else 2
            if adarray.grad(lambda c: np.sum(c * x))(2.0) != 1e5:
                status = 3
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pull(1.0)[0] == 1e5


def test_the_message() -> None:
    x = np.ones((50_000, 2))
    older = x.reshape(-1)
    _, pull = adarray.vjp(lambda c: np.sum(c * x), 2.0)
    older[77_777] = np.nextafter(1.0, 2.0)
    with pytest.raises(adarray.TraceError) as caught:
        pull(1.0)
    assert str(caught.value).startswith(
        "multiply: an operand of shape (50000, 2) was written to after the operation read it, "
        "through a view of its memory; pass a copy (operand.copy()) to the operation, or change it "
        "after the gradient is taken (in test_the_message, file "
    )
    del pull, caught


def test_an_array_that_cannot_be_made_writeable_again_is_not_made_read_only() -> None:
    x = np.lib.stride_tricks.as_strided(np.ones(100_000), (99_999,), (8,))
    result = guard.WriteGuard(x)
    assert x.flags.writeable
    x[5] = 2.0
    with pytest.raises(adarray.TraceError, match="was written to"):
        result.check("multiply")
    del result


def test_without_an_account_rules_read_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "seal", lambda *_: None)
    base = np.arange(120_000.0)
    for x in (base, base[::-1], base.reshape(300, 400).T, np.broadcast_to(base, (3, base.size)),
              np.lib.stride_tricks.sliding_window_view(base, 3)[::-2], base[::3]):  # fmt: skip
        before, older = x.copy(), base[:]
        result = guard.WriteGuard(x)
        older += 1.0
        result.check("multiply")
        np.testing.assert_array_equal(result.value, before)
        assert result.value.nbytes == x.nbytes
        del result
        assert base.flags.writeable
