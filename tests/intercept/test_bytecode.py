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


def test_is_call_only() -> None:
    def calls(x: Any) -> Any:
        return float(x), isinstance(x, float), type(x) == float, {float: 1}  # noqa: E721

    def asks(x: Any) -> Any:
        return type(x) is float

    def asks_reversed(x: Any) -> Any:
        return float is type(x)

    def other(x: Any, y: Any) -> Any:
        return x is y and float(x)

    def none(x: Any) -> Any:
        return isinstance(x, float) and x is not None and x is not True

    def both(x: Any, y: Any) -> Any:
        return isinstance(x, float) and x is y

    assert is_call_only([calls.__code__, other.__code__, none.__code__], "float")
    assert not is_call_only([both.__code__], "float")  # it may be the name that is compared
    assert not is_call_only([calls.__code__, asks.__code__], "float")
    assert not is_call_only([asks_reversed.__code__], "float")


def test_assigned_globals() -> None:
    def assigns() -> None:
        global counter
        counter = 1

    assert list(assigned_globals(assigns.__code__)) == ["counter"]
    assert list(assigned_globals(test_is_called.__code__)) == []
