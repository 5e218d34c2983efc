"""`Generator` and `RandomState` whose draws are ADArrays, smooth in traced parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.arrays.adarray import ADArray
from adarray.base.draws import drawn_into, numbered
from adarray.base.engines import TracingEngine
from adarray.base.errors import NotDifferentiableError
from adarray.base.runtime import MODE
from adarray.base.scope import asked_by_library
from adarray.core.inplace import assign
from adarray.core.protocol import followed, plain, traced
from adarray.core.trace import Handle
from adarray.numpy._lift import dressed, lift
from adarray.numpy.random._draws import DRAWS, REFUSED, drawn_shape, multivariate_normal
from adarray.ops import creation

# Methods that may write into ``out=``, and their positional arguments.
_INTO = {
    "random": ("size", "dtype", "out"),
    "standard_normal": ("size", "dtype", "out"),
    "standard_exponential": ("size", "dtype", "method", "out"),
    "standard_gamma": ("shape", "size", "dtype", "out"),
}


def _lists_as_arrays(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        creation.asarray(x) if isinstance(x, (list, tuple)) and traced(list(x)) else x for x in args
    )


def _arguments(
    name: str, names: tuple[str, ...], defaults: tuple[Any, ...], args: Any, kwargs: Any
) -> tuple[list[Any], Any]:
    """Return ``(parameters, size)`` of a call ``name(*parameters, size=None)``."""
    order = (*names, "size")
    bound = dict(zip(order, args, strict=False))
    for key, value in kwargs.items():
        if key not in order:
            raise NotDifferentiableError(
                f"{name}: the argument {key}={value!r} does not go with traced parameters; leave "
                "it out"
            )
        if key in bound:
            raise TypeError(f"{name}() got multiple values for argument {key!r}")
        bound[key] = value
    if len(args) > len(order):
        raise TypeError(f"{name}() takes at most {len(order)} arguments ({len(args)} given)")
    for key, value in zip(reversed(names), reversed(defaults), strict=False):
        bound.setdefault(key, value)
    missing = [key for key in names if key not in bound]
    if missing:
        raise TypeError(f"{name}() is missing the argument {missing[0]!r}")
    return [bound[key] for key in names], bound.get("size")


def _smooth(raw: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Draw with traced parameters."""
    if name in REFUSED:
        names, why = REFUSED[name]
        order = [*zip(names, args, strict=False), *kwargs.items()]
        which = next(key for key, value in order if traced(value))
        raise NotDifferentiableError(
            f"{name}: {why.format(which)}; pass adarray.value_of({which}) if no gradient should "
            "flow through the draw"
        )
    if name not in DRAWS:
        raise NotDifferentiableError(
            f"{name}: the draw has no derivative rule; pass adarray.value_of(x) for its arguments"
        )
    names, defaults, draw = DRAWS[name]
    parameters, size = _arguments(name, names, defaults, args, kwargs)
    if name != "dirichlet":
        # NumPy checks the parameters; no number is drawn.
        common = np.broadcast_shapes(*(np.shape(p) for p in parameters))
        getattr(raw, name)(*plain(parameters), size=(0, *common))
        if size is not None:
            wanted = tuple(np.atleast_1d(plain(size)).tolist())
            if np.broadcast_shapes(common, wanted) != wanted:
                raise ValueError(
                    f"Output size {wanted} is not compatible with broadcast dimensions of inputs "
                    f"{common}."
                )
    shape = drawn_shape(size, *parameters) if name != "dirichlet" else size
    r = draw(raw, size, *parameters)
    if shape is not None and np.ndim(r) == 0:
        r = np.reshape(r, shape)
    return r


def _draw(raw: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call one of NumPy's draws: plain parameters exactly, traced ones smoothly."""
    args = _lists_as_arrays(args)
    if traced(args) or traced(kwargs):
        return _smooth(raw, name, args, kwargs)
    out = kwargs.get("out")
    if isinstance(out, ADArray) and name in _INTO:
        return _draw_into(out, raw, name, plain(args), plain(kwargs))
    r = getattr(raw, name)(*plain(args), **plain(kwargs))
    return r if out is not None and r is out else lift(r)


def _draw_into(
    out: ADArray, raw: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ADArray:
    """Draw numbers and write them into `out`, whose memory others may rely on."""
    options = {**dict(zip(_INTO[name], args, strict=False)), **kwargs}
    options.update(out=None, dtype=options.get("dtype", out.dtype))
    size = options.pop("size", None)
    if size is not None and np.broadcast_shapes(size) != out.shape:
        raise ValueError("size must match out.shape when used together")
    r = drawn_into(out, name, lambda shape: getattr(raw, name)(size=shape, **options))
    return assign(out, ADArray(r))  # type: ignore[return-value]


def _choice(
    raw: Any, a: Any, size: Any, replace: Any, p: Any, rest: dict[str, Any], axis: int = 0
) -> Any:
    if traced(p):
        raise NotDifferentiableError(
            "choice: picks jump as the argument p changes; pass adarray.value_of(p) if no gradient "
            "should flow through the probabilities"
        )
    if not creation.holds(a):
        return lift(raw.choice(a, plain(size), replace, plain(p), **rest))
    a = creation.asarray(a)
    if a.ndim == 0:
        return lift(raw.choice(plain(a), plain(size), replace, plain(p), **rest))
    rest = {k: v for k, v in rest.items() if k != "axis"}
    picked = raw.choice(a.shape[axis], plain(size), replace, plain(p), **rest)
    return np.take(a, picked, axis=axis)


def _shuffle(raw: Any, x: Any, axis: int = 0) -> None:
    options = {} if axis == 0 else {"axis": axis}
    if not isinstance(x, Handle):
        raw.shuffle(x, **options)
        return
    order = raw.permutation(np.arange(x.shape[axis]))  # type: ignore[attr-defined]
    assign(x, np.take(x, order, axis=axis))  # type: ignore[call-overload]


def _permutation(raw: Any, x: Any, axis: int = 0) -> Any:
    options = {} if axis == 0 else {"axis": axis}
    if not creation.holds(x) or np.ndim(plain(x)) == 0:
        return lift(raw.permutation(plain(x), **options), (x,))
    x = creation.asarray(x)
    return np.take(x, raw.permutation(np.arange(x.shape[axis])), axis=axis)


class Generator(np.random.Generator):
    """As `numpy.random.Generator`: the same stream, with ADArrays as draws.

    Traced parameters are differentiated through the draw, the underlying random
    numbers being held fixed.

    Parameters
    ----------
    bit_generator : BitGenerator or numpy.random.Generator
        Source of random bits; it is shared, not copied.

    Examples
    --------
    >>> import adarray, numpy
    >>> from adarray.numpy.random import default_rng
    >>> z = numpy.random.default_rng(3).normal()
    >>> bool(adarray.grad(lambda s: default_rng(3).normal(1.0, s))(2.0) == z)
    True
    """

    _raw: Any

    def __init__(self, bit_generator: Any) -> None:
        raw = bit_generator
        if not isinstance(raw, np.random.Generator):
            raw = np.random.Generator(bit_generator)
        super().__init__(raw.bit_generator)
        self._raw = getattr(raw, "_raw", raw)

    def __getattribute__(self, name: str) -> Any:
        # Compiled code of other libraries would not take ADArrays for draws.
        if name[0] != "_" and asked_by_library():
            return getattr(object.__getattribute__(self, "_raw"), name)
        return object.__getattribute__(self, name)

    def __reduce__(self) -> Any:
        return (Generator, (self.bit_generator,))

    def spawn(self, n_children: int) -> list[Generator]:  # type: ignore[override]
        """Return new generators, independent of each other."""
        return [Generator(g) for g in self._raw.spawn(n_children)]

    def shuffle(self, x: Any, axis: int = 0) -> None:
        """Shuffle `x` in place along an axis."""
        _shuffle(self._raw, x, axis)

    def permutation(self, x: Any, axis: int = 0) -> Any:
        """Return `x`, or ``arange(x)``, in random order."""
        return _permutation(self._raw, x, axis)

    def choice(
        self,
        a: Any,
        size: Any = None,
        replace: bool = True,
        p: Any = None,
        axis: int = 0,
        shuffle: bool = True,
    ) -> Any:
        """Return picks from `a`; traced, if it is."""
        return _choice(
            self._raw, a, size, replace, p, {"axis": axis, "shuffle": shuffle}, axis=axis
        )

    def permuted(self, x: Any, *, axis: int | None = None, out: Any = None) -> Any:
        """Return `x` with each slice along an axis in a random order of its own."""
        if not creation.holds(x) and not isinstance(out, Handle):
            return lift(self._raw.permuted(plain(x), axis=axis, out=out), (out,))
        x = creation.asarray(x)
        order = self._raw.permuted(numbered(x, out), axis=axis)
        r = np.reshape(np.reshape(x, -1)[order], x.shape)
        if out is None:
            return r
        if not isinstance(out, Handle):
            raise NotDifferentiableError(
                "permuted: the argument out is a plain ndarray and x an ADArray; leave it out"
            )
        return assign(out, r)

    def multivariate_normal(
        self,
        mean: Any,
        cov: Any,
        size: Any = None,
        check_valid: Any = "warn",
        tol: float = 1e-8,
        *,
        method: Any = "svd",
    ) -> Any:
        """Draw from the normal distribution of several variables."""
        mean, cov = _lists_as_arrays((mean, cov))
        values = plain((mean, cov))
        if not (traced(mean) or traced(cov)):
            options = {"check_valid": check_valid, "tol": tol, "method": method}
            return lift(self._raw.multivariate_normal(*values, size, **options))
        # NumPy's checks and warnings; no number is drawn.
        self._raw.multivariate_normal(*values, 0, check_valid, tol, method=method)
        c = np.asarray(values[1], float)
        if method == "cholesky":
            factor = np.linalg.cholesky(c)
        elif method == "eigh":
            s, u = np.linalg.eigh(c)
            factor = u * np.sqrt(np.abs(s))
        else:
            u, s, _ = np.linalg.svd(c)
            factor = u * np.sqrt(s)
        return multivariate_normal(self._raw, size, creation.asarray(mean), cov, factor)


class RandomState(np.random.RandomState):
    """As `numpy.random.RandomState`: the same stream, with ADArrays as draws.

    Parameters
    ----------
    seed : int, array_like, BitGenerator or numpy.random.RandomState, optional
    """

    _raw: Any

    def __init__(self, seed: Any = None) -> None:
        raw = seed if isinstance(seed, np.random.RandomState) else np.random.RandomState(seed)
        raw = getattr(raw, "_raw", raw)
        super().__init__(raw._bit_generator)
        self._raw = raw

    def __reduce__(self) -> Any:
        return (RandomState, (self._raw,))

    def choice(self, a: Any, size: Any = None, replace: bool = True, p: Any = None) -> Any:
        """Return picks from `a`; traced, if it is."""
        return _choice(self._raw, a, size, replace, p, {})

    def permutation(self, x: Any) -> Any:
        """Return `x`, or ``arange(x)``, in random order."""
        return _permutation(self._raw, x)

    def shuffle(self, x: Any) -> None:
        """Shuffle `x` in place along its first axis."""
        _shuffle(self._raw, x)

    def multivariate_normal(
        self, mean: Any, cov: Any, size: Any = None, check_valid: Any = "warn", tol: float = 1e-8
    ) -> Any:
        """Draw from the normal distribution of several variables."""
        mean, cov = _lists_as_arrays((mean, cov))
        values = plain((mean, cov))
        if not (traced(mean) or traced(cov)):
            return lift(self._raw.multivariate_normal(*values, size, check_valid, tol))
        self._raw.multivariate_normal(*values, 0, check_valid, tol)
        _, s, v = np.linalg.svd(np.asarray(values[1], float))
        factor = (np.sqrt(s)[:, None] * v).T
        return multivariate_normal(self._raw, size, creation.asarray(mean), cov, factor)


def _method(cls: type, base: type, name: str) -> None:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _draw(self._raw, name, args, kwargs)

    method = dressed(call, getattr(base, name))
    method.__doc__ = f"As `numpy.random.{base.__name__}.{name}`, with ADArrays as results."
    setattr(cls, name, method)


_PLAIN = {"bit_generator", "spawn"}
for _cls, _base in ((Generator, np.random.Generator), (RandomState, np.random.RandomState)):
    for _name in dir(_base):
        if not (_name.startswith("_") or _name in _PLAIN or _name in _cls.__dict__):
            _method(_cls, _base, _name)


def default_rng(seed: Any = None) -> np.random.Generator:
    """As `numpy.random.default_rng`, with ADArrays as draws."""
    if isinstance(seed, Generator):
        return seed
    recorder = _recorder()
    if recorder is not None:
        if isinstance(seed, np.random.Generator):  # of which the draws are recorded
            return seed
        if seed is None or followed(seed):
            return recorder.seeded(np.random.default_rng, seed)  # type: ignore[no-any-return]
    return Generator(np.random.default_rng(plain(seed)))


def _recorder() -> TracingEngine | None:
    """Return the recorder of the current run; None where nothing is recorded."""
    mode = MODE.get()
    return mode.recorder if mode is not None else None


class _Global(RandomState):
    """NumPy's own global state, whose draws `jit` records."""

    @property
    def _raw(self) -> Any:
        recorder = _recorder()
        return _STREAM if recorder is None else recorder.generator(_STREAM)

    @_raw.setter
    def _raw(self, raw: Any) -> None:
        assert raw is _STREAM


# Both namespaces draw from one stream.
_STREAM = np.random.mtrand._rand
GLOBAL = _Global(_STREAM)


def function(name: str) -> Callable[..., Any]:
    """Return ``random.name``: the method of the global state."""
    method: Callable[..., Any] = getattr(GLOBAL, name)
    return method
