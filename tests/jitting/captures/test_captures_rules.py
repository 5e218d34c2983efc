"""Rules for captured objects, and objects that are said to be constant."""

from __future__ import annotations

import time
import types
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from captured import X, agree, compiled

import adarray
from adarray.jitting import JitWarning
from adarray.jitting.captures import fingerprints


class Opaque:
    """An object of a library: it cannot be pickled, and its state lies elsewhere."""

    numbers: dict[int, float]

    def __init__(self, k: float) -> None:
        self.numbers = {id(self): k}

    def __next__(self) -> Any:  # which a call might advance
        raise StopIteration

    @property
    def k(self) -> float:
        return self.numbers[id(self)]


Opaque.__module__ = "xarray.of.a.library"


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test register rules that are gone after it."""
    monkeypatch.setattr(fingerprints, "_rules", dict(fingerprints._rules))
    monkeypatch.setattr(fingerprints, "_named", dict(fingerprints._named))
    monkeypatch.setattr(fingerprints, "_rule_cache", {})


def test_opaque_objects_stay_eager() -> None:
    o = Opaque(2.0)
    jf = adarray.jit(lambda x: x * o.k)
    with pytest.warns(JitWarning, match="is of type Opaque, which cannot be compared"):
        np.testing.assert_array_equal(jf(X), X * 2.0)
    o.numbers[id(o)] = 3.0
    np.testing.assert_array_equal(jf(X), X * 3.0)


def test_opaque_arguments_stay_eager() -> None:
    jf = adarray.jit(lambda x, o: x * o.k)
    o = Opaque(2.0)
    with pytest.warns(JitWarning, match="argument 0 is of type Opaque, which cannot be compared"):
        np.testing.assert_array_equal(jf(X, o), X * 2.0)
    o.numbers[id(o)] = 3.0
    np.testing.assert_array_equal(jf(X, o), X * 3.0)


@pytest.mark.usefixtures("rules")
@pytest.mark.parametrize("name", [Opaque, "xarray:Opaque"])
def test_a_rule_compares(name: Any) -> None:
    adarray.register_captured(name, lambda o: o.k)
    o = Opaque(2.0)

    def f(x: Any) -> Any:
        return x * o.k

    jf = compiled(f, X)
    o.numbers[id(o)] = 3.0
    agree(jf, f, X)


@pytest.mark.usefixtures("rules")
def test_a_rule_without_a_fingerprint() -> None:
    adarray.register_captured(Opaque)
    n = types.SimpleNamespace(o=Opaque(2.0))

    def f(x: Any) -> Any:
        return x * n.o.k

    jf = compiled(f, X)
    n.o = Opaque(3.0)
    agree(jf, f, X)


@pytest.mark.usefixtures("rules")
def test_rules_of_classes_of_the_user() -> None:
    class Table:
        def __init__(self) -> None:
            self.rows, self.reads = [1.0, 2.0], 0

        def row(self, i: int) -> float:
            self.reads += 1  # which is no state that results depend on
            return self.rows[i]

    adarray.register_captured(Table, lambda t: t.rows)
    t = Table()

    def f(x: Any) -> Any:
        return x * t.row(1)

    jf = compiled(f, X)
    t.rows[1] = 5.0
    agree(jf, f, X)


@pytest.mark.usefixtures("rules")
def test_a_rule_that_fails() -> None:
    adarray.register_captured(Opaque, lambda o: o.missing)
    o = Opaque(2.0)
    jf = adarray.jit(lambda x: x * o.k)
    with pytest.warns(JitWarning, match=r"cannot be compared .*AttributeError.*missing"):
        jf(X)


def test_wrong_rules() -> None:
    with pytest.raises(TypeError, match="expected a class or its name, got int"):
        adarray.register_captured(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="fingerprint is 3; pass a function"):
        adarray.register_captured(Opaque, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'Table' names no class; write it as 'package:Class'"):
        adarray.register_captured("Table")


table = np.arange(4.0)


class Model:
    """What a function captures."""

    weights = np.ones(4)


@pytest.mark.unchecked
@pytest.mark.parametrize("constant", ["table", ("table",), [table], table])
def test_what_is_assumed_constant_is_not_compared(constant: Any) -> None:
    jf = adarray.jit(lambda x: x * table, assume_constant=constant)
    before = table.copy()
    try:
        for _ in range(3):
            np.testing.assert_array_equal(jf(X), X * before)
        table[1] = 9.0
        np.testing.assert_array_equal(jf(X), X * before)
    finally:
        table[:] = before


def test_attributes_that_are_assumed_constant() -> None:
    o = Opaque(2.0)
    n = types.SimpleNamespace(o=o, k=1.0)
    jf = adarray.jit(lambda x: x * n.o.k + n.k, assume_constant=("n.o", "Model.weights"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            np.testing.assert_array_equal(jf(X), X * 2.0 + 1.0)
    n.k = 5.0
    np.testing.assert_array_equal(jf(X), X * 2.0 + 5.0)


def test_wrong_constants() -> None:
    with pytest.raises(TypeError, match=r"assume_constant is 2\.0; pass names"):
        adarray.jit(lambda x: x, assume_constant=2.0)


def test_the_clock_stays_eager() -> None:
    jf = adarray.jit(lambda x: x * (time.time() > 0.0))
    with pytest.warns(JitWarning, match="it reads the clock, by time.time"):
        np.testing.assert_array_equal(jf(X), X)


def test_eval_stays_eager() -> None:
    jf = adarray.jit(lambda x: eval("x * 2.0"))
    with pytest.warns(JitWarning, match="it calls eval, and what that reads is not known"):
        np.testing.assert_array_equal(jf(X), X * 2.0)


def test_objects_of_packages_compile() -> None:
    """Ordinary objects around a function do not make it eager."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0]})

    def f(x: Any, d: Any) -> Any:
        return x * d["a"].to_numpy() + frame["a"].iloc[0]

    jf = compiled(f, X, frame)
    frame.loc[0, "a"] = 9.0
    agree(jf, f, X, frame)


class Options(NamedTuple):
    rate: float
    apply: Callable[[Any], Any]


def test_fields_of_named_tuples_are_code(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(2.0, np.sin)
    jf = adarray.jit(lambda x: options.apply(x) * options.rate)
    x = np.linspace(0.0, 1.0, 5)
    for _ in range(3):
        np.testing.assert_allclose(jf(x), np.sin(x) * 2)
    with monkeypatch.context() as now:
        now.setattr(fingerprints.SavedFingerprint, "same", lambda *_: pytest.fail("it is read"))
        np.testing.assert_allclose(jf(x), np.sin(x) * 2)
    options = Options(3.0, np.cos)
    np.testing.assert_allclose(jf(x), np.cos(x) * 3)
