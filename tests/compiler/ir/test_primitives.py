"""Every primitive is known to all that handle primitives; equality goes by types and bits."""

from __future__ import annotations

import numpy as np
import pytest

from adarray.compiler.fusion.fuse import Fusion, is_step
from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.interpret_values import may_alias
from adarray.compiler.ir.primitives import (
    PRIMITIVES,
    SMALL_ARRAY,
    CallResult,
    Concatenate,
    Constant,
    ConstantArray,
    Epilogue,
    GatherND,
    Iota,
    Map,
    Matmul,
    PrefixScan,
    ProgramInput,
    PythonCall,
    Reduce,
    ScatterND,
    Slot,
    UpdateSlice,
    View,
    map_of,
    mnemonic,
)
from adarray.compiler.ir.program import Program, text
from adarray.compiler.ir.verify_program import verify_program
from adarray.compiler.planning.planner import plan
from adarray.compiler.rewrite import optimise
from adarray.compiler.rewrite.rebuild import again, rebuild

F = np.dtype(np.float64)
X = np.arange(6.0).reshape(2, 3)
AT = np.array([1, 0])


def examples():
    """Return a program that has a value of every primitive among its results."""
    b = Builder()
    x, y = b.input(0, (2, 3), F), b.input(1, (3, 2), F)
    at, table = b.array(AT[::-1].copy() * 5), b.array(np.array([0.5, 0.25, 2.0]))
    parts = PythonCall(np.divmod, (Slot(0), 2.0), {}, results=(((2, 3), F), ((2, 3), F)))
    several = b.make(parts, (x,), (2, 3), F)
    primitives = [
        b.map("sin", x), b.const(2.5, F), table, at, b.iota((4,), 0), b.transpose(x, (1, 0)),
        b.reduce("add", x, (1,)), b.scan("add", x, 1), b.matmul(x, y),
        b.update_slice(x, b.full((1, 2), 7.0, F), (1, 0), (1, 2)),
        b.concatenate([x, x], 0), b.gather(x, [b.array(AT)], (0,), 0),
        b.scatter(x, b.full((2, 3), 1.0, F), [b.array(AT)], (0,), 0, add=True),
        b.make(CallResult(1), (several,), (2, 3), F),
    ]  # fmt: skip
    return b.program([x, *primitives])


def expected():
    added = X.copy()
    added[1, ::2] = 7.0
    return [
        X, np.sin(X), np.float64(2.5), [0.5, 0.25, 2.0], [0, 5], np.arange(4), X.T, X.sum(1),
        X.cumsum(1), X @ X.T, added, np.concatenate([X, X]), X[AT], X + 1.0, np.mod(X, 2.0),
    ]  # fmt: skip


def arrays():
    return [X, X.T.copy()]


def test_there_is_an_example_of_each():
    assert {type(v.primitive) for v in examples().values} == set(PRIMITIVES)
    assert len({mnemonic(v.primitive) for v in examples().values}) == len(PRIMITIVES)


def test_each_is_verified_interpreted_and_planned():
    program = examples()
    verify_program(program)
    for got, wanted in zip(interpret(program, arrays()), expected(), strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert len(plan(optimise(program, check=True)).outputs) == len(program.outputs)


def test_each_is_made_again_equal_to_itself():
    program = examples()
    result = rebuild(program, again)
    verify_program(result)
    for one, other in zip(program.outputs, result.outputs, strict=True):
        assert one.primitive == other.primitive
        assert hash(one.primitive) == hash(other.primitive)
    for got, wanted in zip(interpret(result, arrays()), expected(), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_each_has_a_line_of_text():
    program = examples()
    lines = text(program).split("\n")
    for v, line in zip(program.values, lines, strict=False):
        assert line.split(" = ")[1].split()[0] == mnemonic(v.primitive)
    assert "reduce add axes=(1,) v0" in text(program)
    assert "python_call divmod args=($0, 2.0)" in text(program)


def test_each_has_a_place_in_fusion():
    program = examples()
    fusion = Fusion(program)
    for v in program.values:
        assert isinstance(is_step(v, fusion.uses, 64), bool)
        assert isinstance(may_alias(v), bool)
        assert len(fusion.uses.uses(v)) <= len(v.args)


# -- equality ----------------------------------------------------------------------------------

ONE = np.float64(1.0)
DIFFERENT = [
    Constant(np.float64(0.0)), Constant(np.float64(-0.0)), Constant(np.float32(0.0)),
    Constant(np.int64(0)), Constant(np.bool_(False)), Constant(np.float64(np.nan)),
    Constant(np.array(0x7FF8000000000001).view(np.float64)[()]),
    ConstantArray(np.zeros(1)), ConstantArray(np.zeros(1), table=True),
    ConstantArray(np.zeros(1, np.float32)), ConstantArray(np.zeros((1, 1))),
    ConstantArray(np.array([-0.0])),
    Iota(0), Iota(1), CallResult(0), CallResult(1), Concatenate(0), Concatenate(1),
    Map("sin"), Map("cos"), View(0, (1,)), View(1, (1,)), View(0, (1, 1)),
    ProgramInput(0, (1,)), ProgramInput(0, (2,)), ProgramInput(1, (1,)),
    Reduce("add", (0,)), Reduce("maximum", (0,)), Reduce("add", (0, 1)),
    PrefixScan("add", 0), PrefixScan("multiply", 0), PrefixScan("add", 1),
    UpdateSlice((0,), (1,), True), UpdateSlice((0,), (1,), False), UpdateSlice((0,), (2,), True),
    GatherND((0,), 0), GatherND((1,), 0), GatherND((0,), 1),
    ScatterND((0,), 0, True), ScatterND((0,), 0, False),
    Matmul(), Matmul(Epilogue(1.0)), Matmul(Epilogue(2.0)), Matmul(Epilogue(1.0, row=True)),
    PythonCall(np.roll, (Slot(0), 1), {}), PythonCall(np.roll, (Slot(0), 1.0), {}),
    PythonCall(np.roll, (Slot(0), True), {}), PythonCall(np.roll, ((Slot(0), 1),), {}),
    PythonCall(np.roll, ([Slot(0), 1],), {}), PythonCall(np.roll, (Slot(0),), {"shift": 1}),
    PythonCall(np.sort, (Slot(0), 1), {}), PythonCall(np.roll, (Slot(0), ONE), {}),
    PythonCall(np.roll, (Slot(0), np.zeros(2)), {}),
    PythonCall(np.roll, (Slot(0), slice(0, 1)), {}),
    PythonCall(np.roll, (Slot(0), slice(0, True)), {}),
    PythonCall(np.roll, (Slot(0), 1), {}, results=(((2,), F),)),
]  # fmt: skip


def copied(primitive):
    """Return an equal primitive with parameters of its own."""
    fields = {name: getattr(primitive, name) for name in type(primitive).__dataclass_fields__}
    if isinstance(primitive, ConstantArray):
        fields["value"] = primitive.value.copy()
    return type(primitive)(**fields)


def test_different_primitives_are_not_equal():
    assert {type(p) for p in DIFFERENT} == set(PRIMITIVES)
    assert len(set(DIFFERENT)) == len(DIFFERENT)
    for i, p in enumerate(DIFFERENT):
        assert [k for k, q in enumerate(DIFFERENT) if p == q] == [i]


@pytest.mark.parametrize(
    "p", DIFFERENT, ids=[f"{i} {type(p).__name__}" for i, p in enumerate(DIFFERENT)]
)
def test_equal_primitives_have_equal_hashes(p):
    q = copied(p)
    assert q is not p
    assert q == p
    assert hash(q) == hash(p)


def test_nan_is_equal_to_itself_by_its_bits():
    assert Constant(np.float64("nan")) == Constant(np.float64("nan"))
    assert Constant(np.float64(1.0)) != 1.0


def test_large_arrays_are_compared_by_identity():
    x = np.zeros(SMALL_ARRAY // 8 + 1)
    assert ConstantArray(x) == ConstantArray(x)
    assert ConstantArray(x) != ConstantArray(x.copy())


def test_arguments_without_a_hash_raise():
    with pytest.raises(TypeError, match="set has no hash"):
        hash(PythonCall(np.sort, (Slot(0), {1}), {}))


def test_primitives_are_frozen():
    with pytest.raises(AttributeError):
        Map("sin").name = "cos"
    assert map_of("sin") is map_of("sin") == Map("sin")


def test_values_are_keys_by_identity():
    program = examples()
    assert len(set(program.values)) == len(program.values)
    v = program.values[-1]
    assert v.with_args(v.args) != v
    assert Program([], [v], [v]).values == [v]
