"""Running a program eagerly and under jit, and comparing what comes out.

For tests of `jit`.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from noise import ULP, noise
from programs import RandomProgram, as_tuple

import adarray
from adarray.jitting import JitWarning
from adarray.testing._compare import ulp_errors
from adarray.testing._ops import use_all_sizes

# Compilers take their time: without ADARRAY_LONG some tests run on some backends only.
LONG = bool(os.environ.get("ADARRAY_LONG"))
# Noisy runs that a bound is taken from, and how much further than they a result may be: the
# largest of a few draws is somewhat below what is possible. What is further off is judged once
# more, by the largest of many.
RUNS, MANY, SAFETY = 6, 48, 4.0
# Seeds of the arguments of the calls of a jitted function: each path is recorded twice before
# it is compiled; the values after that are new, or take other branches.
SEEDS = (0, 1, 0, 1, 2, 0, 1)


def skip_unless_long(wanted: bool) -> None:
    """Skip a test in short runs, but for the backends that are wanted there."""
    if not (wanted or LONG):
        pytest.skip("set ADARRAY_LONG to run it on this backend")


def eager_values(f: Callable[..., Any], args: list[Any]) -> tuple[Any, ...]:
    """Return the results of `f` on traced arguments, so that operations run one by one."""
    return as_tuple(adarray.vjp(f, *args)[0])


def eager_gradients(f: Callable[..., Any], args: list[Any]) -> tuple[Any, ...]:
    """Return the value and the gradients of `f`."""
    value, gradients = adarray.value_and_grad(f, argnums=tuple(range(len(args))))(*args)
    return (value, *gradients)


class Runner:
    """Compares the runs of programs on one backend, and counts how they agreed.

    Parameters
    ----------
    backend : str
    """

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()  # why functions were not compiled
        self.worst = 0.0  # of what the bound allows

    def context(self) -> Any:
        """Return the context in which everything is computed."""
        return use_all_sizes(self.backend)

    def check(self, program: RandomProgram, seeds: tuple[int, ...] = SEEDS) -> None:
        """Compare values and gradients in calls with arguments of these seeds."""
        with self.context(), warnings.catch_warnings():
            warnings.simplefilter("ignore", JitWarning)
            f = program.function()
            self._compare(program, "f", eager_values, f, adarray.jit(f), program.exact, seeds)
            loss = program.function("loss")
            every = tuple(range(len(program.arguments)))
            jitted = adarray.jit(adarray.value_and_grad(loss, argnums=every))
            sure = (False,) * (1 + len(every))
            self._compare(program, "loss", eager_gradients, loss, jitted, sure, seeds)
        self.counts["programs"] += 1

    def _compare(
        self,
        program: RandomProgram,
        name: str,
        eager: Callable[[Callable[..., Any], list[Any]], tuple[Any, ...]],
        f: Callable[..., Any],
        jitted: Callable[..., Any],
        sure: tuple[bool, ...],
        seeds: tuple[int, ...],
    ) -> None:
        for k, seed in enumerate(seeds):
            args = program.args(seed)
            expected = eager(f, args)
            got = jitted(*args)
            got = as_tuple(got) if eager is eager_values else (got[0], *got[1])
            title = f"{name}, {self.backend}, call {k} (seed {seed})"
            plain = program.args(seed)
            with np.errstate(all="ignore"):
                results = as_tuple(f(*plain)) if eager is eager_values else ()
            check_kinds(got, expected, args, title, (*plain, *results))
            for x, y in zip(args, program.args(seed), strict=True):
                assert np.array_equal(x, y), f"{title}: an argument was written to"
            self.counts["results"] += len(got)
            apart = [not same_bits(g, e) for g, e in zip(got, expected, strict=True)]
            if not any(apart):
                self.counts["equal"] += len(got)
                continue
            self.counts["equal"] += len(got) - sum(apart)
            sure = sure if self._rounds_one_way(program, f, jitted, args) else (False,) * len(got)
            self._judge(program, name, eager, args, (got, expected, sure), title)
        self.counts["functions"] += 1
        if reasons := self._eager(jitted):
            self.counts["not compiled"] += 1
            self.reasons.update(reasons)

    @staticmethod
    def _eager(jitted: Any) -> set[str]:
        """Return why calls of a jitted function run eagerly, or step by step."""
        entries = getattr(jitted, "entries", ())
        return {e.eager for e in entries if e.eager}

    def _rounds_one_way(
        self, program: RandomProgram, f: Callable[..., Any], jitted: Any, args: list[Any]
    ) -> bool:
        """Whether the same functions compute eagerly and compiled."""
        constants = [x for x in f.__globals__.values() if isinstance(x, np.ndarray)]
        dtypes = {x.dtype for x in (*args, *constants) if getattr(x, "dtype", _INT).kind == "f"}
        # NumPy's own functions computed what is not compiled, and operands of two dtypes. Its
        # sort leaves zeros of both signs in an order that depends on the layout.
        return (
            self.backend != "numpy"
            and not self._eager(jitted)
            and len(dtypes) == 1
            and "np.sort(" not in program.source
        )

    def _judge(
        self,
        program: RandomProgram,
        name: str,
        eager: Callable[[Callable[..., Any], list[Any]], tuple[Any, ...]],
        args: list[Any],
        results: tuple[tuple[Any, ...], tuple[Any, ...], tuple[bool, ...]],
        title: str,
    ) -> None:
        """Check results that are not equal: against what rounding explains."""
        got, expected, sure = results
        for runs in (RUNS, MANY):
            bounds, same_path = rounding(program, name, eager, args, expected, runs)
            if not same_path:
                self.counts["at a guard's margin"] += 1
                return
            shares = [
                0.0 if same_bits(g, e) else _share(g, e, limit)
                for g, e, limit in zip(got, expected, bounds, strict=True)
            ]
            if all(share <= 1 for share in shares):
                break
        for k, (g, e, share) in enumerate(zip(got, expected, shares, strict=True)):
            if sure[k] and not same_bits(g, e):
                raise AssertionError(
                    f"{title}: result {k} is made of functions that round one way, and has other "
                    f"bits than the eager kernels give:\ngot {g!r}\nexpected {e!r}\n{program!r}"
                )
            if not share <= 1:
                raise AssertionError(
                    f"{title}: result {k} is {share:.3g} times further off than rounding explains:"
                    f"\ngot {g!r}\nexpected {e!r}\nulp {ulp_errors(np.asarray(g), np.asarray(e))!r}"
                    f"\n{program!r}"
                )
            self.worst = max(self.worst, share)


_INT = np.dtype(int)


def _share(got: Any, expected: Any, limit: Any) -> float:
    """Return how much of a bound the difference of two results takes; NaN if they are not alike."""
    with np.errstate(all="ignore"):
        return float(np.max(np.abs(np.float64(got) - np.float64(expected)) / limit))


def same_bits(a: Any, b: Any) -> bool:
    """Whether all elements are equal, NaN with NaN, and zeros have equal signs."""
    a, b = np.asarray(a), np.asarray(b)
    return bool(np.all(((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))))


def check_kinds(
    got: tuple[Any, ...],
    expected: tuple[Any, ...],
    args: list[Any],
    title: str,
    plain: tuple[Any, ...],
) -> None:
    """Check types, dtypes and shapes, and that no memory is shared but where NumPy shares it.

    `plain` holds the arguments and results of a plain run, which may be no results: of a
    transform, whose results are its own.
    """
    assert len(got) == len(expected), f"{title}: {len(got)} results, expected {len(expected)}"
    for k, (g, e) in enumerate(zip(got, expected, strict=True)):
        # A NumPy scalar or an array without axes: NumPy's functions give the one or the other.
        assert _kind(g) is _kind(e), f"{title}: result {k} is a {type(g)}, expected a {type(e)}"
        if not isinstance(e, (np.ndarray, np.generic)):
            continue
        assert g.dtype == e.dtype, f"{title}: result {k} is {g.dtype}, expected {e.dtype}"
        assert g.shape == e.shape, f"{title}: result {k} has {g.shape}, expected {e.shape}"
        if isinstance(g, np.ndarray):
            assert g.flags.writeable, f"{title}: result {k} is read-only"
            for i, other in enumerate((*args, *got[:k])):
                last = len(args) + k
                shared = last < len(plain) and np.may_share_memory(plain[last], plain[i])
                assert np.may_share_memory(g, other) <= shared, f"{title}: result {k} shares memory"


def _kind(x: Any) -> type:
    return np.ndarray if isinstance(x, np.generic) else type(x)


def rounding(
    program: RandomProgram,
    name: str,
    eager: Callable[[Callable[..., Any], list[Any]], tuple[Any, ...]],
    args: list[Any],
    expected: tuple[Any, ...],
    runs: int = RUNS,
) -> tuple[list[Any], bool]:
    """Return how far off each element may be, and whether noise leaves the path as it is."""
    f, seen = program.watched(name)
    eager(f, args)
    path = list(seen)
    spread = [np.zeros(np.shape(e)) for e in expected]
    for k in range(2 * runs):
        seen.clear()
        # Runs with much noise look only for guards that might see something else.
        ulps = ULP if k < runs else 16 * ULP
        with noise(k, ulps):
            moved = eager(f, args)
        if seen != path or any(
            np.shape(m) != np.shape(e) for m, e in zip(moved, expected, strict=True)
        ):
            return [], False
        if k < runs:
            spread = [
                np.maximum(s, np.abs(np.float64(m) - np.float64(e)))
                for s, m, e in zip(spread, moved, expected, strict=True)
            ]
    bounds = []
    for s, e in zip(spread, expected, strict=True):
        e = np.asarray(e)
        bounds.append(SAFETY * s + ULP * np.spacing(np.abs(e)).astype(np.float64))
    return bounds, True


@contextlib.contextmanager
def counted(runner: Runner) -> Iterator[Runner]:
    """Show the counts when the block ends."""
    try:
        yield runner
    finally:
        print(f"{runner.backend}: {dict(runner.counts)}, worst share of a bound {runner.worst:.2g}")
        for reason, n in runner.reasons.most_common():
            print(f"  not compiled: {n} times since {reason}")
