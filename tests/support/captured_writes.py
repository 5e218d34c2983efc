"""Random programs that write into captured arrays, as source text with state of their own.

For tests of captured state.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

N = 4
# How a place is made, by name; `#` stands for a number of its own, and {v} for its array.
PLACES = {
    "global": ("g# = {v}", "g#"),
    "attribute": ("o# = types.SimpleNamespace(v={v})", "o#.v"),
    "object": ("class O#:\n    pass\np# = O#(); p#.v = {v}", "p#.v"),
    "slots": ("@dataclasses.dataclass(slots=True)\nclass S#:\n    v: object\ns# = S#({v})", "s#.v"),
    "class": ("class C#:\n    v = {v}", "C#.v"),
    "list": ("l# = [{v}]", "l#[0]"),
    "tuple": ("u# = ({v}, 1)", "u#[0]"),
    "dict": ("d# = {{'k': {v}}}", "d#['k']"),
    "list of a class": ("class L#(list):\n    pass\nm# = L#([{v}])", "m#[0]"),
    "dict of a class": ("class D#(dict):\n    pass\ne# = D#(k={v})", "e#['k']"),
    "cache": ("w# = {v}\n@functools.lru_cache\ndef c#(): return w#", "c#()"),
    "cache alone": ("@functools.lru_cache\ndef a#(): return np.linspace(0.0, 1.0, 4)", "a#()"),
    "default": ("def h#(v={v}): return v", "h#()"),
    "closure": ("def j#():\n    v = {v}\n    return lambda: v\nk# = j#()", "k#()"),
    "array of objects": ("q# = np.empty(1, object); q#[0] = {v}", "q#[0]"),
    "property": (
        "class R#:\n    def __init__(self): self._plain = {v}\n"
        "    @property\n    def v(self): return self._plain\nr# = R#()", "r#.v",
    ),
    "deque": ("t# = collections.deque([{v}])", "t#[0]"),
    "enum": ("class E#(enum.Enum):\n    A = 1\nE#.A.v = {v}", "E#.A.v"),
    "partial": ("n# = functools.partial(lambda v: v, {v})", "n#()"),
    "proxy": ("x# = types.MappingProxyType({{'k': {v}}})", "x#['k']"),
    "weak": ("class W#:\n    pass\ny# = W#(); y#.v = {v}\nz# = weakref.ref(y#)", "z#().v"),
}  # fmt: skip
# Statements that write into {p} values of {e}; both are vectors of four numbers.
WRITES = [
    "{p}[:] = {e}", "{p}[...] = {e}", "{p}[1:] += {e}[:-1]", "{p}[::2] -= {e}[::2]",
    "{p}[0] = {e}[1]", "{p}[{p} > 0.5] = 0.25", "{p}[[0, 2]] = {e}[[1, 3]]",
    "v = {p}; v += {e}", "v = {p}[1:3]; v *= 0.5", "v = {p}[::-1]; v[:] = {e}",
    "v = {p}.reshape(2, 2); v[0] = {e}[:2]", "v = {p}.T; v[2] = 0.5",
    "np.add({p}, {e}, out={p})", "np.multiply({e}, 0.5, out={p})", "np.sin({e}, {p})",
    "np.add({p}, {e}, out={p}, where=np.array([True, False, True, True]))",
    "np.copyto({p}, {e})", "np.copyto({p}, 0.5)", "np.put({p}, [0, 3], {e}[:2])",
    "np.place({p}, np.array([True, False, False, True]), [0.5, 0.25])",
    "np.putmask({p}, {p} > 0.5, {e})", "np.add.at({p}, [0, 0, 1], {e}[:3])",
    "np.cumsum({e}, out={p})", "np.clip({e}, 0.1, 0.9, out={p})",
    "np.take({e}, [3, 2, 1, 0], out={p}, mode='clip')", "np.matmul(M, {e}, out={p})",
    "np.dot(M, {e}, out={p})", "np.einsum('ij,j->i', M, {e}, out={p})",
    "np.fill_diagonal({p}.reshape(2, 2), {e}[0])", "np.fill_diagonal({p}.reshape(2, 2), 0.5)",
    "np.sum(M * {e}, axis=0, out={p})", "np.max(M + {e}, axis=1, out={p})",
    "np.round({e}, 1, out={p})", "np.concatenate([{e}[:2], {e}[2:]], out={p})",
    "np.put_along_axis({p}, np.array([1, 2]), {e}[:2], 0)", "np.stack([{e}[0]] * 4, out={p})",
    "{p}.fill(0.5)", "{p}.sort()", "{p}[0] += 1.0", "{p}[0], {p}[1] = float({p}[1]), float({p}[0])",
    "{p}.put([1], 0.5)", "{p}.itemset(0, 0.5) if hasattr({p}, 'itemset') else {p}.fill(0.1)",
    "np.mean(M * {e}, axis=1, out={p})", "np.logaddexp({e}, 0.0, out={p})",
    "np.minimum.accumulate({e}, out={p})", "np.add.reduce(M * {e}, axis=0, out={p})",
]  # fmt: skip
READS = [
    "np.sum({p} * x)", "{p}[1] * x", "x + {p}", "np.cumsum({p}) * x", "float({p}[2]) * x",
    "x * {p}.sum()", "({p} @ M) * x", "np.where({p} > 0.4, x, -x)",
]  # fmt: skip


def program(seed: int) -> str:
    """Return the text of a module with a function ``f(x)`` and what it writes into."""
    rng = random.Random(seed)
    lines = ["M = np.linspace(0.0, 1.0, 16).reshape(4, 4)"]
    places = []
    for i in range(rng.randint(1, 3)):
        setup, place = PLACES[rng.choice(list(PLACES))]
        array = f"np.linspace(0.0, 1.0, {N}) + {i}"
        if places and rng.random() < 0.3:  # another way to the memory of an earlier place
            array = rng.choice(["{p}", "{p}[:]", "{p}[::-1]"]).format(p=rng.choice(places))
        lines.append(setup.replace("#", str(i)).format(v=array))
        places.append(place.replace("#", str(i)))
    body = []
    values = ["x", "x * 0.5", "np.sin(x)", "x[::-1]", "np.full(4, 0.25)", *places]
    for _ in range(rng.randint(1, 3)):
        p = rng.choice(places)
        body.append(rng.choice(WRITES).format(p=p, e=f"({rng.choice(values)})"))
        if rng.random() < 0.3:
            body.append("r = r + " + rng.choice(READS).format(p=rng.choice(places)))
    if rng.random() < 0.2:
        body = ["if x[0] > 0.3:", *[f"    {line}" for line in body], "else:", "    r = r * 2.0"]
    body.append("r = r + " + rng.choice(READS).format(p=rng.choice(places)))
    lines += ["def f(x):", "    r = x * 1.0", *[f"    {line}" for line in body], "    return r"]
    lines.append(f"def held(): return [np.array(a) for a in ({', '.join(places)},)]")
    return "\n".join(lines)


def start(text: str) -> dict[str, Any]:
    """Return the globals of a module with this text."""
    space: dict[str, Any] = {"np": np, "__name__": "of_the_user"}
    exec("import collections, dataclasses, enum, functools, types, weakref", space)
    exec(compile(text, "<program>", "exec", dont_inherit=True), space)
    return space
