"""Trials: whether compiled code is slower than the function as it is, so that it is not used.

A recorded run says how long a call may take without `jit`, with the recording on top. Where a
compiled call takes more than a small part of that, calls take turns: one is answered by the
function itself, the next one by compiled code. The function stays eager if its own runs were
clearly faster than both neighbours each time, and for long enough that another program, which
had the processor for a moment, is not the reason.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any

from adarray.base.report import time_text
from adarray.jitting.tree.run import MissError

# Most that recording may add to a run, as a factor, for which compiled code is tried beside it.
# None: no trials.
SUSPECT: float | None = 32.0
# How much more a first run takes, whose code is prepared then.
FIRST = 8.0
# Compiled calls before the first turn: the first one of them finds cold memory.
WARM = 3
# By which factor a run is clearly faster; and so clearly that `SURE` of them are enough.
CLEAR, OBVIOUS = 1.25, 4.0
# Runs of the function itself that decide.
TURNS, SURE = 4, 2
# Seconds that they are spread over at least.
SPREAD = 0.1

Run = Callable[[list[Any]], Any]


class Trial:
    """The times of one path's calls, until it is known whether compiled code stays.

    Parameters
    ----------
    recorded : float
        Seconds that the last recorded run took.
    first : bool
        Whether that was the first run of the function.
    unrolled : float
        Seconds, at least, that operations of captured loops take in a run of the function itself:
        no recorded run has carried them out.

    Attributes
    ----------
    done : bool
    compiled, plain : float
        The shortest call of each kind, in seconds; infinity where none was timed.
    turn : bool
        Whether the next call is one of the function itself.
    run : callable or None
        What runs compiled code without a clock.
    """

    def __init__(self, recorded: float, first: bool = False, unrolled: float = 0.0) -> None:
        self.recorded = recorded
        self.unrolled = unrolled
        self._slack = FIRST if first else 1.0
        self.done = SUSPECT is None
        self.compiled = float("inf")
        self.plain = float("inf")
        self.turn = False
        self.run: Run | None = None
        self._calls = 0
        self._turns = 0
        self._last = 0.0  # of the call before
        self._least = float("inf")  # by which factor own runs were faster, at least
        self._begun = 0.0
        self._lock = threading.Lock()

    def of(self, run: Run) -> Run:
        """Return what runs compiled code: with a clock, until it is known that it stays."""
        self.run = run
        return run if self.done else self

    def __call__(self, values: list[Any]) -> Any:
        """Run compiled code.

        Raises
        ------
        MissError
            If something else is to be done by this call: a turn of the function itself, or the
            end of the trial.
        """
        run = self.run
        if self.turn or self.done or run is None:
            raise MissError
        start = perf_counter()
        result = run(values)
        self.ran(perf_counter() - start)
        return result

    def ran(self, seconds: float) -> None:
        """Note a compiled call."""
        with self._lock:
            self._calls += 1
            self.compiled = min(self.compiled, seconds)
            if self.done or self.turn:  # of another thread
                return
            if self._turns:
                self._compare(seconds, self._last)
            elif self._calls >= WARM:
                seconds = self.compiled
                factor = SUSPECT and SUSPECT * self._slack
                self.done = (
                    factor is None or seconds * factor <= self.recorded or seconds <= self.unrolled
                )
                self._begun = perf_counter()
            else:
                return
            self._last = seconds
            self.turn = not self.done

    def ran_plainly(self, seconds: float) -> bool:
        """Note a run of the function itself; return whether it is to stay eager."""
        with self._lock:
            self.plain = min(self.plain, seconds)
            if self.done or not self.turn:
                return False
            self.turn = False
            self._turns += 1
            self._compare(self._last, seconds)
            self._last = seconds
            turns = SURE if self._least >= OBVIOUS else TURNS
            if self.done or self._turns < turns or perf_counter() - self._begun < SPREAD:
                return False
            self.done = True
            return True

    def _compare(self, compiled: float, plain: float) -> None:
        """Take in two neighbouring calls: once compiled code is not clearly slower, it stays."""
        self._least = min(self._least, compiled / max(plain, 1e-9))
        self.done = self._least < CLEAR

    def reason(self) -> str:
        """Return why the function stays eager."""
        return (
            f"compiled code is slower: a call takes {time_text(self.compiled)}, and "
            f"{time_text(self.plain)} without jit"
        )
