"""What computes a workload on a GPU: adarray, PyTorch and JAX, each in a process of its own.

Calls of a GPU return before their result is there. So an engine gives, beside the call,
what waits for all calls that were made, and a time is that of several calls and one wait.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from asv_bench.engines import Absent, JAXEngine, TorchEngine, _require, _TorchNames
from asv_bench.gpu.ceilings import copies
from asv_bench.gpu.workloads import RATE, GpuWorkload

Call = Callable[[], Any]
SAMPLE = 1 << 20  # elements of an array that are compared with other engines'


class PreparedCall(NamedTuple):
    """A workload ready to run.

    Parameters
    ----------
    call : callable
        Asks for value and gradient, or for a step of gradient descent.
    wait : callable
        Waits until everything that was asked for is computed.
    result : callable
        ``result(call())`` is ``(value, [array, ...])``, arrays as `sampled` returns them:
        the gradients, or the new parameters.
    """

    call: Call
    wait: Call
    result: Callable[[Any], tuple[float, list[np.ndarray]]]


def sampled(flat: Any) -> Any:
    """Return a flat array, or of a long one elements at equal distances."""
    n = int(flat.shape[0])
    return flat if n <= SAMPLE else flat[:: n // SAMPLE | 1]  # odd: every residue comes up


# -- adarray ------------------------------------------------------------------------------


class ADArrayJit:
    """`adarray.jit` in a block of ``use("cuda")``; arrays are on the GPU before and after."""

    def __init__(self) -> None:
        self.adarray = _require("adarray")
        self.version = self.adarray.__version__
        self.use: Any = None
        self.choose("float32")
        self.cupy = _require("cupy")
        self.function: Any = None
        self.arrays: list[Any] = []

    def choose(self, precision: str) -> None:
        """Compute on the GPU from now on, matrix products in this precision."""
        if self.use is not None:
            self.use.__exit__(None, None, None)
        options = {} if precision == "float32" else {"matmul_precision": precision}
        try:
            self.use = self.adarray.use("cuda", **options)
            self.use.__enter__()
        except self.adarray.BackendError as error:
            self.use = None
            raise Absent(str(error)) from None

    def prepare(self, w: GpuWorkload) -> PreparedCall:
        """Prepare a workload; every array is an argument."""
        self.choose(w.precision)
        variables, constants = w.workload.data()
        count = len(variables)
        self.arrays = [self.adarray.array(x) for x in (*variables, *constants)]
        del variables, constants

        body = w.workload.body  # alone: the function is not to reach what makes the data

        def f(*arrays: Any) -> Any:
            return body(np, *arrays)

        g = self.adarray.value_and_grad(f, argnums=tuple(range(count)))
        if w.step:
            return self._stepped(g, count)
        self.function = jitted = self.compiled(g)
        arrays = tuple(self.arrays)
        return PreparedCall(lambda: jitted(*arrays), self.wait, self.result)

    def _stepped(self, g: Callable[..., Any], count: int) -> PreparedCall:
        """Prepare steps, each of which begins where the one before has ended."""

        def step(*arrays: Any) -> Any:
            value, slopes = g(*arrays)
            moved = zip(arrays[:count], slopes, strict=True)
            return value, tuple(p - RATE * s for p, s in moved)

        self.function = jitted = self.compiled(step)
        rest = tuple(self.arrays[count:])
        state = tuple(self.arrays[:count])

        def call() -> Any:
            nonlocal state
            value, state = jitted(*state, *rest)
            return value, state

        return PreparedCall(call, self.wait, self.result)

    def compiled(self, f: Callable[..., Any]) -> Any:
        """Return `f` compiled."""
        return self.adarray.jit(f)

    def wait(self) -> None:
        """Wait for the GPU."""
        self.cupy.cuda.get_current_stream().synchronize()

    def result(self, outcome: Any) -> tuple[float, list[np.ndarray]]:
        """Return value and samples on the host."""
        value, arrays = outcome
        return float(value), [sampled(np.ravel(x)).numpy() for x in arrays]

    def release(self) -> None:
        """Give memory back that nothing uses."""
        self.function, self.arrays = None, []
        self.cupy.get_default_memory_pool().free_all_blocks()

    def matrices(self, a: np.ndarray, b: np.ndarray) -> tuple[Any, Any, Any]:
        """Return float32 matrices and their float64 product on the GPU."""
        self.choose("float32")
        x, y = (self.adarray.array(m.astype(np.float64)) for m in (a, b))
        return self.adarray.array(a), self.adarray.array(b), x @ y

    def product(self, a: Any, b: Any, exact: Any, precision: str) -> tuple[Call, Call, float]:
        """Return functions that multiply matrices and that wait, and the relative error."""
        own = {"float16": np.float16, "float64": np.float64}.get(precision)
        self.choose("float32" if own else precision)
        x, y = (m if own is None else m.astype(own) for m in (a, b))
        error = np.linalg.norm((x @ y).astype(np.float64) - exact) / np.linalg.norm(exact)
        return lambda: x @ y, self.wait, float(error)

    def confirm(self) -> None:
        """Raise unless the function that was prepared last runs compiled.

        Raises
        ------
        RuntimeError
            If it, or part of it, runs step by step: its time would say nothing.
        """
        nodes = self.function.path(*self.arrays)
        ready = [node for node in nodes if node.executable is not None]
        if not 0 < len(ready) == len(nodes):
            raise RuntimeError(f"jit: not compiled: {len(ready)} of {len(nodes)} parts")


class ADArrayEager(ADArrayJit):
    """adarray without `jit`: every operation is a kernel of its own."""

    def compiled(self, f: Callable[..., Any]) -> Any:
        """Return `f`."""
        return f

    def confirm(self) -> None:
        """Have nothing to confirm."""


# -- PyTorch ------------------------------------------------------------------------------


class Torch(TorchEngine):
    """PyTorch eager on the GPU."""

    mode: str | None = None

    def __init__(self) -> None:
        # A compiler's own worker processes would outlive a worker that is stopped.
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
        super().__init__(2)
        if not self.torch.cuda.is_available():
            raise Absent("torch finds no GPU")

    def release(self) -> None:
        """Give memory back that nothing uses."""
        self.torch.cuda.empty_cache()

    def copies(self) -> dict[str, float]:
        """Return bytes read and written per second by copies of so many bytes."""
        return copies(self.torch)

    def matrices(self, a: np.ndarray, b: np.ndarray) -> tuple[Any, Any, Any]:
        """Return float32 matrices and their float64 product on the GPU."""
        x, y = self.put((a, b))
        return x, y, x.double() @ y.double()

    def product(self, a: Any, b: Any, exact: Any, precision: str) -> tuple[Call, Call, float]:
        """Return functions that multiply matrices and that wait, and the relative error."""
        torch = self.torch
        dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16, "float16": torch.float16,
                "float64": torch.float64}  # fmt: skip
        self.choose(precision)
        x, y = (m.to(dtypes.get(precision, torch.float32)) for m in (a, b))
        out = torch.empty_like(x)
        norm = torch.linalg.vector_norm
        error = norm((x @ y).double() - exact) / norm(exact)
        return lambda: torch.mm(x, y, out=out), torch.cuda.synchronize, float(error)

    def choose(self, precision: str) -> None:
        """Compute matrix products in this precision from now on."""
        self.torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")

    def put(self, arrays: tuple[np.ndarray, ...], leaves: bool = False) -> list[Any]:
        """Return tensors on the GPU; leaves are what gradients are taken by."""
        put = [self.torch.from_numpy(x).cuda() for x in arrays]
        return [x.requires_grad_() for x in put] if leaves else put

    def prepare(self, w: GpuWorkload) -> PreparedCall:
        """Prepare a workload as its users write it: a loss, its gradient, an update."""
        torch = self.torch
        self.choose(w.precision)
        variables, constants = w.workload.data()
        xs, rest = self.put(variables, leaves=True), self.put(constants)
        del variables, constants
        f = self.function(w)
        self.begin(xs)

        def call() -> Any:
            self.mark()
            y = f(*xs, *rest)
            return y, torch.autograd.grad(y, xs)

        def step() -> Any:
            self.mark()
            y = f(*xs, *rest)
            slopes = torch.autograd.grad(y, xs)
            with torch.no_grad():
                torch._foreach_add_(xs, slopes, alpha=-RATE)
            return y, xs

        return PreparedCall(step if w.step else call, torch.cuda.synchronize, self.result)

    def function(self, w: GpuWorkload) -> Callable[..., Any]:
        """Return the function of tensors that is differentiated."""
        return self.body(w.workload)

    def begin(self, xs: list[Any]) -> None:
        """Get the parameters before the first call."""

    def mark(self) -> None:
        """Say that what the call before has returned is no longer needed."""

    def result(self, outcome: Any) -> tuple[float, list[np.ndarray]]:
        """Return value and samples on the host."""
        value, arrays = outcome
        return float(value.detach()), [sampled(x.detach().flatten()).cpu().numpy() for x in arrays]


class TorchCompile(Torch):
    """PyTorch with ``torch.compile`` around the loss."""

    def __init__(self) -> None:
        super().__init__()
        _require("torch._inductor.compile_fx")  # takes seconds: while other processes start, too

    def function(self, w: GpuWorkload) -> Callable[..., Any]:
        """Return the compiled function."""
        self.torch.compiler.reset()
        return self.torch.compile(super().function(w), mode=self.mode)  # type: ignore[no-any-return]

    def begin(self, xs: list[Any]) -> None:
        """Let CUDA graphs read the parameters where they are."""
        for x in xs:
            self.torch._dynamo.mark_static_address(x)

    def mark(self) -> None:
        """Begin a new run of CUDA graphs."""
        if self.mode is not None:
            self.torch.compiler.cudagraph_mark_step_begin()


class TorchGraphs(TorchCompile):
    """The same with CUDA graphs."""

    mode = "reduce-overhead"


class TorchWhole(TorchCompile):
    """PyTorch with ``torch.compile`` around all of it: loss, gradient and update."""

    def prepare(self, w: GpuWorkload) -> PreparedCall:
        """Prepare a workload as one compiled function without autograd's graph."""
        torch = self.torch
        self.choose(w.precision)
        variables, constants = w.workload.data()
        xs, rest = self.put(variables), self.put(constants)
        count = len(variables)
        del variables, constants
        g = torch.func.grad_and_value(self.text(w), argnums=tuple(range(count)))

        def whole(*arrays: Any) -> Any:
            slopes, value = g(*arrays)
            if not w.step:
                return value, slopes
            for p, s in zip(arrays[:count], slopes, strict=True):
                p.sub_(RATE * s)
            return value, arrays[:count]

        torch.compiler.reset()
        f = torch.compile(whole, mode=self.mode)
        self.begin([*xs, *rest])

        def call() -> Any:
            self.mark()
            return f(*xs, *rest)

        return PreparedCall(call, torch.cuda.synchronize, self.result)

    def text(self, w: GpuWorkload) -> Callable[..., Any]:
        """Return the function of tensors that is differentiated."""
        return TorchEngine.body(self, w.workload)


class TorchWholeGraphs(TorchWhole):
    """The same with CUDA graphs."""

    mode = "reduce-overhead"


class TorchNumPyText(TorchWhole):
    """The same on the NumPy text, where PyTorch has a body of its own as well."""

    def text(self, w: GpuWorkload) -> Callable[..., Any]:
        """Return the function of tensors that is differentiated."""
        if w.workload.torch is None:
            raise Absent("the workload has no body of its own for PyTorch")
        names = _TorchNames(self.torch)
        return lambda *xs: w.workload.body(names, *xs)


# -- JAX ----------------------------------------------------------------------------------


class JAX(JAXEngine):
    """JAX on the GPU, jit-compiled, parameters donated."""

    def __init__(self) -> None:
        # Several workers share the GPU: none may take most of its memory at the start.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        self.jax = jax = _require("jax")
        self.numpy = _require("jax.numpy")
        self.version = jax.__version__
        if jax.default_backend() != "gpu":
            raise Absent("jax finds no GPU")

    def release(self) -> None:
        """Drop what was compiled, and the arrays that it holds."""
        self.jax.clear_caches()

    def prepare(self, w: GpuWorkload) -> PreparedCall:
        """Prepare a workload as one compiled function."""
        jax = self.jax
        exact = "tensorfloat32" if w.precision == "tf32" else "highest"
        jax.config.update("jax_default_matmul_precision", exact)
        variables, constants = w.workload.data()
        count = len(variables)
        state = tuple(jax.device_put(x) for x in variables)
        rest = tuple(jax.device_put(x) for x in constants)
        del variables, constants
        g = jax.value_and_grad(self.body(w.workload), argnums=tuple(range(count)))
        last: Any = None

        def step(*arrays: Any) -> Any:
            value, slopes = g(*arrays)
            moved = zip(arrays[:count], slopes, strict=True)
            return value, tuple(p - RATE * s for p, s in moved)

        f = jax.jit(step, donate_argnums=tuple(range(count))) if w.step else jax.jit(g)

        def call() -> Any:
            nonlocal state, last
            last = f(*state, *rest)
            if w.step:
                state = last[1]
            return last

        return PreparedCall(call, lambda: jax.block_until_ready(last), self.result)

    def result(self, outcome: Any) -> tuple[float, list[np.ndarray]]:
        """Return value and samples on the host."""
        value, arrays = outcome
        return float(value), [np.asarray(sampled(x.reshape(-1))) for x in arrays]


class JAXScan(JAX):
    """JAX with the workload's loop rewritten as ``jax.lax.scan``."""

    def body(self, w: Any) -> Callable[..., Any]:
        """Return the rewritten function."""
        if w.scan is None:
            raise Absent("the workload has no loop to rewrite")
        return lambda *xs: w.scan(self.jax, *xs)


OURS = "adarray jit"
OWN: dict[str, Callable[[], Any]] = {OURS: ADArrayJit, "adarray eager": ADArrayEager}
PEERS: dict[str, Callable[[], Any]] = {
    "torch": Torch,
    "torch.compile": TorchCompile,
    "torch.compile, CUDA graphs": TorchGraphs,
    "torch.compile, whole": TorchWhole,
    "torch.compile, whole, CUDA graphs": TorchWholeGraphs,
    "torch.compile, NumPy text": TorchNumPyText,
    "jax": JAX,
    "jax, lax.scan": JAXScan,
}


def make(name: str) -> Any:
    """Return the engine of that name.

    Raises
    ------
    Absent
        If it cannot work in this interpreter.
    """
    return (OWN | PEERS)[name]()


def suits(name: str, w: GpuWorkload) -> bool:
    """Return whether an engine has something of its own to run for a workload."""
    if name == "torch.compile, NumPy text":
        return w.workload.torch is not None and not w.step
    if name == "jax, lax.scan":
        return w.workload.scan is not None
    return True
