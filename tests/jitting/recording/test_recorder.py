"""The recorder: what one run of a function leaves behind, and what it refuses to record."""

from __future__ import annotations

import math

import numpy as np
import pytest

import adarray
from adarray.base.recording import Call, Guard, Symbol, as_number
from adarray.core.inplace import WRITE
from adarray.jitting.recording.record import RecordedRun, record
from adarray.jitting.shared.generators import draw
from adarray.jitting.shared.symbolic import UntraceableError


def run(f, *args) -> RecordedRun:
    """Record `f` with all arguments as inputs."""
    return record(f, list(args), lambda leaves: (tuple(leaves), {}), list(range(len(args))))


def names(recorded: RecordedRun) -> list[str]:
    return [
        e.op.name if isinstance(e, Call) and e.op else e.kind if isinstance(e, Guard) else "?"
        for e in recorded.recording.events
    ]


def guards(recorded: RecordedRun) -> list[Guard]:
    return [e for e in recorded.recording.events if isinstance(e, Guard)]


def test_operations_of_forward_and_backward_are_one_list():
    x = np.linspace(0, 1, 5)
    f = adarray.value_and_grad(lambda x: np.sum(np.sin(x)))
    r = run(f, x)
    assert names(r) == ["sin", "sum", "positive", "broadcast_to", "cos", "multiply"]
    value, gradient = r.leaves
    np.testing.assert_array_equal(gradient, np.cos(x))
    assert value == np.sum(np.sin(x))
    assert type(gradient) is np.ndarray
    assert isinstance(value, np.float64)
    assert [s.shape for s in r.recording.outputs] == [(), (5,)]


def test_places_are_those_of_the_user():
    def f(x):
        return np.exp(x)

    (call,) = run(f, np.ones(2)).recording.events
    file, line = call.where
    assert file == __file__
    assert line == f.__code__.co_firstlineno + 1


@pytest.mark.parametrize(
    ("look", "kind", "outcome"),
    [
        (lambda x: x if x[0] > 0.5 else -x, "bool", True),
        (lambda x: x * int(x[1]), "float", 2.0),
        (lambda x: np.arange(3.0)[np.argmax(x) :], "index", 1),
        (lambda x: x * math.floor(x[0]), "float", 1.0),
    ],
)
def test_looks_are_guards(look, kind, outcome):
    (guard,) = guards(run(look, np.array([1.0, 2.0])))
    assert guard.kind == kind
    assert guard.outcome == outcome


def test_the_same_look_twice_is_one_guard():
    def f(x):
        c = x[0] > 0
        return x if c and c else -x

    assert len(guards(run(f, np.ones(2)))) == 1


def test_functions_of_math_are_followed():
    r = run(lambda x: math.exp(x[0]) * 2.0, np.array([0.5]))
    assert "exp" in names(r)
    (guard,) = guards(r)  # whether Python's function would raise an error
    assert guard.kind == "call"
    assert r.leaves == [math.exp(0.5) * 2.0]


def test_python_numbers_stay_weak():
    r = run(lambda x, a: x * a, np.ones(2, np.float32), 3.0)
    assert r.leaves[0].dtype == np.float32
    assert r.recording.inputs[1].weak
    r = run(lambda x, n: x * (n // 2 + 1), np.ones(2, np.float32), 4)
    assert r.leaves[0].dtype == np.float32
    assert r.leaves[0][0] == 3
    r = run(lambda x: np.ones(2, np.float32) * x[0].item(), np.ones(2))
    assert r.leaves[0].dtype == np.float32
    assert any(isinstance(e, Call) and e.function is as_number for e in r.recording.events)


def test_integer_as_a_length_is_guarded_and_as_an_index_is_not():
    r = run(lambda x, n: np.sum(x[:n]) * np.ones(n), np.arange(4.0), 3)
    assert [g.kind for g in guards(r)] == ["index"]
    r = run(lambda x, n: x[np.minimum(n, 3)] * n, np.arange(4.0), 2)
    assert not guards(r)
    assert r.leaves == [4.0]


CONSTANT = np.array([1.0, 2.0])


def test_plain_arrays_are_captures_with_what_they_held():
    r = run(lambda x: x * CONSTANT + np.sin(CONSTANT), np.ones(2))
    ((symbol, array, content),) = r.recording.captures
    assert array is CONSTANT
    assert content is not CONSTANT
    np.testing.assert_array_equal(content, CONSTANT)
    assert symbol.shape == (2,)
    # What is computed of plain arrays alone is recorded too.
    assert names(r) == ["multiply", "sin", "add"]


def test_a_plain_array_that_changes_meanwhile_is_captured_again():
    def f(x):
        total = 0.0
        for k in range(3):
            BUFFER[:] = k
            total = total + np.sum(x * BUFFER)
        return total

    r = run(f, np.ones(2))
    assert r.leaves == [6.0]
    assert [content[0] for _, _, content in r.recording.captures] == [0.0, 1.0, 2.0]


BUFFER = np.zeros(2)


def test_writes_are_values():
    def f(x):
        y = np.zeros(3)
        y[0] = x[1]
        v = y[1:]
        v[...] = x[:2]
        y *= 2.0
        return y, v

    x = np.array([1.0, 2.0, 3.0])
    r = run(f, x)
    np.testing.assert_array_equal(r.leaves[0], [4.0, 2.0, 4.0])
    np.testing.assert_array_equal(r.leaves[1], [2.0, 4.0])
    assert sum(isinstance(e, Call) and e.op is WRITE for e in r.recording.events) >= 2
    assert not r.recording.writes
    np.testing.assert_array_equal(x, [1.0, 2.0, 3.0])


def test_writes_into_arguments_are_reported():
    def f(x, y):
        x[0] = 5.0
        y += x
        return np.sum(y)

    x, y = np.zeros(2), np.ones(2)
    r = run(f, x, y)
    assert [i for i, _ in r.recording.writes] == [0, 1]
    np.testing.assert_array_equal(r.written[0], [5.0, 0.0])
    np.testing.assert_array_equal(r.written[1], [6.0, 1.0])
    assert x[0] == 0.0  # committing is the caller's business
    assert r.leaves == [7.0]


def test_shapes_that_depend_on_values_are_calls_between_segments():
    r = run(lambda x: np.sum(x[x > 0.5]), np.array([0.0, 1.0, 2.0]))
    (guard,) = guards(r)
    assert guard.kind == "call"
    assert guard.outcome == (((2,), np.dtype(float)),)
    assert guard.call.results[0].shape == (2,)
    assert r.leaves == [3.0]


def test_draws_of_a_generator_are_calls_in_order():
    def f(x, rng):
        return x + rng.normal(size=2) * rng.uniform()

    expected = f(np.ones(2), np.random.default_rng(3))
    r = run(f, np.ones(2), np.random.default_rng(3))
    np.testing.assert_array_equal(r.leaves[0], expected)
    drawn = [g.call for g in guards(r)]
    assert [c.args[1] for c in drawn] == ["normal", "uniform"]
    assert all(c.function is draw for c in drawn)
    assert all(c.args[0] is r.recording.inputs[1] for c in drawn)


def test_derivatives_of_plain_arguments_are_symbols():
    r = run(lambda x: adarray.grad(lambda c: np.sum(c * x))(CONSTANT), np.array([3.0, 4.0]))
    np.testing.assert_array_equal(r.leaves[0], [3.0, 4.0])
    assert isinstance(r.recording.outputs[0], Symbol)


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: adarray.grad(f),
        lambda f: adarray.grad(lambda x: np.sum(adarray.grad(f)(x) ** 2)),
        lambda f: lambda x: adarray.jvp(f, (x,), (np.cos(x),)),
        lambda f: adarray.hessian(f),
        lambda f: lambda x: adarray.vjp(f, x)[1](2.0),
    ],
)
def test_transforms_are_recorded(transform):
    f = transform(lambda x: np.sum(np.where(x > 0, np.sin(x) * x, x) ** 3) + x[1] * x[0])
    x = np.array([0.3, -0.2, 0.9])
    expected = f(x)
    expected = expected if isinstance(expected, tuple) else (expected,)
    r = run(f, x)
    assert all(isinstance(s, Symbol) for s in r.recording.outputs)
    for got, want in zip(r.leaves, expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.frombuffer(np.sin(x).tobytes()),
        lambda x: np.sin(x).tofile("never"),
        lambda x: memoryview(np.sin(x).data),
        lambda x: keep(x),
    ],
)
def test_what_leaves_is_untraceable(f):
    with pytest.raises(UntraceableError, match="jit"):
        run(f, np.ones(2))


GLOBAL = np.zeros(2)


def keep(x):
    GLOBAL[0] = x[0]


@pytest.mark.parametrize("leave", [adarray.value_of, adarray.stop_gradient, lambda x: x.numpy()])
def test_leaving_the_graph_stays_in_the_recording(leave):
    r = run(adarray.grad(lambda x: np.sum(x * leave(np.sin(x)))), np.ones(2))
    np.testing.assert_array_equal(r.leaves[0], np.sin(np.ones(2)))
    assert isinstance(r.recording.outputs[0], Symbol)


def test_caught_errors_are_untraceable():
    def f(a):
        try:
            return np.linalg.cholesky(a)
        except np.linalg.LinAlgError:
            return a

    run(f, np.eye(2))
    with pytest.raises(UntraceableError, match="caught"):
        run(f, -np.eye(2))


def test_errors_pass_through_and_the_mode_is_restored():
    before = adarray.base.runtime.MODE.get()
    with pytest.raises(ZeroDivisionError):
        run(lambda x: 1 / 0, np.ones(2))
    assert adarray.base.runtime.MODE.get() is before


def test_text_shows_values_without_a_guard():
    def f(x):
        print(f"{x} {x[0]:.1f} {x!r}")
        return x

    assert not guards(run(f, np.array([1.5, 2.0])))


def test_accumulation_at_a_tuple_of_indices():
    def f(y, v, rows, columns):
        y = y.copy()
        np.add.at(y, (rows, columns), v)
        return y

    args = np.zeros((3, 3)), np.ones(4), np.array([0, 1, 1, 2]), np.array([0, 2, 2, 1])
    np.testing.assert_array_equal(run(f, *args).leaves[0], f(*args))


def test_numpy_scalars_of_traced_values():
    r = run(lambda x: x * np.float32(x[0]), np.array([0.5, 3.0]))
    assert not guards(r)
    np.testing.assert_array_equal(r.leaves[0], [0.25, 1.5])
