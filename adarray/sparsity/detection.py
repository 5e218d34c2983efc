"""The pattern of a derivative: one recorded run, and the dependence of its results.

References
----------
- A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 7.
- A. Hill, G. Dalle, "Sparser, better, faster, stronger: sparsity detection for efficient automatic
  differentiation", arXiv:2501.17737, 2025.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adarray.base.errors import DTypeError, NotDifferentiableError, ShapeError
from adarray.base.recording import Call, Recording, Symbol
from adarray.compiler.rewrite.cse import cse
from adarray.compiler.rewrite.dead import dead
from adarray.compiler.translate.canonicalise import canonicalise
from adarray.core.inplace import plain_value
from adarray.core.reaching import reach, reach_arguments
from adarray.jitting.calls.attempt import Attempt
from adarray.jitting.captures.state import CapturedState
from adarray.jitting.shared.collector import collector_waits
from adarray.jitting.shared.constants import constant
from adarray.jitting.shared.keys import call_key, guard_key, outcome_key
from adarray.jitting.shared.signature import Bound, Ints
from adarray.jitting.shared.symbolic import UntraceableError
from adarray.sparsity.dependence import Dependence
from adarray.sparsity.known import Known
from adarray.sparsity.terms import NotSparseError, rows_of
from adarray.transforms.tree import flatten
from adarray.transforms.variables import Variables

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class DetectedPattern(NamedTuple):
    """The sparsity pattern of a derivative, from one recorded run.

    Parameters
    ----------
    start, at : ndarray
        The pattern by rows: int64 starts, and ascending column numbers, int32.
    size : int
        Number of columns.
    shape : tuple of int
        Of the result; of a gradient, that of all its elements.
    straight : bool
        Whether Python read no value: there is no other path then, while what is captured
        stays the same.
    state : CapturedState or None
        What was captured.
    assumed : list of (int, ndarray)
        Inputs on whose contents the pattern relies, and what they held: numbers among the
        arguments' leaves, then among what is captured.
    dense : tuple of str
        Functions that were taken to couple everything, for nothing else is known of them.
    """

    start: np.ndarray
    at: np.ndarray
    size: int
    shape: tuple[int, ...]
    straight: bool
    state: CapturedState | None
    assumed: list[tuple[int, np.ndarray]]
    dense: tuple[str, ...]

    def holds(self, arguments: Arguments) -> bool:
        """Whether what the pattern relies on is the same for these arguments."""
        bound = Bound(*arguments, Ints())
        captured = [] if self.state is None else self.state.check(bound.statics)
        if captured is None:
            return False
        values = [*bound.values, *captured]
        return all(
            k < len(values) and np.array_equal(np.asarray(plain_value(values[k])), before)
            for k, before in self.assumed
        )


def find(
    name: str,
    f: Callable[..., Any],
    arguments: Arguments,
    places: list[int],
    several: bool,
    before: CapturedState | None,
    changing: set[str],
) -> DetectedPattern:
    """Record a run of `f`, and return on what its results depend.

    Parameters
    ----------
    name : str
        The transform, for errors.
    f : callable
    arguments : tuple
        ``(args, kwargs)``.
    places : list of int
        The leaves among those of the arguments that are differentiated.
    several : bool
        Whether `f` is a gradient, whose results are taken one behind the other.
    before : CapturedState or None
        What was captured when the function was recorded last.
    changing : set of str
        Names of the captured numbers that have changed so far; gets others.

    Raises
    ------
    NotDifferentiableError
        If the run cannot be recorded, or the pattern is not sparse.
    ShapeError, DTypeError
        If the result is no array of real numbers.
    """
    args, kwargs = _apart(arguments, places)
    reach_arguments(args, kwargs)
    reach(f)
    bound = Bound(args, kwargs, Ints())
    state = CapturedState(f, bound.statics, changing)
    changed = set() if state.reason or before is None else state.changed_numbers(before)
    if changed:
        changing |= changed
        state = CapturedState(f, bound.statics, changing)
    if state.reason:
        raise _not_recorded(name, state.reason)
    run = Attempt(state, bound)
    try:
        with collector_waits():
            run.record(name)
    except UntraceableError as error:
        raise _not_recorded(name, str(error)) from None
    finally:
        run.restore()
    recorded = run.recorded
    assert recorded is not None
    outputs, shape = _outputs(name, recorded.recording, recorded.leaves, several)
    numbers = [bound.traced.index(k) for k in places]
    try:
        return _pattern(recorded.recording, run.values, numbers, outputs, shape, state, bound)
    except NotSparseError as error:
        raise NotDifferentiableError(f"{name}: {error}; use adarray.jacobian or hvp") from None
    finally:
        state.forget()


def _apart(arguments: Arguments, places: list[int]) -> Arguments:
    """Return arguments whose variables are no other argument, nor captured: each is its own."""
    leaves, rebuild = flatten(arguments)
    for k in places:
        if isinstance(leaves[k], np.ndarray):
            leaves[k] = leaves[k].copy()
    return rebuild(leaves)  # type: ignore[no-any-return]


def _not_recorded(name: str, why: str) -> NotDifferentiableError:
    why = why.removeprefix("jit: ")
    return NotDifferentiableError(
        f"{name}: the run of the function cannot be recorded ({why}), so that the pattern is not "
        "known; pass pattern= if you know it"
    )


def _outputs(
    name: str, recording: Recording, leaves: list[Any], several: bool
) -> tuple[list[Any], tuple[int, ...]]:
    """Return the results that count, and their shape."""
    outputs = recording.outputs
    if several:
        return outputs, (sum(int(np.size(x)) for x in leaves),)
    check_result(name, leaves)
    return outputs[:1], np.shape(leaves[0])


def check_result(name: str, leaves: list[Any]) -> None:
    """Raise unless a result is one array of real floating point numbers.

    Raises
    ------
    ShapeError, DTypeError
    """
    if len(leaves) != 1 or not isinstance(leaves[0], (np.ndarray, np.generic, float, complex, int)):
        kinds = ", ".join(type(x).__name__ for x in leaves) or "nothing"
        raise ShapeError(
            f"{name}: the function returned {len(leaves)} leaves ({kinds}); return one array, for "
            "instance by np.concatenate of raveled parts"
        )
    dtype = np.result_type(leaves[0])
    if dtype.kind != "f":
        raise DTypeError(
            f"{name}: the result has dtype {dtype}; return real floating point, for instance real "
            "and imaginary parts behind one another"
        )


def _pattern(
    recording: Recording,
    values: list[Any],
    places: list[int],
    outputs: list[Any],
    shape: tuple[int, ...],
    state: CapturedState,
    bound: Bound,
) -> DetectedPattern:
    """Return the pattern of recorded results; `places` are the differentiated inputs."""
    constants: dict[Symbol, np.ndarray] = {}
    keys: dict[int, Any] = {}
    for symbol, _, value in recording.captures:
        constants[symbol], keys[id(symbol)] = constant(value)
    calls: list[Call] = []
    straight = True
    for event in recording.events:
        if isinstance(event, Call):
            calls.append(event)
        else:
            straight = False
            if event.call is not None:
                calls.append(event.call)
    known_outputs = [x for x in outputs if type(x) is Symbol]
    program = cse(dead(canonicalise(calls, recording.inputs, known_outputs, constants=constants)))
    sizes = {i: int(np.prod(recording.inputs[i].shape, dtype=int)) for i in places}
    first, n = {}, 0
    for i in places:  # in the order of argnums
        first[i] = n
        n += sizes[i]
    known = Known(program, {i: x for i, x in enumerate(values) if i not in places})
    steady = set(range(len(bound.traced), len(values)))
    walk = Dependence(program, known, first, n, steady)
    terms = dict(zip(map(id, known_outputs), walk.run(), strict=True))
    parts = []
    for x in outputs:
        follows = type(x) is Symbol
        size = int(np.prod(x.shape, dtype=int)) if follows else int(np.size(x))
        parts.append(rows_of(terms[id(x)] if follows else (), size, n))
    start, at = concatenated(parts)
    copies = [(i, np.array(plain_value(values[i]))) for i in sorted(known.used)]
    return DetectedPattern(
        start, at, n, shape, straight, state, copies,
        tuple(sorted(walk.dense)),
    )  # fmt: skip


def concatenated(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return patterns below one another."""
    if len(parts) == 1:
        return parts[0]
    starts, before = [np.zeros(1, np.int64)], 0
    for start, at in parts:
        starts.append(start[1:] + before)
        before += at.size
    return np.concatenate(starts), np.concatenate([at for _, at in parts])


def path_of(recording: Recording) -> int:
    """Return a number that runs along the same path have in common, and hardly any others."""
    numbers: dict[int, Any] = {id(s): i for i, s in enumerate(recording.inputs)}
    for symbol, _, value in recording.captures:
        numbers[id(symbol)] = constant(np.array(value))[1]
    count = len(recording.inputs)
    parts: list[Any] = []
    for event in recording.events:
        call = event if isinstance(event, Call) else event.call
        if isinstance(event, Call):
            parts.append(call_key(event, numbers))
        else:
            parts.append((guard_key(event, numbers), outcome_key(event.kind, event.outcome)))
        for symbol in call.results if call is not None else ():
            numbers[id(symbol)] = count
            count += 1
    return hash(tuple(parts))


def places_of(args: tuple[Any, ...], picked: list[int]) -> list[int]:
    """Return the positions of the variables of some arguments among the leaves of all."""
    starts, first = [], 0
    trees = [Variables(x) for x in args]
    for tree in trees:
        starts.append(first)
        first += len(tree.leaves)
    return [starts[k] + place for k in picked for place in trees[k].places]
