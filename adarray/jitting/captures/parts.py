"""What objects hold, as mappings that can be compared before and after a run, and put back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

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
