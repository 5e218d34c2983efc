"""What a jitted function has recorded and compiled for each signature."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adarray.base.aliasing import owner, touches
from adarray.base.op import Op
from adarray.base.scope import GENERATED
from adarray.jitting.captures.cached import CachedCall
from adarray.jitting.captures.state import CapturedState
from adarray.jitting.shared.contents import Content
from adarray.jitting.shared.devices import OnDevice
from adarray.jitting.shared.signature import Bound
from adarray.jitting.tree.build import SegmentCompiler, say
from adarray.jitting.tree.matching import Matcher
from adarray.jitting.tree.tree import Tree
from adarray.jitting.tree.trial import Trial

Test = Callable[[list[Any]], bool]
_PAIRS_IN_CODE = 64  # up to so many are compared by an expression made for them
_FEW = 4  # up to so many are compared with each other, more by a set


class CacheInfo(NamedTuple):
    """What a jitted function has recorded and compiled.

    Parameters
    ----------
    signatures : int
        Kinds of arguments that it met.
    traces : int
        Runs of the function that were recorded.
    paths : int
        Ways through the function.
    compiled : int
        Segments that are compiled.
    eager : int
        Signatures that are not compiled.
    seconds : float
        Time spent in passes and compiling.
    """

    signatures: int
    traces: int
    paths: int
    compiled: int
    eager: int
    seconds: float


class StateVariant:
    """The compiled paths for one state of what the function captured."""

    def __init__(
        self,
        state: CapturedState,
        strides: list[Any],
        max_paths: int,
        builder: SegmentCompiler,
        device: OnDevice | None = None,
    ) -> None:
        self.state = state
        self.check = state.check
        self.tree = Tree(strides, max_paths)
        self.tree.device = self.device = device
        self.builder = builder
        # Set when there is one segment: inputs -> result.
        self.fast: Callable[[list[Any]], Any] | None = None
        self.waits = False  # whether there is none because something is not compiled yet
        self.unproven = ""  # why another recording has to agree with the last one
        self.recorded = 0.0  # seconds that the last recorded run took
        self.unrolled = 0.0  # those that its captured loops take without jit, at least
        # Whether compiled code is faster than the function itself; None: not asked.
        self.trial: Trial | None = None
        self.written: list[int] = []  # inputs that some path writes into
        self.touched = False  # whether one writes into copies of inputs: `Recording.touched`
        self.effects = False  # whether some path changes objects
        self.draws = False  # whether some path draws from a random generator
        # Whether the same of its inputs are one array as in its recordings; None: none can be.
        self.same: Test | None = None
        # Captured numbers that are inputs, and calls as operations by what is differentiated.
        self.numbers: set[str] = set()
        # Arrays that operations read and no path was found to, and their contents. Those that
        # a run made are gone with it.
        self.operands: list[weakref.ref[Any]] = []
        self.contents: list[tuple[Any, Content]] = []
        self.calls: list[CachedCall] = []  # of functions with a cache
        self.owners: list[weakref.ref[Any]] = []  # of plain results of the last recording
        self.hidden: set[str] = set()  # captured arrays that plain code reads as well
        # and by which results are linked.
        self.ops: dict[tuple[tuple[bool, ...], frozenset[int]], Op] = {}

    def tell_apart(self, values: list[Any], captures: list[Any]) -> None:
        """Note which inputs are one array, where one was captured: that is part of the state.

        Only arrays of the same form can be. Captured ones are two where they are recorded as two:
        compiled code would not see in one what it writes into the other.
        """
        arrays = [(k, y) for k, y in enumerate(captures, len(values)) if isinstance(y, np.ndarray)]
        pairs = [
            (i, k, x is y)
            for i, x in enumerate(values)
            for k, y in arrays
            if isinstance(x, np.ndarray) and (x.shape, x.dtype) == (y.shape, y.dtype)
        ]
        forms = Counter((y.shape, y.dtype) for _, y in arrays)
        self.same = _same_test(pairs, [k for k, y in arrays if forms[y.shape, y.dtype] > 1])

    def take(self, state: CapturedState, operands: list[Any], calls: list[CachedCall]) -> None:
        """Take in the state of a new recording, and the other arrays and caches that it read.

        That is the plain arrays that its operations read, and calls of functions with a cache.
        """
        operands = [x for x in operands if all(x is not y for y in state.assumed)]
        self.calls += calls
        self.hidden |= state.readers(operands)
        state.hide(self.hidden)
        for x in operands:
            # An array that is there in every run was not made by the run.
            if any(x is y() for y in self.operands) and all(x is not y for y, _ in self.contents):
                self.contents.append((x, Content(x)))
        self.operands = [y for y in self.operands if y() is not None]
        self.operands += map(weakref.ref, operands)
        self.state, self.check = state, state.check
        if self.contents or self.calls:
            self.check = self._check_contents

    def writes_hidden(self, statics: Any, inputs: list[Any]) -> bool:
        """Whether an input that is written into may share memory with what plain code reads."""
        arrays = [x for x, _ in self.contents]
        if self.state.hidden is not None:
            arrays += self.state.hidden(statics) or ()
        written = [inputs[i] for i in self.written]
        return any(touches(x, written) for x in arrays)

    def returns(self, results: list[np.ndarray]) -> bool:
        """Note plain results of a recording; return whether one was there before the run.

        What owns it is the same in every run then.
        """
        owners = [owner(x) for x in results]
        known = [y() for y in self.owners]
        self.owners = [weakref.ref(x) for x in owners if isinstance(x, np.ndarray)]
        return len(self.owners) < len(owners) or any(x is y for x in owners for y in known)

    def _check_contents(self, statics: Any) -> list[Any] | None:
        same = all(content.same(x) for x, content in self.contents)
        captures = self.state.check(statics) if same else None
        return (
            captures if captures is not None and all(call.same() for call in self.calls) else None
        )


def _same_test(pairs: list[tuple[int, int, bool]], apart: list[int]) -> Test | None:
    """Return the test whether inputs, by number, are one object or two; None if all may be.

    `pairs` are one or two, and all of `apart` differ.
    """
    tests = []
    if len(apart) <= _FEW:
        pairs = [*pairs, *((i, k, False) for i, k in itertools.combinations(apart, 2))]
    else:
        tests.append(f"len({{{', '.join(f'id(x[{i}])' for i in apart)}}}) == {len(apart)}")
    if len(pairs) > _PAIRS_IN_CODE:
        tests.append("all((x[i] is x[k]) is s for i, k, s in pairs)")
    else:
        tests += [f"x[{i}] is {'' if s else 'not '}x[{k}]" for i, k, s in pairs]
    if not tests:
        return None
    space = {"__name__": GENERATED, "pairs": pairs}
    test: Test = eval(f"lambda x: {' and '.join(tests)}", space)  # our own text
    return test


class Entry:
    """What is known of one signature.

    Attributes
    ----------
    signature : str
    eager : str
        Why it is not compiled; "" if it is.
    variants : list of StateVariant
        The last one that fitted stands first.
    """

    def __init__(self, text: str, builder: SegmentCompiler) -> None:
        self.signature = text
        self.builder = builder
        self.eager = ""
        # Whether it writes into arguments, and was given some that share memory.
        self.aliased = False
        # Whether a result is a Python number, whose type a node would not keep.
        self.weak = False
        # Whether loops are unrolled: a transform takes derivatives that captured loops do not have.
        self.unrolls = False
        self.donates = False  # whether results may take the memory of arguments
        # Whether it draws random numbers, which a node would do once more in its pullback.
        self.draws = False
        # How many recordings in a row were no good, since others drew from a stream meanwhile.
        self.disturbed = 0
        # How many runs in a row called a function whose cache did not hold the result.
        self.missed = 0
        self.variants: list[StateVariant] = []
        self.lock = threading.RLock()

    def give_up(self, reason: str) -> None:
        """Run this signature without jit from now on, and say why."""
        if not self.eager:
            self.eager = reason
            self.variants = []
            say(f"jit: {self.signature} stays eager: {reason}")

    def find(self, bound: Bound) -> tuple[StateVariant | None, list[Any]]:
        """Return the variant that fits the captured state now, and the captured inputs."""
        statics = bound.statics
        for variant in tuple(self.variants):
            captures = variant.check(statics)
            if captures is not None and (
                variant.same is None or variant.same([*bound.values, *captures])
            ):
                if variant is not self.variants[0]:
                    with self.lock:
                        self.variants.remove(variant)
                        self.variants.insert(0, variant)
                return variant, captures
        return None, []


class Recent:
    """The signature of the call before, which the next one has most often."""

    __slots__ = ("entry", "fits", "leaves", "place")

    def __init__(self, place: Any, matcher: Matcher, entry: Entry) -> None:
        self.place = place
        self.fits = matcher.fits
        self.leaves = matcher.leaves
        self.entry = entry
