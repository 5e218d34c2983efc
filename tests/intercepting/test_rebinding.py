"""Finding the functions whose calls are redirected."""

from __future__ import annotations

import threading
import types

import numpy as np
import pytest

from adarray.intercepting import rebinding


def test_functions_of_some_globals_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("own")
    text = "def f():\n    def g(): return 1\n    return g\nclass C:\n    def m(self): return 2\n"
    exec(text, module.__dict__)
    hidden = module.f()  # no name leads to it
    module.borrowed = np.sum  # of other globals
    redirected: list[object] = []
    monkeypatch.setattr(rebinding, "redirect_uses", lambda f, _: redirected.append(f))
    rebinding._redirect_all([module.__dict__, {}])
    assert {id(f) for f in redirected} == {id(f) for f in (module.f, module.C.m, hidden)}
    rebinding._redirect_all([])
    assert len(redirected) == 3


def test_other_threads_go_on_filling_tuples() -> None:
    errors: list[Exception] = []
    ended = threading.Event()

    def slowly(x: int) -> int:
        for _ in range(50):
            pass
        return x

    def fill() -> None:
        while not ended.is_set():
            try:
                tuple(map(slowly, range(11)))  # made for ten items, and resized
            except SystemError as error:
                errors.append(error)
                return

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        for _ in range(20):
            rebinding._redirect_all([{}])
    finally:
        ended.set()
        thread.join()
    assert not errors
