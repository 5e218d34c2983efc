"""Distributions with SciPy's methods: location, scale, supports, frozen parameters.

References
----------
- M. Figurnov, S. Mohamed, A. Mnih, "Implicit reparameterization gradients", NeurIPS 2018.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import numpy as np

from adarray.base.aval import Symbolic
from adarray.base.errors import UnsupportedFunctionError
from adarray.base.levels import remembered, restore
from adarray.base.runtime import MODE
from adarray.core.protocol import finish, followed, on_plain, plain, plain_array, traced
from adarray.scipy._drop_in import array, by_original, guarded, holds
from adarray.scipy.stats._law import Body, Law, completed

_DENSITIES = ("pdf", "logpdf")
_TAILS = ("cdf", "sf", "logcdf", "logsf")
_QUANTILES = ("ppf", "isf")
_MOMENTS = ("entropy", "mean", "median", "var", "std")


def wide(x: Any) -> Any:
    """Return a number or array in float64 at least, as SciPy computes."""
    x = array(x)
    dtype = np.promote_types(x.dtype, np.float64)
    return x if x.dtype == dtype else x.astype(dtype)


def streamed(rvs: Any, owner: Any) -> Any:
    """Return SciPy's ``rvs``, whose draws from NumPy's global stream `jit` records."""

    @functools.wraps(rvs)
    def draw(*args: Any, **kwargs: Any) -> Any:
        mode = MODE.get()
        stream = np.random.mtrand._rand
        recorder = mode.recorder if mode is not None else None
        if recorder is not None and owner.random_state is stream:
            kwargs.setdefault("random_state", recorder.generator(stream))
        return rvs(*args, **kwargs)

    return draw


class ScipyDistribution:
    """Base of continuous and discrete distributions: arguments, and SciPy for plain ones.

    Parameters
    ----------
    scipy : rv_generic
        SciPy's distribution, which computes what is not traced.
    extra : tuple of str
        The parameters behind the shape parameters.
    """

    methods: tuple[str, ...] = ()
    # Whether `jit` records our own functions, and not a call of SciPy's, for what is not traced.
    recorded = False

    def __init__(self, scipy: Any, extra: tuple[str, ...]) -> None:
        self.scipy = scipy
        self.name = scipy.name
        self.shapes = scipy.shapes
        self.numargs = scipy.numargs
        self.__doc__ = scipy.__doc__
        shapes = tuple(n.strip() for n in scipy.shapes.split(",")) if scipy.shapes else ()
        self.parameters = (*shapes, *extra)

    def __repr__(self) -> str:
        return f"<adarray.scipy.stats.{self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Freeze the parameters; SciPy does it for plain ones."""
        if not (holds(args) or holds(kwargs)):
            return FrozenPlain(self, args, kwargs)
        return Frozen(self, args, kwargs)

    def freeze(self, *args: Any, **kwargs: Any) -> Any:
        """As calling the distribution."""
        return self(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return another method of SciPy's, which refuses traced arguments."""
        if name.startswith("__"):
            raise AttributeError(name)
        member = getattr(self.scipy, name)
        if not callable(member):
            return member
        if name == "rvs":
            member = streamed(member, self.scipy)
        return guarded(member, f"scipy.stats.{self.name}", self.refusal(name))

    def refusal(self, name: str) -> str:
        """Return why a method has no derivative."""
        if name == "rvs":
            return "random draws are not differentiated; transform draws of the standard form"
        return ""

    def run(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a method: by SciPy for plain values, by `compute` for traced ones."""
        if not (holds(args) or holds(kwargs)):
            return getattr(self.scipy, method)(*args, **kwargs)
        if not (traced(args) or traced(kwargs)):
            if self.recorded and (followed(args) or followed(kwargs)):
                with contextlib.suppress(UnsupportedFunctionError):
                    r = self.computed(method, args, kwargs)
                    return r[()] if r.ndim == 0 else r  # SciPy gives a scalar
            r = on_plain(getattr(self.scipy, method), args, kwargs)
            return finish(r, None, method)
        before = remembered()
        try:
            return self.computed(method, args, kwargs)
        except UnsupportedFunctionError as error:
            restore(before)
            known = error
        return by_original(getattr(self.scipy, method), args, kwargs, lambda: known)

    def computed(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a method by `compute`."""
        has_value = method not in _MOMENTS
        x, rest = (args[0], args[1:]) if has_value and args else (None, args)
        if has_value and not args:
            kwargs = dict(kwargs)
            key = "q" if method in _QUANTILES else self.variable
            x = kwargs.pop(key)
        parameters = self.bound(method, rest, kwargs)
        return self.compute(method, None if x is None else wide(x), parameters)

    variable = "x"

    def bound(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Return the values of all parameters, in order."""
        if len(args) > len(self.parameters):
            raise TypeError(f"{self.name}.{method}: takes the parameters {self.parameters}")
        values = dict(zip(self.parameters, args, strict=False))
        for key, value in kwargs.items():
            if key not in self.parameters or key in values:
                raise TypeError(
                    f"{self.name}.{method}: got {key!r} unexpectedly or twice; it takes the "
                    f"parameters {self.parameters}"
                )
            values[key] = value
        values = {"loc": 0.0, "scale": 1.0} | values
        missing = [n for n in self.parameters if n not in values]
        if missing:
            raise TypeError(f"{self.name}.{method}: the parameters {missing} are missing")
        return [wide(values[n]) for n in self.parameters]

    def compute(self, method: str, x: Any, parameters: list[Any]) -> Any:
        """Compute a method of traced values."""
        raise NotImplementedError

    def missing(self, method: str) -> UnsupportedFunctionError:
        """Return the error for a method without rules."""
        return UnsupportedFunctionError(
            f"{self.name}.{method}: adarray has no derivative rule for this method; use others of "
            "the distribution, or pass adarray.value_of(x) if no gradient should flow through it"
        )


def install(cls: type[ScipyDistribution], names: tuple[str, ...]) -> None:
    """Give a class of distributions methods that go through `run`."""
    for name in names:

        def method(self: ScipyDistribution, *args: Any, _name: str = name, **kwargs: Any) -> Any:
            return self.run(_name, args, kwargs)

        method.__name__ = name
        method.__doc__ = f"As `scipy.stats.rv_generic.{name}`."
        setattr(cls, name, method)
    cls.methods = names


class Frozen:
    """A distribution with given parameters."""

    def __init__(
        self, dist: ScipyDistribution, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.dist = dist
        self.args = args
        self.kwds = kwargs

    def __getattr__(self, name: str) -> Any:
        """Return a method of the distribution, its parameters given."""
        if name.startswith("__"):
            raise AttributeError(name)
        method = getattr(self.dist, name)
        if not callable(method):
            return method
        if name in _MOMENTS or name in ("stats", "support"):
            return functools.partial(method, *self.args, **self.kwds)
        return lambda *x, **kwargs: method(*x, *self.args, **self.kwds, **kwargs)

    def __repr__(self) -> str:
        return f"{self.dist!r}(*{self.args!r}, **{self.kwds!r})"


class FrozenPlain(Frozen):
    """A distribution frozen at plain parameters: SciPy's own, but for traced values."""

    def __init__(
        self, dist: ScipyDistribution, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        super().__init__(dist, args, kwargs)
        self.scipy = dist.scipy(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return a method of ours where there is one, else what SciPy's object has."""
        if name.startswith("__") or name == "dist":
            raise AttributeError(name)
        if name in self.dist.methods:
            return super().__getattr__(name)
        member = getattr(self.scipy, name)
        if not callable(member):
            return member
        if name == "rvs":
            member = streamed(member, self.scipy)
        return guarded(member, f"scipy.stats.{self.dist.name}", self.dist.refusal(name))


class Continuous(ScipyDistribution):
    """A continuous distribution with a `Law`."""

    recorded = True

    def __init__(self, scipy: Any, law: Law) -> None:
        super().__init__(scipy, ("loc", "scale"))
        self.law = completed(law)

    def ends(self, shapes: list[Any]) -> tuple[Any, Any]:
        """Return the ends of the standard support, nan where shapes are not valid."""
        plain_ends = on_plain(self.scipy.support, tuple(shapes), {})
        low, high = (plain_array(e, float)[()] for e in plain_ends)
        if self.law.support is None:
            return low, high
        valid = ~np.isnan(low)
        support = self.law.support(*shapes)
        return tuple(np.where(valid, e, np.nan) for e in support)  # type: ignore[return-value]

    def compute(self, method: str, x: Any, parameters: list[Any]) -> Any:
        """Compute a method of traced values."""
        *shapes, loc, scale = parameters
        if method == "median":
            return self.compute("ppf", np.float64(0.5), parameters)
        if method in _MOMENTS:
            return self.moment(method, shapes, loc, scale)
        low, high = self.ends(shapes)
        valid = (scale > 0) & ~np.isnan(low)
        if method in _QUANTILES:
            return np.where(
                valid, self.quantile(method, x, shapes, low, high) * scale + loc, np.nan
            )
        z = (x - loc) / scale
        low, high = plain(low), plain(high)
        density = method in _DENSITIES
        closed = density and not self.law.vanishing
        inside = ((z >= low) & (z <= high)) if closed else ((z > low) & (z < high))
        inside = inside & np.isfinite(z)
        if closed and method == "pdf":
            ends = plain((z == low) | (z == high))
            at = np.where(ends, plain(z), interior(low, high))
            inside = inside & ~self.vanishes(at, ends, shapes)
        safe = np.where(inside, z, interior(low, high))
        body = self.body("logpdf" if method == "pdf" else method)
        r = body(safe, *shapes)
        if density:
            r = r - np.log(scale)
            r = np.exp(r) if method == "pdf" else r
        below, above = _OUTSIDE[method]
        r = np.where(inside, r, np.where(z > low, above, below))
        return np.where(valid & ~np.isnan(z), r, np.nan)

    def vanishes(self, z: Any, ends: Any, shapes: list[Any]) -> Any:
        """Whether the density is 0 at an end of the support; its derivative is taken as 0 there.

        Its logarithm has no finite slope.
        """
        if not isinstance(ends, Symbolic) and not np.any(ends):
            return ends
        with np.errstate(all="ignore"):
            return ends & np.isneginf(self.body("logpdf")(z, *map(plain, shapes)))

    def body(self, method: str) -> Body:
        """Return a function of the law; raise if it has none."""
        body: Body | None = getattr(self.law, method)
        if body is None:
            raise self.missing(method)
        return body

    def quantile(self, method: str, q: Any, shapes: list[Any], low: Any, high: Any) -> Any:
        """Return a quantile of the standard form; the ends of the support for 0 and 1."""
        inside = (q > 0) & (q < 1)
        safe = np.where(inside, q, 0.5)
        if getattr(self.law, method) is not None:
            r = self.body(method)(safe, *shapes)
        else:
            r = self.solve(method, safe, shapes)
        start, stop = (low, high) if method == "ppf" else (high, low)
        r = np.where(inside, r, np.where(q == 0, start, stop))
        return np.where((q >= 0) & (q <= 1), r, np.nan)

    def solve(self, method: str, q: Any, shapes: list[Any]) -> Any:
        """Return SciPy's quantile, with derivatives from two steps of Newton's method.

        The steps move nothing, but every one doubles the order of derivatives that
        are right: up to the third here.
        """
        name = "cdf" if method == "ppf" else "sf"
        function, density = self.body(name), self.body("logpdf")
        x = on_plain(getattr(self.scipy, method), (q, *shapes), {})
        if not (traced(q) or traced(shapes)):
            return x
        x, sign = plain_array(x, float)[()], 1.0 if method == "ppf" else -1.0
        for _ in range(2):
            slope = sign * np.exp(density(x, *shapes))
            x = x - (function(x, *shapes) - q) / slope
        return x

    def moment(self, method: str, shapes: list[Any], loc: Any, scale: Any) -> Any:
        """Return entropy, mean, variance or standard deviation."""
        value = self.body("var" if method == "std" else method)(*shapes)
        valid = (scale > 0) & ~np.isnan(plain(self.ends(shapes)[0]))
        if method == "entropy":
            r = value + np.log(scale)
        elif method == "mean":
            r = value * scale + loc
        else:
            r = value * scale * scale + 0 * loc
            r = np.sqrt(r) if method == "std" else r
        return np.where(valid, r, np.nan)


# Values below and above the support.
_OUTSIDE = {
    "pdf": (0.0, 0.0),
    "logpdf": (-np.inf, -np.inf),
    "cdf": (0.0, 1.0),
    "sf": (1.0, 0.0),
    "logcdf": (-np.inf, 0.0),
    "logsf": (0.0, -np.inf),
}
install(Continuous, (*_DENSITIES, *_TAILS, *_QUANTILES, *_MOMENTS))


def interior(low: Any, high: Any) -> Any:
    """Return a point of the interior of the support; 0.5 where there is none."""
    finite = np.isfinite(low), np.isfinite(high)
    left, right = np.where(finite[0], low, 0.0), np.where(finite[1], high, 0.0)
    both = np.where(finite[0] & finite[1], (left + right) / 2, 0.5)
    one = np.where(finite[0], left + 1.0, np.where(finite[1], right - 1.0, both))
    return np.where(finite[0] & finite[1], both, one)[()]
