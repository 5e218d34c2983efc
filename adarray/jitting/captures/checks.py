"""The test of captured state that every call does, as one Python function made for it.

It follows the paths by which the function reaches things, so that an object that took the
place of another one is found; it returns the captured inputs, or None if anything that is
no input has changed.
"""

from __future__ import annotations

import abc
import builtins
import enum
import operator
import os
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from adarray.base.redirecting import original_of
from adarray.base.scope import GENERATED
from adarray.core.loads import StandIn, original
from adarray.core.trace import Handle
from adarray.device import DeviceArray, adopt, is_device
from adarray.jitting.captures.expansion import referent, space_of
from adarray.jitting.captures.fingerprints import SavedFingerprint, slots_in
from adarray.jitting.captures.kinds import INDIRECT, is_library
from adarray.jitting.captures.objects import CapturedObject, Edge
from adarray.jitting.captures.surroundings import reader_of
from adarray.jitting.captures.walk import CaptureWalk
from adarray.jitting.shared.contents import Content
from adarray.jitting.shared.keys import value_key
from adarray.jitting.shared.signature import INPUT_LIMIT

Check = Callable[[Any], "list[Any] | None"]
# So many names are looked for one by one, which takes less time than a comparison of sets.
_FEW = 3
ENVIRONMENT = frozenset({"environ", "getenv"})
# Names in code that goes on where an attribute is not there.
_ASKING = INDIRECT | {"AttributeError"}


class Input:
    """A captured array or number that is an input: where it is found, and what it is now."""

    __slots__ = ("captured", "value")

    def __init__(self, obj: CapturedObject) -> None:
        self.captured = obj
        value = obj.value
        if obj.kind == "adarray":
            value = value._plain
        self.value = adopt(value) if obj.kind == "device" else value


def same_scalar(x: Any, y: Any) -> bool:
    """Whether two numbers, texts or the like are of one type and one value."""
    return type(x) is type(y) and (x is y or bool(value_key(x, {}) == value_key(y, {})))


def same_items(items: Iterable[Any], known: tuple[Any, ...]) -> bool:
    """Whether a set or the keys of a dictionary are those that they were, in the same order."""
    now = tuple(items)
    if len(now) != len(known):
        return False
    return all(map(operator.is_, now, known)) or all(map(same_scalar, now, known))


def same_entries(space: dict[str, Any], known: tuple[tuple[str, ...], tuple[Any, ...]]) -> bool:
    """Whether a dictionary has the same objects under the same names."""
    keys, values = known
    return tuple(space) == keys and all(map(operator.is_, space.values(), values))


def same_number(x: Any, y: Any) -> bool:
    """Whether two instances of a class derived from a number's, or from text, have one value."""
    base = next(b for b in type(x).__mro__ if b.__module__ in ("builtins", "numpy"))
    return x is y or (type(x) is type(y) and same_scalar(base(x), base(y)))


class Maker:
    """Writes the test for what a walk found.

    Parameters
    ----------
    walk : CaptureWalk
    floats : set of str
        Names of captured numbers that are inputs.

    Attributes
    ----------
    inputs : list of Input
    scalars : dict of str to value
        Captured numbers and the like that are compared by value.
    """

    def __init__(self, walk: CaptureWalk, floats: set[str]) -> None:
        self._floats = floats
        self._space: dict[str, Any] = {
            "__name__": GENERATED,  # by which an ADArray knows whom it answers
            "N": None, "A": np.ndarray, "H": Handle, "same": same_scalar, "freeze": frozenset,
            "D": DeviceArray, "adopt": adopt, "items": same_items, "referent": referent,
        }  # fmt: skip
        # Arrays that plain code reads, which compiled code must not write into otherwise.
        self._hidden: list[str] = []
        self.contents: list[tuple[Any, Content]] = []
        self._lines: list[str] = []
        self._variables: dict[int, str] = {}
        self._returned: list[str] = []
        self._owners: list[str] = []
        self._names = walk.names
        self._classes: set[type] = set()
        self.inputs: list[Input] = []
        self.scalars: dict[str, Any] = {}
        self._order, self._growing = walk.order, walk.growing
        # How each object is found from another one: variable, its parent's variable, expression.
        self._ways: dict[str, tuple[str, str]] = {}
        for i, root in enumerate(walk.roots):
            if i:
                self._child(f"roots[{i - 1}]", root, "")
            else:
                self._variables[id(root)] = name = self._constant(root.value)
                if root.kind == "function":
                    self._test_code(name, root.value)
        for obj in walk.order:
            for edge in obj.edges:
                self._child(self._expression(obj, edge), edge.child, self._variables[id(obj)])
        for space, names in walk.absent.values():
            self._test_absent(self._constant(space), names)
        for space in walk.whole.values():
            known = self._constant((tuple(space), tuple(space.values())))
            self._space["entries"] = same_entries
            self._lines.append(f"if not entries({self._constant(space)}, {known}): return N")
        if not self._names.isdisjoint(ENVIRONMENT):
            copy = self._constant(dict(os.environ))
            self._lines.append(f"if dict({self._constant(os.environ)}) != {copy}: return N")
        self._test_surroundings(walk)

    def function(self, what: str = "inputs") -> Check:
        """Return the test; it returns the captured inputs.

        With ``"owners"`` it returns ADArrays in the places of their values, with ``"hidden"`` the
        arrays that are no inputs, or not alone.
        """
        if not self._lines and not self._returned:
            return _nothing
        returned = {"inputs": self._returned, "owners": self._owners, "hidden": self._hidden}[what]
        body = "\n        ".join(self._lines)
        text = (
            f"def check(roots):\n    try:\n        {body or 'pass'}\n"
            "    except Exception:\n"  # something is no longer where it was
            "        return None\n"
            f"    return [{', '.join(returned)}]\n"
        )
        exec(compile(text, "<adarray.jit captures>", "exec"), self._space)  # our own text
        check: Check = self._space.pop("check")  # in its own globals it would be a cycle
        return check

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._space)}"
        self._space[name] = value
        return name

    def _expression(self, obj: CapturedObject, edge: Edge) -> str:
        """Return how the child of an edge is found from its parent."""
        parent = self._variables[id(obj)]
        how, key = edge.how, edge.key
        if how == "cell":
            return f"{self._constant(key)}.cell_contents"
        if how == "global":
            return f"{self._constant(obj.value.__globals__)}[{key!r}]"
        if how == "builtin":
            return f"{self._constant(vars(builtins))}[{key!r}]"
        if how == "fingerprint":
            return self._constant(edge.child.value)
        if how == "element":
            return f"{parent}.item({key})"
        if how == "referent":
            return f"referent({parent})"
        if how == "slot":
            return f"{parent}.{key.__name__}"
        if how == "import":
            return f"{self._constant(sys.modules)}[{key!r}]"
        if how == "default":
            return f"{parent}.__defaults__[{key}]"
        if how == "keyword":
            return f"{parent}.__kwdefaults__[{key!r}]"
        if how == "context":
            return f"{parent}.get()"
        if how == "item":
            return f"{parent}[{key if type(key) is int else self._constant(key)}]"
        if how == "attribute":
            return f"{parent}.__dict__[{key!r}]"
        if how == "module":
            return f"{self._constant(space_of(obj.value))}[{key!r}]"
        if how in ("class", "method"):
            base, name = key if how == "class" else (_owner(obj.value, key), key)
            raw = f"{self._constant(base.__dict__)}[{name!r}]"
            value = base.__dict__[name]
            for part in ("__func__", "fget", "fset", "fdel", "func"):
                if hasattr(value, part) and getattr(value, part) is edge.child.value:
                    return f"{raw}.{part}"
            return raw
        return f"{parent}.{key}"  # a slot, or a part of a method or partial

    def finder(self, numbers: Sequence[int]) -> Callable[[Any], list[Any]]:
        """Return a function that finds the objects with these numbers in the order of the walk.

        It takes what `function` takes, in calls of which that returns the inputs.
        """
        wanted = [self._variables[id(self._order[n])] for n in numbers]
        needed = dict.fromkeys(wanted)
        for name in needed_by(needed, self._ways):
            needed[name] = None
        lines = [f"{name} = {text}" for name, (text, _) in self._ways.items() if name in needed]
        body = "\n    ".join([*lines, f"return [{', '.join(wanted)}]"])
        exec(compile(f"def find(roots):\n    {body}", "<adarray.jit effects>", "exec"), self._space)
        find: Callable[[Any], list[Any]] = self._space.pop("find")
        return find

    def _child(self, expression: str, obj: CapturedObject, parent: str) -> None:
        """Write the test of one object, reached from its parent's variable."""
        lines = self._lines
        if obj.kind == "assumed":
            return
        known = self._variables.get(id(obj))
        if known is not None:
            lines.append(f"if {expression} is not {known}: return N")
            return
        name = f"t{len(self._space)}"
        self._space[name] = None  # takes the name; the function has its own
        self._variables[id(obj)] = name
        self._ways[name] = expression, parent
        lines.append(f"{name} = {expression}")
        getattr(self, f"_test_{obj.kind}", self._test_identity)(name, obj)

    # -- what is not there -----------------------------------------------------------------------

    def _test_absent(self, space: str, names: Iterable[str]) -> None:
        """Write the test that names are still not in a dictionary; the smaller one is gone over."""
        names = frozenset(names)
        if len(names) <= _FEW:
            self._lines += [f"if {name!r} in {space}: return N" for name in sorted(names)]
            return
        self._lines.append(f"if not {space}.keys().isdisjoint({self._constant(names)}): return N")

    def _test_classes(self, cls: type) -> None:
        """Write the test that classes got no attributes that hide those of others."""
        for base in cls.__mro__:
            if base not in self._classes and not is_library(base.__module__):
                self._classes.add(base)
                space, names = self._constant(base.__dict__), self._constant(list(base.__dict__))
                owner, bases = self._constant(base), self._constant(base.__bases__)
                self._lines.append(
                    f"if [*{space}] != {names} or {owner}.__bases__ is not {bases}: return N"
                )
        if "__subclasses__" in self._names:
            derived = self._constant(cls.__subclasses__())
            self._lines.append(f"if {self._constant(cls)}.__subclasses__() != {derived}: return N")

    def _test_surroundings(self, walk: CaptureWalk) -> None:
        """Write the tests of what functions of libraries read besides their arguments."""
        objects = [objects.value for objects in walk.order if objects.kind == "opaque"]
        readers = {reader_of(x, walk.names) for x in objects}
        for read in sorted(readers - {None}, key=lambda r: str(getattr(r, "__name__", r))):
            assert read is not None
            fingerprint = self._constant(SavedFingerprint(read(), _walks_nothing))
            self._lines.append(f"if not {fingerprint}.same({self._constant(read)}()): return N")
        if any(isinstance(cls, abc.ABCMeta) for cls in self._classes):
            token = self._constant(abc.get_cache_token())
            self._lines.append(f"if {self._constant(abc.get_cache_token)}() != {token}: return N")

    # -- one kind each ---------------------------------------------------------------------------

    def _test_identity(self, name: str, obj: CapturedObject) -> None:
        self._lines.append(f"if {name} is not {self._constant(obj.value)}: return N")

    def _test_function(self, name: str, obj: CapturedObject) -> None:
        # Tools that load a changed module again put new code into its old functions.
        self._test_identity(name, obj)
        self._test_code(name, obj.value)

    def _test_code(self, name: str, f: types.FunctionType) -> None:
        code, defaults = self._constant(f.__code__), self._constant(f.__defaults__)
        keywords = self._constant(f.__kwdefaults__)
        # Whoever transforms something that reaches f later may give it a copy of its code.
        original, own = self._constant(original_of), self._constant(original_of(f.__code__))
        self._lines.append(
            f"if {name}.__code__ is not {code} and {original}({name}.__code__) is not {own} "
            f"or {name}.__defaults__ is not {defaults} or "
            f"{name}.__kwdefaults__ is not {keywords}: return N"
        )
        if not self._names.isdisjoint(_ASKING):
            self._test_absent(f"{name}.__dict__", self._names.difference(f.__dict__))

    def _test_random(self, name: str, obj: CapturedObject) -> None:
        if obj.hidden or not obj.direct:
            self._test_identity(name, obj)
            return
        kind = self._constant(type(obj.value))
        self._lines.append(f"if type({name}) is not {kind}: return N")
        self._input(name, obj)

    def _test_scalar(self, name: str, obj: CapturedObject) -> None:
        value = obj.value
        is_input = obj.direct and not obj.hidden and obj.name in self._floats
        if is_input and (type(value) is not int or abs(value) <= INPUT_LIMIT):
            self._lines.append(f"if type({name}) is not {self._constant(type(value))}: return N")
            if type(value) is int:
                self._lines.append(f"if not -{INPUT_LIMIT} <= {name} <= {INPUT_LIMIT}: return N")
            self._input(name, obj)
            return
        self.scalars[obj.name] = value
        self._lines.append(
            f"if {name} is not {self._constant(value)} and not "
            f"same({name}, {self._constant(value)}): return N"
        )

    def _input(self, name: str, obj: CapturedObject) -> None:
        self.inputs.append(Input(obj))
        self._returned.append(name)
        # The value of an ADArray has its name and a letter, see `_test_adarray`.
        self._owners.append(name.removesuffix("v") if obj.kind == "adarray" else name)

    def _test_array(self, name: str, obj: CapturedObject, value: Any = None) -> None:
        x = obj.value if value is None else value
        self._lines.append(
            f"if type({name}) is not A or {name}.shape != {x.shape!r} or {name}.strides != "
            f"{x.strides!r} or {name}.dtype != {self._constant(x.dtype)}: return N"
        )
        if "flags" in self._names:
            self._lines.append(f"if {name}.flags.writeable != {x.flags.writeable}: return N")
        if obj.direct:
            self._input(name, obj)
        if obj.hidden:
            self._test_same(name, x)

    def _test_same(self, name: str, x: Any) -> None:
        content = Content(x)
        self.contents.append((x, content))
        self._hidden.append(name)
        self._lines.append(f"if not {self._constant(content)}.same({name}): return N")

    def _test_content(self, name: str, obj: CapturedObject) -> None:
        self._test_identity(name, obj)
        if isinstance(obj.value, np.ndarray):
            form = obj.value.dtype, obj.value.shape, obj.value.flags.writeable
            self._lines.append(
                f"if ({name}.dtype, {name}.shape, {name}.flags.writeable) != "
                f"{self._constant(form)}: return N"
            )
        self._test_same(name, obj.value)

    def _test_objects(self, name: str, obj: CapturedObject) -> None:
        self._test_identity(name, obj)
        self._lines.append(f"if {name}.shape != {obj.value.shape!r}: return N")

    def _test_fingerprint(self, name: str, obj: CapturedObject) -> None:
        assert obj.fingerprint is not None
        if not is_library(type(obj.value).__module__):
            self._test_classes(type(obj.value))
        self._lines.append(f"if not {self._constant(obj.fingerprint)}.same({name}): return N")

    def _test_reference(self, name: str, obj: CapturedObject) -> None:
        self._test_identity(name, obj)

    def _test_adarray(self, name: str, obj: CapturedObject) -> None:
        self._lines.append(
            f"if type({name}) is not {self._constant(type(obj.value))} or "
            f"{name}._node is not N or {name}._x is not N: return N"
        )
        if is_device(obj.value._plain):
            self._lines.append(f"{name}v = {name}._plain")
            self._lines.append(f"if type({name}v) is not D: return N")
            self._test_form(f"{name}v", obj, obj.value._plain)
        elif isinstance(obj.value._plain, np.ndarray):
            self._lines.append(f"{name}v = {name}._plain")
            self._test_array(f"{name}v", obj, obj.value._plain)
        else:
            self._lines.append(
                f"if not same({name}._plain, {self._constant(obj.value._plain)}): return N"
            )

    def _test_device(self, name: str, obj: CapturedObject) -> None:
        self._lines.append(f"if type({name}) is not {self._constant(type(obj.value))}: return N")
        self._lines.append(f"{name}v = adopt({name})")
        self._test_form(f"{name}v", obj, adopt(obj.value))

    def _test_form(self, name: str, obj: CapturedObject, value: Any) -> None:
        """Write the test of a value on a device, which is an input."""
        self._lines.append(
            f"if {name}.form != {self._constant(value.form)} or "
            f"{name}._writeable is not {value._writeable}: return N"
        )
        if obj.direct:
            self._input(name, obj)
        if obj.hidden:
            self._test_same(name, value)

    def _test_sequence(self, name: str, obj: CapturedObject) -> None:
        if obj.grows(self._growing):
            self._lines.append(f"if type({name}) is not {self._constant(list)}: return N")
            return
        self._lines.append(
            f"if type({name}) is not {self._constant(type(obj.value))} or "
            f"len({name}) != {len(obj.value)}: return N"
        )

    def _test_mapping(self, name: str, obj: CapturedObject) -> None:
        keys = tuple(obj.value)
        if all(type(key) is str for key in keys):
            same = f"list({name}) == {self._constant(list(keys))}"
        else:
            same = f"items({name}, {self._constant(keys)})"
        self._lines.append(
            f"if type({name}) is not {self._constant(type(obj.value))} or "
            f"len({name}) != {len(obj.value)} or not {same}: return N"
        )

    _test_proxy = _test_mapping

    def _test_class(self, name: str, obj: CapturedObject) -> None:
        self._test_identity(name, obj)
        self._test_classes(obj.value)
        self._test_classes(type(obj.value))

    def _test_module(self, name: str, obj: CapturedObject) -> None:
        self._test_identity(name, obj)
        space = vars(obj.value)
        if not self._names.isdisjoint(_ASKING) or "__getattr__" in space:
            self._test_absent(self._constant(space), self._names.difference(space))

    def _test_opaque(self, name: str, obj: CapturedObject) -> None:
        if issubclass(type(obj.value), StandIn):  # which another one may replace
            self._space["original"] = original
            known, of = self._constant(obj.value), self._constant(original(obj.value))
            self._lines.append(
                f"if {name} is not {known} and original({name}) is not {of}: return N"
            )
        else:
            self._test_identity(name, obj)
        if isinstance(obj.value, types.ModuleType) and not self._names.isdisjoint(_ASKING):
            space = space_of(obj.value)
            self._test_absent(self._constant(space), self._names.difference(space))

    def _test_set(self, name: str, obj: CapturedObject) -> None:
        items = self._constant(tuple(obj.value))
        kind = self._constant(type(obj.value))
        self._lines.append(f"if type({name}) is not {kind} or not items({name}, {items}): return N")

    def _test_view(self, name: str, obj: CapturedObject) -> None:
        self._test_identity(name, obj)

    _test_bound = _test_view

    def _test_instance(self, name: str, obj: CapturedObject) -> None:
        value, lines = obj.value, self._lines
        lines.append(f"if type({name}) is not {self._constant(type(value))}: return N")
        if isinstance(value, (list, tuple)):
            lines.append(f"if len({name}) != {len(value)}: return N")
        elif isinstance(value, (dict, set, frozenset)):
            lines.append(f"if not items({name}, {self._constant(tuple(value))}): return N")
        elif isinstance(value, enum.Enum):
            self._test_identity(name, obj)
        elif isinstance(value, (int, float, complex, str, bytes, np.generic)):
            self._space["number"] = same_number
            lines.append(f"if not number({name}, {self._constant(value)}): return N")
        self._test_classes(type(value))
        space = getattr(value, "__dict__", None)
        if type(space) is dict:
            if self._names.isdisjoint(INDIRECT):
                self._test_absent(f"{name}.__dict__", self._names.difference(space))
            else:
                keys = self._constant(frozenset(space))
                lines.append(f"if {name}.__dict__.keys() != {keys}: return N")
        for member in slots_in(type(value)):
            if not hasattr(value, member.__name__):
                lines.append(f"if hasattr({name}, {member.__name__!r}): return N")

    def _test_method(self, name: str, _obj: CapturedObject) -> None:
        self._lines.append(f"if type({name}) is not {self._constant(types.MethodType)}: return N")


def needed_by(names: Iterable[str], ways: Mapping[str, tuple[str, str]]) -> list[str]:
    """Return the variables from which others are reached."""
    variables = []
    for name in names:
        while name in ways:
            name = ways[name][1]
            variables.append(name)
    return variables


def _owner(obj: Any, key: str) -> type:
    return next(b for b in type(obj).__mro__ if key in b.__dict__)


def _walks_nothing(_x: Any) -> bool:
    return False


def _nothing(_roots: Any) -> list[Any]:
    return []
