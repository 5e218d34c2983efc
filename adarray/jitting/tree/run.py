"""Running the compiled paths of a trace tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from adarray.arrays.adarray import ADArray
from adarray.base.aliasing import shares_memory
from adarray.base.memory import laid
from adarray.base.recording import Call, Symbol
from adarray.base.scope import GENERATED
from adarray.base.spans import RECORDER
from adarray.core.trace import Handle
from adarray.device import DeviceArray
from adarray.jitting.shared.devices import OnDevice, borrowed, write
from adarray.jitting.shared.generators import DRAWING, GENERATORS, Draws
from adarray.jitting.shared.keys import outcome_key, replace_symbols
from adarray.jitting.shared.links import follower
from adarray.jitting.tree.build import run_call
from adarray.jitting.tree.check import CheckError
from adarray.jitting.tree.leaf import TreeLeaf
from adarray.jitting.tree.tree import Tree, TreeNode

Build = Callable[[list[TreeNode]], None]
Enter = Callable[[list[Any]], list[Any]]


class MissError(Exception):
    """A call left the paths that are compiled. Nothing was committed; f runs again."""


def runner(tree: Tree, build: Build, enter: Enter | None = None) -> Callable[[Any], Any] | None:
    """Return a function that runs a tree, inputs -> result; None if none can.

    `enter` moves the inputs to a device. There is none for paths that write into
    inputs, unless there is one path without guards, on a device.
    """
    root = tree.root
    ends = [n.leaf for n in tree.nodes() if n.leaf is not None]
    if root is None or not root.ready:
        return None
    writes = any(leaf.writes for leaf in ends)
    if root.leaf is not None and root.calls and (not writes or enter is not None):
        single = _single(root, build, enter)
        return single if single is None or not root.leaf.effects else _changing(root.leaf, single)
    if writes:
        return None
    device = tree.device

    def run(values: list[Any]) -> Any:
        walk = TreeWalk(tree, values if enter is None else enter(values), build)
        leaf = walk.run()
        result = leaf.finish(walk.values, values, device)
        return leaf.changed(result, (), ()) if leaf.effects else result

    return run


def _changing(leaf: TreeLeaf, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that runs a path and makes its changes."""

    def call(values: list[Any]) -> Any:
        return leaf.changed(run(values), (), ())

    return call


def _single(root: TreeNode, build: Build, enter: Enter | None) -> Callable[[list[Any]], Any] | None:
    """Return a function that runs a tree of one segment; None if a result is an argument."""
    targets, run = prepare(root, build)
    leaf = root.leaf
    assert leaf is not None
    count = len(root.tree.strides)
    if not {n for n, _ in leaf.outputs} <= {*targets, None}:
        return None
    device = root.tree.device
    finish = finisher(leaf, {n: i for i, n in enumerate(targets)}, count, device)
    sources = root.sources
    whole = sources == tuple(range(count))
    if device is not None and enter is not None:
        if leaf.writes:
            return _writing(root, enter, finish)
        if whole:
            return lambda values: finish(run(enter(values)), values)

        def on_device(inputs: list[Any]) -> Any:
            values = enter(inputs)
            return finish(run([values[i] for i in sources]), inputs)

        return on_device
    if whole:
        return lambda values: finish(run(values), values)
    return lambda values: finish(run([values[i] for i in sources]), values)


def _writing(
    root: TreeNode, enter: Enter, finish: Callable[[Any, Any], Any]
) -> Callable[[Any], Any] | None:
    """Return a function that runs a segment on a device and writes into arguments.

    Memory that others rely on, or that two inputs share, is left to the longer way. Arrays of
    the host are asked where they are: their copies on the device share nothing.
    """
    assert root.compiled is not None
    assert root.leaf is not None
    assert root.tree.device is not None
    (targets, run), sources = root.compiled, root.sources
    library = root.tree.device.library
    kind, overlap = library.kind, library.overlap
    pairs = [(i, targets.index(n)) for i, n, _ in root.leaf.writes if n in targets]
    strides = [root.tree.strides_of(i) for i, _ in pairs]
    if len(pairs) < len(root.leaf.writes) or any(s is not None for s in strides):
        return None

    written = [i for i, _ in pairs]

    def call(inputs: list[Any]) -> Any:
        hosts = list(map(_of_host, inputs))
        if shares_memory(hosts, written):
            raise MissError
        values = enter(inputs)
        for i in written:
            own = values[i]
            if borrowed(inputs[i]):
                raise MissError
            for k, x in enumerate(values):
                if k != i and type(x) is kind and (x is own or overlap(own, x)):
                    raise MissError
        results = run([values[i] for i in sources])
        result = finish(results, inputs)
        for i, k in pairs:
            if results[k] is not values[i] or hosts[i] is not None:  # computed in the copy of it
                write(inputs[i], DeviceArray(results[k], library))
        return result

    return call


def _of_host(x: Any) -> Any:
    """Return an input that is an ndarray, or the ndarray of an ADArray; None for others."""
    x = x._plain if isinstance(x, Handle) else x
    return x if type(x) is np.ndarray else None


class _Mark:
    """Stands for a leaf while the structure of a result is read."""

    def __init__(self, text: str) -> None:
        self.text = text


def finisher(
    leaf: TreeLeaf,
    at: Mapping[int, int] | range,
    inputs: int,
    device: OnDevice | None = None,
    handles: bool = False,
) -> Callable[[Any, Any], Any]:
    """Return a function from values and inputs to the result; value `n` is number ``at[n]``.

    Values with numbers below `inputs` are the caller's own arrays, which are copied. With
    `handles`, arrays become ADArrays.
    """
    space: dict[str, Any] = {
        "copy": np.copy, "array": np.array, "plain": _plain, "number": _number, "wrap": _wrapped,
        "laid": laid,
    }  # fmt: skip
    if device is not None:
        space = {"copy": device.copy, "plain": device.constant, "laid": device.library.in_order}
    space["__name__"] = GENERATED
    seen: set[int] = set()
    sources = {x.place for x in leaf.links.values() if x.of == "leaf"}
    lines: list[str] = []
    marks: list[Any] = []
    for i, (number, kind) in enumerate(leaf.outputs):
        if i in leaf.links:
            marks.append(_Mark(f"x{i}"))
            continue
        if number is None:
            space[f"c{i}"] = kind
            text = f"plain(c{i})"
        else:
            text = f"v[{at[number]}]"
            own = kind == "array" or (device is not None and kind != "number")
            if i in leaf.orders and own:
                text = f"laid({text}, {leaf.orders[i]})"
            elif own and (number in seen or number < inputs):
                text = f"copy({text})"  # one value twice in a result: two arrays
            if device is not None:
                space[f"r{i}"] = device.finisher(kind)
                text = f"r{i}({text})"
            elif kind != "array":
                text = _CONVERT[kind].format(text)
            seen.add(number)
        text = f"wrap({text})" if handles and device is None else text
        if i in sources:
            lines.append(f"x{i} = {text}")
            text = f"x{i}"
        marks.append(_Mark(text))
    lines += _linking(leaf, at, inputs, handles, seen, space)
    structure = _text_of(leaf.rebuild(marks))
    if structure is None:
        space["rebuild"] = leaf.rebuild
        structure = f"rebuild([{', '.join(m.text for m in marks)}])"
    lines.append(f"return {structure}")
    exec("def finish(v, g):\n " + "\n ".join(lines), space)  # our own text
    finish: Callable[[Any, Any], Any] = space.pop("finish")  # or its globals and it are a cycle
    return finish


def _linking(
    leaf: TreeLeaf,
    at: Mapping[int, int] | range,
    inputs: int,
    handles: bool,
    seen: set[int],
    space: dict[str, Any],
) -> list[str]:
    """Return the lines that follow the links of a result."""
    bases: dict[Any, str] = {}
    lines = []
    for k, link in leaf.links.items():
        if link.of == "leaf":
            source = f"x{link.place}"
        elif link.of == "input":
            source = f"g[{link.place}]"
        else:
            key = link.place if link.of == "value" else id(link.place)
            source = bases.get(key, "")
            if not source:
                source = bases[key] = f"b{k}"
                space[f"c{k}"] = link.place
                text = f"c{k}.copy()"
                if link.of == "value":
                    text = f"v[{at[link.place]}]"
                    if k in leaf.orders:
                        text = f"laid({text}, {leaf.orders[k]})"
                    elif link.place in seen or link.place < inputs:
                        text = f"copy({text})"
                lines.append(f"b{k} = wrap({text})" if handles else f"b{k} = {text}")
        if link.steps:
            space[f"s{k}"] = follower(link.steps)
            number = f"lambda n: g[n] if n < {inputs} else v[n]"
            if not isinstance(at, range):
                space["at"] = at
                number = f"lambda n: g[n] if n < {inputs} else v[at[n]]"
            source = f"s{k}({source}, {number})"
        lines.append(f"x{k} = {source}")
    return lines


def _wrapped(x: Any) -> Any:
    """Return an array or a NumPy scalar as an ADArray."""
    return ADArray(x) if isinstance(x, (np.ndarray, np.generic)) else x


_CONVERT = {"cell": "array({})", "scalar": "{}[()]", "number": "number({})"}


def _number(x: Any) -> Any:
    return x.item() if hasattr(x, "item") else x


def _text_of(x: Any) -> str | None:
    """Return the text that makes a nest of tuples and lists; None for other structures."""
    if type(x) is _Mark:
        return x.text
    if x is None:
        return "None"
    if type(x) is not tuple and type(x) is not list:
        return None
    parts = [_text_of(i) for i in x]
    if any(p is None for p in parts):
        return None
    inner = "".join(f"{p}, " for p in parts)
    return f"({inner})" if type(x) is tuple else f"[{inner}]"


def _plain(x: Any) -> Any:
    """Return a result that is the same every time; arrays are the caller's own."""
    return x.copy("K") if isinstance(x, np.ndarray) else x


def prepare(node: TreeNode, build: Build) -> tuple[tuple[int, ...], Any]:
    """Compile a segment that is not compiled yet; return its targets and what computes them."""
    compiled = node.compiled
    if compiled is None:
        with node.tree.lock:
            if node.compiled is None:
                build(list(_following(node)))
            compiled = node.compiled
    assert compiled is not None
    return compiled


def _following(node: TreeNode) -> Iterator[TreeNode]:
    """Yield a segment, and those on the one way on from it, that are not compiled yet."""
    yield node
    while len(node.children) == 1:
        (node,) = node.children.values()
        if node.compiled is not None or not node.ready:
            return
        yield node


class TreeWalk:
    """One call along a tree.

    Attributes
    ----------
    values : list
        By number: inputs, then results of the segments that ran; None in the place of those that
        nothing reads any more, whose memory serves the segments that follow.
    nodes : list of TreeNode
        The segments that ran.
    """

    def __init__(self, tree: Tree, values: list[Any], build: Build) -> None:
        self.tree = tree
        self.values = values
        self.build = build
        self.nodes: list[TreeNode] = []
        self._draws: Draws | None = None

    def run(self) -> TreeLeaf:
        """Follow the path that the values take; return how it ends.

        Raises
        ------
        MissError
            If the path, or a part of it, is not compiled.
        """
        node = self.tree.root
        try:
            while node is not None and node.ready:
                if any(self.values[n] is None for n in node.uses):
                    break  # another thread has added the path since the segments above ran
                node.runs += 1
                self.nodes.append(node)
                self._segment(node)
                if node.leaf is not None:
                    return node.leaf
                outcome = self._host_read(node)
                for n in node.dead():
                    self.values[n] = None
                node = node.children.get(outcome)
        except CheckError:
            raise
        except Exception as error:  # eager code raises its own
            self.undo()
            raise MissError from error
        self.undo()
        raise MissError

    def undo(self) -> None:
        """Give random generators the state that they had before the call."""
        if self._draws is not None:
            self._draws.undo()

    def repeatable(self, arguments: list[Any]) -> bool:
        """Whether the call drew from no generators but arguments, of which there are copies."""
        return self._draws is None or self._draws.only_from(arguments)

    def _segment(self, node: TreeNode) -> None:
        values = self.values
        targets, run = node.compiled or prepare(node, self.build)
        missing = node.stop - len(values)
        if missing > 0:
            values.extend([None] * missing)
        if targets:
            recorder = RECORDER.get()
            if recorder is None:
                results = run([values[i] for i in node.sources])
            else:
                from adarray.jitting.tree.timed import run_timed

                results = run_timed(recorder, node, [values[i] for i in node.sources])
            for n, r in zip(targets, results, strict=True):
                values[n] = r

    def _host_read(self, node: TreeNode) -> Any:
        """Return the outcome of the guard at the end of a segment; run the call there, if any."""
        guard = node.guard
        assert guard is not None
        if guard.call is not None:
            return self._call(node, guard.call)
        assert guard.symbol is not None
        x = self._value(node, guard.symbol)
        return outcome_key(guard.kind, _HOST_READS[guard.kind](x))

    def _value(self, node: TreeNode, symbol: Symbol) -> Any:
        number = node.path.numbers[id(symbol)]
        if not isinstance(number, int):
            return node.path.constants[symbol]
        x = self.values[number]
        if self.tree.device is not None:
            x = self.tree.device.seen(x, symbol.shape == ())
        if symbol.shape == () and symbol.dtype != object:
            if symbol.weak:
                return x.item() if hasattr(x, "item") else x
            return x[()] if isinstance(x, np.ndarray) else x
        return x

    def _call(self, node: TreeNode, call: Call) -> Any:
        def value(symbol: Symbol) -> Any:
            return self._value(node, symbol)

        if call.function in DRAWING:
            if self._draws is None:
                self._draws = Draws()
            self._draws.note(*[replace_symbols(a, value) for a in call.args])
        r = run_call(call, value)
        several = r if call.several else (r,)
        for symbol, x in zip(call.results, several, strict=True):
            number = node.path.numbers[id(symbol)]
            assert isinstance(number, int)
            missing = number + 1 - len(self.values)
            if missing > 0:
                self.values.extend([None] * missing)
            if self.tree.device is not None:
                x = self.tree.device.stored(x)
            elif isinstance(x, np.ndarray) and not (x.base is None and x.flags.c_contiguous):
                x = np.array(x, order="C")
            self.values[number] = x
        return outcome_key("call", [_kind_of(x) for x in several])


def _kind_of(x: Any) -> tuple[Any, Any]:
    """Return shape and dtype of what a call returned."""
    if isinstance(x, GENERATORS):
        return (), object
    return np.shape(x), np.result_type(x)


_HOST_READS: dict[str, Callable[[Any], Any]] = {
    "bool": bool,
    "index": int,
    "int": int,
    "float": float,
    "complex": complex,
}
