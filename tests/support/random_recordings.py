"""Recordings of random programs and of their gradients, for the tests of what compiles them.

For tests of planning and printers.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator

from random_programs import seeded
from recorded import Recorded, recorded

from adarray import value_and_grad


def random_recordings(seeds: Iterable[int], gradients: bool = True) -> Iterator[Recorded]:
    """Yield what programs of these seeds record; their values and gradients, too.

    Those are left out that call what has a shape that depends on values.
    """
    for seed in seeds:
        program = seeded(seed)
        args = program.args(0)
        functions = [program.function("f")]
        if gradients:
            every = tuple(range(len(args)))
            functions.append(value_and_grad(program.function("loss"), argnums=every))
        for f in functions:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    result = recorded(f, *args)
                except AssertionError:
                    continue
            yield result
