"""Every operation record, computed on a device."""

from __future__ import annotations

import numpy as np
import pytest
from records import CORE, part_on_a_stand_in

import adarray
from adarray.base.op import OPS
from adarray.core.dispatch import apply
from adarray.device import is_device
from adarray.ops.common import s
from adarray.testing import opcheck

PRECISIONS = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
LARGE = (70, 1028)
OTHERS = [LARGE, LARGE[1:], (LARGE[0], 1), ()]  # what goes with a large operand


@pytest.mark.slow
@PRECISIONS
@pytest.mark.parametrize("op", CORE)
def test_op(op: str, device_backend: str, dtype: type) -> None:
    part_on_a_stand_in(op, dtype, device_backend)
    opcheck(op, device_backend, dtype)


@pytest.mark.slow
@PRECISIONS
@pytest.mark.parametrize("op", [n for n in CORE if OPS[n].pointwise])
def test_large_operands(op: str, device_backend: str, dtype: type) -> None:
    """In sizes for which kernels share the work, with rows, columns and numbers among operands."""
    record = OPS[op]
    rng = np.random.default_rng(0)
    for shape in OTHERS[: 1 if record.arity == 1 else None]:
        xs = [
            _drawn(rng, limits, shape if i else LARGE, dtype)
            for i, limits in enumerate(record.samples)
        ]
        _compare(lambda *a: record.evaluate(*a), record, xs, {}, device_backend)
        transposed = [x.T if x.shape == LARGE else x for x in xs]
        if shape in (LARGE, ()):
            _compare(lambda *a: record.evaluate(*a), record, transposed, {}, device_backend)


@pytest.mark.slow
@PRECISIONS
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1), 2])
@pytest.mark.parametrize(
    "op", [n for n in CORE if type(OPS[n].lower).__name__ == "Reduction" and n != "prod"]
)
def test_large_reductions(op: str, axis: object, device_backend: str, dtype: type) -> None:
    rng = np.random.default_rng(0)
    record = OPS[op]
    for shape in ((70, 300, 33), (3, 5000, 64), (130, 1028)) if axis != 2 else ((5, 20, 4099),):
        if len(shape) == 2 and axis == (0, 1):
            continue
        x = rng.normal(size=shape).astype(dtype)
        for operand in (x, x.T.copy().T):
            _compare(lambda a: a, record, [operand], {"axis": axis}, device_backend)
    tied = np.round(rng.normal(size=(80, 1024)), 1).astype(dtype)
    tied[3, 5] = np.nan
    if axis in (None, 0, 1):
        _compare(lambda a: a, record, [tied], {"axis": axis}, device_backend)


def _compare(f, record, xs, params, name: str) -> None:
    """Compare values and gradients with NumPy's."""
    picked = [i for i, x in enumerate(xs) if x.dtype.kind == "f" and _rule(record, i)]

    def both():
        def call(*traced):
            args = list(xs)
            for i, x in zip(picked, traced, strict=True):
                args[i] = x
            return apply(record, tuple(args), params)

        y, pullback = adarray.vjp(call, *(xs[i] for i in picked))
        return y, pullback(np.cos(np.arange(np.size(y))).reshape(np.shape(y)).astype(y.dtype))

    if not picked:
        return
    with np.errstate(all="ignore"):
        expected, gradients = both()
        with adarray.use(name):
            got, actual = both()
    limit = 2e-5 if xs[picked[0]].dtype == np.float32 else 1e-11
    for g, e in zip((got, *actual), (expected, *gradients), strict=True):
        assert type(g) is type(e)
        assert g.dtype == e.dtype
        finite = np.isfinite(e)
        size = max(1.0, float(np.abs(e[finite]).max(initial=0.0))) if np.ndim(e) else 1.0
        np.testing.assert_allclose(g, e, rtol=limit, atol=limit * size)


def _rule(record, i: int) -> bool:
    return i < len(record.rules) and record.rules[i] is not None


# Where between two elements a quantile lies is settled on the host, for all of them at once.
SETTLED_ON_HOST = {"nanmedian", "quantile", "percentile", "nanquantile", "nanpercentile"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op", [n for n in CORE if n not in SETTLED_ON_HOST])
def test_rules_stay_on_the_device(op: str, device_backend: str, library) -> None:
    """No rule takes a detour through an ndarray: only what comes in and goes out is moved."""
    record = OPS[op]
    before = library.transfers.converted
    for sample in samples_of(record):
        operands, params = sample.args, sample.kwargs
        if not record.pointwise:
            operands, params, _ = record.bind(*sample)
        if operands is None:
            continue
        with adarray.use(device_backend):
            args = [adarray.array(x) if _floating(x) else x for x in operands]
            chosen = [i for i, x in enumerate(args) if isinstance(x, adarray.ADArray)]
            if not chosen:
                continue

            def call(*traced, args=args, chosen=chosen, params=params):
                arguments = list(args)
                for i, x in zip(chosen, traced, strict=True):
                    arguments[i] = x
                return apply(record, tuple(arguments), params)

            try:
                y, pullback = adarray.vjp(call, *(args[i] for i in chosen))
                gradients = pullback(y)
            except (adarray.NotDifferentiableError, adarray.TraceError, ValueError):
                continue
            for r in (*(y if isinstance(y, tuple) else (y,)), *gradients):
                assert r.dtype.kind not in "fc" or is_device(r._plain)
    assert library.transfers.converted == before


def _floating(x) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


def samples_of(record):
    """Return samples of a record; those of pointwise ones are made of ranges."""
    rng = np.random.default_rng(0)
    if not isinstance(record.samples, tuple):
        return record.samples(rng)
    return [s(*(_drawn(rng, limits, (3, 4), np.float64) for limits in record.samples))]


def _drawn(rng, limits, shape, dtype):
    """Return an operand in a range, away from its ends."""
    if "bool" in limits:
        return rng.uniform(size=shape) < 0.5
    low, high = limits
    result = rng.uniform(0.99 * low + 0.01 * high, 0.01 * low + 0.99 * high, shape)
    return np.asarray(result, dtype)
