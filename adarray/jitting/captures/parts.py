"""What objects hold, as mappings that can be compared before and after a run, and put back."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from adarray.core.holding import is_set
from adarray.jitting.captures.fingerprints import slots_in


class ObjectParts:
    """Parts of one object by name; each kind of object has a class of its own.

    Parameters
    ----------
    of : object
    """

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def keys(self) -> list[Any]:
        """Return the names of the parts that are there."""
        raise NotImplementedError

    def __getitem__(self, key: Any) -> Any:
        raise NotImplementedError

    def __setitem__(self, key: Any, value: Any) -> None:
        raise NotImplementedError

    def __delitem__(self, key: Any) -> None:
        raise NotImplementedError

    def pop(self, key: Any, _default: Any = None) -> None:
        """Remove a part, if it is there."""
        with contextlib.suppress(KeyError, AttributeError):
            del self[key]

    def items(self) -> dict[Any, Any]:
        """Return the parts by name."""
        return {key: self[key] for key in self.keys()}

    def update(self, parts: Mapping[Any, Any]) -> None:
        """Put parts back."""
        for key, value in parts.items():
            self[key] = value


class Slots(ObjectParts):
    """The slots of an object."""

    __slots__ = ("_members",)

    def __init__(self, of: Any) -> None:
        super().__init__(of)
        self._members = {m.__name__: m for m in slots_in(type(of))}

    def keys(self) -> list[str]:
        """Return the names of the slots that are set."""
        return [key for key, m in self._members.items() if is_set(m, self.of)]

    def __getitem__(self, key: str) -> Any:
        return self._members[key].__get__(self.of)

    def __setitem__(self, key: str, value: Any) -> None:
        self._members[key].__set__(self.of, value)  # those of frozen dataclasses, too

    def __delitem__(self, key: str) -> None:
        self._members[key].__delete__(self.of)


class ClassAttributes(ObjectParts):
    """The attributes of a class."""

    __slots__ = ()

    def keys(self) -> list[str]:
        """Return their names."""
        return list(self.of.__dict__)

    def __getitem__(self, key: str) -> Any:
        return self.of.__dict__[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if self.of.__dict__.get(key, self) is not value:
            type.__setattr__(self.of, key, value)

    def __delitem__(self, key: str) -> None:
        type.__delattr__(self.of, key)


class Elements(ObjectParts):
    """The elements of a set."""

    __slots__ = ()

    def keys(self) -> list[Any]:
        """Return the elements."""
        return list(self.of)

    def __getitem__(self, key: Any) -> Any:
        return key

    def __setitem__(self, key: Any, value: Any) -> None:
        self.of.add(value)

    def __delitem__(self, key: Any) -> None:
        self.of.discard(key)


class Cells(ObjectParts):
    """The elements of an array of objects."""

    __slots__ = ()

    def keys(self) -> Iterable[int]:  # type: ignore[override]
        """Return the numbers of the elements."""
        return range(self.of.size)

    def __getitem__(self, key: int) -> Any:
        return self.of.item(key)

    def __setitem__(self, key: int, value: Any) -> None:
        if self.of.item(key) is not value:
            self.of.flat[key] = value

    def __delitem__(self, key: int) -> None:
        raise KeyError(key)


class ArrayForm(ObjectParts):
    """What can be set of an array besides its elements."""

    __slots__ = ("_shape",)

    def __init__(self, of: np.ndarray) -> None:
        super().__init__(of)
        self._shape = of.shape

    def keys(self) -> list[str]:
        """Return the names of the attributes; the type is put back before the shape."""
        return ["dtype", "shape", "writeable"]

    def __getitem__(self, key: str) -> Any:
        if key == "writeable":
            return self.of.flags.writeable
        if key == "shape":  # another tuple each time
            return self._shape if self.of.shape == self._shape else self.of.shape
        return self.of.dtype

    def __setitem__(self, key: str, value: Any) -> None:
        if self[key] == value:
            return
        if key != "writeable":
            with warnings.catch_warnings():  # NumPy 2.5 advises the user against it
                warnings.simplefilter("ignore", DeprecationWarning)
                setattr(self.of, key, value)
            return
        base = self.of.base
        closed = value and isinstance(base, np.ndarray) and not base.flags.writeable
        if closed:  # a view is opened while its base is
            base.flags.writeable = True
        self.of.flags.writeable = value
        if closed:
            base.flags.writeable = False

    def __delitem__(self, key: str) -> None:
        raise KeyError(key)
