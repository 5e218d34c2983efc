"""The likelihood-ratio estimator: gradients from noise at the layers of a network."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from adarray.array import ADArray
from adarray.aval import Symbolic
from adarray.device import is_device
from adarray.errors import NotDifferentiableError
from adarray.estimators.credit import (
    Credit,
    check_finite,
    check_losses,
    credited,
    host_of,
    rows_are_apart,
    spread,
)
from adarray.estimators.directions import KINDS, Directions, Drawn, Place, generator
from adarray.estimators.sites import Perturbed, Survey, run_with
from adarray.protocol import traced
from adarray.transforms.batch import vmap
from adarray.transforms.calls import dtype_of
from adarray.transforms.modes import shape_of, vjp
from adarray.transforms.tree import flatten, is_array

Noise = dict[str, list[Drawn]]
Mode = Literal["layerwise", "full"]


class Estimate(NamedTuple):
    """What an estimator returns.

    Attributes
    ----------
    value : number
        The loss without noise, summed or averaged over samples.
    gradient : nest of arrays
        The estimate, of the structure of the differentiated argument; a tuple for several.
    sigma : dict of str to array, or None
        With ``learn_sigma=True`` the estimated derivative by the scale of each site.
    losses : array, shape (samples,) or ()
        Losses without noise.
    """

    value: Any
    gradient: Any
    sigma: Any
    losses: Any


class Layout(NamedTuple):
    """The active sites of a function for arguments of some shapes.

    Attributes
    ----------
    places : dict of str to list of (shape, dtype)
        Each time that a site is met.
    credit : dict of str to Credit
        Which losses the noise of a row is held responsible for.
    """

    places: dict[str, list[Place]]
    credit: dict[str, Credit]


class LikelihoodRatio:
    """An estimator of gradients; see `likelihood_ratio`, which makes it."""

    def __init__(
        self,
        f: Callable[..., Any],
        argnums: int | Sequence[int],
        *,
        sites: Sequence[str] | None,
        exact: Sequence[str],
        sigma: Any,
        copies: int,
        antithetic: bool,
        mode: Mode,
        directions: Directions,
        baseline: Any,
        credit: Any,
        reduce: Literal["mean", "sum"],
        copies_per_block: int | None,
        vectorize: bool,
        learn_sigma: bool,
    ) -> None:
        self.f = f
        self.argnums = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        self.single = isinstance(argnums, int)
        self.sites = None if sites is None else tuple(sites)
        self.exact = tuple(exact)
        self.sigma = sigma
        self.copies = copies
        self.antithetic = antithetic
        self.mode = mode
        self.directions = directions
        self.baseline = baseline
        self.credit = credit
        self.reduce = reduce
        self.per_block = copies_per_block
        self.vectorize = vectorize
        self.learn_sigma = learn_sigma
        self._known: dict[Any, Layout] = {}

    def __repr__(self) -> str:
        return f"<likelihood_ratio of {self.f!r}, {self.mode}, {self.copies} copies>"

    # -- noise ---------------------------------------------------------------------------

    @property
    def draws(self) -> int:
        """How often noise is drawn: a pair of copies shares its noise."""
        return self.copies // 2 if self.antithetic else self.copies

    def layout(self, *args: Any) -> Layout:
        """Return the active sites, and which losses their rows are credited with.

        It is found once for arguments of some shapes and dtypes.

        Raises
        ------
        ValueError
            If a name that was asked for is not met, or there is no active site.
        """
        leaves, rebuild = flatten(args)
        key = tuple((shape_of(x), np.dtype(dtype_of(x))) if is_array(x) else x for x in leaves)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._surveyed(rebuild([_concrete(x) for x in leaves]))
        return known

    def _surveyed(self, args: tuple[Any, ...]) -> Layout:
        survey = Survey()
        losses = check_losses(run_with(survey, self.f, args))
        found = survey.found
        for option, names in (("sites", self.sites or ()), ("exact", self.exact)):
            for name in names:
                if name not in found:
                    raise ValueError(
                        f"likelihood_ratio: {option} has {name!r}, which f does not meet; it "
                        f"meets {', '.join(map(repr, found)) or 'no site'}"
                    )
        active = {
            name: places
            for name, places in found.items()
            if (self.sites is None or name in self.sites) and name not in self.exact
        }
        if not active:
            raise ValueError(
                "likelihood_ratio: no site is active; mark values by noise_site(v, name), or use "
                "adarray.grad"
            )
        credit = {}
        for name, places in active.items():
            chosen = self.credit
            if isinstance(chosen, dict):
                chosen = chosen.get(name, "auto")
            if isinstance(chosen, str) and chosen == "auto":
                fits = all(shape[:1] == losses.shape for shape, _ in places) and losses.ndim
                apart = fits and rows_are_apart(
                    lambda visitor: run_with(visitor, self.f, args), name, host_of(losses)
                )
                chosen = "rows" if apart else "total"
            credit[name] = chosen
        return Layout(active, credit)

    def draw(self, *args: Any, rng: Any = None) -> Noise:
        """Return the noise of one call with these arguments, for `evaluate`."""
        rng = generator(rng, flatten(args)[0])
        found = self.layout(*args).places
        if self.mode == "layerwise":
            return {n: self.directions.draw(rng, self.draws, p) for n, p in found.items()}
        together = [place for places in found.values() for place in places]
        made = iter(self.directions.draw(rng, self.draws, together))
        return {n: list(itertools.islice(made, len(p))) for n, p in found.items()}

    # -- the estimate --------------------------------------------------------------------

    def __call__(self, *args: Any, rng: Any = None, sigma: Any = None) -> Estimate:
        """Return the estimate, from new noise."""
        return self.evaluate(self.draw(*args, rng=rng), *args, sigma=sigma)

    def evaluate(self, noise: Noise, *args: Any, sigma: Any = None) -> Estimate:
        """Return the estimate from given noise: a pure function of its arguments.

        Raises
        ------
        NotDifferentiableError
            If a derivative is taken of the estimate.
        """
        if traced(list(flatten(args)[0])):
            raise NotDifferentiableError(
                "likelihood_ratio: a derivative is taken of an estimate, which has none; take "
                "the estimate of the gradient of the function that you differentiate"
            )
        call = _Call(self, noise, args, self.sigma if sigma is None else sigma)
        return call.layerwise() if self.mode == "layerwise" else call.full()


class _Call:
    """One estimate: arguments, noise and scales.

    Parameters
    ----------
    how : LikelihoodRatio
    noise : dict of str to list of Drawn
    args : tuple
    sigma : float, array, or dict of them
    """

    def __init__(self, how: LikelihoodRatio, noise: Noise, args: tuple[Any, ...], sigma: Any):
        self.how = how
        self.noise = noise
        self.args = args
        self.moving = tuple(args[k] for k in how.argnums)
        self.scales = {name: _scale(sigma, name) for name in noise}
        self.kind = how.directions
        self.credit = how.layout(*args).credit

    def with_moving(self, moving: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments with others in the place of those that are differentiated."""
        given = list(self.args)
        for k, x in zip(self.how.argnums, moving, strict=True):
            given[k] = x
        return tuple(given)

    # -- runs ----------------------------------------------------------------------------

    def adders(self, each: dict[str, list[Any]], sign: float) -> dict[str, list[Any]]:
        """Return what adds the noise of one copy at each place; `each` are its own parts."""

        def at(name: str, k: int, parts: Any) -> Callable[[Any], Any]:
            def add(v: Any) -> Any:
                eps = self.kind.noise(parts, self.noise[name][k].shared)
                return v + sign * scaled(eps, self.scales[name])

            return add

        return {
            name: [at(name, k, parts) for k, parts in enumerate(places)]
            for name, places in each.items()
        }

    def losses(self, each: dict[str, list[Any]], sign: float) -> Any:
        """Return the losses of one copy."""
        run = Perturbed(self.adders(each, sign))
        made = run_with(run, self.how.f, self.args)
        run.finish()
        return check_losses(made)

    def cut(self, moving: tuple[Any, ...], adders: dict[str, list[Any]]) -> Any:
        """Return (values of the sites, losses) of a run whose sites let no derivative through."""
        run = Perturbed(adders, cut=True, plain=not self.how.vectorize)
        made = run_with(run, self.how.f, self.with_moving(moving))
        run.finish()
        return run.values, check_losses(made)

    def of_copies(self, f: Callable[..., Any], each: Any) -> Any:
        """Return what `f` returns for all copies, along a first axis."""
        if self.how.vectorize:
            return vmap(f)(each)
        leaves, rebuild = flatten(each)
        made = [f(rebuild([x[k] for x in leaves])) for k in range(len(leaves[0]))]
        found = [flatten(m)[0] for m in made]
        stacked = [np.stack(xs) for xs in zip(*found, strict=True)]
        return flatten(made[0])[1](stacked)

    def blocks(self, names: list[str]) -> Any:
        """Yield the parts of the copies, `copies_per_block` of them at a time."""
        draws = self.how.draws
        pair = 2 if self.how.antithetic else 1
        most = draws if self.how.per_block is None else max(1, self.how.per_block // pair)
        for start in range(0, draws, most):
            part = slice(start, min(start + most, draws))
            yield (
                {
                    name: [
                        Drawn(tuple(x[part] for x in d.each), d.shared) for d in self.noise[name]
                    ]
                    for name in names
                },
                (part.stop - part.start) / draws,
            )

    # -- modes ---------------------------------------------------------------------------

    def layerwise(self) -> Estimate:
        """Return the estimate with noise at one site at a time."""
        silent = {name: [_same] * len(places) for name, places in self.noise.items()}
        (values, losses), pull = vjp(lambda *m: self.cut(m, silent), *self.moving)
        check_finite(losses, "without noise")
        deltas: dict[str, list[Any]] = {}
        slopes: dict[str, Any] = {}
        for name in self.noise:
            shapes = [shape_of(v) for v in values[name]]
            sums: list[Any] = [None] * len(shapes)
            for block, share in self.blocks([name]):
                found = self.perturbed(block)
                weights = self.weights(found, losses)
                for k, (drawn, shape) in enumerate(zip(block[name], shapes, strict=True)):
                    w = self.at(name, weights, shape)
                    sums[k] = _add(sums[k], self.kind.estimate(w, drawn, shape) * share)
                if self.how.learn_sigma:
                    even = sum(found) / len(found) - self.level(found, losses)
                    self.slope(slopes, name, block, even, shapes, share)
            deltas[name] = [d / _cast(self.scales[name], d) for d in sums]
        gradient = pull((deltas, self.seed(losses)))
        return self.result(losses, gradient, slopes)

    def full(self) -> Estimate:
        """Return the estimate with noise at all sites in one pass."""
        losses = check_losses(run_with(_Silent(), self.how.f, self.args))
        check_finite(losses, "without noise")
        gradient: Any = None
        slopes: dict[str, Any] = {}
        for block, share in self.blocks(list(self.noise)):
            runs = [self.noisy(block, sign) for sign in self.signs]
            found = [made for _, _, made in runs]
            level = self.level(found, losses)
            for sign, (pull, values, made) in zip(self.signs, runs, strict=True):
                cotangents = self.cotangents(block, values, made - level, sign * share)
                seed = np.broadcast_to(self.seed(losses), shape_of(made))
                part = pull((cotangents, seed * (share / (len(runs) * shape_of(made)[0]))))
                gradient = part if gradient is None else _sum(gradient, part)
            if self.how.learn_sigma:
                even = sum(found) / len(found) - level
                for name, values in runs[0][1].items():
                    shapes = [shape_of(v)[1:] for v in values]
                    self.slope(slopes, name, block, even, shapes, share)
        return self.result(losses, gradient, slopes)

    @property
    def signs(self) -> tuple[float, ...]:
        """Return the signs with which copies get the noise that was drawn."""
        return (1.0, -1.0) if self.how.antithetic else (1.0,)

    def noisy(self, block: dict[str, list[Drawn]], sign: float) -> Any:
        """Return (pullback, values of the sites, losses) of the copies of a block."""
        each = {name: [d.each for d in places] for name, places in block.items()}

        def run(*moving: Any) -> Any:
            return self.of_copies(lambda parts: self.cut(moving, self.adders(parts, sign)), each)

        (values, losses), pull = vjp(run, *self.moving)
        check_finite(losses, "with noise")
        return pull, values, losses

    def cotangents(self, block: Any, values: Any, weights: Any, factor: float) -> Any:
        """Return the estimates of the derivatives by the values of the sites, of all copies."""
        made: dict[str, list[Any]] = {}
        for name, places in block.items():
            made[name] = []
            for v, drawn in zip(values[name], places, strict=True):
                copies, *rest = shape_of(v)
                shape = tuple(rest)
                w = spread(self.at(name, weights, shape), shape)
                score = _cast(1.0 / self.scales[name], w) * self.scores(drawn, shape)
                made[name].append(w * score * (factor / (len(self.signs) * copies)))
        return made

    def perturbed(self, block: dict[str, list[Drawn]]) -> list[Any]:
        """Return the losses of the copies of a block, for each sign of the noise."""
        each = {name: [d.each for d in places] for name, places in block.items()}
        made = [self.of_copies(lambda parts, s=s: self.losses(parts, s), each) for s in self.signs]
        for losses in made:
            check_finite(losses, "with noise")
        return made

    # -- weights -------------------------------------------------------------------------

    def level(self, found: list[Any], losses: Any) -> Any:
        """Return the baseline: independent of the noise that it is subtracted for."""
        kind = self.how.baseline
        if kind is None:
            return 0.0
        if callable(kind):
            return kind(*self.args)
        if kind == "clean":
            return losses
        total = sum(found) / len(found)  # of pairs
        count = shape_of(total)[0]
        mean = np.sum(total, axis=0)
        if kind == "mean":
            return mean / count
        return (mean - total) / (count - 1)

    def weights(self, found: list[Any], losses: Any) -> Any:
        """Return what the scores are weighted with, one for each copy and loss."""
        if len(found) == 2:
            return (found[0] - found[1]) * 0.5
        return found[0] - self.level(found, losses)

    def at(self, name: str, weights: Any, shape: tuple[int, ...]) -> Any:
        """Return the weights of a place, of shape (copies, rows), for the sum or mean of losses."""
        made = credited(name, weights, shape, self.credit[name])
        if self.how.reduce == "mean" and weights.ndim == 2:
            made = made / weights.shape[1]
        return made

    def seed(self, losses: Any) -> Any:
        """Return the cotangent of the losses."""
        shape = shape_of(losses)
        count = shape[0] if shape and self.how.reduce == "mean" else 1
        return np.full(shape, 1.0 / count, losses.dtype)[()]

    def scores(self, drawn: Drawn, shape: tuple[int, ...]) -> Any:
        """Return the scores of all copies."""
        eps = vmap(lambda each: self.kind.noise(each, drawn.shared))(drawn.each)
        return self.kind.score(np.reshape(eps, (-1, *shape)))

    def slope(
        self, slopes: Any, name: str, block: Any, even: Any, shapes: Any, share: float
    ) -> None:
        """Add to the derivative by the scale of a site."""
        scale = self.scales[name]
        for drawn, shape in zip(block[name], shapes, strict=True):
            w = spread(self.at(name, even, shape), shape)
            made = np.mean(w * self.kind.scale_score(drawn.each[0]), axis=0) * share
            made = _folded(made, np.shape(scale)) / scale
            slopes[name] = _add(slopes.get(name), made)

    def result(self, losses: Any, gradient: Any, slopes: Any) -> Estimate:
        """Return what the caller gets."""
        value = np.mean(losses) if self.how.reduce == "mean" else np.sum(losses)
        return Estimate(
            value,
            gradient[0] if self.how.single else gradient,
            slopes if self.how.learn_sigma else None,
            losses,
        )


def _concrete(x: Any) -> Any:
    """Return an argument with the values that it has, where `jit` records."""
    v = getattr(x, "_v", x)
    if not isinstance(v, Symbolic):
        return x
    while isinstance(v, Symbolic):
        v = v.value
    return ADArray(v) if is_device(v) else v


class _Silent:
    """A run without noise."""

    @staticmethod
    def visit(v: Any, name: str) -> Any:  # noqa: ARG004
        return v


def _same(v: Any) -> Any:
    return v


def _add(total: Any, part: Any) -> Any:
    return part if total is None else total + part


def _sum(a: Any, b: Any) -> Any:
    xs, rebuild = flatten(a)
    return rebuild([x + y for x, y in zip(xs, flatten(b)[0], strict=True)])


def _cast(scale: Any, like: Any) -> Any:
    """Return a scale in the precision of an array."""
    return scale if isinstance(scale, (int, float)) else scale.astype(like.dtype)


def scaled(eps: Any, scale: Any) -> Any:
    """Return noise times a scale, in the precision of the noise."""
    return eps * _cast(scale, eps)


def _folded(x: Any, shape: tuple[int, ...]) -> Any:
    """Return the sum over the axes along which an array of this shape was broadcast."""
    lead = x.ndim - len(shape)
    x = np.sum(x, axis=tuple(range(lead)))
    axes = tuple(k for k, n in enumerate(shape) if n == 1 and x.shape[k] != 1)
    return np.sum(x, axis=axes, keepdims=True) if axes else x


def _scale(sigma: Any, name: str) -> Any:
    """Return the scale of a site.

    Raises
    ------
    ValueError
        If there is none, or it is not positive.
    """
    if isinstance(sigma, dict):
        if name not in sigma:
            raise ValueError(
                f"likelihood_ratio: sigma has no scale for site {name!r}; it has "
                f"{', '.join(map(repr, sigma)) or 'none'}"
            )
        sigma = sigma[name]
    if isinstance(sigma, (int, float, np.ndarray)):
        if not np.all(np.asarray(sigma) > 0):
            raise ValueError(
                f"likelihood_ratio: sigma of site {name!r} is {sigma}; it must be positive"
            )
        return float(sigma) if isinstance(sigma, (int, np.floating)) else sigma
    return sigma


def likelihood_ratio(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    *,
    sites: Sequence[str] | None = None,
    exact: Sequence[str] = (),
    sigma: Any = 0.1,
    copies: int = 32,
    antithetic: bool = True,
    mode: Mode = "layerwise",
    directions: str | Directions = "gaussian",
    baseline: Any = "clean",
    credit: Any = "auto",
    reduce: Literal["mean", "sum"] = "mean",
    copies_per_block: int | None = None,
    vectorize: bool = True,
    learn_sigma: bool = False,
) -> LikelihoodRatio:
    r"""Return an estimator of the gradient of `f` that needs no backward pass.

    Noise enters the values that `f` marks by `noise_site`; what the loss does in response,
    correlated with the noise, estimates the derivative by these values. From there to the
    parameters of the layer it takes one product, and no derivative goes through a noisy site.

    Parameters
    ----------
    f : callable
        ``f(*args)`` returns the losses of all samples, of shape (samples,), or one number.
    argnums : int or sequence of int
        Positions of the differentiated arguments; each an array or a nest.
    sites : sequence of str, optional
        Names of the sites that get noise; all that `f` meets, if not given. What lies between
        other sites is differentiated exactly.
    exact : sequence of str
        Names of sites that get none.
    sigma : float, array, or dict of them by name
        Scale of the noise; broadcasts to the site.
    copies : int
        Evaluations of the loss for each estimate (for each site with ``mode="layerwise"``).
    antithetic : bool
        Whether copies come in pairs, of which one gets minus the noise of the other. `copies`
        is even then.
    mode : {"layerwise", "full"}
        Noise at one site at a time, or at all in the same pass.
    directions : str or Directions
        ``"gaussian"`` and ``"laplace"`` are independent. ``"rademacher"``: independent signs.
        ``"hadamard"``: orthogonal signs. ``"qmc"``: scrambled points of Sobol', normal.
        ``"lowrank"``: products of thin normal matrices.
    baseline : {"clean", "mean", "loo", None} or callable
        Subtracted from losses: the loss without noise, the mean of all copies (with a bias of the
        order 1 / copies), the mean of the others, nothing, or what ``baseline(*args)`` returns.
        Pairs with ``mode="layerwise"`` need none.
    credit : {"auto", "rows", "total"}, matrix, callable, or dict of them by name
        Which losses the noise of a row of a site is correlated with. ``"rows"``: row i with
        loss i, right if no other loss depends on it. ``"total"``: with the sum. A matrix of
        shape (rows, losses), dense or sparse, or a linear function from losses, along the first
        axis, to rows: with a sum of those that the row has an effect on. ``"auto"``: rows where
        the site has as many as there are losses and two runs of `f`, in which every other row is
        moved, show that the losses of the rest do not change; else the sum.
    reduce : {"mean", "sum"}
        Whether the gradient is that of the mean of the losses or of their sum.
    copies_per_block : int, optional
        How many copies are computed at once; all, if not given. Bounds memory.
    vectorize : bool
        Whether copies are computed at once, by `adarray.vmap`. If False, `f` runs once for each,
        and gets plain arrays at the sites: what follows the last one may be a black box.
    learn_sigma : bool
        Whether the derivative by the scales is estimated, too.

    Returns
    -------
    LikelihoodRatio
        ``est(*args, rng=..., sigma=...)`` returns an `Estimate`, with the fields `value`,
        `gradient`, `sigma` and `losses`. ``est.evaluate(est.draw(*args, rng=rng), *args)`` does
        the same in two steps, the second of which `adarray.jit` compiles as a whole.

    Raises
    ------
    ValueError
        For an unknown option or name, an odd number of copies in pairs, a scale that is not
        positive, or if no site is active.
    ShapeError
        If the losses have more axes than one, `credit` does not fit, or a site is met more or
        less often than in the first run.
    FloatingPointError
        If a loss is not finite.

    Notes
    -----
    With :math:`v = f(x; W) + \sigma\varepsilon`, the derivative of the expected loss by v is
    :math:`\delta = E[(L - b)\,s(\varepsilon)] / \sigma`, with s the score of the noise:
    :math:`\varepsilon` of normal, :math:`\mathrm{sign}(\varepsilon)` of Laplace noise. Pairs give
    :math:`E[(L_+ - L_-)\,s] / 2\sigma`.

    References
    ----------
    .. [1] P. W. Glynn, "Likelihood ratio gradient estimation for stochastic systems",
       Communications of the ACM 33 (1990).
    .. [2] J. Jiang et al., "Training artificial neural networks by a likelihood ratio method",
       arXiv:2305.08960; ICLR 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from adarray.estimators import likelihood_ratio, noise_site
    >>> def losses(w, x, y):
    ...     hidden = np.tanh(noise_site(x @ w["in"], "hidden"))
    ...     return (noise_site(hidden @ w["out"], "out") - y) ** 2
    >>> rng = np.random.default_rng(0)
    >>> w = {"in": rng.normal(size=(3, 4)), "out": rng.normal(size=4)}
    >>> x, y = rng.normal(size=(8, 3)), rng.normal(size=8)
    >>> est = likelihood_ratio(losses, sigma=0.05, copies=2000)
    >>> estimate = est(w, x, y, rng=1)
    >>> import adarray
    >>> exact = adarray.grad(lambda w: np.mean(losses(w, x, y)))(w)
    >>> bool(np.abs(estimate.gradient["in"] - exact["in"]).max() < 0.1)
    True
    """
    if not callable(f):
        raise TypeError(f"likelihood_ratio: f is of type {type(f).__name__}; pass a function")
    _chosen("mode", mode, ("layerwise", "full"))
    _chosen("reduce", reduce, ("mean", "sum"))
    if not callable(baseline):
        _chosen("baseline", baseline, ("clean", "mean", "loo", None))
    if isinstance(directions, str):
        _chosen("directions", directions, tuple(KINDS))
        directions = KINDS[directions]()
    for c in credit.values() if isinstance(credit, dict) else (credit,):
        if isinstance(c, str):
            _chosen("credit", c, ("auto", "rows", "total"))
    least = 2 if antithetic else 1
    if baseline == "loo" and not callable(baseline):
        least *= 2
    if copies < least or (antithetic and copies % 2):
        raise ValueError(
            f"likelihood_ratio: copies={copies}; pass at least {least}"
            + (", and an even number, since they come in pairs" if antithetic else "")
        )
    if learn_sigma and not directions.has_density:
        raise ValueError(
            f"likelihood_ratio: learn_sigma=True with directions={directions.name!r}, whose scale "
            "has no density to differentiate; use 'gaussian', 'laplace' or 'qmc'"
        )
    return LikelihoodRatio(
        f,
        argnums,
        sites=sites,
        exact=exact,
        sigma=sigma,
        copies=copies,
        antithetic=antithetic,
        mode=mode,
        directions=directions,
        baseline=baseline,
        credit=credit,
        reduce=reduce,
        copies_per_block=copies_per_block,
        vectorize=vectorize,
        learn_sigma=learn_sigma,
    )


def _chosen(name: str, value: Any, among: tuple[Any, ...]) -> None:
    if not (value is None or isinstance(value, str)) or value not in among:
        raise ValueError(f"likelihood_ratio: {name}={value!r}; pass one of {among}")
