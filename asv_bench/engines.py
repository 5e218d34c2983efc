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


class ADArrayEngine:
    """adarray on one of its backends, chosen for the life of the process."""

    def __init__(self, backend: str, threads: int) -> None:
        self.adarray = adarray = _require("adarray")
        options = {"threads": threads} if backend == "openmp" else {}
        if backend not in adarray.backends():
            raise Absent(f"adarray has no backend {backend!r} here")
        try:
            adarray.use(backend, **options).__enter__()
        except adarray.BackendError as error:
            raise Absent(str(error)) from None
        self.version = adarray.__version__

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


class CompiledTorchEngine(TorchEngine):
    """PyTorch with ``torch.compile``."""

    def body(self, w: Workload) -> Callable[..., Any]:
        """Return the compiled function of tensors."""
        self.torch.compiler.reset()  # or the bodies before count as its recompilations
        return self.torch.compile(super().body(w))  # type: ignore[no-any-return]


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

        def f(*xs: Any) -> Any:
            return w.body(self.numpy, *xs)

        g = self.jax.jit(self.jax.value_and_grad(f, argnums=tuple(range(k))))
        return Prepared(
            lambda: self.jax.block_until_ready(g(*arguments)), lambda r: (r[0], list(r[1]))
        )


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
ADARRAY = ("numpy", "serial", "openmp")


def make(name: str, threads: int) -> Any:
    """Return the engine `name`: ``numpy``, ``adarray-<backend>`` or one of `PEERS`.

    Raises
    ------
    Absent
        If it cannot work in this interpreter.
    """
    if name == "numpy":
        return NumPyEngine(threads)
    if name.startswith("adarray-"):
        return ADArrayEngine(name.removeprefix("adarray-"), threads)
    return PEERS[name](threads)
