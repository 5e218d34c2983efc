"""No stale constants: globals, closures, defaults and containers of a jitted function."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from captured import X, agree, compiled

import adarray

# What the functions below read, and what the tests change.
weights = np.arange(4.0)
scale = 2.0
count = 3
mode = "plain"
table: dict[str, Any] = {"w": np.ones(4), "k": 2.0}
layers: list[Any] = [np.ones(4), np.full(4, 2.0)]
pair: tuple[Any, ...] = (np.ones(4), 3.0)


def start() -> dict[str, Any]:
    """Return what the globals hold before each test."""
    return {
        "weights": np.arange(4.0),
        "scale": 2.0,
        "count": 3,
        "mode": "plain",
        "table": {"w": np.ones(4), "k": 2.0},
        "layers": [np.ones(4), np.full(4, 2.0)],
        "pair": (np.ones(4), 3.0),
    }


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend, and put back what it changed."""
    globals().update(start())
    with adarray.use(backend):
        yield
    globals().update(start())


# -- globals -----------------------------------------------------------------------------


def reads_weights(x: Any) -> Any:
    return x * weights + np.sum(weights)


def helper(x: Any) -> Any:
    return x * scale + weights


def calls_helper(x: Any) -> Any:
    return helper(x) * 2.0


def test_a_global_array_changed_in_place() -> None:
    jf = compiled(reads_weights, X)
    weights[2] = 100.0
    agree(jf, reads_weights, X)
    weights[:] = -1.0
    agree(jf, reads_weights, X)
    assert jf.cache_info().traces == 1  # an input: nothing is recorded again


def test_a_global_array_replaced() -> None:
    global weights
    jf = compiled(reads_weights, X)
    weights = np.full(4, 7.0)
    agree(jf, reads_weights, X)
    assert jf.cache_info().traces == 1
    weights = np.full(4, 7, dtype=np.float32)  # of another signature
    agree(jf, reads_weights, X)
    assert jf(X).dtype == np.float64
    weights = np.ones((3, 4))
    agree(jf, reads_weights, X)
    assert jf(X).shape == (3, 4)
    weights = np.ones((4, 6))[:, ::2].T
    agree(jf, reads_weights, X)


def test_a_global_array_reshaped_in_place() -> None:
    global weights
    weights = np.arange(8.0).reshape(2, 4)
    jf = compiled(reads_weights, X)
    weights.shape = (1, 8)
    weights = weights[:, :4]
    agree(jf, reads_weights, X)


def test_a_global_number_changes_and_becomes_an_input() -> None:
    global scale
    jf = compiled(calls_helper, X)
    for scale in (3.0, 4.0, 5.0, 6.0, 7.0, 8.0):  # noqa: B007  (a global)
        agree(jf, calls_helper, X)
    assert jf.cache_info().traces == 2
    scale = 2.0
    agree(jf, calls_helper, X)


def test_a_global_number_that_python_looks_at() -> None:
    global scale

    def f(x: Any) -> Any:
        return x if scale > 4.0 else -x

    jf = compiled(f, X)
    for scale in (3.0, 5.0, 3.5, 6.0, 2.0, 9.0, 1.0):  # noqa: B007
        agree(jf, f, X)


def test_a_global_number_changes_type() -> None:
    global scale
    jf = compiled(calls_helper, X.astype(np.float32))
    scale = np.float64(2.0)  # no longer weak
    agree(jf, calls_helper, X.astype(np.float32))
    scale = 2
    agree(jf, calls_helper, X.astype(np.float32))


def test_a_global_int_used_as_a_length() -> None:
    global count

    def f(x: Any) -> Any:
        for _ in range(count):
            x = x * 1.5
        return x

    jf = compiled(f, X)
    for count in (5, 2, 5, 7, 1, 9):  # noqa: B007
        agree(jf, f, X)


def test_global_text_chooses() -> None:
    global mode

    def f(x: Any) -> Any:
        return np.sin(x) if mode == "plain" else np.cos(x)

    jf = compiled(f, X)
    mode = "other"
    agree(jf, f, X)
    agree(jf, f, X)
    agree(jf, f, X)
    mode = "plain"
    agree(jf, f, X)
    assert jf.cache_info().traces == 2


def test_a_helper_replaced() -> None:
    global helper
    jf = compiled(calls_helper, X)
    before = helper
    try:
        helper = np.negative
        agree(jf, calls_helper, X)
        helper = before
        agree(jf, calls_helper, X)
    finally:
        helper = before


def test_what_a_helper_reads_is_seen() -> None:
    global weights
    jf = compiled(calls_helper, X)
    weights = weights + 1.0
    agree(jf, calls_helper, X)


# -- closures and defaults ---------------------------------------------------------------


def test_closure_cells() -> None:
    w, k = np.ones(4), 2.0

    def f(x: Any) -> Any:
        return x * w + k

    jf = compiled(f, X)
    w[1] = 5.0
    agree(jf, f, X)
    w = np.full(4, 3.0)
    agree(jf, f, X)
    for k in (4.0, 5.0, 6.0, 7.0):  # noqa: B007  (in the closure)
        agree(jf, f, X)
    assert jf.cache_info().traces == 2


def test_a_function_in_a_closure() -> None:
    def make(w: Any) -> Any:
        return lambda x: x * w

    inner = make(np.ones(4))

    def f(x: Any) -> Any:
        return inner(x)

    jf = compiled(f, X)
    inner = make(np.full(4, 9.0))
    agree(jf, f, X)


def test_defaults() -> None:
    def f(x: Any, w: Any = np.ones(4), *, k: float = 2.0) -> Any:  # noqa: B008
        return x * w + k

    jf = compiled(f, X)
    f.__defaults__[0][2] = 8.0  # type: ignore[index]
    agree(jf, f, X)
    f.__defaults__ = (np.full(4, 4.0),)
    agree(jf, f, X)
    f.__kwdefaults__["k"] = 11.0
    agree(jf, f, X)


def test_partials() -> None:
    w = np.ones(4)
    f = functools.partial(lambda a, x, b=1.0: a * x + b, w, b=2.0)
    jf = compiled(f, X)
    w[0] = 12.0
    agree(jf, f, X)
    f.keywords["b"] = 7.0
    agree(jf, f, X)


# -- containers --------------------------------------------------------------------------


def test_dict_entries() -> None:
    def f(x: Any) -> Any:
        return x * table["w"] * table["k"]

    jf = compiled(f, X)
    table["w"][3] = 6.0
    agree(jf, f, X)
    table["w"] = np.full(4, 2.5)
    agree(jf, f, X)
    table["k"] = 10.0
    agree(jf, f, X)
    table["new"] = 1
    agree(jf, f, X)


def test_a_dict_replaced_as_by_an_optimiser() -> None:
    global table

    def f(x: Any) -> Any:
        return x * table["w"]

    jf = compiled(f, X)
    for i in range(5):
        table = {"w": table["w"] * (0.5 + i), "k": 2.0}
        agree(jf, f, X)
    assert jf.cache_info().traces == 1


def test_lists_and_tuples() -> None:
    global pair

    def f(x: Any) -> Any:
        for w in layers:
            x = np.tanh(x * w)
        return x + pair[0] * pair[1]

    jf = compiled(f, X)
    layers[0] = layers[0] * 2.0
    agree(jf, f, X)
    layers.append(np.full(4, 0.1))
    agree(jf, f, X)
    del layers[0]
    agree(jf, f, X)
    pair = (np.zeros(4), 3.0)
    agree(jf, f, X)
    pair = (np.ones(4), 4.0)
    agree(jf, f, X)


def test_a_function_found_in_a_table() -> None:
    choices = {"a": np.sin, "b": np.cos}
    key = "a"

    def f(x: Any) -> Any:
        return choices[key](x)

    jf = compiled(f, X)
    key = "b"
    agree(jf, f, X)
    choices["b"] = np.exp
    agree(jf, f, X)


def test_a_module_imported_inside_of_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("settings_of_the_user")
    module.w, module.k = np.ones(4), 2.0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "settings_of_the_user", module)

    def f(x: Any) -> Any:
        import settings_of_the_user  # type: ignore[import-not-found]

        return x * settings_of_the_user.w * settings_of_the_user.k

    jf = compiled(f, X)
    module.w[1] = 5.0  # type: ignore[attr-defined]
    agree(jf, f, X)
    module.w = np.full(4, 6.0)  # type: ignore[attr-defined]
    agree(jf, f, X)
    module.k = 7.0  # type: ignore[attr-defined]
    agree(jf, f, X)


def test_arrays_that_no_name_leads_to_are_compared() -> None:
    def f(x: Any) -> Any:
        return x * globals()["wei" + "ghts"]

    jf = compiled(f, X)
    weights[1] = 50.0
    agree(jf, f, X)
    weights[:] = 2.0
    agree(jf, f, X)
