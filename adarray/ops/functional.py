"""Choosing among arrays, and calling Python functions along them."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.op import composite
from adarray.core.protocol import plain, plain_array
from adarray.core.trace import Handle, is_python_number
from adarray.ops import creation
from adarray.ops.borrow import borrow, over_adarrays
from adarray.ops.common import composite_if_traced, in_order

borrow(np.piecewise, np.apply_along_axis, np.apply_over_axes)


@composite(np.select)
def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """Nested choices: the first condition that holds counts."""
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if not len(condlist):
        raise ValueError("select with an empty condition list is not possible")
    for i, condition in enumerate(condlist):
        kind = creation.asarray(condition).dtype
        if kind.type is not np.bool_:
            raise TypeError(f"invalid entry {i} in condlist: should be boolean ndarray")
    values = (*choicelist, default)
    choices = [x if is_python_number(x) else creation.asarray(x) for x in values]
    dtype = np.result_type(*choices)
    for x in choices[:-1]:  # NumPy's error: it writes them into an array of the common dtype
        if np.ndim(x) == 0 and not np.can_cast(np.result_type(plain(x)), dtype, "same_kind"):
            np.copyto(np.zeros(0, dtype), np.zeros(0, np.result_type(plain(x))))
    if dtype.kind in "iu":  # numbers beyond its range are cast, as NumPy does it
        choices = [
            np.astype(creation.asarray(x), dtype) if is_python_number(x) else x for x in choices
        ]
    r = choices.pop()
    for condition, choice in zip(reversed(condlist), reversed(choices), strict=True):
        r = np.where(condition, choice, r)
    return in_order(r if r.dtype == dtype else np.astype(r, dtype))


@composite_if_traced(np.choose)
def _choose(a: Any, choices: Any, out: Any = None, mode: Any = "raise") -> Any:
    """Gather from the stacked choices; NumPy checks the indices and their modes."""
    values = [c if is_python_number(c) else creation.asanyarray(c) for c in choices]
    dtype = np.result_type(*values)  # Python numbers yield to arrays
    arrays = [
        creation.asarray(c, dtype) if is_python_number(c)
        else c if c.dtype == dtype else np.astype(c, dtype)
        for c in values
    ]  # fmt: skip
    a = plain_array(a)
    shape = np.broadcast_shapes(a.shape, *(c.shape for c in arrays))
    n = len(arrays)
    which = np.choose(np.broadcast_to(a, shape), np.arange(n), mode=mode)
    stacked = np.stack([np.broadcast_to(c, shape) for c in arrays])
    r = stacked[(which, *np.indices(shape, sparse=True))]
    return r if out is None else np.positive(r, out=out)


class TracedVectorize(np.vectorize):
    """As `numpy.vectorize`; elements of ADArrays go to the function as ADArrays.

    NumPy's own class makes arrays of objects of its arguments, which a traced array
    refuses. `adarray.numpy.vectorize` derives from this class.

    Parameters
    ----------
    pyfunc, otypes, doc, excluded, cache, signature
        As in NumPy. `cache` changes nothing: the function is called once for each
        element in any case.
    """

    def _vectorize_call(self, func: Any, args: Any) -> Any:
        otypes: Any = self.otypes
        if self.signature is not None:
            numpys: Any = np.vectorize
            return over_adarrays(numpys._vectorize_call_with_signature)(self, func, args)
        if not args:
            return func()
        arrays = [creation.asanyarray(a) for a in args]
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
        size = int(np.prod(shape, dtype=int))
        if size == 0 and not otypes:
            raise ValueError("cannot call `vectorize` on size 0 inputs unless `otypes` is set")
        columns = [_elements(np.broadcast_to(a, shape)) for a in arrays]
        rows = [func(*row) for row in zip(*columns, strict=True)]
        if size == 0:
            many = len(otypes) > 1
            outputs = tuple(np.empty(shape, t) for t in otypes)
            return outputs if many else outputs[0]
        if not isinstance(rows[0], tuple):
            return self._output(rows, 0, shape)
        return tuple(
            self._output(list(part), k, shape) for k, part in enumerate(zip(*rows, strict=True))
        )

    def _output(self, results: list[Any], k: int, shape: tuple[int, ...]) -> Any:
        """Return output `k` from the results of all calls, in the dtype of the first."""
        otypes = self.otypes
        dtype = otypes[k] if otypes else creation.asarray(results[0]).dtype
        output = creation.array(results, dtype=dtype)
        return np.reshape(output, shape) if shape else output[0]


def _elements(a: Any) -> list[Any]:
    """Return the elements of an array: ADArrays, or Python numbers as NumPy passes them."""
    if isinstance(a, Handle):
        flat = np.reshape(a, (-1,))  # type: ignore[call-overload]
        return [flat[i] for i in range(flat.shape[0])]
    listed: list[Any] = np.ravel(a).astype(object).tolist()
    return listed
