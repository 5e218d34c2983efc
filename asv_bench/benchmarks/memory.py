"""Peak memory, and counts that noise cannot blur: nodes recorded, bytes saved."""

from __future__ import annotations

from typing import Any

import numpy as np

import adarray

from .apps import bound
from .common import LARGE, uniform
from .ops import STUDY, operands
from .trace import KINDS
from .workloads import WORKLOADS, fill_elements, make_network

DEEP = 1_000_000 if LARGE else 100_000


def graph(f: Any, *xs: Any) -> list[Any]:
    """Return the nodes that the result of `f` depends on, leaves excepted."""
    y = f(*(adarray.array(x, requires_grad=True) for x in xs))
    stack, nodes = [y._node], {}
    while stack:
        node = stack.pop()
        if node is not None and id(node) not in nodes and any(node.parents):
            nodes[id(node)] = node
            stack.extend(node.parents)
    return list(nodes.values())


def saved_bytes(nodes: list[Any]) -> int:
    """Return the bytes of distinct arrays that `nodes` keep for their rules."""
    owners = {}
    for node in nodes:
        for value in node.saved:
            array = value
            while isinstance(array, np.ndarray) and isinstance(array.base, np.ndarray):
                array = array.base
            if isinstance(array, np.ndarray):
                owners[id(array)] = array.nbytes
    return sum(owners.values())


class Peak:
    """Peak memory of a process that does nothing else."""

    def peakmem_import(self) -> None:
        """Hold what importing takes, from which the others are to be judged."""

    def peakmem_deep_chain(self) -> None:
        """Differentiate a long chain of operations on three numbers."""

        def f(x: Any) -> Any:
            for _ in range(DEEP):
                x = np.sin(x)
            return np.sum(x)

        adarray.grad(f)(np.ones(3))

    def peakmem_chain_1e6(self) -> None:
        """Differentiate eight operations on a million numbers."""
        f, variables = bound(WORKLOADS["chain 1e6"])
        adarray.grad(f)(*variables)

    def peakmem_network(self) -> None:
        """Take the gradient of the three-layer network."""
        f, variables = bound(make_network(128, 1024 if LARGE else 256, np.float32))
        adarray.grad(f, argnums=tuple(range(len(variables))))(*variables)

    def peakmem_repeated_network(self) -> None:
        """Take twenty gradients: nothing may pile up."""
        f, variables = bound(make_network(128, 256, np.float32))
        g = adarray.grad(f, argnums=tuple(range(len(variables))))
        for _ in range(20):
            g(*variables)

    def peakmem_fill(self) -> None:
        """Fill an array element by element."""
        adarray.grad(lambda x: fill_elements(np, x, x.size))(np.ones(20_000))


class Counts:
    """Nodes and saved bytes of the fifteen operations, of each kind, and of workloads."""

    params = ([*(f"op {n}" for n in sorted(STUDY)), *(f"kind {n}" for n in KINDS), *WORKLOADS],)
    param_names = ("function",)

    def setup(self, function: str) -> None:
        """Make the operands and run once."""
        kind, _, name = function.partition(" ")
        if kind == "op":
            f, xs = STUDY[name].call, operands(STUDY[name], 32, "float64")
        elif kind == "kind":
            f, xs = KINDS[name], [uniform(3, 0.1, 1.0, "float64")]
        else:
            f, inputs = bound(WORKLOADS[function])
            xs = list(inputs)
        self.nodes = graph(f, *xs)

    def track_nodes(self, *_: Any) -> int:
        """Return the number of operations that a reverse walk visits."""
        return len(self.nodes)

    def track_saved_bytes(self, *_: Any) -> int:
        """Return the bytes kept for the backward pass."""
        return saved_bytes(self.nodes)

    track_nodes.unit = "nodes"  # type: ignore[attr-defined]
    track_saved_bytes.unit = "bytes"  # type: ignore[attr-defined]
