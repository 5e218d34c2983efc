"""Signatures: calls that share compiled code, and calls that must not."""

from __future__ import annotations

import dataclasses
import enum
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.base.aliasing import shares_memory
from adarray.jitting import JitWarning
from adarray.jitting.shared.signature import Bound, Ints, element_strides
from adarray.jitting.tree.matching import Matcher, fast_key
from adarray.transforms.tree import flatten

Point = namedtuple("Point", "x y")
Pair = namedtuple("Pair", "x y")


class Noted(Point):
    """A named tuple that may have other attributes, which functions may read."""


class Colour(enum.Enum):
    """Values that are compared."""

    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Params:
    """Arrays in a dataclass."""

    w: Any
    b: Any = 0.0


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend."""
    with adarray.use(backend):
        yield


def f(x: Any, y: Any = 2.0) -> Any:
    return np.tanh(x) * y


A = np.arange(12.0).reshape(3, 4)
ARRAYS = [
    A, A.T, A[:, ::2], A[::-1], A[1], A[1:2], np.broadcast_to(A[0], (3, 4)), A.astype(np.float32),
    A.astype(np.int32), A > 5.0, np.zeros((0, 4)), np.array(3.0), A.astype(complex),
    A.astype(np.float16), np.zeros((1, 4))[:, ::4], np.asfortranarray(A),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.checked
@pytest.mark.parametrize("x", ARRAYS, ids=lambda x: f"{x.dtype}{x.shape}{x.strides}")
@pytest.mark.parametrize("y", [2.0, 3, np.float32(2.0), np.float64(2.0), 1j, True, A])
def test_dtypes_and_layouts(x: Any, y: Any) -> None:
    try:
        expected = f(x, y)
    except (TypeError, ValueError) as error:
        with pytest.raises(type(error)):
            adarray.jit(f)(x, y)
        return
    jf = adarray.jit(f)
    for _ in range(4):
        got = jf(x, y)
        assert type(got) is type(expected)
        assert got.dtype == expected.dtype
        half = np.float16 in (x.dtype, got.dtype) or x.dtype == bool
        single = np.float32 in (x.dtype, got.dtype) or np.complex64 == got.dtype
        tolerance = 5e-3 if half else 1e-6 if single else 1e-13
        np.testing.assert_allclose(got, expected, rtol=tolerance)
    assert jf.cache_info().eager == 0
    assert jf.cache_info().traces == 1


def test_what_is_shared_and_what_is_not() -> None:
    jf = adarray.jit(f)
    x = np.ones(4)
    for args in ((x, 1.0), (x * 2.0, 5.0), (x[:], 7.0)):
        jf(*args)
    assert jf.cache_info().signatures == 1
    others = (
        (x.astype(np.float32), 1.0), (np.ones(5), 1.0), (np.ones(8)[::2], 1.0), (x, 1), (x, 1j),
        (x, np.float64(1.0)), (x, np.float32(1.0)), (x, x), (x,),
    )  # fmt: skip
    for i, args in enumerate(others):
        for _ in range(3):
            np.testing.assert_allclose(jf(*args), f(*args), rtol=1e-6)
        assert jf.cache_info().signatures == 2 + i
    frozen = x.copy()
    frozen.flags.writeable = False
    jf(frozen, 1.0)
    assert jf.cache_info().signatures == 2 + len(others)


def test_axes_of_length_one_share() -> None:
    a, b = np.ones((1, 4)), np.ones((3, 4))[1:2]
    assert fast_key((a,)) == fast_key((b,))
    assert fast_key((a,)) != fast_key((np.ones((2, 4))[:1, ::-1],))


def test_the_matcher_is_the_key() -> None:
    calls = [(x, y) for x in ARRAYS for y in (2.0, np.float32(1.0), A, 1j)]
    for value in calls:
        fits = Matcher(value).fits
        for other in calls:
            assert fits(other) == (fast_key(other) == fast_key(value))
        assert not fits(value[:1])


def test_the_matcher_looks_into_nests() -> None:
    b = A * 2
    calls: list[tuple[Any, ...]] = [
        (A, b), ((A, b),), ([A, b],), ([A], b), ([A, [b]],), ([A, (b,)],), ([],), ((),), ({},),
        ({"w": A, "b": b},), ({"b": A, "w": b},), ({"w": A},), ({"w": A, "c": b},),
        ({"w": [A, 2.0], "b": {"x": b}},), ({"w": [A, 2.0], "b": {"y": b}},),
        (Point(A, b),), (Pair(A, b),), (Point(A, [b]),), ([Point(A, 2.0)],),
    ]  # fmt: skip
    for value in calls:
        result = Matcher(value)
        for other in calls:
            same = fast_key(other) == fast_key(value)
            assert result.fits(other) == same
            assert same == (other is value)
        leaves = list(value) if result.leaves is None else result.leaves(value)
        expected = flatten((value, {}))[0]
        assert len(leaves) == len(expected)
        assert all(x is y for x, y in zip(leaves, expected, strict=True))
    for other in ((2,), ([A, "text"],), ({1: A},), ([A, None],), (Point(A, None),), (Noted(A, A),)):
        assert fast_key(other) is None


def test_nests_run_compiled_code() -> None:
    def g(p: Any, x: Any) -> Any:
        return [p["b"] + x @ w for w in p["w"]], {"sum": np.sum(p["b"])}

    jg = adarray.jit(g)
    for k in range(6):
        p = {"w": [np.eye(3) * k, np.ones((3, 3))], "b": np.arange(3.0)}
        got, expected = jg(p, np.ones(3)), g(p, np.ones(3))
        for u, v in zip(flatten(got)[0], flatten(expected)[0], strict=True):
            np.testing.assert_allclose(u, v)
        assert list(got[1]) == ["sum"]
    assert jg._recent.leaves is not None
    nest = {"b": np.arange(3.0), "w": [np.eye(3), np.eye(3)]}
    np.testing.assert_allclose(jg(nest, np.ones(3))[0][0], np.arange(3.0) + 1)


def test_structures() -> None:
    def g(p: Any, extra: Any = None) -> Any:
        total = p["a"] * p["b"][0] + p["c"].x - p["c"].y + p["d"].w * p["d"].b
        return {"out": (total, [total.sum()]), "p": Point(total, extra)}

    jg = adarray.jit(g)
    for k in range(5):
        p = {
            "a": np.full(3, 1.0 + k), "b": [2.0 + k], "c": Point(np.ones(3) * k, 0.5),
            "d": Params(np.arange(3.0) + k, 2.0),
        }  # fmt: skip
        got, expected = jg(p, extra="text"), g(p, extra="text")
        np.testing.assert_allclose(got["out"][0], expected["out"][0])
        np.testing.assert_allclose(got["out"][1][0], expected["out"][1][0])
        assert type(got["p"]) is Point
        assert got["p"].y == "text"
    assert jg.cache_info().traces == 2
    assert jg(p, extra="other")["p"].y == "other"
    assert jg(p)["p"].y is None


@pytest.mark.parametrize(
    ("one", "two"),
    [(True, False), ("a", "b"), (Colour.RED, Colour.BLUE), (np.sin, np.cos), (None, 1.0),
     (float, np.float32), (slice(0, 2), slice(1, 3)), (np.dtype("f4"), np.dtype("f8"))],
)  # fmt: skip
def test_static_arguments(one: Any, two: Any) -> None:
    def g(x: Any, s: Any) -> Any:
        if isinstance(s, (type, np.dtype)):
            return x.astype(s)
        if callable(s):
            return s(x)
        if isinstance(s, slice):
            return x[s] * 2.0
        return x * {"a": 1, "b": 2, True: 3, False: 4, None: 7}.get(s, 5) + (s is Colour.RED)

    jg = adarray.jit(g)
    x = np.arange(4.0)
    for s in (one, two, one, two, one, two):
        got = jg(x, s)
        np.testing.assert_allclose(got, g(x, s), rtol=1e-15)
        assert got.dtype == g(x, s).dtype
    assert jg.cache_info().eager == 0


def test_keyword_arguments() -> None:
    jf = adarray.jit(f)
    for k in range(4):
        np.testing.assert_allclose(jf(x=A + k, y=2.0), f(A + k, 2.0))
        np.testing.assert_allclose(jf(A + k, y=A), f(A + k, A))
    with pytest.raises(TypeError, match="unexpected keyword"):
        jf(A, z=1.0)


@pytest.mark.parametrize(
    ("x", "why"),
    [(np.array(["a", "b"]), "dtype <U1"), (np.arange(3.0, dtype=">f8"), "byte order"),
     (np.array([1, None]), "dtype object"), (np.arange(3, dtype=np.longdouble), "dtype")],
)  # fmt: skip
def test_what_is_not_compiled(x: Any, why: str) -> None:
    def same(x: Any) -> Any:
        return np.concatenate([x, x])

    jf = adarray.jit(same)
    with pytest.warns(JitWarning, match=why):
        got = jf(x)
    np.testing.assert_array_equal(got, same(x))
    assert jf(x).dtype == same(x).dtype
    assert jf.cache_info().eager == 1


def test_unaligned_arrays() -> None:
    packed = np.zeros(5, dtype=[("flag", "u1"), ("value", "f8")])
    packed["value"] = np.arange(5.0)
    x = packed["value"]
    assert not x.flags.aligned

    def g(x: Any) -> Any:
        x[0] = 3.0
        return np.sum(x * x)

    jg = adarray.jit(g)
    for i in range(4):
        x[:] = np.arange(5.0) + i
        twin = x.copy()
        assert jg(x) == g(twin)
        np.testing.assert_array_equal(x, twin)
    assert element_strides(x) is not None


def test_adarrays_give_adarrays() -> None:
    jf = adarray.jit(f)
    for k in range(4):
        got = jf(adarray.array(A + k), 2.0)
        assert isinstance(got, adarray.ADArray)
        np.testing.assert_allclose(got.numpy(), f(A + k))
    total = adarray.jit(np.sum)
    for _ in range(4):
        assert isinstance(total(adarray.array(A)), adarray.ADArray)
        assert type(total(A)) is np.float64


def test_ints_become_inputs_when_they_vary() -> None:
    ints = Ints()
    keys = [Bound((A, k), {}, ints).key for k in (1, 2, 3, 4, 5, 6)]
    assert len(set(keys)) == 4
    assert keys[3] == keys[5]
    assert Bound((A, 1 << 70), {}, ints).key != keys[5]


def test_overlap() -> None:
    x = np.arange(6.0)
    assert shares_memory([x[:4], x[2:]], [0])
    assert not shares_memory([x, x])  # one object is known to be the same
    assert not shares_memory([x[:3], x[3:], 2.0])
    assert not shares_memory([x[:4], x[2:]], [])


@pytest.mark.parametrize("k", range(3))
def test_signatures_are_kept_apart_by_backend(k: int) -> None:
    jf = adarray.jit(f)
    for name in ("numpy", "serial", "openmp"):
        if name in adarray.backends():
            with adarray.use(name):
                np.testing.assert_allclose(jf(A + k), f(A + k))
    assert jf.cache_info().signatures == len({"numpy", "serial", "openmp"} & {*adarray.backends()})


class Unhashable:
    """What raises something else than TypeError where it is hashed."""

    scale = 2.0

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        raise RuntimeError("not today")


@pytest.mark.parametrize(
    ("make", "changed", "f"),
    [
        (lambda: memoryview(np.ones(3)), lambda m: m.__setitem__(0, 5.0),
         lambda x, m: x * np.asarray(m)),
        (lambda: np.ones(1, [("a", "f8")])[0], lambda v: v.__setitem__("a", 5.0),
         lambda x, v: x * v["a"]),
        (Unhashable, lambda u: setattr(u, "scale", 3.0), lambda x, u: x * u.scale),
    ],
    ids=["memoryview", "void", "unhashable"],
)  # fmt: skip
def test_arguments_that_change_and_have_no_hash(make: Any, changed: Any, f: Any) -> None:
    jf, transformed, x = adarray.jit(f), make(), np.arange(3.0)
    for _ in range(4):
        np.testing.assert_array_equal(jf(x, transformed), f(x, transformed))
    changed(transformed)
    np.testing.assert_array_equal(jf(x, transformed), f(x, transformed))
