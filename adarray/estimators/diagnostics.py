"""How good an estimator is: bias, variance and angle against the exact gradient, and its cost."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from adarray.base.errors import ShapeError
from adarray.base.report import ReportTable, table_lines
from adarray.estimators.credit import host_of
from adarray.transforms.tree import LeafPath, flatten

# Standard errors of a mean within which it lies with a probability of 95 %, for many draws.
NORMAL95 = 1.96


class LeafDiagnosis(NamedTuple):
    """One parameter array of one estimator.

    Attributes
    ----------
    estimator, leaf : str
        Names; the leaf ``"all"`` stands for all parameters.
    variance : float
        Mean squared distance of an estimate from the mean of all, relative to the squared norm of
        the exact gradient.
    bias : float
        Distance of the mean of all estimates from the exact gradient, relative to its norm; what
        the variance alone leads one to expect of that distance is subtracted (in squares), so it
        may be 0.
    bias_error : float
        The distance that the variance alone leads one to expect: what `bias` cannot tell from 0.
    cosine : float
        Mean cosine of the angle between an estimate and the exact gradient.
    cosine_error : float
        Half of the width of the 95 % confidence interval of that mean.
    """

    estimator: str
    leaf: str
    variance: float
    bias: float
    bias_error: float
    cosine: float
    cosine_error: float


class Diagnosis(NamedTuple):
    """The result of `diagnose`; its text is a table.

    Attributes
    ----------
    rows : tuple of LeafDiagnosis
        One for each estimator and parameter array, and one for all of its arrays.
    seconds : dict of str to float
        Time of one estimate in s: the least of all repeats.
    copies : dict of str to int
        Evaluations of the loss of one estimate: of an estimator with ``mode="layerwise"`` for
        each of its sites.
    repeats : int
    """

    rows: tuple[LeafDiagnosis, ...]
    seconds: dict[str, float]
    copies: dict[str, int]
    repeats: int

    def __str__(self) -> str:
        head = ("estimator", "leaf", "variance", "bias", "+-", "cosine", "+-", "ms", "us/copy")
        lines = tuple(
            (
                r.estimator,
                r.leaf,
                f"{r.variance:.3g}",
                f"{r.bias:.3g}",
                f"{r.bias_error:.2g}",
                f"{r.cosine:.4f}",
                f"{r.cosine_error:.2g}",
                f"{1e3 * self.seconds[r.estimator]:.3g}",
                f"{1e6 * self.seconds[r.estimator] / self.copies[r.estimator]:.3g}",
            )
            for r in self.rows
        )
        return "\n".join(table_lines(ReportTable(head, lines, frozenset(range(2, len(head))))))

    def save(self, path: str | Path) -> None:
        """Draw cosine, variance and cost of each estimator into a file; needs matplotlib.

        Parameters
        ----------
        path : str or Path
            Its suffix says the format: ``.svg``, ``.png``, ``.pdf``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        from matplotlib.figure import Figure

        whole = [r for r in self.rows if r.leaf == "all"]
        names = [r.estimator for r in whole]
        figure = Figure(figsize=(9.0, 0.9 + 0.22 * len(names)), layout="constrained")
        axes = figure.subplots(1, 3, sharey=True)
        panels = (
            ("cosine with the exact gradient", [r.cosine for r in whole]),
            ("relative variance", [r.variance for r in whole]),
            ("ms per estimate", [1e3 * self.seconds[n] for n in names]),
        )
        for k, (ax, (title, values)) in enumerate(zip(axes, panels, strict=True)):
            if k == 1 and min(values) > 0 and max(values) > 30 * min(values):
                ax.plot(values, names, "o", color="0.35", markersize=5)
                ax.set_xscale("log")
                ax.grid(axis="x", color="0.9")
            else:
                errors = [r.cosine_error for r in whole] if k == 0 else None
                ax.barh(names, values, xerr=errors, color="0.6", height=0.6)
            ax.set_title(title, fontsize=9)
            ax.tick_params(labelsize=8)
            ax.spines[["top", "right"]].set_visible(False)
        axes[0].margins(y=0.02)
        axes[0].invert_yaxis()
        figure.savefig(path)


def diagnose(
    estimators: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    exact: Any,
    *args: Any,
    repeats: int = 100,
    rng: Any = None,
) -> Diagnosis:
    """Measure estimators against the exact gradient.

    Parameters
    ----------
    estimators : callable, or dict of them by name
        ``est(*args, rng=...)`` returns an `Estimate`.
    exact : callable, or nest of arrays
        ``exact(*args)`` returns the exact gradient, as `adarray.grad` of the mean loss does; or
        the gradient itself.
    *args : any
        Parameters and data.
    repeats : int
        How many estimates are drawn of each.
    rng : int or Generator, optional

    Returns
    -------
    Diagnosis
        `rows`, `seconds` and `copies`; its text is a table, and its method `save` draws it.

    Raises
    ------
    ValueError
        If there are fewer than two repeats.
    ShapeError
        If an estimate has another structure or other shapes than the exact gradient.

    Notes
    -----
    What is kept is two sums for each parameter, not all estimates. A smoothed loss has another
    gradient than the loss itself: the bias grows as the square of sigma.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> from adarray.estimators import diagnose, forward_gradient
    >>> f = lambda w, x: (x @ w) ** 2
    >>> w, x = np.array([1.0, -1.0]), np.array([[1.0, 0.0], [0.5, 1.0]])
    >>> exact = adarray.grad(lambda w: np.mean(f(w, x)))(w)
    >>> report = diagnose(forward_gradient(f, copies=200), exact, w, x, rng=0)
    >>> report.rows[0].cosine > 0.9
    True
    """
    if repeats < 2:
        raise ValueError(f"diagnose: repeats={repeats}; pass at least 2")
    named = estimators if isinstance(estimators, Mapping) else {"estimate": estimators}
    rng = np.random.default_rng(rng) if not hasattr(rng, "standard_normal") else rng
    truth = exact(*args) if callable(exact) else exact
    leaves, _ = flatten(truth)
    names = [_name(truth, k) for k in range(len(leaves))]
    values = [np.asarray(host_of(x), np.float64) for x in leaves]
    rows: list[LeafDiagnosis] = []
    seconds, copies = {}, {}
    for name, est in named.items():
        seconds[name], moments = _measured(name, est, values, args, repeats, rng)
        copies[name] = getattr(est, "copies", 1)
        leaf_rows = [_row(name, leaf, *m, repeats) for leaf, m in zip(names, moments, strict=True)]
        if len(leaf_rows) > 1:
            rows += leaf_rows
        rows.append(_row(name, "all", *_together(moments), repeats))
    return Diagnosis(tuple(rows), seconds, copies, repeats)


# Of one leaf: the exact gradient, the sum of estimates, the sum of their squared norms, and the
# products with the exact gradient and squared norms of all of them.
Moments = tuple[np.ndarray, np.ndarray, float, np.ndarray, np.ndarray]


def _measured(
    name: str, est: Any, values: list[np.ndarray], args: Any, repeats: int, rng: Any
) -> tuple[float, list[Moments]]:
    est(*args, rng=rng)  # what is prepared once
    sums = [np.zeros(v.shape) for v in values]
    products = np.zeros((len(values), repeats))
    squares = np.zeros((len(values), repeats))
    times = []
    for r in range(repeats):
        start = time.perf_counter()
        gradient = est(*args, rng=rng).gradient
        estimate = [np.asarray(host_of(x), np.float64) for x in flatten(gradient)[0]]
        times.append(time.perf_counter() - start)
        if [x.shape for x in estimate] != [v.shape for v in values]:
            raise ShapeError(
                f"diagnose: estimator {name!r} gives shapes {[x.shape for x in estimate]} and the "
                f"exact gradient has {[v.shape for v in values]}; they must be equal"
            )
        for k, (x, v) in enumerate(zip(estimate, values, strict=True)):
            sums[k] += x
            products[k, r] = np.vdot(x, v)
            squares[k, r] = np.vdot(x, x)
    moments = [
        (v, s, float(q.sum()), p, q)
        for v, s, p, q in zip(values, sums, products, squares, strict=True)
    ]
    return min(times), moments


def _together(moments: list[Moments]) -> Moments:
    return (
        np.concatenate([m[0].ravel() for m in moments]),
        np.concatenate([m[1].ravel() for m in moments]),
        sum(m[2] for m in moments),
        np.sum([m[3] for m in moments], axis=0),
        np.sum([m[4] for m in moments], axis=0),
    )


def _row(
    name: str,
    leaf: str,
    v: np.ndarray,
    total: np.ndarray,
    square: float,
    products: np.ndarray,
    squares: np.ndarray,
    repeats: int,
) -> LeafDiagnosis:
    """Return the numbers of one parameter array from the moments of its estimates."""
    norm = float(np.vdot(v, v))
    mean = total / repeats
    variance = max(0.0, square - repeats * float(np.vdot(mean, mean))) / (repeats - 1)
    distance = float(np.vdot(mean - v, mean - v))
    expected = variance / repeats
    bias = math.sqrt(max(0.0, distance - expected))
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = np.nan_to_num(products / np.sqrt(squares * norm))
    error = NORMAL95 * float(np.std(cosines, ddof=1)) / math.sqrt(repeats)
    scale = norm or math.nan
    return LeafDiagnosis(
        name,
        leaf,
        variance / scale,
        bias / math.sqrt(scale),
        math.sqrt(expected / scale),
        float(np.mean(cosines)),
        error,
    )


def _name(tree: Any, k: int) -> str:
    return str(LeafPath("", "w", tree, k)).removeprefix(": ")
