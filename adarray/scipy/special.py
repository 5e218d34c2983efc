"""Drop-in for `scipy.special`: the same names, for NumPy arrays and ADArrays.

The ufuncs are SciPy's own objects: they dispatch on ADArrays by NumPy's protocol, so
that ``from scipy import special`` is enough for them once this module was imported.
The functions written in Python (``logsumexp``, ``softmax``, ``polygamma``, ...), which
would coerce their arguments, are replaced. A function that cannot be differentiated
refuses traced arguments and gives the reason.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import scipy.special

from adarray.scipy import (
    _special_functions,
    _special_rules_bessel,  # noqa: F401  (registers)
    _special_rules_cdf,  # noqa: F401
    _special_rules_error,  # noqa: F401
    _special_rules_gamma,  # noqa: F401
    _special_rules_hyper,  # noqa: F401
    _special_rules_poly,  # noqa: F401
)
from adarray.scipy._drop_in import REPLACEMENTS, fill_in
from adarray.scipy._elementwise import refused, sp

# Functions in Python that hand their arguments to ufuncs, which dispatch.
DISPATCHING = ("assoc_laguerre", "h1vp", "h2vp", "ivp", "jvp", "kvp", "lambertw", "sinc",
               "softplus", "yvp", "zeta")  # fmt: skip
# What holds no numbers to differentiate.
OTHERS = ("SpecialFunctionError", "SpecialFunctionWarning", "errstate", "geterr", "seterr", "test")
_COUNTS = "its arguments are orders and counts, which have no derivative"
_NODES = "nodes, weights and coefficients have no derivative with respect to their parameters"
_SEQUENCE = "it computes a sequence over the orders in SciPy's own code"
REASONS = {
    **dict.fromkeys(
        [n for n in dir(scipy.special) if n.endswith("_zeros") or n.startswith("stirling")]
        + ["bernoulli", "euler", "jnjnp_zeros"],
        _COUNTS,
    ),
    **dict.fromkeys([n for n in dir(scipy.special) if "_roots" in n or "roots_" in n], _NODES),
    **dict.fromkeys(
        ["chebyc", "chebys", "chebyt", "chebyu", "gegenbauer", "genlaguerre", "hermite",
         "hermitenorm", "jacobi", "laguerre", "legendre", "sh_chebyt", "sh_chebyu", "sh_jacobi",
         "sh_legendre"],
        "it makes a polynomial object of a degree; use the function eval_...",
    ),
    **dict.fromkeys(
        ["lmbda", "lqmn", "lqn", "pbdn_seq", "pbdv_seq", "pbvv_seq", "riccati_jn", "riccati_yn",
         "pro_cv_seq", "obl_cv_seq", "mathieu_even_coef", "mathieu_odd_coef", "clpmn", "lpmn",
         "lpn"],
        _SEQUENCE,
    ),
    **dict.fromkeys(
        ["ellip_harm", "ellip_harm_2", "ellip_normal"],
        "ellipsoidal harmonics have no derivative rules",
    ),
    **dict.fromkeys(
        ["factorial2", "factorialk"],
        "it is a product over integers, which has no derivative; use gamma",
    ),
}  # fmt: skip


# Older versions of SciPy have it as a ufunc.
if hasattr(scipy.special, "sph_harm"):
    refused("it is deprecated in favour of sph_harm_y, which has rules", sp.sph_harm)


def _fill() -> None:
    """Bind SciPy's ufuncs, and the functions of ours, to their names."""
    for name in dir(scipy.special):
        if name.startswith("_"):
            continue
        function = getattr(scipy.special, name)
        ufunc = getattr(sp, name) if callable(function) and not isinstance(function, type) else None
        if isinstance(ufunc, np.ufunc):
            globals()[name] = ufunc
        elif name == "sinc":
            globals()[name] = np.sinc  # it is NumPy's
        elif name in DISPATCHING:  # without the coercing wrappers of the array-API mode
            globals()[name] = inspect.unwrap(function)
        elif name in OTHERS:
            globals()[name] = function
        elif callable(function) and function in REPLACEMENTS:
            globals()[name] = REPLACEMENTS[function]


_fill()
_getattr, _names, __all__ = fill_in(globals(), scipy.special, REASONS)


def __getattr__(name: str) -> Any:
    """Return another member of `scipy.special`, which refuses traced arguments."""
    return _getattr(name)


def __dir__() -> list[str]:
    return _names()


# For type checkers: the names whose bodies are in this package.
logsumexp = _special_functions.logsumexp
softmax = _special_functions.softmax
log_softmax = _special_functions.log_softmax
