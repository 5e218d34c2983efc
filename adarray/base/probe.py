"""Finding out which values a rule reads, by running it on probes.

A probe is a duck array that notes whether its values were read; reading its
shape, dtype or size leaves no mark.

References
----------
- L. Hascoët, U. Naumann, V. Pascual, "'To be recorded' analysis in reverse-mode automatic
  differentiation", Future Gener. Comput. Syst. 21 (2005), 1401-1417.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from adarray.base.errors import ADArrayError, NotDifferentiableError
from adarray.base.levels import forget
from adarray.base.op import METADATA, Op
from adarray.base.runtime import MODE
from adarray.base.types import DType, Function, Operands, Params

if TYPE_CHECKING:
    import numpy.typing as npt

# Filters of warnings belong to the process: one thread changes them at a time.
_lock = threading.RLock()
# Names of operations that were seen to refuse complex samples.
_REAL: set[str] = set()
# Operands and parameters.
Sampled: TypeAlias = tuple[list[Any], Params]


@contextlib.contextmanager
def _aside() -> Iterator[None]:
    """Run rules on probes outside of any recording or check."""
    token = MODE.set(None)
    try:
        with _lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # complex samples that are cast to real dtypes
            yield
    finally:
        MODE.reset(token)


class Probe(NDArrayOperatorsMixin):
    """A duck array that notes whether its values are read."""

    def __init__(self, value: npt.ArrayLike) -> None:
        self._value = np.asarray(value)
        self.read = False
        self.shape = self._value.shape
        self.ndim = self._value.ndim
        self.size = self._value.size
        self.dtype = self._value.dtype

    def __len__(self) -> int:
        return len(self._value)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        self.read = True
        return getattr(self._value, name)

    def __getitem__(self, index: Any) -> object:
        self.read = True
        return self._value[index]

    def __array__(self, dtype: DType | None = None, copy: object = None) -> np.ndarray:
        self.read = True
        return np.array(self._value, dtype=dtype)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: object, **kwargs: object
    ) -> object:
        return getattr(ufunc, method)(*(_open(x, True) for x in inputs), **kwargs)

    def __array_function__(
        self, func: Function, types: object, args: Operands, kwargs: Params
    ) -> object:
        mark = func not in METADATA
        return func(*_open(args, mark), **{k: _open(v, mark) for k, v in kwargs.items()})


def _open(x: object, mark: bool) -> Any:
    if isinstance(x, Probe):
        x.read = x.read or mark
        return x._value
    if isinstance(x, (tuple, list)):
        items = [_open(i, mark) for i in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    return x


def needs(op: Op, mask: int, count: int) -> tuple[bool, ...]:
    """Return which of ``(out, *operands)`` the rules read when `mask` is traced.

    Parameters
    ----------
    op : Op
        Not pointwise.
    mask : int
        Bit i is set when operand i is traced.
    count : int
        Number of operands.
    """
    if op.variadic:
        first = op.arity - 1
        saved = _variadic(op)
        return (saved[0], *([True] * first), *([saved[1]] * (count - first)))
    plan = op._plans.get(mask)
    if plan is None:
        with _aside():
            plan = op.needs(mask) if op.needs is not None else _probe(op, mask)
        op._plans[mask] = plan
    return plan


def _variadic(op: Op) -> tuple[bool, bool]:
    """Whether a variadic rule reads the result, and whether it reads operands."""
    plan = op._plans.get(0)
    if plan is None:
        if op.needs is not None:
            plan = op.needs(0)
        else:
            out_read = operands_read = False
            with _aside():
                for operands, params in sample_operands(op):
                    out = Probe(call_plain(op, operands, params))
                    probes = [Probe(v) for v in operands]
                    for i in range(op.arity - 1, len(operands)):
                        assert op.rules[-1] is not None
                        op.rules[-1](np.ones(out.shape), i, out, *probes, **params)
                    out_read |= out.read
                    operands_read |= any(p.read for p in probes[op.arity - 1 :])
            plan = (out_read, operands_read)
        op._plans[0] = plan
    return (plan[0], plan[1])


def _probe(op: Op, mask: int) -> tuple[bool, ...]:
    count = op.arity
    read = [False] * (count + 1)
    for i in range(count):
        if not mask >> i & 1:
            continue
        rule = op.rules[i] if i < len(op.rules) else None
        if rule is None:
            raise NotDifferentiableError(
                f"{op.name}: no derivative with respect to operand {i}; pass it as a plain "
                "array, or use adarray.stop_gradient on it"
            )
        for operands, params in sample_operands(op):
            out = call_plain(op, operands, params)
            probes = [v if v is None else Probe(v) for v in operands]
            if op.outputs > 1:
                results = tuple(map(Probe, out))
                g = tuple(np.ones(r.shape) if r.dtype.kind in "fc" else None for r in results)
                rule(g, results, *probes, **params)
            else:
                results = (Probe(out),)
                rule(np.ones(np.shape(out)), results[0], *probes, **params)
            read[0] |= any(r.read for r in results)
            for j, p in enumerate(probes, 1):
                read[j] |= p is not None and p.read
    return tuple(read)


def sample_operands(op: Op) -> list[Sampled]:
    """Return ``(operands, params)`` of the samples of `op`, plain."""
    rng = np.random.default_rng(0)
    assert callable(op.samples)  # ranges are for pointwise operations, whose rules are expressions
    bound: list[Sampled] = [op.bind(s.args, s.kwargs)[:2] for s in op.samples(rng)]
    # A rule may read more where the operands are complex.
    return bound + [c for c in (_complex(op, *b) for b in bound) if c is not None]


def _complex(op: Op, operands: list[object], params: Params) -> Sampled | None:
    """Return a sample with complex operands; None where the operation or a rule refuses it."""
    values = [
        np.multiply(v, 1 + 0.25j)
        if isinstance(v, (np.ndarray, np.generic)) and v.dtype.kind == "f"
        else v
        for v in operands
    ]
    if op.name in _REAL:
        return None
    try:
        with np.errstate(all="ignore"):
            call_plain(op, values, params)
    except (TypeError, ValueError, ArithmeticError, ADArrayError) as error:
        forget(error)
        _REAL.add(op.name)
        return None
    return values, params


def call_plain(op: Op, operands: list[object], params: Params) -> Any:
    """Compute `op` on plain operands with NumPy."""
    if op.variadic:
        fixed = op.arity - 1
        return op.evaluate(*operands[:fixed], list(operands[fixed:]), **params)
    return op.evaluate(*operands, **params)
