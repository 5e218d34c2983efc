# ruff: noqa: A002 (the names of arguments are NumPy's)
from typing import Any

from adarray.arrays.adarray import ADArray

_Axis = int | tuple[int, ...] | None

class Methods:
    __slots__ = ()

    def __array_namespace__(self, *, api_version: str | None = None) -> Any: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def all(
        self, axis: _Axis = None, out: Any = None, keepdims: bool = False, *, where: Any = True
    ) -> ADArray: ...
    def any(
        self, axis: _Axis = None, out: Any = None, keepdims: bool = False, *, where: Any = True
    ) -> ADArray: ...
    def argmax(
        self, axis: int | None = None, out: Any = None, *, keepdims: bool = False
    ) -> ADArray: ...
    def argmin(
        self, axis: int | None = None, out: Any = None, *, keepdims: bool = False
    ) -> ADArray: ...
    def argpartition(
        self, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None
    ) -> ADArray: ...
    def argsort(
        self,
        axis: int | None = -1,
        kind: str | None = None,
        order: Any = None,
        *,
        stable: bool | None = None,
        descending: bool = False,
    ) -> ADArray: ...
    def byteswap(self, inplace: bool = False) -> ADArray: ...
    def choose(self, choices: Any, out: Any = None, mode: str = "raise") -> ADArray: ...
    def clip(self, min: Any = None, max: Any = None, out: Any = None, **kwargs: Any) -> ADArray: ...
    def compress(self, condition: Any, axis: int | None = None, out: Any = None) -> ADArray: ...
    def conj(self) -> ADArray: ...
    def conjugate(self) -> ADArray: ...
    def cumprod(self, axis: int | None = None, dtype: Any = None, out: Any = None) -> ADArray: ...
    def cumsum(self, axis: int | None = None, dtype: Any = None, out: Any = None) -> ADArray: ...
    @property
    def device(self) -> str: ...
    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> ADArray: ...
    def dot(self, b: Any, out: Any = None) -> ADArray: ...
    def fill(self, value: Any) -> None: ...
    def getfield(self, dtype: Any, offset: int = 0) -> ADArray: ...
    def max(
        self,
        axis: _Axis = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = ...,
        where: Any = True,
    ) -> ADArray: ...
    def mean(
        self,
        axis: _Axis = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        *,
        where: Any = True,
    ) -> ADArray: ...
    def min(
        self,
        axis: _Axis = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = ...,
        where: Any = True,
    ) -> ADArray: ...
    def nonzero(self) -> tuple[ADArray, ...]: ...
    def partition(
        self, kth: Any, axis: int = -1, kind: str = "introselect", order: Any = None
    ) -> None: ...
    def prod(
        self,
        axis: _Axis = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = 1,
        where: Any = True,
    ) -> ADArray: ...
    def put(self, indices: Any, values: Any, mode: str = "raise") -> None: ...
    def ravel(self, order: Any = "C") -> ADArray: ...
    def repeat(self, repeats: Any, axis: int | None = None) -> ADArray: ...
    def resize(self, *new_shape: Any, refcheck: bool = True) -> None: ...
    def round(self, decimals: int = 0, out: Any = None) -> ADArray: ...
    def searchsorted(self, v: Any, side: str = "left", sorter: Any = None) -> ADArray: ...
    def setfield(self, val: Any, dtype: Any, offset: int = 0) -> None: ...
    def setflags(
        self, write: bool | None = None, align: bool | None = None, uic: bool | None = None
    ) -> None: ...
    def sort(
        self,
        axis: int = -1,
        kind: str | None = None,
        order: Any = None,
        *,
        stable: bool | None = None,
        descending: bool = False,
    ) -> None: ...
    def squeeze(self, axis: _Axis = None) -> ADArray: ...
    def std(
        self,
        axis: _Axis = None,
        dtype: Any = None,
        out: Any = None,
        ddof: float = 0,
        keepdims: bool = False,
        *,
        where: Any = True,
        mean: Any = ...,
    ) -> ADArray: ...
    def sum(
        self,
        axis: _Axis = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = 0,
        where: Any = True,
    ) -> ADArray: ...
    def swapaxes(self, axis1: int, axis2: int) -> ADArray: ...
    def take(
        self, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise"
    ) -> ADArray: ...
    def to_device(self, device: str, /, *, stream: Any = None) -> ADArray: ...
    def trace(
        self,
        offset: int = 0,
        axis1: int = 0,
        axis2: int = 1,
        dtype: Any = None,
        out: Any = None,
    ) -> ADArray: ...
    def var(
        self,
        axis: _Axis = None,
        dtype: Any = None,
        out: Any = None,
        ddof: float = 0,
        keepdims: bool = False,
        *,
        where: Any = True,
        mean: Any = ...,
    ) -> ADArray: ...
    def view(self, dtype: Any = None, type: Any = None) -> ADArray: ...
