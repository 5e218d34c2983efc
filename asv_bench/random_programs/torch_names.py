"""NumPy's names for PyTorch, with NumPy's meaning: what random programs call."""

from __future__ import annotations

from typing import Any


class TorchArrays:
    """The functions that `asv_bench.random_programs.writer` writes, of tensors.

    Tensors have no ``astype``: it is added to them.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        for name in (
            "abs", "arctan", "cos", "einsum", "exp", "float32", "imag", "log", "log1p", "real",
            "sin", "sqrt", "swapaxes", "tanh",
        ):  # fmt: skip
            setattr(self, name, getattr(torch, name))
        self.fft, self.linalg = torch.fft, torch.linalg
        torch.Tensor.astype = torch.Tensor.to

    def eye(self, n: int, dtype: Any) -> Any:
        """Return ones on a diagonal."""
        return self._torch.eye(n, dtype=dtype, device=self._device())

    def _device(self) -> str:
        return "cuda" if self._torch.cuda.is_available() else "cpu"

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """Choose elements."""
        return self._torch.where(condition, a, b)

    def maximum(self, a: Any, b: Any) -> Any:
        """Return the larger elements."""
        return self._torch.clamp_min(a, b) if isinstance(b, float) else self._torch.maximum(a, b)

    def minimum(self, a: Any, b: Any) -> Any:
        """Return the smaller elements."""
        return self._torch.clamp_max(a, b) if isinstance(b, float) else self._torch.minimum(a, b)

    def sum(self, a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """Add up."""
        return self._torch.sum(a) if axis is None else self._torch.sum(a, axis, keepdim=keepdims)

    def mean(self, a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """Return means."""
        return self._torch.mean(a) if axis is None else self._torch.mean(a, axis, keepdim=keepdims)

    def var(self, a: Any, axis: Any) -> Any:
        """Return variances."""
        return self._torch.var(a, axis, correction=0)

    def max(self, a: Any, axis: Any, keepdims: bool = False) -> Any:
        """Return the largest elements."""
        return self._torch.amax(a, axis, keepdim=keepdims)

    def roll(self, a: Any, by: int, axis: int) -> Any:
        """Roll along an axis."""
        return self._torch.roll(a, by, axis)

    def concatenate(self, arrays: list[Any], axis: int = 0) -> Any:
        """Join arrays."""
        return self._torch.cat(arrays, axis)

    def take(self, a: Any, k: Any, axis: int) -> Any:
        """Take elements along an axis."""
        return self._torch.index_select(a, axis, k)

    def cumsum(self, a: Any, axis: int) -> Any:
        """Add up to each element."""
        return self._torch.cumsum(a, axis)
