"""Patterns of users, tried with one random direction."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.core.protocol import concrete
from adarray.device import host
from adarray.sparsity.detection import Arguments
from adarray.transforms.matrices import picked_call
from adarray.transforms.modes import forward
from adarray.transforms.products import gradient_of
from adarray.transforms.tree import flatten
from adarray.transforms.variables import Variables


def check_pattern(task: Any, matrix: Any, arguments: Arguments) -> None:
    """Raise if a matrix that was evaluated with the pattern of a user is not the derivative.

    Its product with a random vector is compared with the derivative along that, which an entry that
    the pattern lacks changes with probability one, if it is not zero for these arguments.

    Raises
    ------
    ValueError
    """
    name, intercept = task.name, task.options["intercept"]
    f = gradient_of(name, task.f, task.argnums, False, intercept) if task.hessian else task.f
    inside = intercept and not task.hessian
    call, xs = picked_call(name, f, *arguments, task.argnums, inside, False)
    tree = Variables(xs)
    rng = np.random.default_rng(0)
    parts = [np.asarray(rng.normal(size=np.shape(x)), np.result_type(x)) for x in tree.moving]
    _, dy, _ = forward(name, call, xs, tree.gradient([p[()] for p in parts]), False)
    v = np.concatenate([np.ravel(p) for p in parts])
    expected = np.concatenate(
        [np.ravel(host(concrete(t))) for t in flatten(dy)[0] if t is not None]
    )
    ours = matrix @ v
    size = abs(matrix) @ np.abs(v) + np.abs(expected)
    with np.errstate(invalid="ignore"):
        wrong = np.abs(ours - expected) > np.finfo(expected.dtype).eps ** 0.4 * size
    if wrong.any():
        rows = np.flatnonzero(wrong)
        more = f" and {rows.size - 1} more" if rows.size > 1 else ""
        raise ValueError(
            f"{name}: the given pattern lacks entries that are not zero, which shows in row "
            f"{rows[0]}{more}; leave pattern out, which finds it, or pass check=False if these "
            "entries do not matter"
        )
