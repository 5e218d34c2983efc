"""Random programs as workloads of the engines."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from asv_bench.benchmarks.workloads import Arrays, Workload
from asv_bench.random_programs.named import NAMED
from asv_bench.random_programs.named import program as named
from asv_bench.random_programs.torch_names import TorchArrays
from asv_bench.random_programs.writer import Program, write


def elements_of(seed: int, low: float, high: float) -> int:
    """Return how many elements the program of a seed has, between these."""
    return int(math.exp(random.Random(f"elements {seed}").uniform(math.log(low), math.log(high))))


def compiled(text: str) -> Callable[..., Any]:
    """Return the function of a text; its lines can be shown."""
    names: dict[str, Any] = {}
    exec(compile(text, "<random program>", "exec"), names)  # the text is our own
    return names["f"]  # type: ignore[no-any-return]


def workload(program: Program) -> Workload:
    """Return a program as a workload."""
    f = compiled(program.text)

    def part(varies: bool) -> Callable[[np.random.Generator], Arrays]:
        def values(rng: np.random.Generator) -> Arrays:
            return tuple(x.values(rng) for x in program.arguments if x.varies == varies)

        return values

    def in_torch(torch: Any, *arrays: Any) -> Any:
        return f(TorchArrays(torch), *arrays)

    return Workload(f"random {program.seed}", f, part(True), part(False), in_torch)


def program_of(name: str) -> Program:
    """Return a named program, or that of ``SEED:LOW:HIGH``.

    Raises
    ------
    KeyError, ValueError
        If there is none of that name.
    """
    if name.partition(":")[0] in NAMED:
        return named(name)
    seed, low, high = name.split(":")
    return chosen(int(seed), float(low), float(high))


def workload_of(name: str) -> Workload:
    """Return a program, by its name, as a workload."""
    return workload(program_of(name))


def described(name: str) -> str:
    """Return the text of a program, with the shapes of its arguments."""
    p = program_of(name)
    shapes = ", ".join(f"{a.name} {a.dtype} {list(a.shape)}" for a in p.arguments)
    return f"# {name}: {', '.join(p.kinds)}\n# {shapes}\n{p.text}"


def chosen(seed: int, low: float, high: float) -> Program:
    """Return the program of a seed, of as many elements as the seed says, between these."""
    return write(seed, elements_of(seed, low, high))
