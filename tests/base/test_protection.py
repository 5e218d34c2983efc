"""Arrays that are read-only meanwhile: in C what is no view, in Python all others."""

from __future__ import annotations

import importlib
import types

import numpy as np
import pytest

from adarray.base import protection


@pytest.fixture(params=["C", "Python"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protect arrays in one way or the other."""
    python = protection._protect, protection._unprotect
    functions = python
    if request.param == "C":
        try:
            native: types.ModuleType = importlib.import_module("adarray_native.seals")
        except ImportError:
            pytest.skip("the C module of seals was not compiled")
        functions = native.protection(protection.protected, *python)
    monkeypatch.setattr(protection, "protect", functions[0])
    monkeypatch.setattr(protection, "unprotect", functions[1])


def _writeable(*arrays: np.ndarray) -> list[bool]:
    return [x.flags.writeable for x in arrays]


def test_an_array_is_writeable_after_the_last_one() -> None:
    x = np.ones(5)
    first, second = protection.protect(x), protection.protect(x)
    assert first == second == id(x)
    protection.unprotect(first)
    assert not x.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 2.0
    protection.unprotect(second)
    assert x.flags.writeable
    assert id(x) not in protection.protected
    protection.unprotect(first)  # once more is nothing


def test_views_and_owners() -> None:
    x = np.ones((4, 5))
    view = x[1:]
    part = view.T
    key = protection.protect(part)
    assert key == id(x)
    assert _writeable(x, part) == [False, False]
    whole = protection.protect(x)
    protection.unprotect(key)
    assert _writeable(x, part) == [False, False]
    protection.unprotect(whole)
    assert _writeable(x, view, part) == [True, True, True]


def test_the_owner_before_a_view() -> None:
    x = np.ones(5)
    view = x[1:]
    first, second = protection.protect(x), protection.protect(view)
    protection.unprotect(first)
    assert _writeable(x, view) == [False, False]
    protection.unprotect(second)
    assert _writeable(x, view) == [True, True]


def test_what_was_read_only_stays_so() -> None:
    x = np.ones(5)
    x.setflags(write=False)
    protection.unprotect(protection.protect(x))
    assert not x.flags.writeable
    given = np.frombuffer(b"12345678")
    protection.unprotect(protection.protect(given))
    assert not given.flags.writeable


def test_what_somebody_made_writeable_again_is_protected_again() -> None:
    x = np.ones(5)
    first = protection.protect(x)
    x.setflags(write=True)
    second = protection.protect(x)
    assert not x.flags.writeable
    protection.unprotect(first)
    assert not x.flags.writeable
    protection.unprotect(second)
    assert x.flags.writeable


def test_the_memory_of_others() -> None:
    memory = bytearray(40)
    x = np.frombuffer(memory)
    key = protection.protect(x)
    assert not x.flags.writeable
    protection.unprotect(key)
    assert x.flags.writeable
    strided = np.lib.stride_tricks.as_strided(np.ones(5), (3,), (8,))
    key = protection.protect(strided)
    protection.unprotect(key)
    assert strided.flags.writeable


def test_an_array_lives_as_long_as_its_protection() -> None:
    x = np.ones(5)
    key = protection.protect(x)
    del x
    owner = protection.protected[key][1][0]
    assert owner.sum() == 5.0
    protection.unprotect(key)
    assert owner.flags.writeable
