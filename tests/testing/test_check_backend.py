"""`check_backend` and `opcheck` find what a backend does wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from adarray.base.op import Op, all_ops
from adarray.errors import BackendError
from adarray.testing import _backends, check_backend, opcheck


class FakeEngine:
    """Computes with NumPy, and then spoils what the test wants spoilt."""

    name = "fake"
    threads = 1

    def __init__(self, backend: FakeBackend) -> None:
        self.backend = backend

    def pointwise(self, op: Op, values: tuple[Any, ...]) -> Any:
        return self.backend.spoil("value", op.name, op.evaluate(*values), values)

    def derivative(self, op: Op, operand: int, g: Any, saved: tuple[Any, ...]) -> Any:
        rule = op.rules[operand]
        assert rule is not None
        return self.backend.spoil("derivative", op.name, rule(g, *saved), saved)

    def call(self, op: Op, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        return NotImplemented


class FakeBackend:
    """A plugin whose engine is given."""

    name = "fake"
    spoil: Callable[[str, str, Any, Any], Any]

    def engine(self, **options: Any) -> FakeEngine:
        unknown = sorted(set(options) - {"cutoff"})
        if unknown:
            raise BackendError(f"backend 'fake': unknown option {unknown[0]!r}; it takes cutoff")
        return FakeEngine(self)

    def info(self) -> dict[str, str]:
        return {"status": "available"}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """Install a backend named fake that spoils nothing yet."""
    from importlib.metadata import EntryPoint

    from adarray import backend as module

    result = FakeBackend()
    result.spoil = lambda kind, op, r, args: r
    point = EntryPoint("fake", "somewhere:FakeBackend", module.GROUP)
    monkeypatch.setattr(module, "_points", {**module._entry_points(), "fake": [point]})
    monkeypatch.setattr(module, "_loaded", {**module._loaded, "fake": result})
    monkeypatch.setattr(module, "_engines", {})
    return result


@pytest.mark.slow
@pytest.mark.parametrize("share", range(8))
def test_a_right_backend_passes(
    share: int, fake: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = list(all_ops())[share::8]
    monkeypatch.setattr(_backends, "all_ops", lambda: ops)
    check_backend("fake", dtypes=(np.float32,))  # tests/test_ops.py has the other one


def _changed_where(condition: Callable[[Any, Any], bool], change: Callable[[Any], Any]) -> Any:
    def spoil(kind: str, op: str, r: Any, original: Any) -> Any:
        return change(r) if kind == "value" and condition(r, original) else r

    return spoil


SPOILT: dict[str, tuple[str, Any, str]] = {
    "5 ulp": ("exp", _changed_where(lambda r, v: True, lambda r: r * r.dtype.type(1 + 5 * 2.3e-16)),
              "ulp apart, at most 4 are allowed"),
    "strides": ("exp", _changed_where(lambda r, v: np.ndim(v[0]) > 1 and v[0].strides[-1] < 0,
                                      lambda r: r[::-1]), "reversed: value"),
    "0-d": ("exp", _changed_where(lambda r, v: np.ndim(r) == 0, lambda r: np.asarray(r)),
            "got a ndarray, expected a float64"),
    "sign of zero": ("sin", _changed_where(lambda r, v: True, lambda r: r + 0.0), "special values"),
    "nan": ("maximum", lambda k, o, r, v: np.fmax(*v) if k == "value" else r, "special values"),
    "inf": ("exp", _changed_where(lambda r, v: True, lambda r: np.minimum(r, 1e308)),
            "special values: value: got"),
    "dtype": ("exp", _changed_where(lambda r, v: True, lambda r: r.astype(np.float32)),
              "got dtype float32|got a float32"),
    "empty": ("exp", _changed_where(lambda r, v: np.size(r) == 0, lambda r: np.zeros((0, 1))),
              "got shape"),
    "broadcasting": ("add", _changed_where(lambda r, v: np.shape(v[0]) != np.shape(v[1]),
                                           lambda r: r * 2), "column and row: value"),
    "derivative": ("exp", lambda k, o, r, v: r * 1.01 if k == "derivative" else r, "rev, order 1"),
    "derivative of nan": ("exp", lambda k, o, r, v: np.nan_to_num(r) if k == "derivative" else r,
                          "gradient of operand 0 .* from NumPy"),
}  # fmt: skip


@pytest.mark.parametrize("what", SPOILT)
def test_a_wrong_kernel_is_found(what: str, fake: FakeBackend) -> None:
    op, spoil, message = SPOILT[what]
    opcheck(op, "fake")
    fake.spoil = lambda kind, name, r, args: spoil(kind, name, r, args) if name == op else r
    with pytest.raises(AssertionError, match=message):
        opcheck(op, "fake")


def test_a_kernel_that_writes_into_its_operand_is_found(fake: FakeBackend) -> None:
    def spoil(kind: str, op: str, r: Any, original: Any) -> Any:
        if kind == "value" and op == "sqrt" and np.ndim(original[0]):
            memory = original[0].base if original[0].base is not None else original[0]
            memory[...] = 1.0  # as C would: a read-only view does not protect its base
        return r

    fake.spoil = spoil
    with pytest.raises(AssertionError, match="an operand was written to"):
        check_backend("fake", dtypes=())
    with pytest.raises(AssertionError, match="operand 0 was written to"):
        opcheck("sqrt", "fake")


class Misbehaving(FakeBackend):
    """Takes every option, and describes itself by numbers."""

    def engine(self, **options: Any) -> FakeEngine:
        return FakeEngine(self)

    def info(self) -> dict[str, str]:
        return {"threads": 2}  # type: ignore[dict-item]


def test_misbehaviour_is_listed(fake: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    from adarray import backend as module

    bad = Misbehaving()
    bad.spoil = fake.spoil
    monkeypatch.setitem(module._loaded, "fake", bad)
    with pytest.raises(AssertionError) as caught:
        check_backend("fake", dtypes=())
    lines = str(caught.value).splitlines()
    assert lines[0] == "check_backend(fake): 2 checks failed"
    assert lines[1] == "- info: got {'threads': 2}, expected a dict of strings"
    assert lines[2] == "- use: an unknown option was taken without an error"
