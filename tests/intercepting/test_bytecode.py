"""What is read off CPython's bytecode."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from adarray.intercepting.bytecode import assigned_globals, is_called

counter = 0


class Module:
    """Answers an attribute with whether it is loaded for a call."""

    def __getattribute__(self, name: str) -> Any:
        frame: FrameType = sys._getframe(1)
        called = is_called(frame)
        return (lambda *a, **k: called) if called else called


module = Module()


def test_is_called() -> None:
    local = module

    def closed(x: Any) -> Any:
        return local.thing(x), [local.thing, x], local.thing(x=x)

    # Not in assert statements, which pytest takes apart.
    def calls() -> list[Any]:
        return [
            module.thing(1), local.thing(1, 2), module.thing(*[1]), module.thing(a=1),
            module.thing(module.thing(1)), closed(1)[0], closed(1)[2],
        ]  # fmt: skip

    def loads() -> list[Any]:
        return [
            module.thing, [module.thing][0], local.thing, dict(a=module.thing)["a"],  # noqa: C408
            (module.thing, module.thing(1))[0], str(module.thing) == "True", closed(1)[1][0],
        ]  # fmt: skip

    for _ in range(50):  # the interpreter specialises instructions after some runs
        assert calls() == [True] * 7
        assert loads() == [False] * 7


def test_assigned_globals() -> None:
    def assigns() -> None:
        global counter
        counter = 1

    assert list(assigned_globals(assigns.__code__)) == ["counter"]
    assert list(assigned_globals(test_is_called.__code__)) == []
