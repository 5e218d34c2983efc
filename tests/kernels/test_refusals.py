"""What kernels are refused for, with the line of the source; and calls that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray
from adarray.errors import DTypeError, KernelError
from adarray.kernels import RawKernel

HEAD = "__global__ void k(float *x, const float *y, int n) {\n    int i = threadIdx.x;\n"

SOURCES = {
    "__match_all_sync takes another number": "    x[i] = __match_all_sync(~0u, i);\n",
    "__shfl_down: this function of a warp": "    x[i] = __shfl_down(y[i], 1);\n",
    "__shfl_sync: the width is no constant power": "    x[i] = __shfl_sync(~0u, y[i], 0, n);\n",
    "__shfl_xor_sync takes another number": "    x[i] = __shfl_xor_sync(~0u, y[i]);\n",
    "__reduce_add_sync takes an int or": "    x[i] = __reduce_add_sync(~0u, y[i]);\n",
    "atomicCAS: this atomic function": "    atomicCAS(&n, 1, 2);\n",
    "atomicMax of floating-point numbers": "    atomicMax(&x[0], y[i]);\n",
    "printf is not supported": '    printf("%d", i);\n',
    "the function 'nobody' is not known": "    x[i] = nobody(y[i]);\n",
    "the name 'z' is not known": "    x[i] = z[i];\n",
    "'y' is const, and written": "    y[i] = 1;\n",
    "goto (goto) cannot be differentiated": "    goto end;\n",
    "a barrier that not all threads": "    if (i < n) { __syncthreads(); x[i] = 1; }\n",
    "numbers that are read as others have no": "    x[i] = ((const int *)y)[i];\n",
    "__float_as_int: numbers that are read": "    x[i] = __float_as_int(y[i]);\n",
    "textures are not supported": "    x[i] = tex1Dfetch(n, i);\n",
    "sizeof is not supported": "    x[i] = sizeof(float);\n",
    "a case that goes on into": "    switch (i) { case 0: x[0] = 1; case 1: x[1] = 2; break; }\n",
    "names with :: are not supported": "    cg::sync(i);\n",
    "memory is not allocated": "    float *p = (float *)malloc(4);\n",
    "is moved to another array": "    const float *p = y; p = x; x[i] = *p;\n",
    "the size of an array is no constant": "    float a[n]; x[i] = a[0];\n",
    "assembler (asm)": '    asm("nop");\n',
}  # fmt: skip


@pytest.mark.parametrize("text", SOURCES)
def test_a_source_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(KernelError) as caught:
        RawKernel(HEAD + SOURCES[text] + "    x[i] += 1;\n}\n", "k")
    assert caught.value.line == 3
    message = str(caught.value)
    assert message.startswith("kernel k, line 3: ")
    assert text in message
    assert message.endswith(SOURCES[text].strip())


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("class A {};",
         "kernel k, line 1: classes (class) cannot be differentiated\n    class A {};"),
        ("#include <cuda_fp16.h>\n__global__ void k(half *x) { }",
         "kernel k, line 2: half precision (half) cannot be differentiated\n"
         "    __global__ void k(half *x) { }"),
        ("__global__ void other(int *x) { }",
         "kernel k: there is no kernel 'k' in the source; there is other"),
        ("__device__ float f(float x) { return f(x); }\n"
         "__global__ void k(float *x) { *x = f(*x); }",
         "kernel k, line 1: f: recursion is not supported\n"
         "    __device__ float f(float x) { return f(x); }"),
        ("#ifdef X\n__global__ void k(int *x) { }", "kernel k: an #if has no #endif"),
        ("__constant__ float c[3];\n__global__ void k(float *x) { *x = c[0]; }",
         "kernel k, line 1: 'c' is filled by the host; make it a parameter\n"
         "    __constant__ float c[3];"),
        ("struct P { float x; int i; };\n__global__ void k(P *p) { p[0].x = 1; }",
         "kernel k, line 2: arrays of structs whose fields have different types are not supported; "
         "use an array for each type\n    __global__ void k(P *p) { p[0].x = 1; }"),
    ],
)  # fmt: skip
def test_the_text_of_a_refusal(source: str, text: str) -> None:
    with pytest.raises(KernelError) as caught:
        RawKernel(source, "k")
    assert str(caught.value) == text


def test_what_is_no_c_is_refused_with_its_line() -> None:
    with pytest.raises(KernelError, match=r"kernel k, line 2: this is not C as far as adarray"):
        RawKernel("__global__ void k(float *x) {\n    x[0] = ;\n}", "k")


SQUARE = """
__global__ void square(const float *x, float *y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] * x[i];
}
"""


def _args() -> list[Any]:
    return [np.ones(3, np.float32), np.zeros(3, np.float32), 2.0, 3]


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({0: np.ones(3)}, DTypeError,
         "kernel square: the argument 'x' is float64, and the source has float32; convert it "
         "with astype"),
        ({0: [1.0, 2.0]}, DTypeError,
         "kernel square: the argument 'x' is list, and the source has float32; convert it with "
         "astype"),
        ({3: 2.5}, KernelError,
         "kernel square: the argument 'n' is no whole number, and the source has int32"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit(change: dict[int, Any], error: type, text: str) -> None:
    args = _args()
    for i, x in change.items():
        args[i] = x
    with adarray.use("serial"), pytest.raises(error) as caught:
        RawKernel(SQUARE, "square")(1, 32, args)
    assert str(caught.value) == text


def test_calls_that_do_not_fit() -> None:
    kernel = RawKernel(SQUARE, "square")
    x = np.ones(3, np.float32)
    with pytest.raises(
        KernelError, match="3 arguments were given, and the source has 4: x, y, a, n"
    ):
        kernel(1, 32, _args()[:3])
    with pytest.raises(KernelError, match=r"the grid is \(\); pass up to three whole numbers"):
        kernel((), 32, _args())
    with pytest.raises(KernelError, match="the block 2048 has more than 1024 threads"):
        kernel(1, 2048, _args())
    with pytest.raises(KernelError, match="'x' and 'y' share memory, and the kernel writes one"):
        kernel(1, 32, [x, x, 1.0, 3])


def test_third_derivatives_are_refused() -> None:
    kernel = RawKernel(SQUARE.replace("float", "double"), "square")

    def f(x: Any) -> Any:
        return np.sum(kernel.apply(1, 32, (x, np.zeros(3), 2.0, 3)))

    with adarray.use("serial"):
        g = adarray.grad(f)
        with pytest.raises(KernelError, match="reverse mode over reverse mode is not supported"):
            adarray.grad(lambda x: np.sum(g(x)))(np.ones(3))


def test_results_of_atomic_operations_have_no_derivative() -> None:
    kernel = RawKernel(
        "__global__ void k(double *x, double *y) { y[threadIdx.x] = atomicAdd(x, 1.0); }", "k"
    )
    with adarray.use("serial"), pytest.raises(KernelError, match="depends on the order of threads"):
        adarray.grad(lambda x: np.sum(kernel.apply(1, 2, (x, np.zeros(2)))[1]))(np.ones(1))


def test_a_tape_above_the_limit_is_refused() -> None:
    source = """
    __global__ void k(const double *x, double *y, int n) {
        double p = 1;
        for (int i = 0; i < n; i++) p *= x[i];
        *y = p;
    }
    """
    kernel = RawKernel(source, "k", memory_limit=1000)

    def f(x: Any) -> Any:
        return np.sum(kernel.apply(1, 1, (x, np.zeros(1), x.size)))

    with adarray.use("serial"):
        assert adarray.grad(f)(np.ones(50)).shape == (50,)
        assert adarray.grad(f)(np.ones(500)).shape == (500,)  # with checkpoints
        with pytest.raises(KernelError, match="its tape needs more than memory_limit=1000 bytes"):
            adarray.grad(f)(np.ones(50_000))
