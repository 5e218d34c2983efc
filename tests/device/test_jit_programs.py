"""Random programs under jit on a device: values and gradients as NumPy computes them.

``ADARRAY_LONG=1000`` runs that many, ``ADARRAY_FIRST`` is the seed of the first. Of the calls some
have arrays of the host, and some ADArrays that live on the device.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import device as standin
import numpy as np
import pytest
from device_plans import Compiled, DevicePlanRunner
from differential import SEEDS, as_tuple, eager_gradients, eager_values, rounding, same_bits
from random_programs import seeded

import adarray
from adarray.jitting import JitWarning

LONG = int(os.environ.get("ADARRAY_LONG", "0"))
FIRST = int(os.environ.get("ADARRAY_FIRST", "0"))
GROUPS = 32 if LONG else 10
SHORT = 40


def check(seed: int, backend: str, counts: Counter[str]) -> None:
    """Compare a program and its gradients, jitted on the device, with eager runs of NumPy."""
    program = seeded(seed)
    every = tuple(range(len(program.arguments)))
    for name, eager in (("f", eager_values), ("loss", eager_gradients)):
        f = program.function(name)
        jitted = adarray.jit(f if name == "f" else adarray.value_and_grad(f, argnums=every))
        for call, value in enumerate(SEEDS):
            # In a long run the calls of a program are of one kind, so that it compiles once.
            there = bool(seed % 2) != bool(call % 2 and not LONG)
            args = program.args(value)
            expected = eager(f, args)
            with adarray.use(backend), warnings.catch_warnings():
                warnings.simplefilter("ignore", JitWarning)
                got = jitted(*(map(moved, args) if there else args))
            got = as_tuple(got) if name == "f" else (got[0], *got[1])
            title = f"program {seed}, {name}, call {call} (seed {value})\n{program.source}"
            compare(title, program, name, eager, args, (got, expected), there, counts)
        counts["functions"] += 1
        counts["compiled"] += not jitted.cache_info().eager


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_jitted_programs_agree_with_numpy(group: int, device_backend: str) -> None:
    each = -(-(LONG or SHORT) // GROUPS)
    counts: Counter[str] = Counter()
    for seed in range(FIRST + group * each, FIRST + (group + 1) * each):
        check(seed, device_backend, counts)
    print(dict(counts))
    assert counts["compared"] > counts["functions"] * len(SEEDS) * 0.8
    assert counts["compiled"] > counts["functions"] * 0.7


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_kernels_printed_for_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in with CUDA text that runs on the processor, in place of interpreted kernels."""
    standin.installed(monkeypatch)
    result = iter(range(1000))

    def runner(plan: Any) -> DevicePlanRunner:
        folder = tmp_path / str(next(result))
        folder.mkdir()
        return DevicePlanRunner(plan, Compiled([plan], folder))

    monkeypatch.setattr(standin.StandInEngine, "runner", staticmethod(runner))
    counts: Counter[str] = Counter()
    for seed in (3, 11):
        check(seed, "standin", counts)
    assert next(result) >= 4
    assert counts["compared"] > 20


def moved(x: Any) -> Any:
    """Return an argument as an ADArray on the device, with the strides that it has."""
    if not isinstance(x, np.ndarray):
        return x
    if x.ndim and x.strides[-1] == 2 * x.itemsize:
        return adarray.array(np.repeat(x, 2, axis=-1))[..., ::2]
    return adarray.array(x[::-1].copy())[::-1] if x.ndim and x.strides[0] < 0 else adarray.array(x)


def compare(
    title: str, program: Any, name: str, eager: Any, args: list[Any], results: Any, there: bool,
    counts: Counter[str],
) -> None:  # fmt: skip
    got, expected = results
    assert len(got) == len(expected), title
    if there and any(isinstance(x, np.ndarray) for x in args):
        arrays = [g for g in got if not isinstance(g, float)]
        assert all(isinstance(g, adarray.ADArray) for g in arrays), title
        got = [g.numpy() if isinstance(g, adarray.ADArray) else g for g in got]
    for g, e in zip(got, expected, strict=True):
        assert np.shape(g) == np.shape(e), title
        assert np.asarray(g).dtype == np.asarray(e).dtype, title
        assert there or isinstance(g, (np.ndarray, np.generic, float)), title
    if all(same_bits(g, e) for g, e in zip(got, expected, strict=True)):
        counts["compared"] += 1
        return
    bounds, same_path = rounding(program, name, eager, args, expected)
    if not same_path:
        return  # on a jump: another rounding takes another branch
    counts["compared"] += 1
    for g, e, limit in zip(got, expected, bounds, strict=True):
        apart = np.abs(np.float64(g) - np.float64(e))
        # Devices may take numbers below the smallest normal one for zero.
        limit = limit + np.finfo(np.float32).tiny
        assert np.all(apart <= 4 * limit), f"{title}\n{apart.max()} > {np.max(limit)}"
