"""`scipy.stats.gaussian_kde` of data, at points and with a bandwidth that may be traced."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.stats

from adarray.core.protocol import plain
from adarray.scipy._drop_in import holds
from adarray.scipy._elementwise import sp
from adarray.scipy.stats._distribution import wide


class gaussian_kde(scipy.stats.gaussian_kde):  # type: ignore[misc]  # noqa: N801
    """As `scipy.stats.gaussian_kde`; data, weights, bandwidth and points may be traced."""

    def __init__(self, dataset: Any, bw_method: Any = None, weights: Any = None) -> None:
        self._followed = holds(dataset) or holds(bw_method) or holds(weights)
        if not self._followed:
            super().__init__(dataset, bw_method, weights)
            return
        self.dataset = np.atleast_2d(wide(dataset))
        if self.dataset.size <= 1:
            raise ValueError("`dataset` input should have multiple elements.")
        self.d, self.n = self.dataset.shape
        if weights is not None:
            unnormalised = np.atleast_1d(wide(weights))
            if unnormalised.ndim != 1:
                raise ValueError("`weights` input should be one-dimensional.")
            if unnormalised.shape[0] != self.n:
                raise ValueError("`weights` input should be of length n")
            self._weights = unnormalised / np.sum(unnormalised)
            self._neff = 1.0 / np.sum(self._weights * self._weights)
        else:
            self._weights = np.full(self.n, 1.0 / self.n)
            self._neff = np.float64(self.n)
        self.set_bandwidth(bw_method=bw_method)

    def set_bandwidth(self, bw_method: Any = None) -> None:
        """Compute the factor and the covariance of the kernel."""
        if holds(bw_method):
            self._followed = True
            self.covariance_factor = lambda: bw_method
            self._compute_covariance()
            return
        super().set_bandwidth(bw_method)

    def _compute_covariance(self) -> None:
        if not self._followed:
            super()._compute_covariance()
            return
        factor: Any = self.covariance_factor
        self.factor = factor()
        w = self.weights
        centred = self.dataset - np.sum(w * self.dataset, axis=1, keepdims=True)
        self._data_covariance = np.matmul(w * centred, centred.T) / (1.0 - np.sum(w * w))
        self.covariance = self._data_covariance * self.factor**2
        self.cho_cov = np.linalg.cholesky(self.covariance)
        self.log_det = 2 * np.sum(np.log(np.diagonal(self.cho_cov * math.sqrt(2 * math.pi))))

    def evaluate(self, points: Any) -> Any:
        """Return the density at points."""
        if not (self._followed or holds(points)):
            return super().evaluate(points)
        return np.sum(self.weights[:, None] * np.exp(self._exponents(points)), axis=0)

    __call__ = evaluate

    def pdf(self, x: Any) -> Any:
        """Return the density at points."""
        return self.evaluate(x)

    def logpdf(self, x: Any) -> Any:
        """Return the logarithm of the density at points."""
        if not (self._followed or holds(x)):
            return super().logpdf(x)
        terms = self._exponents(x) + np.log(self.weights)[:, None]
        most = np.max(plain(terms), axis=0)
        return np.log(np.sum(np.exp(terms - most), axis=0)) + most

    def integrate_box_1d(self, low: Any, high: Any) -> Any:
        """Return the integral of a density of numbers between two bounds."""
        if not (self._followed or holds((low, high))):
            return super().integrate_box_1d(low, high)
        if self.d != 1:
            raise ValueError("integrate_box_1d() only handles 1D pdfs")
        width = np.ravel(np.sqrt(self.covariance))[0]
        ends = (sp.ndtr((b - self.dataset[0]) / width) for b in (low, high))
        below, above = (np.sum(self.weights * e) for e in ends)
        return above - below

    def _exponents(self, points: Any) -> Any:
        """Return the logarithm of the kernel of each datum at each point."""
        points = np.atleast_2d(wide(points))
        d, m = points.shape
        if d != self.d:
            if d != 1 or m != self.d:
                raise ValueError(f"points have dimension {d}, dataset has dimension {self.d}")
            points = np.reshape(points, (self.d, 1))
        both = np.concatenate([self.dataset, points], axis=1)
        white = np.linalg.solve(self.cho_cov, both)
        apart = white[:, : self.n, None] - white[:, None, self.n :]
        return -(np.sum(apart * apart, axis=0) + self.log_det) / 2
