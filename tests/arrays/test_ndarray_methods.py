"""Every method and attribute of ndarray: an ADArray gives what ndarray gives."""

from __future__ import annotations

import inspect
import io
import operator

import numpy as np
import pytest

import adarray
from adarray import ADArray, TraceError
from adarray.testing import check_grads

A = np.array([[3.1, 1.53, -2.07, 0.26], [0.52, -1.03, 4.04, 2.01], [2.58, 2.77, 1.06, -3.09]])
I = np.array([2, 0, 1])  # noqa: E741
B = A > 0
C = A[:, :2] + 1j * A[:, 2:]
WEIGHTS = np.array([0.5, 2.0, 1.0])

# Calls of methods without side effects, as functions of the array; ndarray is the oracle.
CALLS = {
    "all": [lambda a: a.all(), lambda a: a.all(0), lambda a: a.all(axis=1, keepdims=True),
            lambda a: a.all(axis=(0, 1), where=B)],
    "any": [lambda a: a.any(), lambda a: a.any(axis=1, keepdims=True),
            lambda a: a.any(axis=0, where=B)],
    "argmax": [lambda a: a.argmax(), lambda a: a.argmax(1), lambda a: a.argmax(0, keepdims=True)],
    "argmin": [lambda a: a.argmin(), lambda a: a.argmin(axis=1, keepdims=True)],
    "argpartition": [lambda a: a.argpartition(1), lambda a: a.argpartition(1, 0),
                     lambda a: a.argpartition((0, 2), axis=None, kind="introselect")],
    "argsort": [lambda a: a.argsort(), lambda a: a.argsort(0, "mergesort"),
                lambda a: a.argsort(axis=None, stable=True)],
    "astype": [lambda a: a.astype(np.float32), lambda a: a.astype(int),
               lambda a: a.astype("f8", "F", "safe", True, False),
               lambda a: a.astype(np.float32, casting="same_kind", order="C")],
    "choose": [lambda a: I_of(a).choose([a[0, :3], a[1, :3], a[2, :3]]),
               lambda a: (I_of(a) + 1).choose([1.0, a[1, :3]], mode="wrap")],
    "clip": [lambda a: a.clip(-1, 2), lambda a: a.clip(min=0.0), lambda a: a.clip(max=a[0])],
    "compress": [lambda a: a.compress([True, False, True], axis=0),
                 lambda a: a.compress([False, True])],
    "conj": [lambda a: a.conj()],
    "conjugate": [lambda a: a.conjugate()],
    "copy": [lambda a: a.copy(), lambda a: a.copy("F"), lambda a: a.T.copy(order="K")],
    "cumprod": [lambda a: a.cumprod(), lambda a: a.cumprod(1), lambda a: a.cumprod(0, np.float32)],
    "cumsum": [lambda a: a.cumsum(), lambda a: a.cumsum(axis=1, dtype=np.float32)],
    "diagonal": [lambda a: a.diagonal(), lambda a: a.diagonal(1, 1, 0)],
    "dot": [lambda a: a.dot(a.T), lambda a: a.dot(WEIGHTS.take([0, 1, 2, 0])), lambda a: a.dot(2)],
    "flatten": [lambda a: a.flatten(), lambda a: a.flatten("F"), lambda a: a.T.flatten("K"),
                lambda a: a.T[::-1].flatten(order="A")],
    "item": [lambda a: a.item(3), lambda a: a.item(1, 2), lambda a: a.item((2, 0)),
             lambda a: a[0, :1].item()],
    "max": [lambda a: a.max(), lambda a: a.max(0), lambda a: a.max((0, 1), None, True),
            lambda a: a.max(axis=1, initial=1.0), lambda a: a.max(0, initial=-9.0, where=B)],
    "mean": [lambda a: a.mean(), lambda a: a.mean(0, np.float32), lambda a: a.mean((0, 1)),
             lambda a: a.mean(axis=1, keepdims=True, where=B)],
    "min": [lambda a: a.min(), lambda a: a.min(axis=1, keepdims=True, initial=0.0, where=B)],
    "nonzero": [lambda a: (a > 1).nonzero(), lambda a: a.nonzero()],
    "prod": [lambda a: a.prod(), lambda a: a.prod(1, np.float32, None, True),
             lambda a: a.prod(axis=0, initial=2.0, where=B)],
    "ravel": [lambda a: a.ravel(), lambda a: a.ravel("F"), lambda a: a.T.ravel(order="K"),
              lambda a: a.T.ravel("A"), lambda a: a[None].transpose(2, 0, 1).ravel("K")],
    "repeat": [lambda a: a.repeat(2), lambda a: a.repeat([1, 0, 2], axis=0)],
    "reshape": [lambda a: a.reshape(4, 3), lambda a: a.reshape((2, -1), order="F"),
                lambda a: a.reshape(-1, copy=True), lambda a: a.T.reshape(2, 6, order="A")],
    "round": [lambda a: a.round(), lambda a: a.round(1), lambda a: a.round(decimals=-1)],
    "searchsorted": [lambda a: a[0, ::-1][[1, 3]].searchsorted([0.3, 2.0], "right"),
                     lambda a: a[:, 0].searchsorted(1.0, sorter=[1, 2, 0])],
    "squeeze": [lambda a: a[None].squeeze(), lambda a: a[None, :, None].squeeze(axis=(0, 2))],
    "std": [lambda a: a.std(), lambda a: a.std(0, ddof=1), lambda a: a.std(1, None, None, 1, True),
            lambda a: a.std(axis=0, where=B, ddof=0)],
    "sum": [lambda a: a.sum(), lambda a: a.sum((0, 1)), lambda a: a.sum(1, np.float32),
            lambda a: a.sum(axis=0, keepdims=True, initial=2.0, where=B)],
    "swapaxes": [lambda a: a.swapaxes(0, 1)],
    "take": [lambda a: a.take([0, 3, 3]), lambda a: a.take([[0, -1]], 1),
             lambda a: a.take([5, -7], axis=1, mode="wrap"), lambda a: a.take(9, mode="clip")],
    "to_device": [lambda a: a.to_device("cpu")],
    "trace": [lambda a: a.trace(), lambda a: a.trace(1, 1, 0), lambda a: a.trace(dtype=np.float32)],
    "transpose": [lambda a: a.transpose(), lambda a: a.transpose(1, 0),
                  lambda a: a.transpose((1, 0)), lambda a: a.transpose(None)],
    "var": [lambda a: a.var(), lambda a: a.var((0, 1), ddof=2),
            lambda a: a.var(1, keepdims=True, where=B, mean=a.mean(1, keepdims=True, where=B))],
    "view": [lambda a: a.view(), lambda a: a.view(np.float64)],
    "T": [lambda a: a.T],
    "mT": [lambda a: a.mT],
    "real": [lambda a: a.real],
    "imag": [lambda a: a.imag],
    "shape": [lambda a: a.shape],
    "dtype": [lambda a: a.dtype],
    "ndim": [lambda a: a.ndim],
    "size": [lambda a: a.size],
    "itemsize": [lambda a: a.itemsize],
    "nbytes": [lambda a: a.nbytes],
    "strides": [lambda a: a.strides, lambda a: a[::2, 1:].T.strides],
    "device": [lambda a: a.device],
    "flags": [lambda a: a.flags.c_contiguous, lambda a: a.T.flags.f_contiguous],
    "flat": [lambda a: a.flat[3], lambda a: a.flat[2:5], lambda a: list(a.T.flat)[4],
             lambda a: len(a.flat), lambda a: a.flat[[1, 7]], lambda a: a.flat == a.ravel()],
    "base": [lambda a: a.copy().base is None, lambda a: a[0].base is not None],
    "__getitem__": [lambda a: a[1], lambda a: a[..., None, ::-1], lambda a: a[B]],
    "__len__": [len],
    "__iter__": [lambda a: list(a)[1], lambda a: [v * 2 for v in a[0]][2]],
    "__contains__": [lambda a: 4.04 in a, lambda a: 17.0 in a],
    "__matmul__": [lambda a: a @ a.T], "__rmatmul__": [lambda a: WEIGHTS @ a],
    "__add__": [lambda a: a + 1], "__radd__": [lambda a: 1 + a],
    "__sub__": [lambda a: a - a[0]], "__rsub__": [lambda a: 1 - a],
    "__mul__": [lambda a: a * a], "__rmul__": [lambda a: 2 * a],
    "__truediv__": [lambda a: a / 2], "__rtruediv__": [lambda a: 2 / a],
    "__floordiv__": [lambda a: a // 0.7], "__rfloordiv__": [lambda a: 2 // a],
    "__mod__": [lambda a: a % 0.7], "__rmod__": [lambda a: 5.0 % a],
    "__divmod__": [lambda a: divmod(a, 0.7)], "__rdivmod__": [lambda a: divmod(5.0, a)],
    "__pow__": [lambda a: a**2, lambda a: pow(a, 3)], "__rpow__": [lambda a: 2.0**a],
    "__neg__": [lambda a: -a], "__pos__": [lambda a: +a], "__abs__": [abs],
    "__invert__": [lambda a: ~(a > 0)],
    "__and__": [lambda a: (a > 0) & B], "__rand__": [lambda a: B & (a > 1)],
    "__or__": [lambda a: (a > 0) | (a < -1)], "__ror__": [lambda a: B | (a > 1)],
    "__xor__": [lambda a: (a > 0) ^ True], "__rxor__": [lambda a: B ^ (a > 1)],
    "__lshift__": [lambda a: a.astype(int) << 1], "__rlshift__": [lambda a: 1 << (a > 0)],
    "__rshift__": [lambda a: a.astype(int) >> 1], "__rrshift__": [lambda a: 8 >> (a > 0)],
    "__lt__": [lambda a: a < 1], "__le__": [lambda a: a <= 1], "__gt__": [lambda a: a > 1],
    "__ge__": [lambda a: a >= 1], "__eq__": [lambda a: a == 1.53], "__ne__": [lambda a: a != 1.5],
    "__bool__": [lambda a: bool(a[0, 0]), lambda a: bool(a[:1, :1] < 0)],
    "__copy__": [lambda a: __import__("copy").copy(a)],
    "__deepcopy__": [lambda a: __import__("copy").deepcopy(a)],
    "__format__": [lambda a: f"{a[0, 0]:.3f}", lambda a: f"{a.sum():8.2e}"],
    "__str__": [str, lambda a: str(a[0, 0])],
}  # fmt: skip

# Only for arrays that are not traced.
UNTRACED = {
    "tolist": [lambda a: a.tolist(), lambda a: a[0, 0].tolist()],
    "tobytes": [lambda a: a.tobytes(), lambda a: a.tobytes("F")],
    "byteswap": [lambda a: a.byteswap().view(np.int64)],
    "getfield": [lambda a: a.getfield(np.int32, 4)],
    "view": [lambda a: a.view(np.int64), lambda a: a.view("f4")[1], lambda a: a.view(complex)],
    "data": [lambda a: bytes(a.data)],
    "ctypes": [lambda a: a.ctypes.shape[:]],
    "dumps": [lambda a: __import__("pickle").loads(a.dumps())],
    "__float__": [lambda a: float(a[0, 0])],
    "__int__": [lambda a: int(a[0, 2])],
    "__complex__": [lambda a: complex(a[0, 2])],
    "__index__": [lambda a: operator.index(a.astype(int)[0, 0]), lambda a: "abcd"[a.argmax() % 4]],
    "__array__": [np.asarray, lambda a: np.array(a, dtype=np.float32)],
    "__dlpack__": [np.from_dlpack],
    "__dlpack_device__": [lambda a: a.__dlpack_device__()],
    "__array_namespace__": [lambda a: a.__array_namespace__().abs(a)],
}


if np.lib.NumpyVersion(np.__version__) < "2.1.0":
    del CALLS["reshape"][2]  # copy= is newer


def I_of(a):  # noqa: N802
    return adarray.array(I) if isinstance(a, adarray.ADArray) else I


def pairs(table):
    return [
        pytest.param(f, id=f"{name}-{k}")
        for name, calls in table.items()
        for k, f in enumerate(calls)
    ]


def same(got, expected):
    if isinstance(expected, tuple | list):
        assert len(got) == len(expected)
        for g, e in zip(got, expected, strict=True):
            same(g, e)
        return
    if isinstance(expected, str):
        assert got == expected
        return
    got = adarray.value_of(got)
    np.testing.assert_array_equal(got, expected)
    assert np.shape(got) == np.shape(expected)
    assert np.asarray(got).dtype == np.asarray(expected).dtype


@pytest.mark.parametrize("call", [*pairs(CALLS), *pairs(UNTRACED)])
def test_untraced(call):
    same(call(adarray.array(A)), call(A.copy()))


@pytest.mark.parametrize("call", pairs(CALLS))
def test_traced(call):
    seen = []

    def f(x):
        r = call(x)
        seen.append(r)
        parts = r if isinstance(r, tuple | list) else [r]
        return [p for p in parts if getattr(p, "dtype", None) == np.float64]

    adarray.grad(lambda x: (f(x), x.sum())[1])(A)
    same(seen[0], call(A.copy()))
    if f(A):
        check_grads(f, (A,))


@pytest.mark.parametrize(
    "call",
    [
        lambda z: z.real, lambda z: z.imag, lambda z: z.conj(), lambda z: z.conjugate(),
        lambda z: z.sum(0), lambda z: z.T @ z, lambda z: abs(z), lambda z: z.real * z.imag,
        lambda z: z.mean(), lambda z: z.ravel()[::2], lambda z: z.astype(np.complex64),
    ],
)  # fmt: skip
def test_complex(call):
    same(call(adarray.array(C)), call(C))
    same(adarray.vjp(call, C)[0], call(C))


IN_PLACE = {
    "fill": lambda a: a.fill(2.5),
    "put": lambda a: a.put([0, 5, -1], [9.0, 8.0], mode="raise"),
    "put wrap": lambda a: a.put([13, 50], 7.0, "wrap"),
    "sort": lambda a: a.sort(),
    "sort axis": lambda a: a.sort(0, "stable"),
    "sort stable": lambda a: a.sort(axis=1, stable=True),
    "setitem": lambda a: operator.setitem(a, (slice(None), 1), a[:, 0] * 2),
    "flat item": lambda a: operator.setitem(a.flat, 3, a[0, 0]),
    "flat slice": lambda a: operator.setitem(a.T.flat, slice(2, 9), [1.0, 2.0]),
    "flat list": lambda a: operator.setitem(a.flat, [1, 7], a[1, :2]),
    "flat": lambda a: setattr(a, "flat", a[0]),
    "real": lambda a: setattr(a, "real", a * 2),
    "resize smaller": lambda a: a.resize(2, 3, refcheck=False),
    "resize larger": lambda a: a.resize((4, 5), refcheck=False),
    "resize nothing": lambda a: a.resize(None),
    "iadd": lambda a: operator.iadd(a, a[0]),
    "imatmul": lambda a: operator.imatmul(a, np.diag([1.0, 2.0, 3.0, 4.0])),
    "imod": lambda a: operator.imod(a, 0.7),
    "ipow": lambda a: operator.ipow(a, 2),
    "rows": lambda a: [operator.imul(row, 2.0) for row in a],
    "row items": lambda a: [operator.setitem(row, 0, k) for k, row in enumerate(a)],
    "swap": lambda a: operator.setitem(a, ([0, 1],), a[[1, 0]]),
}


@pytest.mark.parametrize("call", IN_PLACE.values(), ids=IN_PLACE)
def test_in_place(call):
    expected = A.copy()
    assert call(expected) is None or True
    untraced = adarray.array(A)
    call(untraced)
    same(untraced, expected)

    def f(x):
        y = x * 1.0
        call(y)
        return y

    same(adarray.vjp(f, A)[0], expected)
    check_grads(f, (A,))


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.5.0", reason="NumPy 2.5 has it")
def test_descending_sorts():
    same(adarray.array(A).argsort(descending=True), A.argsort(descending=True))

    def f(x):
        y = x * 1.0
        y.sort(axis=0, descending=True)
        return np.sum(y * WEIGHTS[:, None]) + np.sort(x, axis=None, descending=True)[:3] @ WEIGHTS

    check_grads(f, (A,))


def test_partition_in_place():
    for x in (adarray.array(A), adarray.array(A[0])):
        x.partition(1)
        values = x.numpy()
        assert (values[..., :1] <= values[..., 1:2]).all()
        assert (values[..., 2:] >= values[..., 1:2]).all()

    def f(x):
        y = x * 1.0
        y.partition(2, axis=0, kind="introselect")
        return np.sum(np.sort(y, axis=0) * WEIGHTS[:, None])

    check_grads(f, (A,))


def test_integers_shift_in_place():
    for op in (operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift,
               operator.ifloordiv):  # fmt: skip
        expected, x = np.arange(1, 7), adarray.array(np.arange(1, 7))
        op(expected, 2)
        assert op(x, 2) is x
        same(x, expected)


def test_parts_of_complex_arrays_can_be_set():
    def f(x):
        z = x[:2] * (1 + 2j)
        z.real = x[1:] ** 2
        z.imag = np.sin(x[:2])
        z.real[0] = x[2, 1:3].sum()
        return np.sum(z.real * z.imag)

    check_grads(f, (A,), order=2)
    z = adarray.array(C)
    expected = C.copy()
    for v in (z, expected):
        v.real = A[:, :2]
        v.imag = 3
    same(z, expected)
    with pytest.raises(TypeError, match="does not have imaginary part"):
        adarray.array(A).imag = 1.0


def test_setflags_and_read_only_arrays():
    def f(x):
        y = x.copy()
        y.setflags(write=False)
        for write in (
            lambda: operator.setitem(y, 0, 1.0),
            lambda: operator.iadd(y, 1.0),
            lambda: np.sin(y, out=y),
            lambda: operator.setitem(np.broadcast_to(x, (2, *x.shape)), 0, 1.0),
        ):
            with pytest.raises(ValueError, match="read-only"):
                write()
        y.setflags(write=True)
        y[0] = 0.0
        return np.sum(y**2)

    expected = 2 * A
    expected[0] = 0
    np.testing.assert_array_equal(adarray.grad(f)(A), expected)


def test_files(tmp_path):
    x = adarray.array(A)
    x.tofile(tmp_path / "raw")
    np.testing.assert_array_equal(np.fromfile(tmp_path / "raw"), A.ravel())
    x.dump(tmp_path / "pickled")
    np.testing.assert_array_equal(np.load(tmp_path / "pickled", allow_pickle=True), A)
    np.save(tmp_path / "a.npy", x)
    np.savez(tmp_path / "a.npz", x=x, n=3)
    np.savetxt(tmp_path / "a.txt", x)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), A)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npz")["x"], A)
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "a.txt"), A)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x)


def test_structured_fields():
    record = np.zeros(3, [("t", "f8"), ("n", "i4")])
    x = adarray.array(record)
    x.setfield(np.arange(3.0), np.float64)
    same(x.getfield(np.float64), np.arange(3.0))
    same(x["t"], np.arange(3.0))


def test_views_in_another_dtype_share_the_values():
    x = adarray.array(np.array([1.0, 2.0]))
    bits = x.view(np.int64)
    bits[0] = np.float64(5.0).view(np.int64)
    assert x[0] == 5.0
    x[1] = 0.0
    assert bits[1] == 0
    assert x.view(ADArray).base is x
    assert isinstance(x.view(np.ndarray), ADArray)
    with pytest.raises(TypeError, match="view: type memmap"):
        x.view(np.memmap)
    y = adarray.array(A.astype(int))
    assert y.byteswap(inplace=True) is y
    same(y, A.astype(int).byteswap())


def test_what_ndarray_refuses():
    x = adarray.array(A)
    with pytest.raises(ValueError, match="cannot delete array elements"):
        del x[0]
    with pytest.raises(ValueError, match="does not own its data"):
        x[0].resize(2)
    with pytest.raises(ValueError, match="does not own its data"):
        adarray.array(A, requires_grad=True).resize(2)
    with pytest.raises(ValueError, match="negative dimensions"):
        x.resize(-1)
    with pytest.raises(AttributeError, match=r"write x = x\.reshape"):
        x[:, :2].shape = (-1,)
    with pytest.raises(ValueError, match="cannot reshape"):
        x.shape = (5,)
    with pytest.raises(TypeError, match="Cannot cast"):
        x.astype(int, casting="safe")
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
    assert not hasattr(x, "itemset")
    assert not hasattr(x, "newbyteorder")


def test_astype_without_a_copy_is_the_array_itself():
    x = adarray.array(A)
    assert x.astype(float, copy=False) is x
    assert x.astype(float, "F", copy=False) is not x
    assert x.astype(float) is not x
    assert ADArray[int, np.dtype].__origin__ is ADArray


# NumPy 2.0 still had names that only raise.
PUBLIC = {n for n in dir(np.ndarray) if not n.startswith("_")}
PUBLIC -= {"itemset", "newbyteorder", "ptp", "tostring"}
# Attributes of ndarray that an ADArray has not, and why.
ABSENT = {
    "__array_finalize__": "for subclasses of ndarray",
    "__array_interface__": "NumPy would read the memory of traced arrays by it",
    "__array_struct__": "NumPy would read the memory of traced arrays by it",
    "__array_priority__": "__array_ufunc__ decides",
    "__array_wrap__": "for subclasses of ndarray",
    "__setstate__": "pickled by __reduce__",
    "__buffer__": "of Python 3.12: a copy would take writes and lose them",
}


def test_nothing_of_ndarray_is_missing():
    special = {n for n in dir(np.ndarray) if n.startswith("__")}
    missing = {n for n in PUBLIC | special if not hasattr(ADArray, n)}
    assert missing <= ABSENT.keys()


def test_every_public_method_is_called_here():
    tested = {n.split()[0] for n in (*CALLS, *UNTRACED, *IN_PLACE)}
    tested |= {"partition", "setflags", "setfield", "tofile", "dump", "resize"}
    assert tested >= PUBLIC


def test_traced_arrays_refuse_what_has_no_derivative():
    for refused in (
        lambda x: x.view(np.int64), lambda x: x.byteswap(), lambda x: x.getfield("i4"),
        lambda x: x.setfield(1, "i4"), lambda x: x.ctypes, lambda x: x.data,
    ):  # fmt: skip
        with pytest.raises(TraceError, match="a traced value would leave the graph"):
            adarray.vjp(refused, A)


def test_declared_signatures_are_ndarrays():
    """The stub of the installed methods names every one, with ndarray's arguments."""
    import ast
    import pathlib

    import adarray.arrays.signatures as module

    stub = pathlib.Path(module.__file__).with_suffix(".pyi").read_text()
    (cls,) = (n for n in ast.parse(stub).body if isinstance(n, ast.ClassDef))
    declared = {n.name: n.args for n in cls.body if isinstance(n, ast.FunctionDef)}
    own = {n for c in ADArray.__mro__ for n in vars(c) if c.__module__ != "adarray.arrays.adarray"}
    for name in PUBLIC:
        assert name in declared or name in vars(ADArray) or name in own, name
    for name, arguments in declared.items():
        try:
            signature = inspect.signature(getattr(np.ndarray, name))
        except (TypeError, ValueError, AttributeError):
            continue  # NumPy before 2.4 does not tell
        names = [p.name for p in signature.parameters.values() if p.name not in ("args", "kwargs")]
        args = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        if any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
            args = args[: len(names)]
        if arguments.vararg is None and name != "dot":
            both = [n for n in args if n in names]
            assert both == [n for n in names if n in args], name
            assert set(args) ^ set(names) <= {"descending"}, name  # of NumPy 2.5
