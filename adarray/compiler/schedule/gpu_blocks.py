"""Other blocks for a kernel of a GPU: which there are, and whether they change a bit.

Sums are folded by the threads that share a pass, and then, for totals, by those of all blocks:
a kernel with totals, or with folds that all threads of a block share, gives other bits with
other blocks. Everywhere else the number of threads of a block is free to be measured.
"""

from __future__ import annotations

from adarray.compiler.ir.loopir import Fold, For, Kernel, statements
from adarray.compiler.schedule.gpu import BLOCK, LARGEST, Form
from adarray.compiler.schedule.gpu_loops import WARP

CHOICES = (128, BLOCK, 512, LARGEST)


def is_free(kernel: Kernel, form: Form) -> bool:
    """Whether every result has the same bits whatever the number of threads of a block is."""
    if kernel.totals:
        return False
    body = kernel.body
    if form.group <= WARP and form.kind in ("rows", "sheet"):
        # Within a pass of the parallel loop, groups fold; around it, whole blocks.
        body = tuple(s for s in body if not (isinstance(s, For) and s.kind == "parallel"))
    return not any(isinstance(s, Fold) for s in statements(body))


def resized(form: Form, block: int) -> Form:
    """Return a form with blocks of so many threads, a multiple of 32.

    Groups of up to a warp stay as they are; others are whole blocks. Larger blocks of groups
    that keep arrays in shared memory may not fit: there the form stays as it is.
    """
    if form.turns or form.kind == "tiles":  # they fit their blocks
        return form
    if form.lanes:  # more of them have too few registers
        return form._replace(block=min(block, BLOCK))
    if form.group > WARP or form.kind in ("flat", "alone"):
        # Loops of one pass have a warp of their own where there is more than one.
        single = form.single if block > WARP else frozenset()
        short = form.short and block >= form.group
        slots = form.slots if block == form.block else 0  # of rows in shared memory
        return form._replace(group=block, block=block, single=single, short=short, slots=slots)
    if form.shared and block > form.block:
        return form
    return form._replace(block=block)


def candidates(kernel: Kernel, form: Form) -> list[Form]:
    """Return the forms to choose from by measurement: the given one first."""
    if form.kind == "alone" or not is_free(kernel, form):
        return [form]
    return list(dict.fromkeys([form, *(resized(form, n) for n in CHOICES)]))
