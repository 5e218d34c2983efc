"""A matrix plus a product of two thin ones, which is never formed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from adarray.transforms.modes import shape_of


class LowRankSum(NDArrayOperatorsMixin):
    """``base + left @ right.T`` as an array that functions of parameters may be given.

    Products with it, by ``@`` or `numpy.matmul`, take two thin products more than those with the
    matrix alone. Whatever else is done with it forms the sum first.

    Parameters
    ----------
    base : array, shape (n, m)
    left : array, shape (n, r)
    right : array, shape (m, r)

    References
    ----------
    B. Sarkar et al., "Evolution strategies at the hyperscale", arXiv:2511.16652.

    Examples
    --------
    >>> import numpy as np
    >>> from adarray.estimators.lowrank import LowRankSum
    >>> w = LowRankSum(np.eye(2), np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]]))
    >>> np.array([[3.0, 4.0]]) @ w, w.T @ np.array([3.0, 4.0])
    (array([[3., 7.]]), array([3., 7.]))
    """

    __slots__ = ("base", "left", "right")

    def __init__(self, base: Any, left: Any, right: Any) -> None:
        self.base = base
        self.left = left
        self.right = right

    def whole(self) -> Any:
        """Return the sum as an array."""
        return self.base + self.left @ self.right.T

    @property
    def T(self) -> LowRankSum:  # noqa: N802  (NumPy's name)
        """The transpose, not formed either."""
        return LowRankSum(self.base.T, self.right, self.left)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the sum."""
        return shape_of(self.base)

    @property
    def dtype(self) -> Any:
        """The dtype of the sum."""
        return self.base.dtype

    @property
    def ndim(self) -> int:
        """Two."""
        return 2

    @property
    def size(self) -> int:
        """The number of elements of the sum."""
        return self.shape[0] * self.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        return self.whole()[index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # protocols that it does not have
            raise AttributeError(name)
        return getattr(self.whole(), name)

    def __matmul__(self, x: Any) -> Any:
        if isinstance(x, LowRankSum):
            return self @ x.whole()
        return self.base @ x + self.left @ (self.right.T @ x)

    def __rmatmul__(self, x: Any) -> Any:
        return x @ self.base + (x @ self.left) @ self.right.T

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self.whole(), dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc is np.matmul and method == "__call__" and not kwargs:
            x, y = inputs
            return self.__matmul__(y) if x is self else self.__rmatmul__(x)
        return getattr(ufunc, method)(*formed(inputs), **formed(kwargs))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is np.dot and len(args) == 2 and not kwargs and all(map(_has_axes, args)):
            return args[0] @ args[1]
        return func(*formed(args), **formed(kwargs))


def _has_axes(x: Any) -> bool:
    return isinstance(x, LowRankSum) or 0 < len(shape_of(x)) <= 2


def formed(x: Any) -> Any:
    """Return `x` with the sums in it formed."""
    if isinstance(x, LowRankSum):
        return x.whole()
    if type(x) in (tuple, list):
        return type(x)(map(formed, x))
    if type(x) is dict:
        return {k: formed(v) for k, v in x.items()}
    return x
