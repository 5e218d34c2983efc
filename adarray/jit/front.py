"""`jit`: what a call does before and after the compiled program runs."""

from __future__ import annotations

import functools
import inspect
import threading
import types
import warnings
from collections.abc import Callable, Hashable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from adarray.array import ADArray
from adarray.backend import _OUTER, load
from adarray.errors import BackendError
from adarray.jit import recorder
from adarray.jit.build import Builder, JitWarning, checking
from adarray.jit.captures import State, captured
from adarray.jit.options import Options, checked
from adarray.jit.run import MissError, Walk, finisher, prepare, single
from adarray.jit.signature import (
    Bound,
    Ints,
    describe,
    element_strides,
    fast_key,
    shares_memory,
    unaligned,
    unfit,
)
from adarray.jit.tree import Node, Tree
from adarray.runtime import MODE, Mode
from adarray.spans import span
from adarray.trace import LEVEL

MAX_SIGNATURES = 256
MAX_VARIANTS = 8


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


class Variant:
    """The compiled paths for one state of what the function captured."""

    def __init__(self, entry: Entry, state: State, strides: list[Any]) -> None:
        self.state = state
        self.check = state.check
        self.tree = Tree(strides, entry.owner.options.max_paths)
        self.fast: Callable[[list[Any]], Any] | None = None
        self.writes = False


class Entry:
    """What is known of one signature.

    Attributes
    ----------
    signature : str
    eager : str
        Why it is not compiled; "" if it is.
    variants : list of Variant
        The last one that fitted stands first.
    """

    def __init__(self, owner: JitFunction, key: Hashable, engine: Any, text: str) -> None:
        self.owner = owner
        self.key = key
        self.signature = text
        self.eager = ""
        self.variants: list[Variant] = []
        self.builder = Builder(engine, owner.options)
        self.made = 0
        self.lock = threading.RLock()

    def give_up(self, reason: str) -> None:
        """Run this signature without jit from now on, and say why."""
        if not self.eager:
            self.eager = reason
            warnings.warn(f"jit: {self.signature} stays eager: {reason}", JitWarning, stacklevel=4)

    def find(self, statics: list[Any]) -> tuple[Variant | None, list[Any]]:
        """Return the variant that what was captured fits now, and the captured inputs."""
        for i, variant in enumerate(self.variants):
            found = variant.check(statics)
            if found is not None:
                if i:
                    with self.lock:
                        self.variants.remove(variant)
                        self.variants.insert(0, variant)
                return variant, found
        return None, []


class JitFunction:
    """A function that records its runs and compiles what it recorded.

    Made by `adarray.jit`. Called as the function that it was made of.

    Attributes
    ----------
    options : Options
    entries : list of Entry
        One for each signature.
    """

    def __init__(self, f: Callable[..., Any], options: Options) -> None:
        self._f = f
        self.options = options
        self._table: dict[Hashable, Entry] = {}
        self._ints = Ints()
        self._lock = threading.RLock()
        self._floats: set[Any] = set()  # captured floats that are inputs, for they change
        self._traces = 0
        functools.update_wrapper(self, f)

    # -- calling ---------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, compiled where that is possible."""
        mode = MODE.get()
        if LEVEL.get() or (mode is not None and mode.symbolic):
            return self._f(*args, **kwargs)  # a transform or another jit looks into it
        if not kwargs:
            key = fast_key(args)
            if key is not None:
                entry = self._table.get((key, mode.engine if mode is not None else _OUTER.get() == ()))
                if entry is not None and entry.variants:
                    variant = entry.variants[0]
                    found = variant.check(())
                    if found is not None and variant.fast is not None:
                        try:
                            return variant.fast([*args, *found])
                        except FloatingPointError:
                            raise
                        except Exception:  # eager code raises its own
                            return self._f(*args)
        return self._call(args, kwargs, mode)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], mode: Mode | None) -> Any:
        """Call it when it is not an array function of one segment that was compiled before."""
        bound = Bound(args, kwargs, self._ints)
        if bound.follows:
            return self._f(*args, **kwargs)
        entry = self._entry(args, kwargs, bound, mode)
        if entry.eager:
            return self._f(*args, **kwargs)
        statics = bound.statics
        variant, found = entry.find(statics)
        if variant is not None and variant.tree.root is not None:
            values = [np.array(x) if unaligned(x) else x for x in (*bound.values, *found)]
            if variant.writes and shares_memory(values, _written(variant.tree)):
                return self._f(*args, **kwargs)
            walk = Walk(variant.tree, values, entry.builder.build)
            try:
                leaf = walk.run()
            except MissError:
                pass
            else:
                result = _results(leaf, walk, bound)
                for i, n in leaf.writes:
                    target = (*bound.values, *found)[i]
                    target[...] = walk.values[n] if n is not None else leaf.constants[i]
                return result
        return self._record(entry, variant, bound, args, kwargs)

    def _entry(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], bound: Bound, mode: Mode | None
    ) -> Entry:
        """Return what is known of the signature of a call."""
        fast = fast_key(args) if not kwargs else None
        place = mode.engine if mode is not None else _OUTER.get() == ()
        key = (fast if fast is not None else bound.key, place)
        entry = self._table.get(key)
        if entry is None:
            with self._lock:
                entry = self._table.get(key)
                if entry is None:
                    engine = mode.engine if mode is not None else default_engine(bool(place))
                    text = describe(bound.key[1:], self._f)
                    entry = Entry(self, key, engine, text)
                    reasons = [r for x in bound.values if (r := unfit(x))]
                    if reasons:
                        entry.give_up(reasons[0])
                    while len(self._table) >= MAX_SIGNATURES:
                        del self._table[next(iter(self._table))]
                    self._table[key] = entry
        return entry
