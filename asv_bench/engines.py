"""What computes a workload: adarray on a backend, or a peer.

An engine turns a workload into a function without arguments that computes value and
gradient and returns them as plain arrays' equals, finished. Each is made in a process of
its own (see `asv_bench.worker`), so that no library meets another's threads.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from asv_bench.benchmarks.workloads import Arrays, Workload

Call = Callable[[], Any]


class Absent(Exception):  # noqa: N818  (a state, not a mistake)
    """The engine cannot work here; the text says why."""


class Prepared(NamedTuple):
    """A workload ready to run.

    Parameters
    ----------
    call : callable
        Computes and waits for the end.
    result : callable
        ``result(call())`` is ``(value, [gradient, ...])`` as plain arrays.
    """

    call: Call
    result: Callable[[Any], tuple[Any, list[Any]]]


def _require(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Absent(f"not installed ({error})") from None


class NumPyEngine:
    """NumPy computes the value alone."""

    def __init__(self, _: int) -> None:
        self.version = np.__version__

    def gradient(self, w: Workload) -> Prepared:
        """Prepare the value of `w`."""
        variables, constants = w.data()
        return Prepared(lambda: w.body(np, *variables, *constants), lambda r: (r, []))

    def kernel(self, name: str, operands: Arrays) -> Call:
        """Prepare one call of the NumPy function `name`."""
        function = getattr(np, name)
        return lambda: function(*operands)

    def product(self, dtype: str, n: int) -> Call:
        """Prepare the product of two `n` by `n` matrices."""
        a = np.random.default_rng(0).normal(size=(n, n)).astype(dtype)
        out = np.empty_like(a)
        return lambda: np.matmul(a, a, out=out)


class ADArrayEngine:
    """adarray on one of its backends, chosen until it is closed."""

    def __init__(self, backend: str, threads: int) -> None:
        self.adarray = adarray = _require("adarray")
        options = {"threads": threads} if backend == "openmp" else {}
        if backend not in adarray.backends():
            raise Absent(f"adarray has no backend {backend!r} here")
        try:
            self._used = adarray.use(backend, **options)
        except adarray.BackendError as error:
            raise Absent(str(error)) from None
        self._used.__enter__()
        self.version = adarray.__version__

    def close(self) -> None:
        """Return to the backend that was chosen before."""
        self._used.__exit__(None, None, None)

    def gradient(self, w: Workload) -> Prepared:
        """Prepare value and gradient of `w`."""
        variables, constants = w.data()
        k = len(variables)

        def f(*xs: Any) -> Any:
            return w.body(np, *xs, *constants)

        g = self.adarray.value_and_grad(f, argnums=tuple(range(k)))
        return Prepared(lambda: g(*variables), lambda r: (r[0], list(r[1])))

    def kernel(self, name: str, operands: Arrays) -> Call:
        """Prepare one call of the NumPy function `name` on untraced arrays."""
        function = getattr(np, name)
        arrays = tuple(self.adarray.array(x) for x in operands)
        return lambda: function(*arrays)


def small_function(x: Any, y: Any) -> Any:
    """Return a sum and a product: what a call costs when there is nothing to compute."""
    return x + y, x * y


def small_arrays() -> Arrays:
    """Return the arguments of `small_function`."""
    return np.arange(4.0), np.ones(4)


class JitEngine(ADArrayEngine):
    """adarray's compiler on one of its backends."""

    function: Any = None  # the compiled function that was prepared last
    arrays: Arrays = ()  # and its arguments

    def __init__(self, backend: str, threads: int) -> None:
        super().__init__(backend, threads)
        from adarray.jitting.tree import build

        build.ANSWERED = None  # calls wait for the compiler: what is timed is compiled

    def gradient(self, w: Workload) -> Prepared:
        """Prepare compiled value and gradient of `w`; every array is an argument."""
        variables, constants = w.data()
        k = len(variables)
        body = w.body  # alone: the function is not to reach what makes the data

        def f(*arrays: Any) -> Any:
            return body(np, *arrays)

        g = self.adarray.value_and_grad(f, argnums=tuple(range(k)))
        self.function = jitted = self.adarray.jit(g)
        self.arrays = arrays = (*variables, *constants)
        return Prepared(lambda: jitted(*arrays), lambda r: (r[0], list(r[1])))

    def value(self, w: Workload) -> Prepared:
        """Prepare the compiled value of `w`."""
        variables, constants = w.data()
        self.arrays = arrays = (*variables, *constants)
        body = w.body

        def f(*arrays: Any) -> Any:
            return body(np, *arrays)

        self.function = jitted = self.adarray.jit(f)
        return Prepared(lambda: jitted(*arrays), lambda r: (r, []))

    def trivial(self) -> Call:
        """Prepare a call whose arithmetic is nothing, NumPy arrays in and out."""
        x, y = small_arrays()
        f = self.adarray.jit(small_function)
        return lambda: f(x, y)

    def confirm(self) -> None:
        """Raise unless the function that was prepared last runs compiled.

        Raises
        ------
        RuntimeError
            If it, or part of it, runs step by step: its time would say nothing.
        """
        if self.adarray.current_backend() == "numpy":
            return  # which has no compiler
        facts = self.facts()
        if not 0 < facts["segments"] == facts["compiled"]:
            raise RuntimeError("jit: not compiled: {compiled} of {segments} parts".format(**facts))

    def facts(self) -> dict[str, Any]:
        """Return figures of the plans of the function that was prepared last."""
        nodes = self.function.path(*self.arrays)
        plans = [node.plan for node in nodes]
        steps = [step for plan in plans if plan is not None for step in plan.steps]
        executables = [node.executable for node in nodes if node.executable is not None]
        sources = {name for e in executables for name, _ in e.sources()}
        seconds: dict[str, float] = {}
        for node in nodes:
            for stage, spent in node.seconds.items():
                seconds[stage] = seconds.get(stage, 0.0) + spent
        return {
            "segments": len(nodes),
            "compiled": len(executables),
            "calls": sum(len(node.calls) for node in nodes),
            "kernels": sum(type(s).__name__ == "KernelStep" for s in steps),
            "distinct": len(sources),
            "products": sum(type(s).__name__ == "MatmulStep" for s in steps),
            "other": sum(type(s).__name__ == "CallStep" for s in steps),
            "seconds": seconds,
        }


class AutogradEngine:
    """HIPS autograd."""

    def __init__(self, _: int) -> None:
        self.autograd = _require("autograd")
        self.numpy = _require("autograd.numpy")
        self.version = _distribution_version("autograd")

    def gradient(self, w: Workload) -> Prepared:
        """Prepare value and gradient of `w`."""
        variables, constants = w.data()

        def f(*xs: Any) -> Any:
            return w.body(self.numpy, *xs, *constants)

        g = self.autograd.value_and_grad(f, argnum=tuple(range(len(variables))))
        return Prepared(lambda: g(*variables), lambda r: (r[0], list(r[1])))


class MyGradEngine:
    """MyGrad, whose tensors go through NumPy's own functions."""

    def __init__(self, _: int) -> None:
        self.mygrad = _require("mygrad")
        self.version = _distribution_version("mygrad")

    def gradient(self, w: Workload) -> Prepared:
        """Prepare value and gradient of `w`."""
        variables, constants = w.data()

        def call() -> Any:
            xs = [self.mygrad.tensor(x, copy=False) for x in variables]
            y = w.body(np, *xs, *constants)
            y.backward()
            return y, xs

        return Prepared(call, lambda r: (r[0].data, [x.grad for x in r[1]]))


class TorchEngine:
    """PyTorch on the CPU, eager."""

    def __init__(self, threads: int) -> None:
        self.torch = _require("torch")
        self.torch.set_num_threads(threads)
        self.version = self.torch.__version__

    def body(self, w: Workload) -> Callable[..., Any]:
        """Return the function of tensors that is differentiated."""
        body = w.torch or w.body
        return lambda *xs: body(self.torch, *xs)

    def gradient(self, w: Workload) -> Prepared:
        """Prepare value and gradient of `w`."""
        variables, constants = w.data()
        xs = [self.torch.from_numpy(x).requires_grad_() for x in variables]
        rest = [self.torch.from_numpy(x) for x in constants]
        f = self.body(w)

        def call() -> Any:
            y = f(*xs, *rest)
            return y, self.torch.autograd.grad(y, xs)

        return Prepared(call, lambda r: (r[0].detach().numpy(), [g.numpy() for g in r[1]]))

    def product(self, dtype: str, n: int) -> Call:
        """Prepare the product of two `n` by `n` matrices."""
        torch = self.torch
        a = torch.randn(n, n, dtype=getattr(torch, dtype))
        out = torch.empty_like(a)
        return lambda: torch.mm(a, a, out=out)


class CompiledTorchEngine(TorchEngine):
    """PyTorch with ``torch.compile``."""

    def trivial(self) -> Call:
        """Prepare a call whose arithmetic is nothing, NumPy arrays in and out."""
        x, y = small_arrays()
        f = self.torch.compile(small_function)
        tensor = self.torch.from_numpy
        return lambda: [z.numpy() for z in f(tensor(x), tensor(y))]

    def body(self, w: Workload) -> Callable[..., Any]:
        """Return the compiled function of tensors."""
        self.torch.compiler.reset()  # or the bodies before count as its recompilations
        return self.torch.compile(super().body(w))  # type: ignore[no-any-return]


class CompiledTextEngine(CompiledTorchEngine):
    """``torch.compile`` on the NumPy text, where PyTorch has a body of its own as well.

    Its compiler fuses some texts better than the library functions that say the same.
    """

    def gradient(self, w: Workload) -> Prepared:
        """Prepare value and gradient of `w`."""
        if w.torch is None:
            raise Absent("the workload has no body of its own for PyTorch")
        return super().gradient(w)

    def body(self, w: Workload) -> Callable[..., Any]:
        """Return the compiled function of tensors."""
        names = _TorchNames(self.torch)
        self.torch.compiler.reset()
        return self.torch.compile(lambda *xs: w.body(names, *xs))  # type: ignore[no-any-return]


class _TorchNames:
    """PyTorch's functions, with NumPy's meaning where the same name means something else."""

    def __init__(self, torch: Any) -> None:
        for name in ("abs", "arange", "cos", "exp", "log", "log1p", "mean", "sin", "sqrt",
                     "sum", "tanh", "where", "zeros"):  # fmt: skip
            setattr(self, name, getattr(torch, name))
        self.max = torch.amax
        self.maximum = torch.clamp_min
        self.logaddexp = lambda a, b: torch.logaddexp(torch.full_like(b, a), b)


class JAXEngine:
    """JAX on the CPU, jit-compiled."""

    def __init__(self, _: int) -> None:
        self.jax = _require("jax")
        self.jax.config.update("jax_platforms", "cpu")
        self.jax.config.update("jax_enable_x64", True)
        self.numpy = _require("jax.numpy")
        self.version = self.jax.__version__

    def gradient(self, w: Workload) -> Prepared:
        """Prepare value and gradient of `w`."""
        variables, constants = w.data()
        k = len(variables)
        # Constants are arguments: as captured values XLA would fold them at compile time.
        arguments = [self.numpy.asarray(x) for x in (*variables, *constants)]

        f = self.body(w)
        g = self.jax.jit(self.jax.value_and_grad(f, argnums=tuple(range(k))))
        return Prepared(
            lambda: self.jax.block_until_ready(g(*arguments)), lambda r: (r[0], list(r[1]))
        )

    def trivial(self) -> Call:
        """Prepare a call whose arithmetic is nothing, NumPy arrays in and out."""
        x, y = small_arrays()
        f = self.jax.jit(small_function)
        return lambda: [np.asarray(z) for z in f(x, y)]

    def body(self, w: Workload) -> Callable[..., Any]:
        """Return the function of arrays that is differentiated."""
        return lambda *xs: w.body(self.numpy, *xs)


class ScannedJAXEngine(JAXEngine):
    """JAX with the workload's loop rewritten as ``jax.lax.scan``."""

    def body(self, w: Workload) -> Callable[..., Any]:
        """Return the rewritten function."""
        if w.scan is None:
            raise Absent("the workload has no loop to rewrite")
        scan = w.scan
        return lambda *xs: scan(self.jax, *xs)


def _distribution_version(name: str) -> str:
    from importlib.metadata import version

    return version(name)


PEERS: dict[str, Callable[[int], Any]] = {
    "autograd": AutogradEngine,
    "mygrad": MyGradEngine,
    "torch": TorchEngine,
    "torch.compile": CompiledTorchEngine,
    "jax": JAXEngine,
}
# Second texts for compilers, measured by `asv_bench.jit` alone.
TEXTS: dict[str, Callable[[int], Any]] = {
    "torch.compile, NumPy text": CompiledTextEngine,
    "jax, lax.scan": ScannedJAXEngine,
}
ADARRAY = ("numpy", "serial", "openmp")


def make(name: str, threads: int) -> Any:
    """Return the engine of that name.

    It is ``numpy``, ``adarray-<backend>``, ``jit-<backend>``, or one of `PEERS` and `TEXTS`.

    Raises
    ------
    Absent
        If it cannot work in this interpreter.
    """
    if name == "numpy":
        return NumPyEngine(threads)
    if name.startswith("adarray-"):
        return ADArrayEngine(name.removeprefix("adarray-"), threads)
    if name.startswith("jit-"):
        return JitEngine(name.removeprefix("jit-"), threads)
    return (PEERS | TEXTS)[name](threads)
