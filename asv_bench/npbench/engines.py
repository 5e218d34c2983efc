"""What differentiates a program: adarray, eager and compiled, JAX, autograd, DaCe AD.

adarray and autograd run NPBench's NumPy text, JAX and DaCe what NPBench has for them.
"""

from __future__ import annotations

import os
import sys
import tempfile
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from asv_bench import engines
from asv_bench.engines import Absent
from asv_bench.npbench.programs import Data, Objective, Program, copied, leaves

# Those that are not adarray's run in the interpreter of the peers.
PEERS = ("jax", "autograd", "dace")
OURS = (
    "adarray-serial", "adarray-openmp", "adarray-cuda", "jit-serial", "jit-openmp", "jit-cuda",
)  # fmt: skip


class Task(NamedTuple):
    """A program with its data.

    Parameters
    ----------
    program : Program
    data : dict
    objective : Objective
    """

    program: Program
    data: Data
    objective: Objective

    @property
    def names(self) -> list[str]:
        """The inputs that derivatives are taken of."""
        return self.program.inputs(self.data)

    def function(self, xp: Any, f: Callable[..., Any]) -> Callable[..., Any]:
        """Return the objective as a function of these inputs.

        What the program writes into is copied before, by `xp`.
        """
        data, target, names = self.data, self.objective, self.names

        def value(*inputs: Any) -> Any:
            arguments = dict(data)
            arguments.update(zip(names, inputs, strict=True))
            for k in target.written:
                arguments[k] = xp.array(arguments[k])
            result = f(*arguments.values())
            return target.value(xp, target.outputs_of(result, arguments))

        return value

    def inputs(self) -> list[Any]:
        """Return the values of the inputs."""
        return [self.data[k] for k in self.names]


class Prepared(NamedTuple):
    """A task ready to run.

    Parameters
    ----------
    call : callable
        Computes value and gradient, and waits for the end.
    result : callable
        ``result(call())`` is ``(value, {input: gradient})``; no gradients from who has none.
    note : callable, optional
        What there is to say of it, once it was called: why it is not compiled.
    """

    call: Callable[[], Any]
    result: Callable[[Any], tuple[float, Data]]
    note: Callable[[], str] = str


def _named(task: Task) -> Callable[[Any], tuple[float, Data]]:
    def result(r: Any) -> tuple[float, Data]:
        value, gradients = r
        arrays = {k: np.asarray(g) for k, g in zip(task.names, gradients, strict=True)}
        return float(value), arrays

    return result


class NumPyEngine:
    """NumPy computes the value alone."""

    def __init__(self, _: int) -> None:
        self.version = np.__version__

    def prepare(self, task: Task) -> Prepared:
        """Prepare the value."""
        f = task.program.function("numpy")

        def call() -> Any:
            arguments = copied(task.data, task.objective.written)
            return task.objective.outputs_of(f(*arguments.values()), arguments)

        return Prepared(call, lambda outputs: (float(task.objective.value(np, outputs)), {}))


class ADArrayEngine(engines.ADArrayEngine):
    """adarray, eager."""

    def prepare(self, task: Task) -> Prepared:
        """Prepare value and gradient."""
        function = self._gradient(task)
        inputs = self._inputs(task)
        return Prepared(lambda: function(*inputs), _named(task))

    def _gradient(self, task: Task) -> Any:
        f = task.function(np, task.program.function("numpy"))
        return self.adarray.value_and_grad(f, argnums=tuple(range(len(task.names))))

    def _inputs(self, task: Task) -> list[Any]:
        inputs = task.inputs()
        if self.adarray.current_backend() != "cuda":
            return inputs
        return [self.adarray.array(x).to_device("cuda") for x in inputs]


class JitEngine(ADArrayEngine):
    """adarray's compiler."""

    def __init__(self, backend: str, threads: int) -> None:
        super().__init__(backend, threads)
        from adarray.jitting.tree import build

        build.ANSWERED = None  # calls wait for the compiler

    def prepare(self, task: Task) -> Prepared:
        """Prepare compiled value and gradient."""
        jitted = self.adarray.jit(self._gradient(task))
        inputs = self._inputs(task)

        def note() -> str:
            entries = [e.eager for e in jitted.entries if e.eager]
            nodes = [] if entries else jitted.path(*inputs)
            return "; ".join([*entries, *dict.fromkeys(n.eager for n in nodes if n.eager)])

        return Prepared(lambda: jitted(*inputs), _named(task), note)


class AutogradEngine:
    """HIPS autograd, on NumPy's text with its own NumPy."""

    def __init__(self, _: int) -> None:
        self.autograd = engines._require("autograd")
        self.numpy = engines._require("autograd.numpy")
        self.version = engines._distribution_version("autograd")

    def prepare(self, task: Task) -> Prepared:
        """Prepare value and gradient."""
        module = task.program.text("numpy", "_autograd")
        for name, x in tuple(vars(module).items()):
            if x is np:
                setattr(module, name, self.numpy)
        f = task.function(self.numpy, getattr(module, task.program.info["func_name"]))
        g = self.autograd.value_and_grad(f, argnum=tuple(range(len(task.names))))
        inputs = task.inputs()
        return Prepared(lambda: g(*inputs), _named(task))


class JAXEngine:
    """JAX jit, on its own texts."""

    def __init__(self, _: int) -> None:
        self.jax = engines._require("jax")
        self.jax.config.update("jax_enable_x64", True)
        self.version = self.jax.__version__

    def prepare(self, task: Task) -> Prepared:
        """Prepare value and gradient.

        Raises
        ------
        LookupError
            If the text returns something else than the NumPy text computes.
        """
        jax = self.jax
        f = task.program.function("jax")
        names = task.names
        places = matched(leaves(f(*map(_whole, task.data.values()))), task.objective.outputs)

        def value(inputs: list[Any], others: list[Any]) -> Any:
            arguments = dict(task.data)
            arguments.update(zip(arrays, others, strict=True))
            arguments.update(zip(names, inputs, strict=True))
            results = leaves(f(*arguments.values()))
            return task.objective.value(jax.numpy, [results[i] for i in places])

        # Arrays that are no inputs are arguments, too: XLA would fold them while it compiles.
        arrays = [k for k, x in task.data.items() if isinstance(x, np.ndarray) and k not in names]
        g = jax.jit(jax.value_and_grad(value))
        inputs = [jax.numpy.asarray(x) for x in task.inputs()]
        others = [jax.numpy.asarray(task.data[k]) for k in arrays]
        return Prepared(lambda: jax.block_until_ready(g(inputs, others)), _named(task))


def _whole(x: Any) -> Any:
    return x.copy() if isinstance(x, np.ndarray) else x


def matched(results: list[Any], outputs: list[np.ndarray]) -> list[int]:
    """Return which result each output is, by shape and values.

    Raises
    ------
    LookupError
        If one is missing.
    """
    places: list[int] = []
    for k, x in enumerate(outputs):
        size = np.max(np.abs(x), initial=0.0, where=np.isfinite(x))
        near = 1e-3 if x.dtype in (np.float32, np.complex64) else 1e-6
        for i, r in enumerate(results):
            y = np.asarray(r)
            if i in places or y.size != x.size or y.dtype.kind not in "fc":
                continue
            if np.allclose(y.reshape(x.shape), x, near, near * size, equal_nan=True):
                places.append(i)
                break
        else:
            raise LookupError(f"its text does not return output {k} of the NumPy text")
    return places


class DaCeEngine:
    """DaCe AD: a backward pass is added to its own text, and to the weighted sum behind it."""

    def __init__(self, _: int) -> None:
        self.dace = engines._require("dace")
        self.autodiff = engines._require("dace.autodiff")
        self.version = engines._distribution_version("dace")
        self._folder = tempfile.TemporaryDirectory()  # where it leaves sources and libraries
        os.chdir(self._folder.name)

    def prepare(self, task: Task) -> Prepared:
        """Prepare value and gradient."""
        self._precision(task)
        program = task.program.function("dace")
        sdfg = program.to_sdfg(simplify=True)
        returned = sorted(k for k in sdfg.arrays if k.startswith("__return"))
        every = [*returned, *task.objective.written]
        outputs = [every[i] for i in task.objective.counted]
        names = task.names
        self._sum(sdfg, outputs)
        self.autodiff.add_backward_pass(sdfg=sdfg, outputs=["objective"], inputs=names)
        compiled = sdfg.compile()
        symbols = self._symbols(task, program)
        argument_types = sdfg.arglist()
        data = copied(task.data)  # it takes no views
        weights = {
            f"weights_{k}": np.ascontiguousarray(np.atleast_1d(w))
            for k, w in zip(outputs, task.objective.weights, strict=True)
        }

        def call() -> Any:
            space = {
                k: x for k, x in copied(data, task.objective.written).items() if k in argument_types
            }
            for k, x in zip(outputs, task.objective.outputs, strict=True):
                if k in returned:
                    space[k] = np.zeros(np.atleast_1d(x).shape, x.dtype)
            gradients = {f"gradient_{k}": np.zeros_like(task.data[k]) for k in names}
            value = np.zeros(1)
            seed = np.ones(1)
            compiled(
                **space, **symbols, **weights, **gradients, objective=value,
                gradient_objective=seed,
            )  # fmt: skip
            return value[0], list(gradients.values())

        return Prepared(call, _named(task))

    def _sum(self, sdfg: Any, outputs: list[str]) -> None:
        """Add the weighted sum of outputs to a program, as the scalar ``objective``.

        Raises
        ------
        LookupError
            If an output is complex.
        """
        dace = self.dace
        sdfg.add_array("objective", [1], dace.float64)
        state = sdfg.add_state("weighing", is_start_block=False)
        for sink in [b for b in sdfg.sink_nodes() if b is not state]:
            sdfg.add_edge(sink, state, dace.InterstateEdge())
        before = None
        for n, k in enumerate(outputs):
            form = sdfg.arrays[k]
            if form.dtype in (dace.complex64, dace.complex128):
                raise LookupError("complex outputs are not weighed")
            last = n == len(outputs) - 1
            sdfg.add_array(f"weights_{k}", form.shape, form.dtype)
            sdfg.add_transient(f"weighted_{k}", form.shape, dace.float64)
            ranges = {f"i{d}": f"0:{size}" for d, size in enumerate(form.shape)}
            at = ", ".join(ranges)
            state.add_mapped_tasklet(
                f"weigh_{k}", ranges,
                {
                    "weight_in": dace.Memlet(f"weights_{k}[{at}]"),
                    "output_in": dace.Memlet(f"{k}[{at}]"),
                },
                "product_out = weight_in * output_in",
                {"product_out": dace.Memlet(f"weighted_{k}[{at}]")}, external_edges=True,
            )  # fmt: skip
            total = "objective" if last and before is None else f"total_{k}"
            if total != "objective":
                sdfg.add_transient(total, [1], dace.float64)
            reduce = state.add_reduce("lambda a, b: a + b", list(range(len(form.shape))), 0)
            (weighted,) = [x for x in state.data_nodes() if x.data == f"weighted_{k}"]
            state.add_edge(
                weighted,
                None,
                reduce,
                None,
                dace.Memlet.from_array(f"weighted_{k}", sdfg.arrays[f"weighted_{k}"]),
            )
            node = state.add_write(total)
            state.add_edge(reduce, None, node, None, dace.Memlet(f"{total}[0]"))
            if before is None:
                before = node
                continue
            joined = "objective" if last else f"sum_{k}"
            if not last:
                sdfg.add_transient(joined, [1], dace.float64)
            adding = state.add_tasklet(
                f"add_{k}", {"one_in", "other_in"}, {"both_out"}, "both_out = one_in + other_in"
            )
            state.add_edge(before, None, adding, "one_in", dace.Memlet(f"{before.data}[0]"))
            state.add_edge(node, None, adding, "other_in", dace.Memlet(f"{total}[0]"))
            before = state.add_write(joined)
            state.add_edge(adding, "both_out", before, None, dace.Memlet(f"{joined}[0]"))

    def _precision(self, task: Task) -> None:
        """Set the names by which texts choose a dtype, where NPBench's framework would."""
        single = any(
            isinstance(x, np.ndarray) and x.dtype in (np.float32, np.complex64)
            for x in task.data.values()
        )
        framework = types.ModuleType("dace_framework")
        framework.dc_float = self.dace.float32 if single else self.dace.float64  # type: ignore[attr-defined]
        framework.dc_complex_float = (  # type: ignore[attr-defined]
            self.dace.complex64 if single else self.dace.complex128
        )
        sys.modules["npbench.infrastructure.dace_framework"] = framework

    def _symbols(self, task: Task, program: Any) -> dict[str, int]:
        """Return the sizes that the text leaves open, from the shapes of the arguments."""
        symbols: dict[str, int] = {}
        for k, parameter in program.f.__annotations__.items():
            x = task.data.get(k)
            for symbol, n in zip(getattr(parameter, "shape", ()), np.shape(x), strict=False):
                if not isinstance(symbol, int) and str(symbol).isidentifier():
                    symbols[str(symbol)] = int(n)
        return symbols


def make(name: str, threads: int) -> Any:
    """Return the engine of that name.

    Raises
    ------
    Absent
        If it cannot work in this interpreter.
    """
    others = {
        "numpy": NumPyEngine, "jax": JAXEngine, "autograd": AutogradEngine, "dace": DaCeEngine,
    }  # fmt: skip
    if name in others:
        return others[name](threads)
    kind, _, backend = name.partition("-")
    if name not in OURS:
        raise Absent(f"there is no engine {name!r}")
    return (JitEngine if kind == "jit" else ADArrayEngine)(backend, threads)
