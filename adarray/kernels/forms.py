"""Kernels of one element, and of reductions: the forms that CuPy has, made into whole kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from adarray.errors import KernelError, ShapeError
from adarray.kernels.raw import RawKernel

_NAMES = {
    "float64": "double", "float32": "float", "bool": "bool", "int8": "signed char",
    "int16": "short", "int32": "int", "int64": "long long", "uint8": "unsigned char",
    "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "unsigned long long",
}  # fmt: skip
_BLOCK = 128


class Parameter(NamedTuple):
    """A parameter as CuPy writes it: ``raw`` for whole arrays; a type or a letter; a name."""

    raw: bool
    type: str
    name: str


def parameters(text: str) -> tuple[Parameter, ...]:
    """Return the parameters in ``"float64 x, raw T y"``."""
    params = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        m = re.fullmatch(r"(raw\s+)?(\w+)\s+(\w+)", part)
        if m is None:
            raise KernelError(f"kernel: the parameter {part!r} is not a type and a name")
        params.append(Parameter(bool(m[1]), m[2], m[3]))
    return tuple(params)


class _Form:
    """What both forms share: types, and kernels by types."""

    def __init__(self, in_params: str, out_params: str, name: str, preamble: str) -> None:
        self.inputs = parameters(in_params)
        self.outputs = parameters(out_params)
        self.name = name
        self.preamble = preamble
        self._kernels: dict[tuple[str, ...], RawKernel] = {}

    def dtypes(self, args: Sequence[Any]) -> dict[str, str]:
        """Return the dtypes that the letters of parameters stand for."""
        dtypes: dict[str, str] = {}
        if len(args) != len(self.inputs):
            raise KernelError(
                f"kernel {self.name}: {len(args)} arguments were given, and it takes "
                f"{len(self.inputs)}"
            )
        for p, x in zip(self.inputs, args, strict=True):
            if p.type not in _NAMES and hasattr(x, "dtype"):
                known = dtypes.setdefault(p.type, str(x.dtype))
                if known != str(x.dtype):
                    raise KernelError(
                        f"kernel {self.name}: {p.type} is {known} and {x.dtype}; convert one of "
                        "the arguments with astype"
                    )
        for p in self.inputs + self.outputs:
            if p.type not in _NAMES and p.type not in dtypes:
                raise KernelError(f"kernel {self.name}: no argument says what {p.type} is")
        return dtypes

    def kernel(self, types: dict[str, str]) -> RawKernel:
        """Return the kernel for what letters stand for."""
        key = tuple(sorted(f"{k}={v}" for k, v in types.items()))
        if key not in self._kernels:
            for letter, dtype in types.items():
                if dtype not in _NAMES:
                    raise KernelError(f"kernel {self.name}: there are no kernels for {dtype}")
                assert letter
            head = "".join(f"#define {k} {_NAMES[v]}\n" for k, v in types.items())
            self._kernels[key] = RawKernel(head + self.source(), self.name)
        return self._kernels[key]

    def source(self) -> str:
        """Return the source of the whole kernel."""
        raise NotImplementedError

    def dtype(self, p: Parameter, types: dict[str, str]) -> str:
        """Return the dtype of a parameter."""
        return types.get(p.type, p.type)


def _c(p: Parameter) -> str:
    return _NAMES.get(p.type, p.type)


class ElementwiseKernel(_Form):
    """A kernel of one element, written as `cupy.ElementwiseKernel` takes it.

    Parameters
    ----------
    in_params, out_params : str
        Parameters such as ``"float64 x, raw T y"``. A type that is a letter is what the arguments
        have; a ``raw`` array is not broadcast, and indexed by the kernel, with ``i`` the number of
        the element.
    operation : str
        CUDA C that sets the outputs.
    name : str, optional
        In messages.
    preamble : str, optional
        Functions and macros that the operation uses.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> from adarray.kernels import ElementwiseKernel
    >>> squared = ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "squared")
    >>> with adarray.use("serial"):
    ...     adarray.grad(lambda x: np.sum(squared(x, 1.0)))(np.array([3.0, 5.0]))
    array([4., 8.])
    """

    def __init__(
        self, in_params: str, out_params: str, operation: str, name: str = "kernel",
        preamble: str = "",
    ) -> None:  # fmt: skip
        super().__init__(in_params, out_params, name, preamble)
        self.operation = operation

    def source(self) -> str:
        """Return the source of the whole kernel."""
        formal = [f"const {_c(p)} {'*' if p.raw else '&'}{p.name}" for p in self.inputs]
        formal += [f"{_c(p)} &{p.name}" for p in self.outputs]
        formal.append("long long i")
        whole = [f"const {_c(p)} *{p.name}_all" for p in self.inputs]
        whole += [f"{_c(p)} *{p.name}_all" for p in self.outputs]
        actual = [f"{p.name}_all" + ("" if p.raw else "[i]") for p in self.inputs + self.outputs]
        return (
            f"{self.preamble}\n__device__ void {self.name}_element({', '.join(formal)}) {{\n"
            f"{self.operation};\n}}\n"
            f"__global__ void {self.name}({', '.join(whole)}, long long n) {{\n"
            "    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
            f"    if (i < n) {self.name}_element({', '.join(actual)}, i);\n}}\n"
        )

    def __call__(self, *args: Any, size: int | None = None) -> Any:
        """Return the outputs for arrays that broadcast; `size` where all of them are raw."""
        types = self.dtypes(args)
        each = [x for p, x in zip(self.inputs, args, strict=True) if not p.raw]
        shape = np.broadcast_shapes(*map(np.shape, each)) if each else (size or 0,)
        arrays = []
        for p, x in zip(self.inputs, args, strict=True):
            x = x if hasattr(x, "dtype") else np.asarray(x, self.dtype(p, types))
            arrays.append(x if p.raw or np.shape(x) == shape else np.broadcast_to(x, shape))
        outs = [np.zeros(shape, self.dtype(p, types)) for p in self.outputs]
        count = int(np.prod(shape, dtype=int))
        if count == 0:
            return outs[0] if len(outs) == 1 else tuple(outs)
        grid = -(-count // _BLOCK)
        return self.kernel(types).apply(grid, _BLOCK, [*arrays, *outs, count])


class ReductionKernel(_Form):
    """A reduction, written as `cupy.ReductionKernel` takes it.

    Parameters
    ----------
    in_params, out_params : str
        Parameters such as ``"T x, T y"``; one output.
    map_expr : str
        What is combined of elements of the inputs.
    reduce_expr : str
        How two of them, ``a`` and ``b``, are combined.
    post_map_expr : str
        Sets the output from the combination ``a``.
    identity : str
        What a combination begins with.
    name : str, optional
        In messages.
    preamble : str, optional
        Functions and macros that the expressions use.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> from adarray.kernels import ReductionKernel
    >>> norm = ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
    >>> with adarray.use("serial"):
    ...     adarray.grad(norm)(np.array([3.0, 4.0]))
    array([0.6, 0.8])
    """

    def __init__(
        self, in_params: str, out_params: str, map_expr: str, reduce_expr: str, post_map_expr: str,
        identity: str, name: str = "kernel", preamble: str = "",
    ) -> None:  # fmt: skip
        super().__init__(in_params, out_params, name, preamble)
        if len(self.outputs) != 1:
            raise KernelError(f"kernel {name}: a reduction has one output")
        self.expressions = (map_expr, reduce_expr, post_map_expr, identity)

    def source(self) -> str:
        """Return the source of the whole kernel: a block for each result."""
        map_expr, reduce_expr, post_map_expr, identity = self.expressions
        out = self.outputs[0]
        t = _c(out)
        formal = ", ".join(f"const {_c(p)} &{p.name}" for p in self.inputs)
        whole = ", ".join(f"const {_c(p)} *{p.name}_all" for p in self.inputs)
        actual = ", ".join(f"{p.name}_all[at]" for p in self.inputs)
        return (
            f"{self.preamble}\n"
            f"__device__ {t} {self.name}_map({formal}) {{ return ({map_expr}); }}\n"
            f"__device__ {t} {self.name}_fold({t} a, {t} b) {{ return ({reduce_expr}); }}\n"
            f"__device__ {t} {self.name}_post({t} a) {{ {t} {out.name}; {post_map_expr}; "
            f"return {out.name}; }}\n"
            f"__global__ void {self.name}({whole}, {t} *{out.name}_all, long long n) {{\n"
            f"    __shared__ {t} part[{_BLOCK}];\n"
            f"    {t} a = {identity};\n"
            f"    for (long long k = threadIdx.x; k < n; k += {_BLOCK}) {{\n"
            "        long long at = blockIdx.x * n + k;\n"
            f"        a = {self.name}_fold(a, {self.name}_map({actual}));\n"
            "    }\n"
            "    part[threadIdx.x] = a;\n"
            "    __syncthreads();\n"
            f"    for (int s = {_BLOCK // 2}; s > 0; s /= 2) {{\n"
            "        if (threadIdx.x < s) part[threadIdx.x] = "
            f"{self.name}_fold(part[threadIdx.x], part[threadIdx.x + s]);\n"
            "        __syncthreads();\n"
            "    }\n"
            f"    if (threadIdx.x == 0) {out.name}_all[blockIdx.x] = {self.name}_post(part[0]);\n"
            "}\n"
        )

    def __call__(self, *args: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """Return the reduction of arrays that broadcast, over all axes or some."""
        types = self.dtypes(args)
        shape = np.broadcast_shapes(*map(np.shape, args))
        every = tuple(range(len(shape)))
        named = every if axis is None else axis if isinstance(axis, tuple) else (axis,)
        if any(not -len(shape) <= a < len(shape) for a in named):
            raise ShapeError(f"kernel {self.name}: there is no axis {axis} of {len(shape)}")
        axes = tuple(sorted({a % len(shape) for a in named}))
        rest = tuple(a for a in every if a not in axes)
        count = int(np.prod([shape[a] for a in axes], dtype=int))
        results = tuple(shape[a] for a in rest)
        many = int(np.prod(results, dtype=int))
        arrays = []
        for p, x in zip(self.inputs, args, strict=True):
            x = x if hasattr(x, "dtype") else np.asarray(x, self.dtype(p, types))
            whole = x if np.shape(x) == shape else np.broadcast_to(x, shape)
            arrays.append(np.reshape(np.transpose(whole, rest + axes), (many, count)))
        out = np.zeros(many, self.dtype(self.outputs[0], types))
        if many:
            out = self.kernel(types).apply(many, _BLOCK, [*arrays, out, count])
        shape_with_ones = tuple(1 if a in axes else n for a, n in enumerate(shape))
        return np.reshape(out, shape_with_ones if keepdims else results)[()]
