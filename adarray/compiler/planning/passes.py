"""What is done to a program for a target, before kernels are chosen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adarray.base.spans import span
from adarray.compiler.ir.primitives import PythonCall, Slot, View, map_of
from adarray.compiler.ir.program import Program, Value, c_strides
from adarray.compiler.ir.target import GpuTarget, Target
from adarray.compiler.ir.uses import numeric
from adarray.compiler.ir.verify_loops import checking
from adarray.compiler.ir.verify_program import verify_program
from adarray.compiler.kernels.tables import tabled
from adarray.compiler.rewrite.accumulate import accumulated, biased
from adarray.compiler.rewrite.cse import cse
from adarray.compiler.rewrite.dead import dead
from adarray.compiler.rewrite.deep_products import deep_products
from adarray.compiler.rewrite.factors import factors
from adarray.compiler.rewrite.few_places import few_places
from adarray.compiler.rewrite.fourier import fourier_calls
from adarray.compiler.rewrite.hoist import hoist
from adarray.compiler.rewrite.long_scans import long_scans
from adarray.compiler.rewrite.memory_order import memory_order
from adarray.compiler.rewrite.merged_axes import merged_axes
from adarray.compiler.rewrite.narrow_products import narrow_products
from adarray.compiler.rewrite.pair_sides import pair_sides
from adarray.compiler.rewrite.pieces import read_in_whole
from adarray.compiler.rewrite.product_costs import ON_GPU
from adarray.compiler.rewrite.products import products
from adarray.compiler.rewrite.scipy_transforms import scipy_transforms
from adarray.compiler.rewrite.shared_parts import shared_parts
from adarray.compiler.rewrite.shifted_sums import shifted_sums
from adarray.compiler.rewrite.short_axes import short_axes
from adarray.compiler.rewrite.stacked import stacked
from adarray.compiler.rewrite.sum_stages import sums_in_stages


def _large_products(program: Program, target: Target) -> Program:
    """Return the program with products as one that are too large to be so on a processor."""
    if not isinstance(target, GpuTarget):
        return program
    together = hoist(products(program, ON_GPU), ON_GPU)
    return program if together is program else shared_parts(dead(cse(together)))


# In this order; ADARRAY_CHECK verifies the program after each.
TARGET_PASSES: tuple[tuple[str, Callable[[Program, Target], Program]], ...] = (
    ("memory_order", memory_order),
    ("results_in_c_order", lambda program, _: _in_c_order(program)),
    ("factors", factors),
    ("fourier_calls", fourier_calls),
    ("scipy_transforms", scipy_transforms),
    ("long_scans", long_scans),
    ("few_places", few_places),
    ("large_products", _large_products),
    ("sums_in_stages", sums_in_stages),
    ("stacked", stacked),
    ("narrow_products", narrow_products),
    ("deep_products", deep_products),
    ("shifted_sums", shifted_sums),
    ("short_axes", short_axes),
    ("merged_axes", merged_axes),
    ("read_in_whole", read_in_whole),
    ("tabled", lambda program, target: tabled(program, target.small)),
    ("accumulated", lambda program, target: accumulated(program, target.adds)),
    ("biased", lambda program, target: biased(program, target.adds)),
    ("pair_sides", pair_sides),  # the last one: it says of values to which kernels they belong
)


def prepared(program: Program, target: Target) -> Program:
    """Return the program as kernels for a target are chosen from."""
    for name, change in TARGET_PASSES:
        with span("passes", name):
            program = change(program, target)
        if checking():
            verify_program(program, name)
    return program


def _in_c_order(program: Program) -> Program:
    """Return the program with results that are views, other than of whole rows, copied.

    What reads the results, the next segment of a path for one, expects C order.
    """
    values, outputs = list(program.values), []
    for v in program.outputs:
        whole = not isinstance(v.primitive, View) or all(
            n == 1 or s == t
            for n, s, t in zip(v.shape, v.primitive.strides, c_strides(v.shape), strict=True)
        )
        if not whole:
            if numeric(v.dtype):
                v = Value(map_of("cast"), (v,), v.shape, v.dtype, v.origin)
            else:
                call = PythonCall(np.ascontiguousarray, (Slot(0),), {})
                v = Value(call, (v,), v.shape, v.dtype, v.origin)
            values.append(v)
        outputs.append(v)
    return Program(program.inputs, values, outputs)
