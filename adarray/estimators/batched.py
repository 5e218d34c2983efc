"""Estimates whose copies are computed at once, by `adarray.vmap`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.estimators.calls import Estimate, EstimatorCall
from adarray.estimators.credit import check_finite, check_losses, spread
from adarray.estimators.directions import Drawn
from adarray.estimators.sites import Perturbed, Silent, run_with
from adarray.transforms.batch import vmap
from adarray.transforms.modes import shape_of, vjp
from adarray.transforms.tree import flatten

Noise = dict[str, list[Drawn]]


class BatchedCall(EstimatorCall):
    """One estimate from noise of all copies."""

    noise: Noise

    def adders(self, each: dict[str, list[Any]], sign: float) -> dict[str, list[Any]]:
        """Return functions that add the noise of one copy at each place, from its own parts."""

        def at(name: str, k: int, parts: Any) -> Callable[[Any], Any]:
            def add(v: Any) -> Any:
                eps = self.kind.noise(parts, self.noise[name][k].shared)
                return self.moved(v, eps, name, sign)

            return add

        return {
            name: [at(name, k, parts) for k, parts in enumerate(places)]
            for name, places in each.items()
        }

    def losses(self, each: dict[str, list[Any]], sign: float) -> Any:
        """Return the losses of one copy."""
        run = Perturbed(self.adders(each, sign))
        losses = run_with(run, self.how.f, self.args)
        run.finish()
        return check_losses(losses)

    def cut(self, moving: tuple[Any, ...], adders: dict[str, list[Any]]) -> Any:
        """Return (values of the sites, losses) of a run whose sites let no derivative through."""
        run = Perturbed(adders, cut=_same, plain=not self.how.vectorize)
        losses = run_with(run, self.how.f, self.with_moving(moving))
        run.finish()
        return run.values, check_losses(losses)

    def of_copies(self, f: Callable[..., Any], each: Any) -> Any:
        """Call `f` for all copies; return the results stacked along a first axis."""
        if self.how.vectorize:
            return vmap(f)(each)
        leaves, rebuild = flatten(each)
        results = [f(rebuild([x[k] for x in leaves])) for k in range(len(leaves[0]))]
        leaves_of_copies = [flatten(m)[0] for m in results]
        stacked = [np.stack(xs) for xs in zip(*leaves_of_copies, strict=True)]
        return flatten(results[0])[1](stacked)

    def blocks(self, names: list[str]) -> Any:
        """Yield the parts of the copies, some `copies_per_block` of them at a time."""
        draws = self.how.draws
        pair = 2 if self.how.antithetic else 1
        most = draws if self.how.per_block is None else max(1, self.how.per_block // pair)
        count = -(-draws // most)
        if self.how.baseline == "loo":  # of others in the block
            count = min(count, draws // 2)
        ends = [draws * k // count for k in range(count + 1)]
        for part in itertools.starmap(slice, itertools.pairwise(ends)):
            yield (
                {
                    name: [
                        Drawn(tuple(x[part] for x in d.each), d.shared) for d in self.noise[name]
                    ]
                    for name in names
                },
                (part.stop - part.start) / draws,
            )

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
                noisy = self.perturbed(block)
                weights = self.weights(noisy, losses)
                for k, (drawn, shape) in enumerate(zip(block[name], shapes, strict=True)):
                    w = self.at(name, weights, shape)
                    sums[k] = _add(sums[k], self.kind.estimate(w, drawn, shape) * share)
                if self.how.learn_sigma:
                    even = self.even(noisy, losses)
                    self.slopes(slopes, name, block[name], even, shapes, share)
            deltas[name] = [d / self.scale(name, d) for d in sums]
        gradient = pull((deltas, self.seed(losses)))
        return self.result(losses, gradient, slopes)

    def full(self) -> Estimate:
        """Return the estimate with noise at all sites in one pass."""
        losses = check_losses(run_with(Silent(), self.how.f, self.args))
        check_finite(losses, "without noise")
        gradient: Any = None
        slopes: dict[str, Any] = {}
        for block, share in self.blocks(list(self.noise)):
            runs = [self.noisy(block, sign) for sign in self.signs]
            noisy = [sample for _, _, sample in runs]
            level = self.level(noisy, losses)
            for sign, (pull, values, sample) in zip(self.signs, runs, strict=True):
                cotangents = self.cotangents(block, values, sample - level, sign * share)
                seed = np.broadcast_to(self.seed(losses), shape_of(sample))
                part = pull((cotangents, seed * (share / (len(runs) * shape_of(sample)[0]))))
                gradient = part if gradient is None else _sum(gradient, part)
            if self.how.learn_sigma:
                even = self.even(noisy, losses)
                for name, values in runs[0][1].items():
                    shapes = [shape_of(v)[1:] for v in values]
                    self.slopes(slopes, name, block[name], even, shapes, share)
        return self.result(losses, gradient, slopes)

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
        estimates: dict[str, list[Any]] = {}
        for name, places in block.items():
            estimates[name] = []
            for v, drawn in zip(values[name], places, strict=True):
                copies, *rest = shape_of(v)
                shape = tuple(rest)
                w = spread(self.at(name, weights, shape), shape)
                score = self.scores(drawn, shape) / self.scale(name, w)
                estimates[name].append(w * score * (factor / (len(self.signs) * copies)))
        return estimates

    def perturbed(self, block: dict[str, list[Drawn]]) -> list[Any]:
        """Return the losses of the copies of a block, for each sign of the noise."""
        each = {name: [d.each for d in places] for name, places in block.items()}
        of_signs = [
            self.of_copies(lambda parts, s=s: self.losses(parts, s), each) for s in self.signs
        ]
        for losses in of_signs:
            check_finite(losses, "with noise")
        return of_signs

    def scores(self, drawn: Drawn, shape: tuple[int, ...]) -> Any:
        """Return the scores of all copies."""
        eps = vmap(lambda each: self.kind.noise(each, drawn.shared))(drawn.each)
        return self.kind.score(np.reshape(eps, (-1, *shape)))

    def slopes(
        self, slopes: Any, name: str, places: list[Drawn], even: Any, shapes: Any, share: float
    ) -> None:
        """Add to the derivative by the scale of a site."""
        for drawn, shape in zip(places, shapes, strict=True):
            w = spread(self.at(name, even, shape), shape)
            self.slope(slopes, name, w, drawn.each[0], share)


def _same(v: Any) -> Any:
    return v


def _add(total: Any, part: Any) -> Any:
    return part if total is None else total + part


def _sum(a: Any, b: Any) -> Any:
    xs, rebuild = flatten(a)
    return rebuild([x + y for x, y in zip(xs, flatten(b)[0], strict=True)])
