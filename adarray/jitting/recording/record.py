"""`record`: one run of a function over values that record what is done with them.

References
----------
- R. Frostig, M. J. Johnson, C. Leary, "Compiling machine learning programs via high-level tracing",
  SysML 2018.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from adarray.base.levels import MET, RECORDED, RECORDINGS
from adarray.base.recording import Recording, Symbol
from adarray.base.runtime import MODE, Mode
from adarray.core.guard import guarded
from adarray.core.inplace import READ_ONLY, sync_if_view
from adarray.core.trace import Handle, extras
from adarray.device import is_device
from adarray.intercepting import intercepted
from adarray.jitting.captures.cached import CachedCall, NotHeldError
from adarray.jitting.captures.effects import Effect
from adarray.jitting.recording.leaks import refuse_leaks
from adarray.jitting.recording.recorder import Recorder
from adarray.jitting.shared.generators import GENERATORS, Draws, output, recorded
from adarray.jitting.shared.links import Link, concrete_links_of, links_of
from adarray.jitting.shared.python_ints import is_traced_int
from adarray.jitting.shared.signature import INPUT_LIMIT
from adarray.jitting.shared.symbolic import Traced, UntraceableError, concrete, opened
from adarray.transforms.tree import flatten


class RecordedRun(NamedTuple):
    """What `record` returns.

    Parameters
    ----------
    recording : Recording
    leaves : list
        Concrete values of the result's leaves, in the order of ``recording.outputs``:
        fresh arrays, NumPy scalars, Python numbers and other objects.
    rebuild : callable
        Puts leaves into the structure of the result.
    written : list of ndarray
        What the inputs in ``recording.writes`` hold in the end; the run itself leaves the
        caller's arrays alone.
    links : dict of int to Link
        Leaves that are inputs, other leaves, or views of those; with symbols in them.
    concrete_links : dict of int to Link
        The same with concrete values.
    plain : list of ndarray
        Results that were no values of the run: others may own them, or have made them.
    arrays : list of (Handle, ndarray)
        What stands for results in the run, and the concrete leaves.
    handles : list of (int, Handle)
        The arrays among the inputs: their numbers, and what stands for them.
    effects : tuple of Effect
        What else the run changed. If there are any, the result is a pair: what the function
        returned, and the values of the effects.
    find : callable or None
        Returns the objects that effects change; see
        `adarray.jitting.captures.state.CapturedState.finder`.
    """

    recording: Recording
    leaves: list[Any]
    rebuild: Callable[[list[Any]], Any]
    written: list[Any]
    links: dict[int, Link] = {}  # noqa: RUF012  (never changed)
    concrete_links: dict[int, Link] = {}  # noqa: RUF012
    plain: list[np.ndarray] = []  # noqa: RUF012
    arrays: list[tuple[Handle, np.ndarray]] = []  # noqa: RUF012
    handles: list[tuple[int, Handle]] = []  # noqa: RUF012
    effects: tuple[Effect, ...] = ()
    find: Callable[[Any], list[Any]] | None = None


def record(
    f: Callable[..., Any],
    leaves: list[Any],
    rebuild: Callable[[list[Any]], tuple[tuple[Any, ...], dict[str, Any]]],
    traced: list[int],
    draws: Draws | None = None,
    original: Callable[[Any], Any] | None = None,
    calls: list[CachedCall] | None = None,
    same: Sequence[int] = (),
    about: str = "a function",
    changes: Callable[[Any], list[Any]] | None = None,
    truths: bool = False,
    unrolls: bool = False,
    once: bool = False,
    memory_limit: int | None = None,
) -> RecordedRun:
    """Run `f` once, with the current backend, and record what it computes.

    Parameters
    ----------
    f : callable
    leaves : list
        Leaves of the arguments: plain values.
    rebuild : callable
        Returns ``(args, kwargs)`` for leaves.
    traced : list of int
        Positions of the leaves that become inputs: arrays, numbers, random generators.
        The others are passed as they are.
    draws : Draws, optional
        Gets what the run draws from random generators.
    original : callable, optional
        Returns the user's object for one that takes its place in the run.
    calls : list of CachedCall, optional
        Gets the calls of functions with a cache.
    same : sequence of int, optional
        For each input the first one that is the same array, which stands for both.
    about : str, optional
        What is recorded, in words.
    changes : callable, optional
        Given the result, returns values that leave the run besides it.
    truths : bool, optional
        Whether code may ask if a truth value *is* NumPy's or Python's: each is a guard then.
    unrolls : bool, optional
        Whether no loop is captured.
    once : bool, optional
        Whether no later call runs what is recorded: it has no guards of errors that this run did
        not raise.
    memory_limit : int, optional
        Bytes that the tapes of a captured loop may take.

    Raises
    ------
    UntraceableError
        If a value leaves in a way that cannot be recorded.
    """
    recorder = Recorder(MODE.get(), draws)
    recorder.about = about
    recorder.truths = truths
    recorder.unrolls = unrolls
    recorder.once = once
    recorder.memory_limit = memory_limit
    if original is not None:
        recorder.original = original
    if calls is not None:
        recorder.calls = calls
    recording = recorder.recording
    stand_ins = list(leaves)
    handles: list[tuple[int, Handle]] = []
    for i, k in enumerate(traced):
        x = leaves[k]
        if isinstance(x, GENERATORS):
            symbol = Symbol((), object)
            recording.inputs.append(symbol)
            stand_ins[k] = recorded(x, symbol, recorder)
            continue
        t = recorder._new(x, f)
        recording.inputs.append(t.symbol)
        if same and same[i] != i:
            stand_ins[k] = stand_ins[traced[same[i]]]
            continue
        if is_traced_int(t):
            recorder._bounds.note(t, INPUT_LIMIT)
        stand_ins[k] = recorder.handle(t)
        if isinstance(x, np.ndarray):
            handles.append((i, stand_ins[k]))
            if not (x.flags.writeable or is_device(x) or guarded(x)):
                extras(stand_ins[k]).peers = READ_ONLY
    args, kwargs = rebuild(stand_ins)
    inner = MODE.get()
    token = MODE.set(Mode(recorder, inner is None or inner.record, recorder.name))
    refused: list[BaseException] = []
    noted = RECORDED.set(refused)
    RECORDINGS.append(refused)
    try:
        result = _run(intercepted(f), args, kwargs)
        values = changes(result) if changes is not None else []
        if values:
            result = (result, values)
        results, rebuild_result = flatten(_named(result))
        recorder.check_expected()
        inputs = {id(h): i for i, h in handles}
        whole = recorder.library is not None or any(is_device(x) for x in leaves)
        links = links_of(results, inputs, whole, recorder.capture)
        concretes = [_output(x, recorder) for x in results]
        concrete_links = concrete_links_of(results, links)
        written = []
        for i, h in handles:
            v = h._plain if type(h._plain) is Traced else recorder.capture(h._plain)
            if v.symbol is not recording.inputs[i]:
                if v.shape != recording.inputs[i].shape or v.dtype != recording.inputs[i].dtype:
                    raise UntraceableError("jit: an argument gets another shape or dtype in place")
                recording.writes.append((i, v.symbol))
                written.append(v.value)
        recorder.arrays.refuse_written()
    finally:
        RECORDED.reset(noted)
        RECORDINGS[:] = [r for r in RECORDINGS if r is not refused]
        MET.pop(id(refused), None)
        MODE.reset(token)
        recorder.arrays.forget()
    if isinstance(recorder.error, NotHeldError):  # which the function has caught
        raise recorder.error
    if recorder.error is not None:
        raise UntraceableError(
            f"jit: the function caught {recorder.error!r}; what raises depends on values"
        )
    if refused:
        raise UntraceableError(
            f"jit: the function caught an error that NumPy would not have raised: {refused[0]}"
        ) from refused[0]
    plain = [x for x in results if type(x) is np.ndarray]
    arrays = [
        (h, x)
        for h, x in zip(results, concretes, strict=True)
        if isinstance(h, Handle) and isinstance(x, np.ndarray)
    ]
    return RecordedRun(
        recording, concretes, rebuild_result, written, links, concrete_links, plain, arrays, handles
    )


def _named(x: Any) -> Any:
    """Return a result with plain numbers as keys: a dict has read what it hashed."""
    kind = type(x)
    if kind is tuple or kind is list:
        parts = [_named(i) for i in x]
        return x if all(a is b for a, b in zip(parts, x, strict=True)) else kind(parts)
    if kind is not dict:
        return x
    parts = [_named(i) for i in x.values()]
    if not any(isinstance(k, Handle) for k in x) and all(map(operator.is_, parts, x.values())):
        return x
    return {concrete(opened(k)): v for k, v in zip(x, parts, strict=True)}


def _run(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `f`; where NumPy words our error anew, raise ours."""
    try:
        return f(*args, **kwargs)
    except UntraceableError:
        raise
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, UntraceableError):
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            raise cause from None
        raise


def _output(x: Any, recorder: Recorder) -> Any:
    """Note one leaf of the result, and return its concrete value."""
    recording = recorder.recording
    plain = x if type(x) is np.ndarray and x.dtype.kind in "biufc" else None
    weak = isinstance(x, Handle) and x._x is not None and x._x.weak
    if isinstance(x, Handle):
        x = sync_if_view(x)._plain
    if is_device(x) or (type(x) is np.ndarray and x.dtype.kind in "biufc"):
        x = recorder.capture(x)
    generator = output(x)
    if generator is not None:
        recording.outputs.append(generator[0])
        return generator[1]
    if type(x) is not Traced:
        refuse_leaks(x)
        if isinstance(x, str) and recorder.shown:
            raise UntraceableError(
                "jit: a result is text that may show computed values; make text outside of the "
                "jitted function"
            )
        recording.outputs.append(x)
        return x
    recording.outputs.append(x.symbol)
    if plain is not None:
        return plain  # another object may own it
    if weak and isinstance(x.value, np.bool_):
        return bool(x.value)  # of Python numbers that were compared
    return x.value.copy("K") if isinstance(x.value, np.ndarray) else x.value
