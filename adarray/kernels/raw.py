"""`RawKernel`: the CUDA C string of a kernel, as a differentiable function."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adarray.compiler.ir.threads import ThreadKernel
from adarray.core.dispatch import apply
from adarray.core.protocol import bare, finish, traced
from adarray.core.trace import Handle
from adarray.errors import KernelError
from adarray.kernels import declarations, lower, preprocess, print_cuda, uniform
from adarray.kernels.adjoint import AdjointKernel
from adarray.kernels.execution import Execution, check_overlap
from adarray.kernels.figures import sites
from adarray.kernels.geometry import Launch, triple
from adarray.kernels.launch import USUAL_LIMIT
from adarray.kernels.operation import Operation
from adarray.kernels.simplify import simplified
from adarray.kernels.types import FLOATS

_DEFINE = re.compile(r"-D\s*(\w+)(?:=(.*))?")
_INSTANCE = re.compile(r"^\s*(\w+)\s*<(.*)>\s*$", re.DOTALL)


class RawKernel:
    """A kernel in CUDA C that is differentiable, on CUDA and on processors.

    Parameters
    ----------
    source : str
        What `cupy.RawKernel` takes: the text of a kernel, with functions and macros.
    name : str
        Name of the kernel in it; ``"name<float, 8>"`` for a template with its arguments.
    options : sequence of str, optional
        Of the compiler; those that begin with ``-D`` define macros.
    memory_limit : int, optional
        Bytes that tapes of one call may take.
    check : bool, optional
        Whether each call first runs on the host, thread by thread, with all accesses checked:
        races and indices out of range raise errors.

    Raises
    ------
    KernelError
        If the source is outside of what is differentiated; the message has the line.

    Notes
    -----
    The user guide's page on kernels says what the language is, and describes the adjoint.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> from adarray.kernels import RawKernel
    >>> square = RawKernel(r'''
    ... extern "C" __global__ void square(const double* x, double* y, int n) {
    ...     int i = blockDim.x * blockIdx.x + threadIdx.x;
    ...     if (i < n) y[i] = x[i] * x[i];
    ... }''', "square")
    >>> def f(x):
    ...     return np.sum(square.apply(1, 32, (x, np.zeros(3), 3)))
    >>> with adarray.use("serial"):
    ...     adarray.grad(f)(np.array([1.0, 2.0, 3.0]))
    array([2., 4., 6.])
    """

    def __init__(
        self,
        source: str,
        name: str,
        options: Sequence[str] = (),
        *,
        memory_limit: int = USUAL_LIMIT,
        check: bool = False,
    ) -> None:
        self.source = source
        self.name = name
        self.options = tuple(options)
        try:
            self.kernel, self._parameters = read(source, name, defined(options))
            self._execution = Execution(self.kernel, memory_limit, check)
        except KernelError as error:
            raise located(error, source, name) from None
        self._operation = Operation(self.kernel.name, self._execution)

    # -- calls -------------------------------------------------------------------------------------

    def __call__(self, grid: Any, block: Any, args: Sequence[Any], *, shared_mem: int = 0) -> None:
        """Run the kernel, which writes into its arguments.

        Parameters
        ----------
        grid, block : int or tuple of int
            Number of blocks, and of threads of each, along up to three axes.
        args : sequence
            Arrays and numbers, in the order of the kernel's parameters. Arrays have the dtypes of
            the source. A struct of numbers is a tuple.
        shared_mem : int, optional
            Bytes of ``extern __shared__`` memory.

        Raises
        ------
        KernelError
            If the call does not fit the source, or arrays share memory that is written; `RaceError`
        among others with ``check=True``.
        DTypeError
            If an array has another dtype than the source says.
        """
        operands, launch = self._bound(grid, block, args, shared_mem)
        by_name = dict(zip(self._operation.operands, operands, strict=True))
        if not any(isinstance(x, Handle) for x in operands):
            self._check(by_name)
            values = {n: bare(x) for n, x in by_name.items()} | dict(launch.integers)
            self._execution.in_place(launch, values)
            return
        outputs = self._applied(operands, launch)
        results = outputs if len(self._execution.outputs) > 1 else (outputs,)
        for name, result in zip(self._execution.outputs, results, strict=True):
            by_name[name][...] = result

    def apply(self, grid: Any, block: Any, args: Sequence[Any], *, shared_mem: int = 0) -> Any:
        """Run the kernel on copies of what it writes; return these.

        Parameters and errors are those of a call.

        Returns
        -------
        array or tuple of array
            One for each parameter that the kernel writes, in their order.
        """
        operands, launch = self._bound(grid, block, args, shared_mem)
        return self._applied(operands, launch)

    def _applied(self, operands: tuple[Any, ...], launch: Launch) -> Any:
        self._check(dict(zip(self._operation.operands, operands, strict=True)))
        if any(isinstance(x, Handle) for x in operands):
            return finish(apply(self._operation.op, operands, {"launch": launch}), None, self.name)
        return self._operation.evaluate(*map(bare, operands), launch=launch)

    def _check(self, values: Mapping[str, Any]) -> None:
        arrays = [(n, bare(values[n])) for n in self._execution.buffers]
        check_overlap(self.name, arrays, self._execution.outputs)

    def _bound(
        self, grid: Any, block: Any, args: Sequence[Any], shared: int
    ) -> tuple[tuple[Any, ...], Launch]:
        """Return the operands of a call, and its launch."""
        flat: list[Any] = []
        if len(args) != len(self._parameters):
            raise KernelError(
                f"kernel {self.name}: {len(args)} arguments were given, and the source has "
                f"{len(self._parameters)}: {', '.join(n for n, _ in self._parameters)}"
            )
        for x, (name, count) in zip(args, self._parameters, strict=True):
            if count == 0:
                flat.append(x)
                continue
            fields = list(x.item() if hasattr(x, "item") and not isinstance(x, Handle) else x)
            if len(fields) != count:
                raise KernelError(
                    f"kernel {self.name}: the struct {name!r} has {count} numbers, and "
                    f"{len(fields)} were given"
                )
            flat += fields
        values = dict(zip(self.kernel.order, flat, strict=True))
        operands, integers = [], []
        for name, x in values.items():
            if name in self._operation.operands:
                operands.append(x)
            else:
                integers.append((name, self._integer(name, x)))
        active = tuple(
            traced(x) and self._execution.dtypes[n] in FLOATS
            for n, x in zip(self._operation.operands, operands, strict=True)
        )
        launch = Launch(
            triple(grid, self.name, "grid"), triple(block, self.name, "block"), int(shared),
            tuple(integers), active,
        )  # fmt: skip
        return tuple(operands), launch

    def _integer(self, name: str, x: Any) -> int:
        try:
            whole = int(x)
        except (TypeError, ValueError):
            whole = -1 if x is None else 0
            x = float("nan")
        if whole != x:
            raise KernelError(
                f"kernel {self.name}: the argument {name!r} is no whole number, and the source has "
                f"{self._execution.dtypes[name]}"
            )
        return whole

    # -- to read -----------------------------------------------------------------------------------

    def _inputs_of(self, by: Sequence[str] | None) -> frozenset[str]:
        """Return the parameters that are differentiated by."""
        names = [n for n in self._operation.operands if self._execution.dtypes[n] in FLOATS]
        inputs = frozenset(names if by is None else by)
        unknown = inputs - set(names)
        if unknown:
            raise KernelError(
                f"kernel {self.name}: {sorted(unknown)} are no floating-point parameters; there "
                f"are {', '.join(names)}"
            )
        return inputs

    def _adjoint(
        self, grid: Any, block: Any, args: Any, by: Any, shared: int
    ) -> tuple[AdjointKernel, Launch, dict[str, Any]]:
        """Return the adjoint for a launch on a GPU, and the launch with its arguments."""
        inputs = self._inputs_of(by)
        operands, launch = self._bound(grid, block, args, shared)
        values = dict(zip(self._operation.operands, map(bare, operands), strict=True))
        values = self._execution.checked(values | dict(launch.integers))
        owners = self._execution.owned(launch, values, False)
        return self._execution.of_facts(launch, inputs, owners), launch, values

    def adjoint_source(
        self,
        grid: Any,
        block: Any,
        args: Sequence[Any],
        *,
        by: Sequence[str] | None = None,
        shared_mem: int = 0,
    ) -> str:
        """Return the adjoint for a launch as CUDA C, to read.

        Parameters
        ----------
        grid, block, args, shared_mem
            As for a call. What is computed again and what is added as one step depends on them.
        by : sequence of str, optional
            Parameters that are differentiated by; all arrays and numbers by default.
        """
        adjoint, _, _ = self._adjoint(grid, block, args, by, shared_mem)
        return print_cuda.ThreadCudaPrinter(adjoint.kernel, adjoint.kernel.name).source()

    def explain(
        self,
        grid: Any,
        block: Any,
        args: Sequence[Any],
        *,
        by: Sequence[str] | None = None,
        shared_mem: int = 0,
    ) -> dict[str, Any]:
        """Return figures of the adjoint; parameters are those of `adjoint_source`.

        Returns
        -------
        dict
            ``"taped"``: values that iterations put on the tape, counted in the text;
            ``"tape_bytes"``: the size of the tapes of a launch on a GPU;
            ``"atomics"``: additions to global memory that each thread makes as one step, counted
            in the text; ``"warp_sums"`` and ``"block_sums"``: those that a warp or a block makes
            for its threads; ``"atomics_run"``: how many atomic operations the launch takes at most;
            ``"recomputed"``: loads and functions that reverse iterations carry out again;
            ``"copies"``: arrays that the adjoint copies before it starts.

        Notes
        -----
        The figures of a launch are counted: the adjoint runs on the host, for a result of zeros. Of
        a launch of one thread, they are those of processors where processors run it.
        """
        adjoint, launch, values = self._adjoint(grid, block, args, by, shared_mem)
        if self._execution.restores(launch):
            adjoint = self._execution.of_one_thread(launch, self._inputs_of(by))
        numbers = sum(n not in self._execution.buffers for n in adjoint.shadows)
        run = self._execution.figures(launch, adjoint, values, numbers)
        text = sites(adjoint.kernel)
        return {
            "taped": adjoint.taped, "tape_bytes": run.tape_bytes, "atomics": text.threads,
            "warp_sums": text.warps, "block_sums": text.blocks, "atomics_run": run.atomics,
            "recomputed": list(adjoint.recomputed), "copies": sorted(adjoint.copies),
        }  # fmt: skip


def defined(options: Sequence[str]) -> dict[str, str]:
    """Return the macros that options define."""
    macros = {}
    for option in options:
        m = _DEFINE.match(option.strip())
        if m:
            macros[m.group(1)] = m.group(2) if m.group(2) is not None else "1"
    return macros


def read(
    source: str, name: str, defines: dict[str, str] | None = None
) -> tuple[ThreadKernel, tuple[tuple[str, int], ...]]:
    """Return a kernel of a source as loop IR, and the parameters of a call.

    Raises
    ------
    KernelError
        If it is not there, or outside of what is supported.
    """
    instance = _INSTANCE.match(name)
    plain = instance.group(1) if instance else name
    prepared = preprocess.prepared(source, defines)
    if instance:
        template = prepared.templates.get(plain)
        if template is None:
            raise KernelError(f"there is no template {plain!r}")
        arguments = [a.strip() for a in instance.group(2).split(",")]
        if len(arguments) != len(template.parameters):
            raise KernelError(f"the template {plain!r} has {len(template.parameters)} parameters")
        by = dict(zip(template.parameters, arguments, strict=True))
        prepared = preprocess.prepared(source, defines, (plain, by))
    unit = declarations.parse(prepared)
    if plain not in unit.kernels:
        known = ", ".join(unit.kernels) or "none"
        raise KernelError(f"there is no kernel {plain!r} in the source; there is {known}")
    lowering = lower.SourceLowering(unit)
    kernel = simplified(lowering.kernel(unit.kernels[plain]))
    uniform.check(kernel)
    return kernel, _parameters(kernel, lowering.structs)


def located(error: KernelError, source: str, name: str) -> KernelError:
    """Return an error with the kernel's name and the line of the source."""
    lines = source.split("\n")
    text = str(error)
    if 0 < error.line <= len(lines):
        shown = lines[error.line - 1].strip()
        return KernelError(f"kernel {name}, line {error.line}: {text}\n    {shown}", error.line)
    return KernelError(f"kernel {name}: {text}", error.line)


def _parameters(kernel: ThreadKernel, structs: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Return the parameters of a call: names, and how many numbers they hold; 0: a plain one."""
    params: list[tuple[str, int]] = []
    for name in kernel.order:
        whole = structs.get(name)
        if whole is None:
            params.append((name, 0))
        elif params and params[-1][0] == whole:
            params[-1] = (whole, params[-1][1] + 1)
        else:
            params.append((whole, 1))
    return tuple(params)


def from_file(path: str | Path, name: str, options: Sequence[str] = ()) -> RawKernel:
    """Return a kernel of a ``.cu`` file; see `RawKernel`."""
    return RawKernel(Path(path).read_text(), name, options)


__all__ = ["RawKernel", "from_file"]
