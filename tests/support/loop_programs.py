"""Loops of Python, lowered and run as kernels, beside the loops themselves; for `test_lower`."""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.kernels.execution import Execution
from adarray.kernels.geometry import Launch
from adarray.loops.forms import (
    ArrayForm,
    Bound,
    Extent,
    Form,
    Known,
    LoopKernel,
    Scalar,
    Variable,
    WholeNumber,
    Workspace,
)
from adarray.loops.lower import lower
from adarray.loops.variables import standing_for

LIMIT = 1 << 28


def form_of(value: Any) -> Form:
    """Return the form of a variable."""
    if type(value) is int:
        return WholeNumber(value)
    if type(value) is float:
        return Scalar("float64", True)
    if isinstance(value, np.generic):
        return Scalar(value.dtype.name, False)
    if isinstance(value, np.ndarray):
        return ArrayForm(value.dtype.name, value.shape)
    return Known(value)


class Program:
    """A function whose body is assignments, one loop, and a return of names.

    Parameters
    ----------
    function : callable
    args : values
    """

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.function = function
        lines, first = inspect.getsourcelines(function)
        (tree,) = ast.parse(textwrap.dedent("".join(lines))).body
        assert isinstance(tree, ast.FunctionDef)
        at = next(i for i, s in enumerate(tree.body) if isinstance(s, (ast.For, ast.While)))
        self.loop = tree.body[at]
        assert isinstance(self.loop, (ast.For, ast.While))
        self.first = first
        last = tree.body[-1]
        self.wanted: list[str] = []
        if isinstance(last, ast.Return) and last.value is not None:
            self.wanted = [n.id for n in ast.walk(last.value) if isinstance(n, ast.Name)]
        self.names = dict(zip([a.arg for a in tree.args.args], args, strict=True))
        self.scope = {**vars(builtins), **function.__globals__}
        self.scope |= inspect.getclosurevars(function).nonlocals
        prologue = ast.Module([*tree.body[:at]], [])
        exec(compile(prologue, "<prologue>", "exec"), self.scope, self.names)
        iterable = None
        if isinstance(self.loop, ast.For):
            expression = compile(ast.Expression(self.loop.iter), "<iterable>", "eval")
            iterable = eval(expression, self.scope, self.names)
        bound = {n.id for n in ast.walk(self.loop) if isinstance(n, ast.Name) and
                 isinstance(n.ctx, ast.Store)}  # fmt: skip
        read = {n.id for n in ast.walk(self.loop) if isinstance(n, ast.Name)}
        forms = {n: form_of(v) for n, v in self.names.items() if n in read}
        wanted = frozenset(n for n in self.wanted if n in bound)
        self.kernel: LoopKernel = lower(
            self.loop, forms, iterable, wanted, self._resolve, self._contents
        )
        for name, low, high in self.kernel.assumed:
            assert low <= self.names[name].min() <= self.names[name].max() <= high
        self.iterable = iterable
        self.execution = Execution(self.kernel.kernel, LIMIT)

    def _contents(self, name: str) -> tuple[int, int] | None:
        x = self.names[name]
        return (int(x.min()), int(x.max())) if x.size else None

    def _resolve(self, name: str) -> Any:
        if name not in self.scope:
            raise NameError(name)
        return standing_for(self.scope[name])

    # -- runs --------------------------------------------------------------------------------------

    def values(self, names: dict[str, Any]) -> dict[str, Any]:
        """Return the kernel's arguments."""
        out: dict[str, Any] = {}
        for parameter, source in self.kernel.sources:
            if isinstance(source, Variable):
                value = names[source.name]
                out[parameter] = value.copy() if isinstance(value, np.ndarray) else value
            elif isinstance(source, Extent):
                out[parameter] = names[source.name].shape[source.axis]
            elif isinstance(source, Bound):
                out[parameter] = getattr(self.iterable, source.which)
            else:
                assert isinstance(source, Workspace)
                out[parameter] = np.zeros(source.shape, source.dtype)
        return out

    @property
    def launch(self) -> Launch:
        """The launch, with the kernel's whole numbers."""
        values = self.values(self.names)
        whole = tuple(
            (n, int(values[n])) for n, d in self.kernel.kernel.scalars if not d.startswith("float")
        )
        return Launch((1, 1, 1), (1, 1, 1), 0, whole, ())

    def results(self) -> dict[str, Any]:
        """Return what variables are after the loop: written arrays and results."""
        values = self.values(self.names)
        with adarray.use("serial"):
            after = self.execution.results(self.launch, values)
        out: dict[str, Any] = {}
        for parameter, source in self.kernel.sources:
            if isinstance(source, Variable) and source.name in self.kernel.writes:
                out[source.name] = after[parameter]
        for r in self.kernel.results:
            value = after.get(r.parameter)
            if value is None:  # an array that is as it was
                value = values[r.parameter]
            form = r.form if r.which is None else dict(r.forms)[int(after[r.which][0])]
            if isinstance(form, WholeNumber):
                out[r.variable] = int(value[0])
            elif isinstance(form, Scalar):
                number = value.astype(form.dtype)[0]
                out[r.variable] = number.item() if form.weak else number
            else:
                assert isinstance(form, ArrayForm)
                out[r.variable] = value.reshape(form.shape)
        return out

    def raises(self) -> bool:
        """Whether the kernel notes that Python raises an error."""
        failed = self.kernel.failed
        if failed is None:
            return False
        with adarray.use("serial"):
            after = self.execution.results(self.launch, self.values(self.names))
        return bool(after[failed][0] != 0)

    def _run_loop(self, names: dict[str, Any]) -> dict[str, Any]:
        """Run the loop as Python does; return its variables."""
        space = self.scope | names
        with np.errstate(all="ignore"):
            exec(compile(ast.Module([self.loop], []), "<loop>", "exec"), space)
        return space

    def expected(self) -> dict[str, Any]:
        """Return the same from Python."""
        before = copy.deepcopy(self.names)
        names = self._run_loop(before)
        written = {n: before[n] for n in self.kernel.writes}
        return written | {r.variable: names[r.variable] for r in self.kernel.results}

    def check(self, tolerance: float = 1e-12) -> Program:
        """Compare the kernel with Python."""
        if self.raises():
            with pytest.raises((LookupError, ArithmeticError, ValueError, TypeError)):
                self._run_loop(copy.deepcopy(self.names))
            return self
        results, expected = self.results(), self.expected()
        for name, value in expected.items():
            weak = {type(results[name]), type(value)} == {float, np.float64}
            assert weak or type(results[name]) is type(value), name
            if isinstance(value, (np.ndarray, np.generic)):
                assert results[name].dtype == value.dtype, name
            np.testing.assert_allclose(results[name], value, tolerance, tolerance, err_msg=name)
        for name, value in self.names.items():
            if isinstance(value, np.ndarray) and name not in results:
                before = copy.deepcopy(self.names)
                self._run_loop(before)
                np.testing.assert_array_equal(before[name], value, err_msg=name)
        return self

    # -- derivatives -------------------------------------------------------------------------------

    def check_gradients(self, seed: int = 0, tolerance: float = 1e-6) -> Program:
        """Compare the adjoint with differences, for a random sum of what is written."""
        values = self.values(self.names)
        rng = np.random.default_rng(seed)
        variables = {p: s.name for p, s in self.kernel.sources if isinstance(s, Variable)}
        results = {r.parameter for r in self.kernel.results}
        floats = ("float32", "float64")
        inputs = frozenset(p for p in variables if self.execution.dtypes[p] in floats)
        shown = [
            p for p in self.execution.outputs
            if self.execution.dtypes[p] in floats and (p in variables or p in results)
        ]  # fmt: skip
        weights = {p: rng.normal(size=values[p].shape) for p in shown}
        launch = self.launch
        directions = {p: rng.normal(size=np.shape(values[p])) for p in inputs}

        def objective(h: float) -> float:
            moved = {
                p: np.asarray(v + h * directions[p], np.asarray(v).dtype) if p in inputs else v
                for p, v in values.items()
            }
            after = self.execution.results(launch, moved)
            return float(sum((after[p] * weights[p]).sum() for p in shown))

        with adarray.use("serial"):
            difference = (objective(1e-6) - objective(-1e-6)) / 2e-6
            gradients = self.execution.gradients(launch, values, weights, inputs)
            tangents = self.execution.tangents(launch, values, directions)
        by_adjoint = sum(np.sum(gradients[p] * directions[p]) for p in inputs)
        by_tangent = sum((tangents[p] * weights[p]).sum() for p in shown)
        np.testing.assert_allclose(by_adjoint, by_tangent, 1e-9, 1e-9)
        np.testing.assert_allclose(by_adjoint, difference, tolerance, tolerance)
        return self
