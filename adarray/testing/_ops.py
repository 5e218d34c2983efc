"""`opcheck`: one operation record against NumPy, against differences and against itself."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import numpy as np

from adarray.arrays.adarray import ADArray
from adarray.backend import use
from adarray.base.errors import BackendError
from adarray.base.op import OPS, Contraction, Op, Reduction, Scan
from adarray.base.probe import call_plain
from adarray.base.runtime import current_mode
from adarray.base.scalar import ScalarExpr, var
from adarray.core.dispatch import run
from adarray.core.trace import Handle
from adarray.device import host, is_device
from adarray.testing._compare import mismatch, worst
from adarray.testing._grads import (
    MODES,
    CheckStep,
    Tolerance,
    check_narrow,
    check_wide,
    dtype_of,
    flat_function,
    random_like,
)
from adarray.testing._samples import Case, cases
from adarray.transforms import vjp

ULP = 4
# Of what another library computes, counted in units of the largest element.
LOOSE = 64


def opcheck(
    op: Op | str,
    backend: str = "numpy",
    dtype: Any = np.float64,
    seed: int = 0,
) -> None:
    """Check everything that one operation's record says.

    Parameters
    ----------
    op : adarray.base.op.Op or str
        The record, or the name it is registered under.
    backend : str
        Name of an installed backend. It computes arrays of every size itself where
        it takes the option ``cutoff``, below which it would hand them to NumPy.
    dtype : {numpy.float64, numpy.float32, numpy.complex128, numpy.complex64}
        Type of the inputs. With complex ones, cases that NumPy refuses for its
        dtype must be refused, too.
    seed : int
        Seed of the sample inputs and directions.

    Raises
    ------
    AssertionError
        If anything is wrong; the message names the operation, the backend, the
        dtype, the case, what was got and what was expected.
    BackendError
        If the backend cannot be used.

    Notes
    -----
    Checked are, on the record's samples and (for pointwise operations and
    reductions) on made inputs that are empty, 0-d, of size 1, strided, reversed,
    in Fortran order, unaligned and broadcast:

    - values: at most 4 ulp from NumPy's, with equal type, dtype, shape, nan, inf and
      signs of zeros, at special values too; for folds and products the ulp is
      that of the sum of magnitudes, since summands cancel (products of n factors
      may differ by the square root of n);
    - the scalar expression that kernels are printed from, evaluated by NumPy;
    - in float64 and complex128: tangents against central differences, cotangents against
      tangents, and both again for the second derivative;
    - in float32 and complex64: tangents and cotangents, first and second order,
      against those in double precision, and their dtypes;
    - on a backend: gradients against those that NumPy computes.

    Examples
    --------
    >>> from adarray.testing import opcheck
    >>> opcheck("tanh")
    """
    record = OPS[op] if isinstance(op, str) else op
    checker = _OpCheck(record, backend, np.dtype(dtype), seed)
    with use_all_sizes(backend), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # such as that for a mean of nothing
        for case in cases(record, checker.dtype, np.random.default_rng(seed)):
            checker.check(case)


def use_all_sizes(backend: str, **options: Any) -> use:
    """Return ``use(backend)`` with kernels for small arrays too, where there is such an option."""
    with contextlib.suppress(BackendError):
        return use(backend, cutoff=0, **options)
    return use(backend, **options)


def within_range(x: Any, flushes: bool) -> Any:
    """Return an array without numbers at the ends of the range, anything else as it is.

    Parameters
    ----------
    x : array_like
    flushes : bool
        Whether numbers below the smallest normal one go, too.
    """
    if not isinstance(x, np.ndarray) or x.dtype.kind != "f" or not x.ndim:
        return x
    limits, size = np.finfo(x.dtype), np.abs(x)
    small = flushes & (size > 0) & (size < limits.tiny)
    large = np.isfinite(x) & (size > limits.max / 8)
    if not (small | large).any():
        return x
    zero = np.copysign(np.zeros((), x.dtype), x)
    return np.where(small, zero, np.where(large, x / 8, x))


class _OpCheck:
    """The checks of one operation on one backend in one precision."""

    def __init__(self, op: Op, backend: str, dtype: np.dtype[Any], seed: int) -> None:
        self.op = op
        self.backend = backend
        self.dtype = dtype
        self.seed = seed

    def check(self, case: Case) -> None:
        """Check values, expression and derivatives on one case."""
        title = f"opcheck({self.op.name}, {self.backend}, {self.dtype}), {case.name}"
        case = self._normal(case)
        before = [np.array(x) for x in case.operands]
        try:
            expected = call_plain(self.op, [_copy(x) for x in case.operands], case.params)
        except TypeError as error:
            if self.dtype.kind != "c":
                raise
            self._refused(case, title, error)
            return
        self._values(case, expected, title)
        _check_unchanged(case, before, title)
        if self.op.pointwise and self.dtype.kind == "f":
            self._expression(case, expected, title)
        picked = self._differentiable(case)
        if not picked or not any(dtype_of(y).kind in "fc" for y in results(expected)):
            return
        if case.order:
            self._derivatives(case, picked, title)
            arrays = tuple(i for i in picked if _is_array(case.operands[i]))
            if arrays and arrays != picked:  # with the Python numbers as constants
                self._derivatives(case, arrays, title)
        if current_mode().engine is not None:
            self._against_numpy(case, picked, title)
        _check_unchanged(case, before, title)

    def _normal(self, case: Case) -> Case:
        """Return the case without numbers at the ends of the range, where devices are free.

        Some take those below the smallest normal one for zero, and round others to infinity.
        """
        engine = current_mode().engine
        if engine is None or engine.device is None:
            return case
        flushes = engine.device.flushes
        return case._replace(operands=[within_range(x, flushes) for x in case.operands])

    def _refused(self, case: Case, title: str, error: TypeError) -> None:
        """Check that what NumPy refuses for its dtype is refused here too."""
        operands = [ADArray(_copy(x)) if _is_array(x) else x for x in case.operands]
        if not any(isinstance(x, Handle) for x in operands):
            return
        try:
            self._call(*operands, **case.params)
        except TypeError:
            return
        raise AssertionError(f"{title}: NumPy refuses this ({error}), adarray does not")

    def _call(self, *operands: Any, **params: Any) -> Any:
        """Call the operation as users do where it is a ufunc: that is the short way."""
        if isinstance(self.op.numpy, np.ufunc) and not params:
            return self.op.numpy(*operands)
        return run(self.op, *operands, **params)

    def _values(self, case: Case, expected: Any, title: str) -> None:
        operands = [ADArray(_copy(x)) if _is_array(x) else x for x in case.operands]
        if not any(isinstance(x, Handle) for x in operands):
            return
        outcome = self._call(*operands, **case.params)
        if (
            isinstance(expected, tuple)
            and self.op.invariants is not None
            and any(is_device(r._plain) for r in outcome)
        ):
            # Signs and phases are free: what does not depend on them is compared.
            kind = type(expected)
            parts = tuple(host(r._plain) for r in outcome)
            result = kind(*parts) if hasattr(expected, "_fields") else parts
            pairs = zip(self.op.invariants(result), self.op.invariants(expected), strict=True)
            for k, (r, e) in enumerate(pairs):
                self._of_other_library(r, e, f"{title}: invariant {k}")
            return
        if isinstance(expected, tuple):
            for k, (r, e) in enumerate(zip(outcome, expected, strict=True)):
                if is_device(r._plain):
                    self._of_other_library(host(r._plain), e, f"{title}: result {k}")
                    continue
                difference = mismatch(r._plain, e, ULP)
                if difference is not None:
                    raise AssertionError(
                        f"{title}: result {k}: {difference}; correct the operation"
                    )
            return
        got = host(outcome._plain)
        scale = None
        folds = isinstance(self.op.lower, (Reduction, Contraction, Scan))
        if is_device(outcome._plain):
            if not self.op.pointwise and not folds:
                self._of_other_library(got, expected, title)
                return
            got, expected = self._settled(got, expected)
        if isinstance(self.op.lower, (Reduction, Contraction, Scan)) and dtype_of(got).kind in "fc":
            scale = self._magnitude(case, expected)
        limit: float = ULP
        if is_device(outcome._plain) and self.op.pointwise:
            limit = LOOSE if self.dtype.kind == "c" else ULP
            if self.op.name in ("logaddexp", "logaddexp2"):  # cancel where the result is near 0
                scale = np.maximum(*(np.abs(x) for x in case.operands))
        if isinstance(self.op.lower, Reduction) and self.op.lower.combine == "multiply":
            # Every factor rounds once: the orders of multiplication part as a random walk.
            limit = max(ULP, (np.size(case.operands[0]) / max(np.size(expected), 1)) ** 0.5)
        difference = mismatch(got, expected, limit, scale)
        if difference is not None:
            raise AssertionError(
                f"{title}: value: {difference}; correct the operation or its kernel"
            )

    def _settled(self, got: Any, expected: Any) -> tuple[Any, Any]:
        """Return results without what devices are free in.

        That is which of two equal zeros is the larger one, numbers below the smallest normal
        one, and on which side of the largest one a result at the end of the range comes down.
        """
        if dtype_of(expected).kind != "f" or type(got) is not type(expected):
            return got, expected
        tiny, largest = np.finfo(dtype_of(expected)).tiny, np.finfo(dtype_of(expected)).max
        extremum = self.op.name in ("max", "min")
        settled = []
        for x in (got, expected):
            x = np.where(np.abs(x) < tiny, x * 0, x) if not extremum else np.where(x == 0, 0, x)
            end = np.abs(x) >= largest * (1 - 4 * np.finfo(dtype_of(expected)).eps)
            x = np.where(end, np.copysign(np.inf, x), x).astype(dtype_of(expected))
            settled.append(x if isinstance(expected, np.ndarray) else x[()])
        return settled[0], settled[1]

    def _of_other_library(self, got: Any, expected: Any, title: str) -> None:
        """Compare what another library than NumPy computed, in an order of its own."""
        got, expected = self._settled(got, expected)
        scale = None
        if dtype_of(got).kind in "fc":
            largest = np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))
            scale = np.full(np.shape(expected), max(largest, float(np.finfo(dtype_of(got)).tiny)))
        difference = mismatch(got, expected, LOOSE, scale)
        if difference is not None:
            raise AssertionError(
                f"{title}: value: {difference}; correct the operation or its kernel"
            )

    def _magnitude(self, case: Case, expected: Any) -> Any:
        """Return the magnitudes whose last place counts: what is folded, without signs."""
        if self.op.name in ("max", "min"):
            return None  # a choice, not a sum
        sizes = [np.abs(x) if _is_array(x) and x.dtype.kind in "fc" else x for x in case.operands]
        return np.abs(np.asarray(call_plain(self.op, sizes, case.params), dtype_of(expected)))

    def _expression(self, case: Case, expected: Any, title: str) -> None:
        symbols = {f"x{i}": x for i, x in enumerate(case.operands)}
        expression = self.op.expression(*(var(name) for name in symbols))
        got = evaluate(expression, symbols)
        difference = mismatch(np.asarray(got), np.asarray(expected), ULP)
        if difference is not None:
            raise AssertionError(
                f"{title}: scalar expression {expression}: {difference}; correct the record's "
                "expression, from which kernels are printed"
            )

    def _differentiable(self, case: Case) -> tuple[int, ...]:
        """Return the positions of the operands that have a rule and a floating dtype."""
        rules = self.op.rules
        return tuple(
            i
            for i, x in enumerate(case.operands)
            if (isinstance(x, (float, complex)) or (_is_array(x) and x.dtype.kind in "fc"))
            and (self.op.variadic or rules[i] is not None)
        )

    def _derivatives(self, case: Case, picked: tuple[int, ...], title: str) -> None:
        def call(*operands: Any) -> Any:
            out = self._call(*operands, **case.params)
            return out if self.op.invariants is None else self.op.invariants(out)

        fun, xs, names = flat_function(call, tuple(case.operands), picked)
        step = CheckStep(title, tuple(n.replace("argument", "operand") for n in names))
        rng = np.random.default_rng(self.seed)
        if self.dtype in (np.float64, np.complex128):
            check_wide(fun, xs, case.order, MODES, Tolerance(1e-6, 1e-6, None), rng, step)
        else:
            check_narrow(fun, xs, case.order, MODES, rng, step)

    def _against_numpy(self, case: Case, picked: tuple[int, ...], title: str) -> None:
        """Compare the backend's gradients with NumPy's, at special values too."""

        def call(*operands: Any) -> Any:
            out = self._call(*operands, **case.params)
            return out if self.op.invariants is None else self.op.invariants(out)

        fun, xs, _ = flat_function(call, tuple(case.operands), picked)
        gradients = []
        for context in (contextlib.nullcontext(), use("numpy")):
            with context:
                ys, pullback = vjp(fun, *xs)
                rng = np.random.default_rng(self.seed)
                gs = tuple(np.asarray(random_like(rng, y), dtype_of(y)) for y in ys)
                gradients.append(pullback(gs))
        precision = float(np.finfo(self.dtype).eps)
        for i, got, expected in zip(picked, *gradients, strict=True):
            values = np.asarray(expected)
            limit = 100 * precision * np.maximum(np.abs(values), 1.0)
            difference = worst(got, values, limit)
            if difference is not None:
                raise AssertionError(
                    f"{title}: gradient of operand {i}{difference[3]}: got {difference[0]!r}, "
                    f"expected {difference[1]!r} from NumPy; correct the backend's derivative "
                    "kernel"
                )


def results(expected: Any) -> tuple[Any, ...]:
    """Return the results of an operation as a tuple."""
    return expected if isinstance(expected, tuple) else (expected,)


def _check_unchanged(case: Case, before: list[np.ndarray], title: str) -> None:
    for i, (x, copy) in enumerate(zip(case.operands, before, strict=True)):
        if np.asarray(x).tobytes() != copy.tobytes():
            raise AssertionError(f"{title}: operand {i} was written to; compute into fresh memory")


def _is_array(x: Any) -> bool:
    return isinstance(x, (np.ndarray, np.generic))


def _copy(x: Any) -> Any:
    """Return the array itself, read-only: no operation may write into its operands."""
    if isinstance(x, np.ndarray):
        x = x.view()
        x.flags.writeable = False
    return x


def evaluate(expression: ScalarExpr, values: dict[str, Any]) -> Any:
    """Compute a scalar expression on arrays with NumPy."""
    if expression.op == "var":
        return values[expression.value]
    if expression.op == "const":
        return expression.value
    function = getattr(np, expression.op)
    return function(*(evaluate(arg, values) for arg in expression.args))
