"""Which code `adarray.intercept` reaches, and whether it does so now.

The state is one context variable, so that threads and async tasks are independent.
Lower modules read it where an ADArray behaves differently inside: in conversions whose derivative
is zero. This module also tells who asks for the type of an object: user code, which must see what
it would see without adarray, or a library, which must know what it has.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable
from contextvars import ContextVar
from types import CodeType, FrameType, FunctionType
from typing import ParamSpec, TypeVar

from adarray.base.types import Namespace

# Packages that keep the real NumPy: NumPy itself and what is made for it, adarray,
# array libraries of their own, and tools that look at arrays but do not compute.
UNINTERCEPTED = frozenset(
    {
        "numpy", "scipy", "adarray", "adarray_backends", "adarray_native", "array_api_compat",
        "array_api_strict", "autograd", "cffi", "cuda", "cupy", "cupy_backends", "cupyx",
        "cython", "dask", "jax", "jaxlib",
        "mygrad", "numba", "numexpr", "opt_einsum", "optree", "pandas", "pyarrow", "pytensor",
        "sklearn", "sparse", "sympy", "tensorflow", "torch", "xarray",
        "IPython", "_pytest", "cloudpickle", "dill", "hypothesis", "ipykernel", "joblib",
        "matplotlib", "mpl_toolkits", "pluggy", "pytest", "setuptools", "pkg_resources", "pip",
    }
) | (sys.stdlib_module_names - {"__main__"})  # fmt: skip

# The ``__name__`` in the globals of functions that adarray writes: nobody's module, and ours.
GENERATED = "adarray.generated"

# Names of the packages whose modules were rebound (see adarray.intercepting).
CLIENTS: set[str] = set()

_P = ParamSpec("_P")
_R = TypeVar("_R")


class InterceptScope:
    """The packages whose code is intercepted.

    Parameters
    ----------
    packages : frozenset of str, optional
        Names of top-level packages and modules; None means every client package.
    """

    __slots__ = ("memory", "packages")

    def __init__(self, packages: frozenset[str] | None) -> None:
        self.packages = packages
        self.memory: dict[object, object] = {}  # of cached functions, while the context lasts

    def covers(self, package: str) -> bool:
        """Whether code of the top-level `package` is intercepted."""
        return self.packages is None or package in self.packages

    def joined(self, other: InterceptScope | None) -> InterceptScope:
        """Return the union of two scopes."""
        if other is None:
            return self
        if other.packages is None:
            return other
        if self.packages is None:
            return InterceptScope(None)
        return InterceptScope(self.packages | other.packages)


SCOPE: ContextVar[InterceptScope | None] = ContextVar("adarray_intercept", default=None)


def package_of(module: object) -> str:
    """Return the name of the top-level package of a module's name; "" if that is no text."""
    return module.partition(".")[0] if isinstance(module, str) else ""


def client_of(space: Namespace) -> str:
    """Return the package to which code with these globals belongs; "" if it is not intercepted."""
    package = package_of(space.get("__name__"))
    if package not in UNINTERCEPTED:
        return package or "__main__"
    # A doctest runs in a copy of its module's globals; a module that was imported anew has others.
    module = sys.modules.get(str(space["__name__"]))
    if module is None or vars(module) is space or type(space) is not dict:  # `jit` makes others
        return ""
    spec = vars(module).get("__spec__")
    return "__main__" if space.get("__spec__", spec) is spec else ""


def outside(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return `function`, run outside of interception: its arguments and results are plain."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        token = SCOPE.set(None)
        try:
            return function(*args, **kwargs)
        finally:
            SCOPE.reset(token)

    return call


def is_clients(function: object) -> bool:
    """Whether a function belongs to code that may be intercepted."""
    return isinstance(function, FunctionType) and bool(client_of(function.__globals__))


# Python code through which a question about a type passes: who asks is the code that called it.
_CHECKERS = frozenset(
    {"abc", "_py_abc", "functools", "inspect", "typing", "typing_extensions", "unittest.case",
     "adarray.intercepting.standins"}
)  # fmt: skip
# The same of single functions, such as np.isscalar, by their code.
CHECKER_CODE: set[CodeType] = set()
# Modules whose functions see what an object of ours is, as they were met.
UNINTERCEPTED_MODULES: set[object] = set()


# Instructions that write an item: ``x[i] = y``, and from Python 3.12 on ``x[i:j] = y``.
STORES = frozenset(dis.opmap[n] for n in ("STORE_SUBSCR", "STORE_SLICE") if n in dis.opmap)


def asking(frame: FrameType | None) -> FrameType | None:
    """Return the frame of user code that asks what an object is; None if a library asks.

    Parameters
    ----------
    frame : frame
        The code that looks at the object: user code, or what asks in its name (`abc`, say).
    """
    last = None
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if name not in _CHECKERS and frame.f_code not in CHECKER_CODE:
            # A generic function that a transform was given: its class decides for the user.
            if package_of(name) not in UNINTERCEPTED or (
                last == "functools" and package_of(name) == "adarray"
            ):
                return frame
            if not any(c.co_filename == frame.f_code.co_filename for c in CHECKER_CODE):
                UNINTERCEPTED_MODULES.add(name)
            return None
        frame, last = frame.f_back, name
    return None


def asked_by_library(depth: int = 2) -> bool:
    """Whether code with the real NumPy (SciPy, say) asks, in a scope, about an object of ours.

    Parameters
    ----------
    depth : int
        Frames between this function and the code that looks.
    """
    if SCOPE.get() is None:
        return False
    package = package_of(sys._getframe(depth).f_globals.get("__name__"))
    return package in UNINTERCEPTED and not package.startswith("adarray")
