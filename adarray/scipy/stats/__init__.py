"""Drop-in for `scipy.stats`: distributions and summaries that ADArrays pass through.

Plain data go to SciPy itself. Values that are traced go through formulas of ours,
differentiable in the variable, location, scale and every shape parameter. Where SciPy
has more than that, the names are here too and refuse traced arguments.
"""

from __future__ import annotations

from typing import Any

import scipy.stats

from adarray.scipy import special as _special  # noqa: F401  (the rules of the ufuncs)
from adarray.scipy._drop_in import fill_in
from adarray.scipy.stats._continuous import continuous
from adarray.scipy.stats._discrete import discrete
from adarray.scipy.stats._kde import gaussian_kde as gaussian_kde
from adarray.scipy.stats._multivariate import vectors
from adarray.scipy.stats._objects import objects
from adarray.scipy.stats._summaries import REASONS, SUMMARIES

_laws = continuous()
globals().update({**_laws, **discrete(), **vectors(), **SUMMARIES, **objects(_laws)})
_getattr, _names, __all__ = fill_in(globals(), scipy.stats, REASONS)


def __getattr__(name: str) -> Any:
    """Return another member of `scipy.stats`, which refuses traced arguments."""
    return _getattr(name)


def __dir__() -> list[str]:
    return _names()
