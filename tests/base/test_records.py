"""The operation record: fields are described, set and read, and nothing is keyed by names."""

import ast
import functools
import inspect
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import adarray
from adarray.base.op import ALIKE, DYNAMIC, METADATA, OPS, WRITERS, Layout, Op, all_ops
from adarray.core.inplace import WRITE

pytest.importorskip("scipy")  # whose records are looked at, too
import adarray.scipy.special

FIELDS = [f for f in Op.__slots__ if not f.startswith("_")]
OPTIONAL = {
    name: p.default
    for name, p in inspect.signature(Op.__init__).parameters.items()
    if p.kind is p.KEYWORD_ONLY
}
ROOT = Path(__file__).parents[2]

# Where kernels and lowerings are found by the names of records.
BY_DESIGN = ("adarray/compiler/", "backends/")
# Other files that look at names of records, and why that is no property of the operation.
BY_NAME = {
    "adarray/ad/dropped.py": "whether a record is registered",
    "adarray/ad/series.py": "Taylor recurrences: one transform's rules, in one module",
    "adarray/base/op.py": "the registry",
    "adarray/base/probe.py": "a memory of what refused complex samples",
    "adarray/core/dispatch.py": "what watches operations says which",
    "adarray/evaluation.py": "prints code",
    "adarray/jitting/tree/recompute.py": "the scalar functions of the compiler have these names",
    "adarray/ops/sliding.py": "undoes its own records",
    "adarray/scipy/_ode_smooth.py": "what one solver trusts to have no kinks",
    "adarray/sparsity/calls.py": "a conjugate has the dependence of its operand",
    "adarray/testing/_ops.py": "tolerances of comparisons",
}


@functools.cache
def sources():
    paths = [p for d in ("adarray", "backends", "docs") for p in (ROOT / d).rglob("*.py")]
    return {p.relative_to(ROOT).as_posix(): ast.parse(p.read_text()) for p in paths}


def is_record(node):
    """Whether an expression is called as records are: ``op``, ``record``, ``node.op``."""
    if isinstance(node, ast.Name):
        return node.id in ("op", "record")
    return isinstance(node, ast.Attribute) and node.attr == "op"


def reads(tree, is_own):
    """Yield the attributes of records that code reads; of `self`, too, in the class itself."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)):
            continue
        own = is_own and isinstance(node.value, ast.Name) and node.value.id == "self"
        if own or is_record(node.value):
            yield node.attr


@functools.cache
def fields_read():
    return {
        attr
        for path, tree in sources().items()
        for attr in reads(tree, path == "adarray/base/op.py")
    }


@pytest.mark.parametrize("field", FIELDS)
def test_fields_are_described(field):
    assert re.search(rf"^    {field} : ", Op.__doc__, re.MULTILINE), f"describe {field} in Op"


def test_nothing_is_described_that_is_not_there():
    described = set(re.findall(r"^    (\w+) : ", Op.__doc__, re.MULTILINE))
    assert described == set(FIELDS)


@pytest.mark.parametrize("field", FIELDS)
def test_fields_are_read(field):
    assert field in fields_read(), f"nothing reads Op.{field}: remove it"


@pytest.mark.parametrize("field", OPTIONAL)
def test_fields_are_set(field):
    records = [*all_ops(), WRITE, *adarray.scipy.RECORDS.values()]
    assert any(getattr(op, field) != OPTIONAL[field] for op in records), f"no record has {field}"


@pytest.mark.parametrize("field", Layout._fields)
def test_fields_of_layouts_are_described_set_and_read(field):
    assert re.search(rf"^    {field} : ", Layout.__doc__, re.MULTILINE)
    default = Layout._field_defaults[field]
    assert any(
        isinstance(op.lower, Layout) and getattr(op.lower, field) != default for op in all_ops()
    )
    assert any(
        isinstance(n, ast.Attribute)
        and n.attr == field
        and isinstance(n.value, ast.Attribute)
        and n.value.attr == "lower"
        for tree in sources().values()
        for n in ast.walk(tree)
    )


def test_what_operations_do_is_not_keyed_by_their_names():
    files = set()
    for path, tree in sources().items():
        if path.startswith(BY_DESIGN):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
            elif isinstance(node, ast.Subscript):
                sides = [node.slice]
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "get":
                sides = node.args
            else:
                continue
            if any(
                isinstance(s, ast.Attribute) and s.attr == "name" and is_record(s.value)
                for s in sides
            ):
                files.add(path)
    assert files <= BY_NAME.keys(), "put it on the record, or beside it in the same file"
    assert files == BY_NAME.keys(), "take what is no more out of the list"


# -- what is registered beside records -------------------------------------------------------------


def test_dynamic_records_are_found_by_their_functions():
    for op in all_ops():
        if op.dynamic is not None:
            assert DYNAMIC[op.numpy] is op.dynamic


@pytest.mark.parametrize("function", [f for f in DYNAMIC if isinstance(f, type(np.unique))])
def test_dynamic_says_which_arguments_decide(function):
    a, b = object(), object()
    assert DYNAMIC[function]((a, b), {"axis": 0}) in (
        ((a, b), {"axis": 0}),
        ((b,), {"axis": 0}),
        (),
    )


def test_dynamic_shape_of_items_depends_on_masks_alone():
    decides = OPS["getitem"].dynamic
    mask, x = np.array([True, False]), np.ones(2)
    assert decides((x,), {"index": (slice(None), np.array([0, 1]), 1)}) == []
    (actual,) = decides((x,), {"index": (Ellipsis, mask)})
    assert actual is mask


def test_where_is_dynamic_with_a_condition_alone():
    decides = DYNAMIC[np.where]
    assert decides((1, 2, 3), {}) == ()
    assert decides((1,), {}) == (1,)


@pytest.mark.parametrize("function", sorted(METADATA, key=lambda f: f.__name__))
def test_metadata_does_not_depend_on_values(function):
    """What answers the same for other values of the same shape and dtype."""
    a, b = np.ones((2, 3)), np.full((2, 3), 1e300)
    if function is np.broadcast_shapes:
        pytest.skip("takes no arrays")
    if function is np.can_cast:
        assert function(a.dtype, np.float32) == function(b.dtype, np.float32)
    elif function in (np.may_share_memory, np.shares_memory):
        assert not function(a, b)
    else:
        assert function(a) == function(b)
        assert function(a[0, 0]) == function(b[0, 0])


@pytest.mark.parametrize("function", sorted(ALIKE, key=lambda f: f.__name__))
def test_alike_has_shape_and_dtype_of_its_argument(function):
    x = np.ones((2, 3), np.float32)
    result = function(x, 1) if function is np.full_like else function(x)
    assert (result.shape, result.dtype) == (x.shape, x.dtype)


def test_writers_write():
    x = np.zeros(3)
    calls = {
        np.copyto: (1.0,), np.put: ([0], 1.0), np.place: (np.ones(3, bool), [1.0]),
        np.putmask: (np.ones(3, bool), 1.0), np.put_along_axis: (np.array([0]), 1.0, 0),
    }  # fmt: skip
    assert WRITERS - calls.keys() == {np.fill_diagonal}
    for function, args in calls.items():
        target = x.copy()
        assert function(target, *args) is None
        assert target.any()


# Parameters with which a result of an operand without axes has none.
NO_AXES = {
    "reshape": {"shape": ()}, "broadcast_to": {"shape": ()}, "astype": {"dtype": np.float32},
    "getitem": {"index": Ellipsis}, "view": {"dtype": float}, "roll": {"shift": 1},
    "moveaxis": {"source": (), "destination": ()},
}  # fmt: skip


@pytest.mark.parametrize("x", [np.array(2.0), np.float64(2.0)], ids=["array", "scalar"])
@pytest.mark.parametrize("op", [op for op in all_ops() if op.arity == 1 and not op.variadic])
def test_zero_d_says_what_numpy_returns(op, x):
    params = NO_AXES.get(op.name, {})
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = op.evaluate(x, **params)
    except (TypeError, ValueError, IndexError, np.linalg.LinAlgError):
        assert op.zero_d is None  # it takes no operand without axes, or has other parameters
        return
    if op.outputs > 1 or np.ndim(result):
        assert op.zero_d is None
    elif op.name == "copy" and isinstance(x, np.generic):
        assert not op.zero_d(False, params)  # as the method, which is the same record
    else:
        is_array = isinstance(x, np.ndarray)
        says = op.zero_d is not None and op.zero_d(is_array, params)
        assert says is isinstance(result, np.ndarray)


def test_members_without_axes_are_arrays_where_numpy_gives_arrays():
    kinds = []

    def f(x):
        kinds.append(
            [v._plain.scalar for v in (np.transpose(x[...]), np.roll(x, 1), np.transpose(x))]
        )
        return x

    adarray.vmap(f)(np.ones(3))
    assert kinds == [[False, False, True]]


def test_the_smallest_type_of_a_number_is_asked_for_each_time():
    def f(x):
        return np.min_scalar_type(x[0]).itemsize * x

    rows = [np.array([v, 2.0]) for v in (1.0, 2.0, 3.0, 1e300)]
    jf = adarray.jit(f)
    for x in rows:
        np.testing.assert_array_equal(jf(x), f(x))
    np.testing.assert_array_equal(adarray.vmap(f)(np.array(rows)), [f(x) for x in rows])
    assert np.min_scalar_type(adarray.array(np.ones(3))) == np.float64
    assert np.min_scalar_type(adarray.array(7)) == np.uint8
