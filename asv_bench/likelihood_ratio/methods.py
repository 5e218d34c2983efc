"""How gradients are computed: exactly, or estimated from noise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import adarray
from adarray.estimators import LikelihoodRatio, likelihood_ratio
from adarray.estimators.directions import Drawn


@dataclass(frozen=True)
class Method:
    """One way to the gradient.

    Attributes
    ----------
    title : str
        For tables.
    estimator : dict
        Arguments of `adarray.estimators.likelihood_ratio`; none: backpropagation.
    rate : float
        Factor of the problem's rate.
    redraw : int
        How many steps use the same noise. Where the directions are a complete orthogonal set, the
        estimate hardly depends on them.
    """

    title: str
    estimator: dict[str, Any] = field(default_factory=dict)
    rate: float = 1.0
    redraw: int = 1

    @property
    def text(self) -> str:
        """The settings in words, for tables."""
        how = self.estimator
        if not how:
            return "exact"
        words = [f"{how['copies']} copies", how.get("directions", "gaussian")]
        words.append(f"sigma {how['sigma']:g}")
        if not how.get("antithetic", True):
            words.append("no pairs")
        if "exact" in how:
            words.append("exact: " + ", ".join(how["exact"]))
        return ", ".join(words)

    def gradient(self, losses: Callable[..., Any], rng: Any, **more: Any) -> GradientMethod:
        """Return a function that computes the gradient of the mean loss.

        Parameters
        ----------
        losses : callable
            ``losses(params, *batch)`` returns one loss per sample.
        rng : Generator
            Draws the noise.
        **more
            Further arguments of the estimator, those of the problem.
        """
        if not self.estimator:
            return Exact(losses)
        return Estimated(likelihood_ratio(losses, **self.estimator, **more), rng, self.redraw)


class GradientMethod(ABC):
    """``g(noise, params, *batch)`` is the gradient by the parameters; `jit` compiles it."""

    def noise(self, *args: Any) -> Any:  # noqa: ARG002
        """Return the noise of the next step, for ``args = (params, *batch)``."""
        return ()

    @abstractmethod
    def __call__(self, noise: Any, *args: Any) -> Any:
        """Return the gradient."""


class Exact(GradientMethod):
    """Backpropagation."""

    def __init__(self, losses: Callable[..., Any]) -> None:
        self.grad = adarray.grad(lambda *args: np.mean(losses(*args)))

    def __call__(self, noise: Any, *args: Any) -> Any:  # noqa: ARG002
        """Return the gradient."""
        return self.grad(*args)


class Estimated(GradientMethod):
    """A likelihood-ratio estimate."""

    def __init__(self, estimator: LikelihoodRatio, rng: Any, redraw: int) -> None:
        self.estimator, self.rng, self.redraw = estimator, rng, redraw
        self.drawn: Any = None
        self.steps = 0

    def noise(self, *args: Any) -> Any:
        """Return the noise of the next step."""
        if self.steps % self.redraw == 0:
            self.drawn = None  # its memory is there for the new noise
            drawn = self.estimator.draw(*args, rng=self.rng)
            # Calls with plain tuples are the quickest of a compiled function.
            self.drawn = {name: [tuple(d) for d in places] for name, places in drawn.items()}
        self.steps += 1
        return self.drawn

    def __call__(self, noise: Any, *args: Any) -> Any:
        """Return the gradient."""
        drawn = {name: [Drawn(*d) for d in places] for name, places in noise.items()}
        return self.estimator.evaluate(drawn, *args).gradient


BP = Method("BP")
