"""Whether a function is linear: tried at one random point.

References
----------
- J. F. Claerbout, "Earth Soundings Analysis: Processing versus Inversion", Blackwell 1992.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.core.protocol import concrete
from adarray.device import host
from adarray.transforms.modes import shape_of

_Many = list[Any]


def are_transposes(
    push: Callable[[_Many], _Many], pull: Callable[[_Many], _Many], ins: _Many, outs: _Many
) -> bool:
    """Return whether two maps are each other's transposes, as far as one pair of vectors shows.

    Parameters
    ----------
    push, pull : callable
        From values like `ins` to values like `outs`, and back.
    ins, outs : list of arrays and numbers

    Notes
    -----
    The pairing of ``push(v)`` with ``g`` is that of ``v`` with ``pull(g)``: for random vectors, the
    dot-product test of adjoints (Claerbout, Earth Soundings Analysis, 1992). Where `pull` is the
    derivative of `push`, they are equal if and only if `push` is linear along ``v``, but for
    rounding. Values that are not finite are not compared.
    """
    rng = np.random.default_rng(0)
    vs, gs = ([_drawn(rng, x) for x in xs] for xs in (ins, outs))
    (ours, size), (theirs, other) = _pairing(gs, push(vs)), _pairing(pull(gs), vs)
    if not np.isfinite(ours - theirs):
        return True
    eps = max((np.finfo(np.result_type(x)).eps for x in (*vs, *gs)), default=0.0)
    return bool(abs(ours - theirs) <= eps**0.4 * (size + other))  # 1e-6 in double precision


def _drawn(rng: np.random.Generator, x: Any) -> Any:
    """Return random numbers of the shape and dtype of `x`."""
    shape, dtype = shape_of(x), np.result_type(concrete(x))
    sample: Any = rng.normal(size=shape)
    if dtype.kind == "c":
        sample = sample + 1j * rng.normal(size=shape)
    return np.asarray(sample, dtype)[()]


def _pairing(gs: _Many, ts: _Many) -> tuple[float, float]:
    """Return the pairing of cotangents and tangents, and the sum of the sizes of its terms."""
    terms = [np.asarray(host(concrete(g)) * host(concrete(t))) for g, t in zip(gs, ts, strict=True)]
    return (
        sum(float(np.sum(x.real)) for x in terms), sum(float(np.sum(np.abs(x))) for x in terms)
    )  # fmt: skip
