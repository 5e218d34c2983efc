"""Data in tables and labelled arrays, and habits of Python."""

import math
import operator
from collections import OrderedDict

import numpy as np
import pandas as pd
import xarray as xr
from sklearn.datasets import load_diabetes, load_iris

rng = np.random.default_rng(5)
FRAME = pd.DataFrame(
    {
        "x": rng.normal(size=12),
        "z": rng.normal(size=12),
        "group": list("aabbccaabbcc"),
    }
)
FRAME["y"] = 2 * FRAME["x"] - FRAME["z"] + 0.1 * rng.normal(size=12)
CUBE = xr.DataArray(
    rng.random((3, 4)), dims=("time", "place"), coords={"time": [0, 1, 2], "place": list("abcd")}
)
DIABETES = load_diabetes()
IRIS = load_iris(return_X_y=True)


# tables of pandas


def frame_values(w):
    X = FRAME[["x", "z"]].values
    return np.mean((X.dot(w) - FRAME["y"].to_numpy()) ** 2)


def frame_columns(w):
    prediction = w[0] * FRAME["x"].to_numpy() + w[1] * FRAME.z.values
    return ((prediction - FRAME.y.values) ** 2).mean()


def frame_groups(w):
    total = 0.0
    for name, part in FRAME.groupby("group"):
        residual = part["x"].to_numpy() * w[0] + w[1] - part["y"].to_numpy()
        total += np.abs(residual).mean() * len(name)
    return total


def frame_rows(w):
    return sum((w[0] * row.x + w[1] * row["z"] - row.y) ** 2 for _, row in FRAME.iterrows())


# labelled arrays of xarray


def labelled_values(w):
    return np.sum((CUBE.values * w[:, None] - CUBE.mean("time").values) ** 2)


def labelled_loop(w):
    total = 0
    for t in CUBE.time.values:
        total += w[t] * CUBE.sel(time=t).to_numpy() @ np.arange(4)
    return total**2


# data of scikit-learn


def diabetes(w):
    X, y = DIABETES.data[:50], DIABETES.target[:50] / 100
    return np.mean((X @ w[:-1] * 10 + w[-1] - y) ** 2)


def iris(W):
    X, y = IRIS
    logits = X[::10] @ W
    logits = logits - logits.max(axis=1)[:, None]
    logp = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return -logp[np.arange(15), y[::10]].mean()


# habits of Python


def vectorised(x):
    @np.vectorize
    def f(v):
        if v > 0:
            return math.sin(v)
        return v**2

    return f(x).sum()


def choices(x):
    y = np.select([x < 0, x < 1], [x**2, np.sin(x)], default=1.0)
    z = np.choose([0, 1, 0, 1, 0], [x, -x])
    return y.sum() + np.prod(z)


def comprehensions(x):
    squares = {i: v**2 for i, v in enumerate(x)}
    pairs = [a * b for a, b in zip(x[:-1], x[1:])]
    names = OrderedDict(first=squares[0], last=squares[len(x) - 1])
    return sum(pairs) + max(squares.values()) + names["last"] * math.prod(x[:2])


def printed(x):
    loss = np.sum(x**2)
    print("loss:", loss)
    print(f"loss = {loss:.3e}, x = {x}")
    message = "%s has %d values" % ("x", len(x))
    assert isinstance(message, str)
    assert loss >= 0, f"negative: {loss}"
    return loss * len(message)


def guarded(x):
    try:
        if x.min() < -100:
            raise ValueError("too small")
        values = {"a": x[0]}
        scale = values["b"]
    except KeyError:
        scale = values["a"] + 1
    finally:
        count = len(x)
    return scale * np.sum(x) / count


def early(x):
    if not isinstance(x, np.ndarray):
        x = np.asarray(x, dtype=float)
    if x.ndim != 1 or x.size == 0:
        return 0.0
    for v in x:
        if v > 0.9:
            return v * np.sum(x)
    return np.sum(x)


def scalars(x):
    a = float(x[0])
    b = x[1].item()
    c = np.float64(x[2])
    return round(3.7) * a + pow(b, 2) + abs(c) ** 1.5 + divmod(7, 2)[0] * operator.mul(a, b)


def lists(x):
    rows = [[x[0], x[1]], [x[2], x[3]]]
    M = np.array(rows)
    flat = np.concatenate([M.ravel(), [x[4]]])
    flat = np.append(flat, x[0] * x[4])
    return np.linalg.det(M) + np.sort(flat)[-2] * np.asarray(flat).tolist()[0]


V = np.array([0.3, -0.6, 1.4, 0.8, 0.2])
PROGRAMS = {
    "pandas": [
        (f, (np.array([1.5, -0.5]),))
        for f in (frame_values, frame_columns, frame_groups, frame_rows)
    ],
    "xarray": [(f, (np.array([1.5, -0.5, 0.3]),)) for f in (labelled_values, labelled_loop)],
    "scikit-learn": [
        (diabetes, (rng.normal(size=11),)),
        (iris, (0.1 * rng.normal(size=(4, 3)),)),
    ],
    "vectorize": [(vectorised, (V,)), (choices, (V,))],
    "containers": [(comprehensions, (V,)), (lists, (V,))],
    "printing": [(printed, (V,)), (guarded, (V,))],
    "numbers": [(early, (V,)), (scalars, (V,))],
}
