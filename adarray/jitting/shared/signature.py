"""Signatures: what two calls have in common that can run one compiled program."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from adarray.base.aliasing import firsts
from adarray.base.aval import BATCHED
from adarray.core.inplace import sync_if_view
from adarray.core.protocol import traced
from adarray.core.trace import Handle
from adarray.device import KINDS, DeviceArray, adopt, is_device
from adarray.transforms.tree import flatten

# Of an array's flags: C-contiguous, aligned and writeable.
FLAGS = 0x501
# Numbers of these types are inputs: their type belongs to the signature, not their value.
NUMBERS = frozenset({
    float, complex, np.float64, np.float32, np.float16, np.complex64, np.complex128, np.int64,
    np.int32, np.int16, np.int8, np.uint64, np.uint32, np.uint16, np.uint8, np.bool, np.longdouble,
})  # fmt: skip
RANDOM = frozenset({np.random.Generator, np.random.RandomState})
# Python ints below are inputs; longer ones soon take more than 64 bits.
INPUT_LIMIT = 1 << 31
# An int of one position becomes an input when it has had more values than this.
INT_VALUES = 3
_UNHASHED = (np.ndarray, np.void, list, dict, set, bytearray, memoryview)


class Identity:
    """A static argument that is compared by identity, and not kept alive where that works."""

    __slots__ = ("_hash", "_name", "_of")

    def __init__(self, of: Any) -> None:
        self._hash = id(of)
        self._name = type(of).__name__
        try:
            self._of: Any = weakref.ref(of)
        except TypeError:
            self._of = lambda: of

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identity) or other._hash != self._hash:
            return False
        return self._of() is other._of() is not None

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"a {self._name}"


class Bound:
    """The arguments of one call, sorted.

    Attributes
    ----------
    key : hashable
        Equal for calls that share compiled programs.
    leaves : list
        All leaves of the arguments; ADArrays replaced by their values.
    traced : list of int
        Positions in `leaves` of those that are inputs.
    targets : list
        The arrays and ADArrays of the inputs, for the results of writes into them.
    rebuild : callable
        Returns ``(args, kwargs)`` for leaves.
    to_adarray : bool
        Whether an ADArray was among the arguments, so that results are ADArrays.
    follows : bool
        Whether an argument is traced: a derivative is taken, and f is called directly.
    batched : bool
        Whether an argument is that of the members of a batch: f is called directly.
    linked : frozenset of int
        The leaves of the result that are, or are views of, arguments or other leaves; set when
        the result is made.
    loose : bool
        Whether some of them are views of what is no leaf of the result.
    """

    __slots__ = (
        "batched",
        "follows",
        "key",
        "leaves",
        "linked",
        "loose",
        "rebuild",
        "targets",
        "to_adarray",
        "traced",
    )

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], ints: Ints) -> None:
        self.to_adarray = False
        self.follows = False
        self.leaves: list[Any] = []
        self.traced: list[int] = []
        self.targets: list[Any] = []
        self.linked: frozenset[int] = frozenset()
        self.loose = False
        self.batched = False
        if not kwargs and all(type(x) in _FLAT for x in args):
            leaves, structure = list(args), len(args)
            self.rebuild: Callable[[list[Any]], Any] = positional
        else:
            leaves, rebuild = flatten((args, kwargs))
            structure = rebuild.args[0]  # type: ignore[attr-defined]
            self.rebuild = rebuild
        self.key = (structure, *[self._part(x, structure, i, ints) for i, x in enumerate(leaves)])
        same = self.same
        if same:
            self.key = (*self.key, ("same", same))

    def _part(self, x: Any, structure: Hashable, i: int, ints: Ints) -> Hashable:
        """Take in one leaf; return its part of the key."""
        target = x
        if isinstance(x, Handle):
            if traced(x):
                self.follows = True
            x = sync_if_view(x)._plain
            self.to_adarray = True
            if type(x) in BATCHED:
                self.batched = True
                self.leaves.append(x)
                return "of members"
        kind = type(x)
        if kind is np.ndarray:
            self._input(x, target)
            return array_key(x)
        if kind is DeviceArray or kind in KINDS:
            x = x if kind is DeviceArray else adopt(x)
            self._input(x, target)
            return (*x.form, x._writeable, type(target).__name__)
        if kind in NUMBERS or kind in RANDOM:
            self._input(x, target)
            return kind.__name__
        if kind is int and ints.varies(structure, i, x):
            self._input(x, target)
            return "any int"
        self.leaves.append(x)
        return static_key(x)

    def _input(self, x: Any, target: Any) -> None:
        self.traced.append(len(self.leaves))
        self.targets.append(target)
        self.leaves.append(x)

    @property
    def values(self) -> list[Any]:
        """The inputs."""
        leaves = self.leaves
        return [leaves[k] for k in self.traced]

    @property
    def same(self) -> tuple[int, ...]:
        """For each input the first one that is the same array; empty if all differ."""
        return firsts(self.targets, arrays())

    @property
    def statics(self) -> list[Any]:
        """The leaves that are no inputs."""
        inputs = set(self.traced)
        return [x for k, x in enumerate(self.leaves) if k not in inputs]


def arrays() -> tuple[type, ...]:
    """Return the classes of arrays whose identity belongs to a signature."""
    return (np.ndarray, Handle, DeviceArray, *KINDS)


class Ints:
    """Which positions of int arguments have had many values."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, set[int]] = {}
        self.many: set[Hashable] = set()

    def varies(self, structure: Hashable, position: int, value: int) -> bool:
        """Note a value; return whether the int at this position is an input."""
        place = (structure, position)
        if place not in self.many:
            seen = self._seen.setdefault(place, set())
            seen.add(value)
            if len(seen) <= INT_VALUES:
                return False
            self.many.add(place)
            del self._seen[place]
        return -INPUT_LIMIT <= value <= INPUT_LIMIT


def positional(leaves: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Put leaves into ``(args, kwargs)`` where all arguments are positional leaves."""
    return tuple(leaves), {}


def static_key(x: Any) -> Hashable:
    """Return the key of a leaf that is no input: its value if it has one."""
    kind = type(x)
    if isinstance(x, _UNHASHED):
        return Identity(x)
    if kind in _BY_VALUE:
        return (kind, x)
    if getattr(kind, "__eq__", None) is object.__eq__:
        return Identity(x)
    try:
        hash(x)
    except Exception:  # of a class of the user's, any
        return Identity(x)
    return (kind, x)


_BY_VALUE = frozenset({bool, int, str, bytes, type(None), type})
_FLAT = NUMBERS | RANDOM | {np.ndarray, int, bool, str}


def array_key(x: np.ndarray) -> Hashable:
    """Return the part of an array in the key of a call."""
    flags = x.flags.num & FLAGS
    # Strides matter to arrays that are not in C order, and not for axes of length 1.
    return (x.dtype, x.shape, flags) if flags & 1 else (x.dtype, x.shape, flags, x.strides)


def unfit(x: Any) -> str:
    """Return why an input cannot be compiled for; "" if it can."""
    if not isinstance(x, np.ndarray):
        if isinstance(x, np.longdouble):
            return "an argument is a np.longdouble"
        return ""
    if x.dtype.kind not in "biufc" or x.dtype.itemsize > 16 or x.dtype.char in "gG":
        return f"an argument has dtype {x.dtype}, which is not compiled"
    if not x.dtype.isnative:
        return (
            "an argument is in the byte order of another machine; x.astype(x.dtype.newbyteorder())"
        )
    return ""


def element_strides(x: Any) -> tuple[int, ...] | None:
    """Return the strides of an input in elements; None if it is a number or in C order."""
    if not isinstance(x, np.ndarray) or x.flags.c_contiguous:
        return None
    return tuple(s // x.itemsize for s in x.strides)


def unaligned(x: Any) -> bool:
    """Whether an array cannot be addressed in elements, and has to be copied first."""
    if is_device(x):
        return not x.form.aligned
    return isinstance(x, np.ndarray) and not (
        x.flags.aligned and all(s % x.itemsize == 0 for s in x.strides)
    )


_SHOWN = 16  # arguments that a text names


def describe(key: Any, f: Any) -> str:
    """Return a signature as text, such as ``f(float64[3, 4], float)``; long ones are cut."""
    parts = []
    for part in key:
        if isinstance(part, tuple) and part and isinstance(part[0], np.dtype):
            parts.append(f"{part[0]}{list(part[1])}")
        elif isinstance(part, type):
            parts.append(part.__name__)
        elif isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], type):
            parts.append(repr(part[1]))
        elif isinstance(part, str):
            parts.append(part)
        elif isinstance(part, Identity):
            parts.append(repr(part))
    if len(parts) > _SHOWN:
        parts[_SHOWN - 2 :] = [f"{len(parts) - _SHOWN + 2} more"]
    name = getattr(f, "__name__", type(f).__name__)
    return f"{name}({', '.join(parts)})"
