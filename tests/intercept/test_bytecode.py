"""What is read off CPython's bytecode."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from adarray.intercepting.bytecode import assigned_globals, is_call_only, is_called

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

    for _ in range(50):  # the interpreter specialises instructions after some runs
        assert module.thing(1) is True
        assert local.thing(1, 2) is True
        assert module.thing(*[1]) is True
        assert module.thing(**{"a": 1}) is True
        assert [module.thing] == [False]
        assert local.thing is False
        assert dict(a=module.thing) == {"a": False}  # noqa: C408
        assert (module.thing, module.thing(1)) == (False, True)
        assert str(module.thing) == "False"
        assert isinstance(module.thing, bool)
        assert closed(1) == (True, [False, 1], True)


def test_is_call_only() -> None:
    def calls(x: Any) -> Any:
        return float(x), isinstance(x, float), type(x) == float, {float: 1}  # noqa: E721

    def asks(x: Any) -> Any:
        return type(x) is float

    def asks_reversed(x: Any) -> Any:
        return float is type(x)

    def other(x: Any) -> Any:
        return int is x

    assert is_call_only([calls.__code__, other.__code__], "float")
    assert not is_call_only([calls.__code__, asks.__code__], "float")
    assert not is_call_only([asks_reversed.__code__], "float")


def test_assigned_globals() -> None:
    def assigns() -> None:
        global counter
        counter = 1

    assert list(assigned_globals(assigns.__code__)) == ["counter"]
    assert list(assigned_globals(test_is_called.__code__)) == []
