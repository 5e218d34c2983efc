"""The likelihood-ratio estimator: gradients from noise at the layers of a network.

References
----------
- P. W. Glynn, "Likelihood ratio gradient estimation for stochastic systems", Commun. ACM 33 (1990),
  75-84.
- S. Mohamed, M. Rosca, M. Figurnov, A. Mnih, "Monte Carlo gradient estimation in machine learning",
  J. Mach. Learn. Res. 21 (2020), 132.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from adarray.arrays.adarray import ADArray
from adarray.base.aval import Symbolic
from adarray.base.errors import NotDifferentiableError
from adarray.core.protocol import traced
from adarray.device import is_device
from adarray.estimators.batched import BatchedCall, Noise
from adarray.estimators.calls import Estimate, SiteLayout
from adarray.estimators.credit import check_losses, host_of, rows_are_apart
from adarray.estimators.devices import adopted, of_devices
from adarray.estimators.directions import KINDS, Directions, generator
from adarray.estimators.lean import LeanCall, Seeds
from adarray.estimators.products import Marked
from adarray.estimators.sites import Survey, run_with
from adarray.transforms.calls import dtype_of
from adarray.transforms.modes import shape_of
from adarray.transforms.tree import flatten, is_array

Mode = Literal["layerwise", "full", "mixed"]
Encoding = Literal["seed", "sign"] | None


# Kinds of arguments whose sites are known.
MANY = 64
INDEPENDENT = ("gaussian", "laplace", "rademacher")


class LikelihoodRatio:
    """An estimator of gradients; see `likelihood_ratio`, which makes it."""

    def __init__(
        self,
        f: Callable[..., Any],
        argnums: int | Sequence[int],
        *,
        sites: Sequence[str] | Literal["products"] | None,
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
        encoding: Encoding,
    ) -> None:
        self.argnums = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        self.single = isinstance(argnums, int)
        self.f = Marked(f, self.argnums) if sites == "products" else f
        self.sites = None if sites is None or isinstance(sites, str) else tuple(sites)
        self.exact = tuple(exact)
        self.sigma = sigma
        self.copies = copies
        self.antithetic = antithetic
        self.mode = "layerwise" if mode == "mixed" else mode
        self.directions = directions
        self.baseline = baseline
        self.credit = credit
        self.reduce = reduce
        self.per_block = copies_per_block
        self.vectorize = vectorize
        self.learn_sigma = learn_sigma
        self.encoding = encoding
        self._known: dict[Any, SiteLayout] = {}

    def __repr__(self) -> str:
        return f"<likelihood_ratio of {self.f!r}, {self.mode}, {self.copies} copies>"

    # -- noise ---------------------------------------------------------------------------

    @property
    def draws(self) -> int:
        """How often noise is drawn: a pair of copies shares its noise."""
        return self.copies // 2 if self.antithetic else self.copies

    def layout(self, *args: Any) -> SiteLayout:
        """Return the active sites, and which losses their rows are credited with.

        It is found once for arguments of some shapes and dtypes.

        Raises
        ------
        ValueError
            If a name that was asked for is not met, or there is no active site.
        """
        leaves, rebuild = flatten(args)
        key = tuple(map(_leaf_key, leaves))
        known = self._known.get(key)
        if known is None:
            while len(self._known) >= MANY:
                del self._known[next(iter(self._known))]
            known = self._known[key] = self._surveyed(rebuild([_concrete(x) for x in leaves]))
        return known

    def _surveyed(self, args: tuple[Any, ...]) -> SiteLayout:
        survey = Survey()
        losses = check_losses(run_with(survey, self.f, args))
        sites = survey.places
        for option, names in (("sites", self.sites or ()), ("exact", self.exact)):
            for name in names:
                if name not in sites:
                    raise ValueError(
                        f"likelihood_ratio: {option} has {name!r}, which f does not meet; it "
                        f"meets {', '.join(map(repr, sites)) or 'no site'}"
                    )
        active = {
            name: places
            for name, places in sites.items()
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
        return SiteLayout(active, credit)

    def draw(self, *args: Any, rng: Any = None) -> Noise | Seeds:
        """Return the noise of one call with these arguments, for `evaluate`."""
        if self.encoding is not None:
            return Seeds(int(np.random.default_rng(rng).integers(1 << 62)), self.encoding)
        rng = generator(rng, flatten(args)[0])
        places_of = self.layout(*args).places
        if self.mode == "layerwise":
            return {n: self.directions.draw(rng, self.draws, p) for n, p in places_of.items()}
        together = [place for places in places_of.values() for place in places]
        drawn = iter(self.directions.draw(rng, self.draws, together))
        return {n: list(itertools.islice(drawn, len(p))) for n, p in places_of.items()}

    # -- the estimate --------------------------------------------------------------------

    def __call__(self, *args: Any, rng: Any = None, sigma: Any = None) -> Estimate:
        """Return the estimate, from new noise."""
        return self.evaluate(self.draw(*args, rng=rng), *args, sigma=sigma)

    @of_devices
    def evaluate(self, noise: Noise | Seeds, *args: Any, sigma: Any = None) -> Estimate:
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
        sigma = self.sigma if sigma is None else sigma
        lean = isinstance(noise, Seeds)
        call = (LeanCall if lean else BatchedCall)(self, noise, args, sigma)
        return call.layerwise() if self.mode == "layerwise" else call.full()


def _leaf_key(x: Any) -> Any:
    """Return the properties of a leaf of the arguments that the sites may depend on."""
    if x is None or isinstance(x, (bool, int, str, bytes)):
        return type(x), x
    return (shape_of(x), np.dtype(dtype_of(x))) if is_array(x) else type(x)


def _concrete(x: Any) -> Any:
    """Return an argument with the values that it has, where `jit` records."""
    v = getattr(x, "_plain", x)
    if not isinstance(v, Symbolic):
        return adopted(x)
    while isinstance(v, Symbolic):
        v = v.value
    return ADArray(v) if is_device(v) else v


def likelihood_ratio(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    *,
    sites: Sequence[str] | Literal["products"] | None = None,
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
    encoding: Encoding = None,
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
    sites : sequence of str, or "products", optional
        Names of the sites that get noise; all that `f` meets, if not given. What lies between
        other sites is differentiated exactly. With ``"products"`` nothing needs to be marked:
        matrix products, convolutions and sums of products that have a parameter as an operand are
        sites, besides those that are marked, with the name of the parameter as it is written in
        Python: ``"['hidden']"``.
    exact : sequence of str
        Names of sites that get none.
    sigma : float, array, or dict of them by name
        Scale of the noise; broadcasts to the site.
    copies : int
        Evaluations of the loss for each estimate (for each site with ``mode="layerwise"``).
    antithetic : bool
        Whether copies come in pairs, of which one gets minus the noise of the other. `copies`
        is even then.
    mode : {"layerwise", "full", "mixed"}
        Noise at one site at a time, or at all in the same pass. ``"mixed"`` is ``"layerwise"``,
        and asks for `sites` or `exact`: what gets no noise is differentiated exactly.
    directions : str or Directions
        ``"gaussian"`` and ``"laplace"`` are independent. ``"rademacher"``: independent signs.
        ``"hadamard"``: orthogonal signs, which see everything in as many pairs as a layer is wide
        (``mode="full"``: all of them together). ``"qmc"``: scrambled points of Sobol', normal.
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
    encoding : {None, "seed", "sign"}
        How noise is kept between the copies' runs and the estimate. None: as it is, for all
        copies. Else copies run one after the other on plain arrays, and each site is pulled back
        as soon as it is met, which takes less memory than backpropagation; noise is drawn again
        from a seed, or ``"sign"``: one bit is kept of each number, which is all that the score
        of Laplace noise and of signs needs, and an approximation for normal noise. Directions
        must be independent. Not compiled.

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
        If a loss is not finite; not looked at in compiled code, or on a device.

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
    .. [2] J. Jiang et al., "One forward is enough for neural network training via likelihood ratio
       method", arXiv:2305.08960; ICLR 2024.

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
    >>> bool(np.allclose(estimate.gradient["out"], exact["out"], atol=0.3))
    True
    """
    if not callable(f):
        raise TypeError(f"likelihood_ratio: f is of type {type(f).__name__}; pass a function")
    if isinstance(sites, str) and sites != "products":
        raise ValueError(f"likelihood_ratio: sites={sites!r}; pass a list of names, or 'products'")
    _chosen("mode", mode, ("layerwise", "full", "mixed"))
    if mode == "mixed" and sites in (None, "products") and not exact:
        raise ValueError(
            "likelihood_ratio: mode='mixed', and all sites get noise; name those that do in sites, "
            "or those that are exact in exact"
        )
    _chosen("reduce", reduce, ("mean", "sum"))
    if not callable(baseline):
        _chosen("baseline", baseline, ("clean", "mean", "loo", None))
    if isinstance(directions, str):
        _chosen("directions", directions, tuple(KINDS))
        directions = KINDS[directions]()
    _chosen("encoding", encoding, (None, "seed", "sign"))
    if encoding is not None and directions.name not in INDEPENDENT:
        raise ValueError(
            f"likelihood_ratio: encoding={encoding!r} with directions={directions.name!r}, whose "
            f"copies are drawn together; use one of {INDEPENDENT}"
        )
    if encoding == "sign" and mode == "full" and baseline in ("mean", "loo"):
        raise ValueError(
            f"likelihood_ratio: baseline={baseline!r} with encoding='sign' and mode='full', where "
            "each copy is done before the next one runs; use 'clean', or encoding='seed'"
        )
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
        encoding=encoding,
    )


def _chosen(name: str, value: Any, among: tuple[Any, ...]) -> None:
    if not (value is None or isinstance(value, str)) or value not in among:
        raise ValueError(f"likelihood_ratio: {name}={value!r}; pass one of {among}")
