"""Estimates in less memory than backpropagation takes: copies one by one, layers one by one.

Each site is pulled back to the parameters of its layer as soon as the run meets it, so of the
graph there is never more than what lies between two sites. Noise is kept as a seed, and drawn
again where its score is needed, or as one bit for each number.

References
----------
- S. Malladi et al., "Fine-tuning language models with just forward passes", NeurIPS 2023 (noise is
  kept as a seed).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from adarray.ad.reverse import Pullback
from adarray.arrays.adarray import value_of
from adarray.base.scope import SCOPE
from adarray.core.graph import Node
from adarray.core.inplace import sync_if_view
from adarray.core.trace import Handle, tracing
from adarray.estimators.calls import Estimate, EstimatorCall
from adarray.estimators.credit import check_finite, check_losses, spread
from adarray.estimators.directions import Directions, generator
from adarray.estimators.sites import RUN, Perturbed, Silent, constant, run_with
from adarray.transforms.inputs import Inputs
from adarray.transforms.modes import as_cotangent, shape_of
from adarray.transforms.running import prepared
from adarray.transforms.tree import flatten

# Of the absolute value of a normal number: what makes its sign a score where the loss is linear.
ROOT = math.sqrt(math.pi / 2.0)


class Seeds(NamedTuple):
    """Noise of one call, none of which is drawn yet."""

    seed: int
    kind: Literal["seed", "sign"]


class Bits:
    """Signs of an array, eight in a byte.

    Parameters
    ----------
    x : array
    """

    def __init__(self, x: Any) -> None:
        self.shape, self.dtype = shape_of(x), x.dtype
        self.packed = np.packbits(np.reshape(x, -1) > 0)

    def signs(self) -> Any:
        """Return 1 and -1 in the shape and dtype of the array."""
        bits = np.unpackbits(self.packed)[: math.prod(self.shape)].reshape(self.shape)
        return bits.astype(self.dtype) * 2 - 1


def node_of(v: Any) -> Node | None:
    """Return where a value stands in the graph; None if it is not in it."""
    return sync_if_view(v)._node if isinstance(v, Handle) else None


class LocalPullback:
    """Cotangents of arguments, added up while the function that they belong to still runs.

    Parameters
    ----------
    f : callable
    moving : tuple
        The differentiated arguments.
    level : int
        Of the open trace.
    """

    def __init__(self, f: Callable[..., Any], moving: tuple[Any, ...], level: int) -> None:
        self.level = level
        self.inputs = Inputs("likelihood_ratio", moving, tuple(range(len(moving))), level, f)
        self.totals: dict[int, Any] = {}
        self.own: set[int] = set()

    def pull(self, v: Any, g: Any) -> None:
        """Add the gradient from the cotangent `g` of a value."""
        node = v if isinstance(v, Node) else node_of(v)
        if node is None or node.span[1] < self.level:
            return
        self.inputs.check()
        walk = Pullback(self.level, {n.order for n in self.inputs.nodes})
        walk.add(node, walk.seed(as_cotangent(g, node)))
        for order, ct in walk.run().items():
            before = self.totals.get(order)
            if before is None:
                self.totals[order] = ct
            elif order in self.own and isinstance(before, np.ndarray):
                np.add(before, ct, out=before)
            else:  # others may hold it, too
                self.totals[order] = before + ct
                self.own.add(order)

    def gradient(self) -> tuple[Any, ...]:
        """Return the cotangents of all arguments; the trace is over."""
        self.inputs.closed = True
        gradient: tuple[Any, ...] = self.inputs.rebuild(self.inputs.cotangents(self.totals))
        return gradient


class Pulling:
    """A run whose sites are pulled back when they are met.

    Parameters
    ----------
    local : LocalPullback
    cotangent : callable
        ``cotangent(name, place, v)`` returns (cotangent of the value, value to go on with).
    names : set of str
        Of the sites.
    """

    def __init__(
        self, local: LocalPullback, cotangent: Callable[..., Any], names: dict[str, Any]
    ) -> None:
        self.local = local
        self.cotangent = cotangent
        self.met = dict.fromkeys(names, 0)

    def visit(self, v: Any, name: str) -> Any:
        """Pull the value back and go on with a constant."""
        if name not in self.met:
            return v
        place = self.met[name]
        self.met[name] = place + 1
        # Copies run in here as they would outside: on plain arrays, not intercepted.
        run, scope = RUN.set(None), SCOPE.set(None)
        try:
            g, on = self.cotangent(name, place, v)
            self.local.pull(v, g)
        finally:
            SCOPE.reset(scope)
            RUN.reset(run)
        return on


class LeanCall(EstimatorCall):
    """One estimate; see the module."""

    noise: Seeds

    def __init__(self, how: Any, noise: Any, args: tuple[Any, ...], sigma: Any) -> None:
        super().__init__(how, noise, args, sigma)
        self.bits: dict[tuple[int, str, int], Bits] = {}

    def eps(self, draw: int, name: str, place: int) -> Any:
        """Return the noise of one place in one draw: the same whenever it is asked for."""
        number = list(self.places).index(name)
        seed = np.random.SeedSequence(self.noise.seed, spawn_key=(draw, number, place))
        rng = generator(int(seed.generate_state(1, np.uint64)[0] >> 1), flatten(self.args)[0])
        drawn = self.kind.draw(rng, 1, [self.places[name][place]])[0]
        return self.kind.noise(tuple(x[0] for x in drawn.each), drawn.shared)

    def stored_score(self, draw: int, name: str, place: int) -> Any:
        """Return the score of noise that a run has drawn before."""
        if self.noise.kind == "sign":
            return self.bits.pop((draw, name, place)).signs() * sign_factor(self.kind)
        return self.kind.score(self.eps(draw, name, place))

    def of_copy(self, draw: int, sign: float, names: Any) -> Any:
        """Return the losses of one copy."""
        keep = self.noise.kind == "sign" and self.how.mode == "layerwise"

        def at(name: str, place: int) -> Callable[[Any], Any]:
            def add(v: Any) -> Any:
                eps = self.eps(draw, name, place)
                if keep and sign > 0:
                    self.bits[draw, name, place] = Bits(eps)
                return self.moved(v, eps, name, sign)

            return add

        run = Perturbed({n: [at(n, p) for p in range(len(self.places[n]))] for n in names})
        losses = check_losses(run_with(run, self.how.f, self.args))
        run.finish()
        check_finite(losses, "with noise")
        return losses

    def perturbed(self, names: Any) -> list[Any]:
        """Return the losses of all copies, for each sign of the noise."""
        draws = range(self.how.draws)
        return [np.stack([self.of_copy(k, s, names) for k in draws]) for s in self.signs]

    def clean(self) -> Any:
        """Return the losses without noise."""
        losses = check_losses(run_with(Silent(), self.how.f, self.args))
        check_finite(losses, "without noise")
        return losses

    def pulled(self, cotangent: Any, seed: Callable[[Any], Any]) -> tuple[Any, ...]:
        """Return the gradient of a run whose sites are pulled back when they are met.

        `seed` returns the cotangent of the losses.
        """
        with tracing("likelihood_ratio") as level:
            local = LocalPullback(self.how.f, self.moving, level)
            run = Pulling(local, cotangent, self.places)
            args = self.with_moving(local.inputs.args)
            losses = run_with(run, prepared(self.how.f, True), args)
            local.pull(losses, seed(losses))
        return local.gradient()

    def layerwise(self) -> Estimate:
        """Return the estimate with noise at one site at a time."""
        losses = self.clean()
        slopes: dict[str, Any] = {}
        deltas: dict[str, list[Any]] = {}

        def cotangent(name: str, place: int, v: Any) -> Any:
            if name not in deltas:
                deltas[name] = self.deltas(name, losses, slopes)
            delta, deltas[name][place] = deltas[name][place], None
            return delta, constant(v, True)

        gradient = self.pulled(cotangent, lambda losses: self.seed(losses))
        return self.result(losses, gradient, slopes)

    def deltas(self, name: str, losses: Any, slopes: dict[str, Any]) -> list[Any]:
        """Return the estimated derivatives by the places of one site."""
        noisy = self.perturbed((name,))
        odd, even = self.weights(noisy, losses), self.even(noisy, losses)
        deltas = []
        for place, (shape, _) in enumerate(self.places[name]):
            w = spread(self.at(name, odd, shape), shape) / self.how.draws
            total: Any = None
            for k in range(self.how.draws):
                part = w[k] * self.stored_score(k, name, place)
                total = part if total is None else np.add(total, part, out=total)
                if self.how.learn_sigma:
                    eps = self.eps(k, name, place)
                    each = spread(self.at(name, even[k : k + 1], shape), shape)
                    self.slope(slopes, name, each, eps[None], 1.0 / self.how.draws)
            deltas.append(total / self.scale(name, total))
        return deltas

    def full(self) -> Estimate:
        """Return the estimate with noise at all sites in one pass."""
        losses = self.clean()
        slopes: dict[str, Any] = {}
        totals: Any = None
        one = self.noise.kind == "sign"
        noisy = None if one else self.perturbed(self.places)
        level = self.level(noisy or [], losses)
        for k in range(self.how.draws):
            of_draw = []
            for i, sign in enumerate(self.signs):
                if noisy is None:
                    part, sample = self.in_one_pass(k, sign, level)
                else:
                    sample = noisy[i][k]
                    part = self.in_two_passes(k, sign, sample - level)
                of_draw.append(sample)
                totals = part if totals is None else _added(totals, part)
            if self.how.learn_sigma:
                even = (sum(of_draw) / len(of_draw) - level)[None]
                self.slopes(slopes, k, even)
        return self.result(losses, totals, slopes)

    def in_two_passes(self, draw: int, sign: float, weights: Any) -> tuple[Any, ...]:
        """Return the gradient of one copy with known losses: the graph of one layer at a time."""
        runs = self.how.draws * len(self.signs)

        def cotangent(name: str, place: int, v: Any) -> Any:
            shape = shape_of(v)
            eps = self.eps(draw, name, place)
            w = spread(self.at(name, weights[None], shape), shape)[0] * (sign / runs)
            g = w * self.kind.score(eps)
            return g / self.scale(name, g), self.moved(constant(v, True), eps, name, sign)

        return self.pulled(cotangent, lambda losses: self.seed(losses) / runs)

    def in_one_pass(self, draw: int, sign: float, level: Any) -> Any:
        """Return the gradient of one copy, and its losses; inputs of layers and signs are saved."""
        runs = self.how.draws * len(self.signs)

        def at(name: str, place: int) -> Callable[[Any], Any]:
            def add(v: Any) -> Any:
                eps = self.eps(draw, name, place)
                self.bits[draw, name, place] = Bits(eps)
                return self.moved(v, eps, name, sign)

            return add

        adders = {n: [at(n, p) for p in range(len(ps))] for n, ps in self.places.items()}
        run = Perturbed(adders, cut=node_of, plain=True)
        with tracing("likelihood_ratio") as trace:
            local = LocalPullback(self.how.f, self.moving, trace)
            args = self.with_moving(local.inputs.args)
            losses = check_losses(run_with(run, prepared(self.how.f, True), args))
            run.finish()
            local.pull(losses, self.seed(losses) / runs)
            losses = value_of(losses)
            check_finite(losses, "with noise")
            weights = (losses - level)[None]
            for name, values in run.values.items():
                for place, node in enumerate(values):
                    values[place] = None
                    shape = self.places[name][place][0]
                    w = spread(self.at(name, weights, shape), shape)[0] * (sign / runs)
                    g = w * self.stored_score(draw, name, place)
                    local.pull(node, g / self.scale(name, g))
        return local.gradient(), losses

    def slopes(self, slopes: dict[str, Any], draw: int, even: Any) -> None:
        """Add what one draw gives for the derivatives by the scales."""
        for name, places in self.places.items():
            for place, (shape, _) in enumerate(places):
                w = spread(self.at(name, even, shape), shape)
                eps = self.eps(draw, name, place)[None]
                self.slope(slopes, name, w, eps, 1.0 / self.how.draws)


def sign_factor(kind: Directions) -> float:
    """Return the factor that turns a sign into the score, or a stand-in for it."""
    return ROOT if kind.name == "gaussian" else 1.0


def _added(totals: Any, part: Any) -> Any:
    """Return a sum of gradients, in the memory of the first where it has some."""
    xs, rebuild = flatten(totals)
    return rebuild(
        [
            np.add(x, y, out=x) if isinstance(x, np.ndarray) else x + y
            for x, y in zip(xs, flatten(part)[0], strict=True)
        ]
    )
