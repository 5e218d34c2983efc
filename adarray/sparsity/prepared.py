"""Prepared sparse derivatives: the pattern, its colours, and evaluation."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from adarray.base.aval import Symbolic
from adarray.base.errors import DTypeError, NotDifferentiableError, ShapeError
from adarray.base.transformed import check_argnums
from adarray.core.inplace import plain_value
from adarray.core.protocol import traced
from adarray.jitting.shared.signature import static_key
from adarray.jitting.shared.symbolic import Traced, UntraceableError
from adarray.sparsity.bidirectional import GAIN, Both, bound_of_both, of_both
from adarray.sparsity.checking import check_pattern
from adarray.sparsity.coloring import Coloring, of_hessian, of_jacobian
from adarray.sparsity.detection import Arguments, DetectedPattern, check_result, find, places_of
from adarray.sparsity.evaluation import Divided, Evaluation, along_columns, along_rows, compiled
from adarray.transforms.inputs import pick
from adarray.transforms.matrices import picked_call
from adarray.transforms.modes import vjp
from adarray.transforms.products import gradient_of
from adarray.transforms.running import by_position, check_function, prepared, with_names
from adarray.transforms.tree import LeafPath, flatten
from adarray.transforms.variables import Variables, check_variables

FORMATS = ("csr", "coo")
# Patterns, and paths of evaluations, that are kept for one signature.
MANY = 64


def scipy_sparse(name: str) -> Any:
    """Return `scipy.sparse`.

    Raises
    ------
    ImportError
        If SciPy is not installed.
    """
    try:
        import scipy.sparse
    except ImportError as error:
        raise ImportError(
            f"{name}: sparse matrices are those of SciPy, which is not installed; install it, for "
            "instance by pip install 'adarray[scipy]'"
        ) from error
    return scipy.sparse


class DerivativeTask:
    """The derivative to compute: of which function, and in which form.

    Parameters
    ----------
    name : str
        The transform, for errors.
    f : callable
    argnums : int, str, or sequence of them
    hessian : bool
    options : dict
        ``mode, recovery, format, jit, pattern, check, intercept``.
    """

    def __init__(
        self, name: str, f: Callable[..., Any], argnums: Any, hessian: bool, options: dict[str, Any]
    ) -> None:
        check_function(name, f)
        check_argnums(name, argnums)
        if options["format"] not in FORMATS:
            raise ValueError(f"{name}: format {options['format']!r}; one of 'csr', 'coo'")
        self.name = name
        self.f = f
        self.argnums = argnums
        self.hessian = hessian
        self.options = options
        self.fixed = options["pattern"] is not None  # the user answers for it
        self._scalars: Any = None
        self._numbers: set[str] = set()  # captured numbers that change
        intercept = options["intercept"]
        inner = gradient_of(name, f, argnums, False, intercept) if hessian else f
        self._inner = inner
        self._ways: dict[Any, Any] = {}

    def way(self, mode: str, count: int) -> Any:
        """Return the function that evaluates `count` directions; compiled with ``jit``."""
        if (mode, count) not in self._ways:
            make = along_columns if mode == "forward" else along_rows
            intercept = self.options["intercept"] and not self.hessian
            evaluate: Any = make(self.name, self._inner, self.argnums, intercept, count)
            self._ways[mode, count] = compiled(evaluate) if self.options["jit"] else evaluate
        return self._ways[mode, count]

    def sorted(self, args: Any, kwargs: Any) -> tuple[Any, Any, list[int], tuple[str, ...]]:
        """Return the arguments of a call with those that are differentiated by position."""
        places: Any = self.argnums
        moved: tuple[str, ...] = ()
        if type(places) is not int:
            args, kwargs, places, moved = by_position(self.name, self.f, args, kwargs, places)
        return args, kwargs, pick(self.name, args, places), moved

    def key(self, args: Any, kwargs: Any) -> Hashable:
        """Return a key that calls share which one preparation serves."""
        leaves, rebuild = flatten((args, kwargs))
        structure = getattr(rebuild, "args", (None,))[0]
        return (structure, *map(_form, leaves))

    def variables(self, args: Any, picked: list[int]) -> Variables:
        """Return the variables: the leaves that are differentiated.

        Raises
        ------
        DTypeError, NotDifferentiableError
            If it is not real floating point, or is traced.
        """
        for k in picked:
            variables = Variables(args[k])
            check_variables(self.name, k, args[k], variables, False)
            for i, x in zip(variables.places, variables.moving, strict=True):
                where = LeafPath(self.name, k, args[k], i)
                value = plain_value(x)
                if type(value) is Traced:
                    raise UntraceableError(
                        f"{where}: a sparse matrix of SciPy cannot be recorded by jit; call "
                        f"{self.name} outside of it, where its evaluation is compiled, too"
                    )
                if traced(x) or isinstance(value, Symbolic):
                    raise NotDifferentiableError(
                        f"{where}: is traced, and sparse matrices of SciPy hold plain numbers; "
                        "use adarray.jacobian or hessian inside of other transforms"
                    )
                dtype = x.dtype if hasattr(x, "dtype") else np.result_type(x)
                if dtype.kind != "f":
                    raise DTypeError(
                        f"{where}: has dtype {dtype}; pass real floating point, for instance "
                        "real and imaginary parts behind one another"
                    )
        return Variables(tuple(args[k] for k in picked))

    def find(self, args: Any, kwargs: Any) -> DetectedPattern:
        """Return the pattern for the path that these arguments take."""
        args, kwargs, picked, moved = self.sorted(args, kwargs)
        f, intercept = self.f, self.options["intercept"]
        run = with_names(prepared(f, intercept), moved)
        arguments = (args, kwargs)
        if self.fixed:
            return self._fixed(run, arguments, self.variables(args, picked).moving)
        if self.hessian:
            run = gradient_of(self.name, run, tuple(picked), False, False)
        run = _traced(self.name, run, tuple(picked))
        detected = find(
            self.name, run, arguments, places_of(args, picked), self.hessian, self._scalars,
            self._numbers,
        )  # fmt: skip
        self._scalars = detected.state
        return detected

    def _fixed(self, run: Any, arguments: Arguments, leaves: list[Any]) -> DetectedPattern:
        """Return the pattern that the user gave."""
        sparse = scipy_sparse(self.name)
        size = sum(int(np.size(x)) for x in leaves)
        shape = (size,)
        if not self.hessian:
            y = flatten(run(*arguments[0], **arguments[1]))[0]
            check_result(self.name, y)
            shape = np.shape(y[0])
        wanted = (int(np.prod(shape, dtype=int)), size)
        pattern = self.options["pattern"]
        if np.shape(pattern) != wanted:
            raise ShapeError(
                f"{self.name}: pattern has shape {np.shape(pattern)} and the matrix {wanted}; "
                "they must be equal"
            )
        matrix = sparse.csr_array(pattern, dtype=bool, copy=True)
        matrix.sum_duplicates()
        return DetectedPattern(
            matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), size, shape, True,
            None, [], (),
        )  # fmt: skip


def _traced(name: str, f: Callable[..., Any], picked: tuple[int, ...]) -> Callable[..., Any]:
    """Return a function run as one that is differentiated: NumPy's own functions open up."""

    def run(*args: Any, **kwargs: Any) -> Any:
        of_picked, xs = picked_call(name, f, args, kwargs, picked, False, False)
        return vjp(of_picked, *xs, allow_int=True, intercept=False)[0]

    return run


def _forms(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return shapes and dtypes of arrays; something equal to nothing where there is more."""
    if kwargs or any(type(x) is not np.ndarray for x in args):
        return object()
    return [(x.shape, x.dtype) for x in args]


def _form(x: Any) -> Hashable:
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return (x.shape, x.dtype.str)
    if isinstance(x, (float, complex)):
        return type(x).__name__
    return static_key(x)


class ColoringPlan:
    """A pattern with its colours, and what computes its entries.

    Parameters
    ----------
    task : DerivativeTask
    detected : DetectedPattern
    variables : Variables
        What is differentiated.
    """

    def __init__(
        self, task: DerivativeTask, detected: DetectedPattern, variables: Variables
    ) -> None:
        sparse = scipy_sparse(task.name)
        self.task = task
        self.detected = detected
        shapes = [np.shape(x) for x in variables.moving]
        rows, n = detected.start.size - 1, detected.size
        start, at = detected.start, detected.at
        if task.hessian:
            start, at = _symmetric(sparse, start, at, n)
            self.coloring: Coloring | Both = of_hessian((start, at), task.options["recovery"])
        else:
            self.coloring = _colored((start, at), n, task.options["mode"])
        self.shape = (rows, n)
        self.index = self._indices(start, at)

        def evaluation(coloring: Coloring) -> Evaluation:
            forward = coloring.mode == "forward"
            way = functools.partial(task.way, coloring.mode)
            return Evaluation(
                way, coloring, shapes if forward else [detected.shape], rows if forward else n
            )

        self.evaluation: Evaluation | Divided
        if isinstance(self.coloring, Both):
            parts = self.coloring.parts
            self.evaluation = Divided([(p.entries, evaluation(p.coloring)) for p in parts])
        else:
            self.evaluation = evaluation(self.coloring)
        sizes = [int(np.prod(s, dtype=int)) for s in shapes]
        self.ends = np.cumsum([0, *sizes]).tolist()
        self._sparse, self._form = sparse, task.options["format"]
        self._blocks: dict[Any, MatrixBlock] = {}

    def _indices(self, start: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the starts of rows and column numbers, of one dtype, read-only."""
        small = at.size < np.iinfo(np.int32).max
        index = (start.astype(np.int32) if small else start, at if small else at.astype(np.int64))
        return _readonly(index[0]), _readonly(index[1])

    def pattern(self) -> Any:
        """Return the pattern as a matrix of truth values."""
        start, at = self.index
        return self._sparse.csr_array((np.ones(at.size, bool), at, start), shape=self.shape)

    def assembled(self, values: np.ndarray, variables: Variables) -> Any:
        """Return the entries as a matrix; for nests a nest of matrices."""
        ends = self.ends
        columns = list(itertools.pairwise(ends))
        rows = columns if self.task.hessian else [(0, self.shape[0])]
        single = isinstance(self.task.argnums, (int, str))
        blocks = []
        for row in rows:
            matrices = [self._block(row, column).matrix(values) for column in columns]
            built = variables.gradient(matrices)
            blocks.append(built[0] if single else built)
        if not self.task.hessian:
            return blocks[0]
        built = variables.gradient(blocks)
        return built[0] if single else built

    def _block(self, rows: tuple[int, int], columns: tuple[int, int]) -> MatrixBlock:
        """Return a part of the matrix."""
        key = (*rows, *columns)
        if key not in self._blocks:
            start, at = self.index
            if (rows, columns) == ((0, self.shape[0]), (0, self.shape[1])):
                block = MatrixBlock(self._sparse, self._form, start, at, None, self.shape)
                self._blocks[key] = block
                return block
            numbers = np.arange(at.size, dtype=np.int64)
            whole = self._sparse.csr_array((numbers, at, start), shape=self.shape)
            part = whole[slice(*rows), slice(*columns)]
            index = _readonly(part.indptr), _readonly(part.indices)
            self._blocks[key] = MatrixBlock(self._sparse, self._form, *index, part.data, part.shape)
        return self._blocks[key]


def _colored(pattern: Any, n: int, mode: str) -> Coloring | Both:
    """Colour a Jacobian's columns, its rows, or some of both, whichever needs fewest passes."""
    start, at = pattern
    if mode in ("forward", "reverse"):
        return of_jacobian(pattern, n, mode)
    rows, columns = np.diff(start), np.bincount(at, minlength=n)
    least = min(int(rows.max(initial=0)), int(columns.max(initial=0)))
    both = None
    if mode == "both" or bound_of_both(pattern, n) + GAIN <= least:
        both = of_both(pattern, n)
        if both is not None and (mode == "both" or both.total + GAIN <= least):
            return both
    one = of_jacobian(pattern, n, "auto")
    return both if both is not None and both.total + GAIN <= one.total else one


def _readonly(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x


class MatrixBlock:
    """The structure of one matrix, which all returned matrices share.

    Parameters
    ----------
    sparse : module
    form : {"csr", "coo"}
    start, at : ndarray
        Starts of rows and column numbers.
    chosen : ndarray or None
        Which entries of the whole it has; None: all.
    shape : tuple of int
    """

    def __init__(
        self, sparse: Any, form: str, start: Any, at: Any, chosen: Any, shape: tuple[int, int]
    ) -> None:
        self._start, self._at, self._chosen = start, at, chosen
        self._shape = shape
        self._make = sparse.csr_array
        self._rows: Any = None
        self._like: Any = None
        if form == "coo":
            self._make = sparse.coo_array
            self._rows = _readonly(np.repeat(np.arange(shape[0], dtype=at.dtype), np.diff(start)))

    def matrix(self, values: np.ndarray) -> Any:
        """Return the matrix with these entries of the whole."""
        data = values if self._chosen is None else values[self._chosen]
        if self._like is None or self._like.dtype != data.dtype:
            self._like = self._template(data)
        # A copy of an object that was made and checked once, with other values.
        matrix = object.__new__(type(self._like))
        matrix.__dict__.update(self._like.__dict__)
        matrix.data = data
        return matrix

    def _template(self, data: np.ndarray) -> Any:
        """Return a template of the matrix, with zeros for values."""
        data = np.broadcast_to(np.zeros(1, data.dtype), data.shape)
        if self._rows is not None:
            matrix = self._make((data, (self._rows, self._at)), shape=self._shape)
        else:
            matrix = self._make((data, self._at, self._start), shape=self._shape)
            matrix.has_sorted_indices = True
        matrix.has_canonical_format = True
        return matrix


def _symmetric(
    sparse: Any, start: np.ndarray, at: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the union of a pattern and its transpose."""
    one = sparse.csr_array((np.ones(at.size, np.int8), at, start), shape=(n, n))
    both = one + one.T.tocsr()
    both.sort_indices()
    return both.indptr.astype(np.int64), both.indices.astype(np.int32)


class Prepared:
    """A sparse derivative that is ready to be evaluated.

    Made by ``adarray.sparse_jacobian(f).prepare(x)`` and ``adarray.sparse_hessian(f).prepare(x)``.
    Called with the arguments of `f`, of the same shapes and dtypes, it returns the matrix.

    Attributes
    ----------
    pattern : scipy.sparse.csr_array of bool
        The entries that may differ from zero, on the path of the last call.
    colors : ndarray of int32
        Of the columns or, with mode ``reverse``, of the rows; with mode ``both`` a pair, with -1
        for columns and rows that take no part.
    n_colors : int
        The number of derivatives along directions that one evaluation takes.
    mode : {"forward", "reverse", "both"}
    shape : tuple of int
        Of the matrix.
    """

    def __init__(self, task: DerivativeTask, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        scipy_sparse(task.name)
        self._task = task
        self._key = task.key(args, kwargs)
        self._forms = _forms(args, kwargs)
        task.variables(*task.sorted(args, kwargs)[::2])
        self._plans: list[ColoringPlan] = []
        self._paths: dict[Any, ColoringPlan] = {}  # by the path that an evaluation takes
        self._plan = self._known((args, kwargs))
        if task.fixed and task.options["check"]:
            self._check(args, kwargs)

    def _check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise if the pattern of the user lacks entries."""
        plan = self._plan
        values, _ = plan.evaluation.run(args, kwargs)
        start, at = plan.index
        matrix = scipy_sparse(self._task.name).csr_array((values, at, start), shape=plan.shape)
        check_pattern(self._task, matrix, (args, kwargs))

    def __repr__(self) -> str:
        m, n = self.shape
        at = self._plan.index[1].size
        dense = self._plan.detected.dense
        note = f", all depends on all in {', '.join(dense)}" if dense else ""
        return (
            f"<prepared {self._task.name}: {m} by {n}, {at} entries, {self.n_colors} colours, "
            f"{self.mode} mode{note}>"
        )

    @property
    def pattern(self) -> Any:
        """The entries that may differ from zero."""
        return self._plan.pattern()

    @property
    def colors(self) -> Any:
        """The colours."""
        colors = self._plan.coloring.colors
        return tuple(c.copy() for c in colors) if isinstance(colors, tuple) else colors.copy()

    @property
    def n_colors(self) -> int:
        """The number of colours."""
        return self._plan.coloring.total

    @property
    def mode(self) -> str:
        """The mode of differentiation."""
        return self._plan.coloring.mode

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the matrix."""
        return self._plan.shape

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the matrix for arguments."""
        task = self._task
        arguments = (args, kwargs)
        if _forms(args, kwargs) != self._forms and task.key(args, kwargs) != self._key:
            raise ShapeError(
                f"{task.name}: prepared for arguments of other shapes, dtypes or structure; call "
                "prepare(...) with arguments like these"
            )
        variables = task.variables(*task.sorted(args, kwargs)[::2])
        plan = self._plan
        if not task.fixed and not task.options["jit"]:
            plan = self._fitting(plan, arguments)
        elif plan.detected.assumed and not plan.detected.holds(arguments):
            plan = self._known(arguments)
        values, path = plan.evaluation.run(args, kwargs)
        now = self._plan = self._of_path(path, plan, arguments)
        if now.evaluation is not plan.evaluation:
            values, _ = now.evaluation.run(args, kwargs)
        return now.assembled(values, variables)

    def _fitting(self, plan: ColoringPlan, arguments: Arguments) -> ColoringPlan:
        """Return `plan` if it is sure to be that of these arguments, or the one that is."""
        if plan.detected.straight and plan.detected.holds(arguments):
            return plan
        return self._known(arguments)

    def _of_path(self, path: Any, plan: ColoringPlan, arguments: Arguments) -> ColoringPlan:
        """Return the plan for the path that an evaluation with `plan` has taken."""
        task = self._task
        if task.fixed:
            return plan
        if path is None:  # nothing was recorded
            return self._fitting(plan, arguments) if task.options["jit"] else plan
        now = self._paths.get(path)
        if now is None or (now.detected.assumed and not now.detected.holds(arguments)):
            while len(self._paths) >= MANY:
                del self._paths[next(iter(self._paths))]
            now = self._paths[path] = self._fitting(plan, arguments)
        return now

    def _known(self, arguments: Arguments) -> ColoringPlan:
        """Record a run, and return the plan for its pattern, made now if there is none."""
        task = self._task
        args, kwargs = arguments
        detected = task.find(args, kwargs)
        for plan in self._plans:
            if np.array_equal(plan.detected.start, detected.start) and np.array_equal(
                plan.detected.at, detected.at
            ):
                # What this path relies on is its own.
                plan = copy.copy(plan)
                plan.detected = detected
                self._plans = [plan, *self._plans[: MANY - 1]]
                return plan
        plan = ColoringPlan(task, detected, task.variables(*task.sorted(args, kwargs)[::2]))
        self._plans = [plan, *self._plans[: MANY - 1]]
        return plan
