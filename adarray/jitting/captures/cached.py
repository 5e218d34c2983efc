"""Calls of functions with `functools.lru_cache` in recorded runs.

Their results belong to the cache: they are compared in each call, and a run that writes into
one changes what it captured.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.runtime import MODE, Mode
from adarray.base.scope import SCOPE
from adarray.intercepting.memory import holds
from adarray.jitting.captures.fingerprints import OpaqueError, SavedFingerprint
from adarray.jitting.captures.parts import ArrayForm
from adarray.jitting.captures.walk import is_walked
from adarray.jitting.shared.contents import Content
from adarray.jitting.shared.symbolic import UntraceableError
from adarray.transforms.tree import flatten


class NotHeldError(UntraceableError):
    """A function with a cache would have to run, in a run that may be undone."""


class CachedCall:
    """One call, and what it returned.

    Parameters
    ----------
    function : callable
        With its cache.
    args : tuple
    kwargs : dict

    Attributes
    ----------
    opaque : str
        Why the result cannot be compared; "" if it can.
    """

    __slots__ = ("_args", "_contents", "_fingerprint", "_forms", "_function", "_kwargs", "_result",
                 "opaque")  # fmt: skip

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._function = function
        self._args = args
        self._kwargs = kwargs
        self._result: Any = None
        self._fingerprint: SavedFingerprint | None = None
        self.opaque = ""
        self._contents: list[tuple[np.ndarray, Content]] = []
        self._forms: list[tuple[ArrayForm, dict[str, Any]]] = []

    @property
    def name(self) -> str:
        """What the function is called."""
        return getattr(self._function, "__name__", "a function")

    def is_held(self) -> bool:
        """Whether the cache holds the result."""
        return holds(self._function, self._args, self._kwargs)

    def run(self, mode: Mode | None) -> Any:
        """Call the function as plain code does; return what it returns."""
        scope, token = SCOPE.set(None), MODE.set(mode)
        try:
            self._result = self._function(*self._args, **self._kwargs)
        finally:
            MODE.reset(token)
            SCOPE.reset(scope)
        arrays = [x for x in flatten(self._result)[0] if isinstance(x, np.ndarray)]
        self._contents = [(x, Content(x)) for x in arrays if not x.dtype.hasobject]
        self._forms = [(form, form.items()) for form in map(ArrayForm, arrays)]
        try:
            self._fingerprint = SavedFingerprint(self._result, is_walked)
        except OpaqueError as error:
            self.opaque = str(error)
        else:
            if self._fingerprint.children:
                self.opaque = "it holds objects of yours"
        if self.opaque:
            kind = type(self._result).__name__
            self.opaque = (
                f"it calls {self.name}, which has a cache; the {kind} that it returns cannot be "
                f"compared in each call ({self.opaque}); pass it as an argument"
            )
        return self._result

    @property
    def arrays(self) -> list[np.ndarray]:
        """The arrays that the call returned."""
        return [x for x, _ in self._contents]

    def written(self) -> bool:
        """Whether what the call returned has been written into since."""
        return self._fingerprint is not None and not (
            self._fingerprint.same(self._result)
            and all(form.items() == before for form, before in self._forms)
        )

    def restore(self) -> None:
        """Take back what the run wrote into arrays of the result."""
        for form, before in self._forms:
            form.update(before)
        for array, content in self._contents:
            content.restore(array)

    def same(self) -> bool:
        """Whether the call returns now what it returned then, and from the cache."""
        self._result, self._contents, self._forms = None, [], []
        return (
            self._fingerprint is not None
            and self.is_held()
            and self._fingerprint.same(self._function(*self._args, **self._kwargs))
        )
