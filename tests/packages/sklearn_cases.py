"""scikit-learn with ``array_api_dispatch=True`` and ADArrays; run by test_sklearn.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn
from case_runner import Case, report
from sklearn import (
    decomposition,
    discriminant_analysis,
    kernel_approximation,
    linear_model,
    metrics,
    mixture,
    model_selection,
    naive_bayes,
    pipeline,
    preprocessing,
)
from sklearn.metrics import pairwise

import adarray.numpy as xp

sklearn.set_config(array_api_dispatch=True)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3))
Y = X @ np.array([1.0, -2.0, 0.5]) + 0.1 * RNG.normal(size=12)
CLASSES = np.arange(12) % 3
BINARY = np.arange(12) % 2
SPREAD = X + CLASSES[:, None] * 2.0
WEIGHTS = np.abs(RNG.normal(size=12)) + 0.2
POSITIVE = np.abs(X) + 0.3
PROBABILITIES = np.exp(X) / np.exp(X).sum(1, keepdims=True)
OTHER = X[:4] + 0.3

CASES: dict[str, Case] = {}


def case(name: str, function: Any, *arguments: Any) -> None:
    CASES[name] = Case(function, arguments or (X,))


def refused(name: str, error: str, function: Any, *arguments: Any) -> None:
    CASES[f"refused {name}"] = Case(function, arguments or (X,), error)


def _words(text: str) -> list[str]:
    return text.split()


# -- preprocessing -------------------------------------------------------------------------------
for _name in _words("StandardScaler MinMaxScaler MaxAbsScaler"):
    _scaler = getattr(preprocessing, _name)
    case(f"preprocessing.{_name}", lambda a, s=_scaler: s().fit(a).transform(a))
    case(f"preprocessing.{_name}.inverse_transform",
         lambda a, s=_scaler: s().fit(a).inverse_transform(a * 2.0))  # fmt: skip
for _norm in ("l1", "l2", "max"):
    case(f"preprocessing.Normalizer {_norm}",
         lambda a, n=_norm: preprocessing.Normalizer(n).fit_transform(a))  # fmt: skip
case(
    "preprocessing.KernelCenterer", lambda a: preprocessing.KernelCenterer().fit_transform(a @ a.T)
)
case(
    "preprocessing.PolynomialFeatures",
    lambda a: preprocessing.PolynomialFeatures().fit_transform(a),
)
case("preprocessing.FunctionTransformer",
     lambda a: preprocessing.FunctionTransformer(xp.exp).fit_transform(a))  # fmt: skip
case("preprocessing.StandardScaler weights",
     lambda a, w: preprocessing.StandardScaler().fit(a, sample_weight=w).transform(a),
     X, WEIGHTS)  # fmt: skip
case("preprocessing.StandardScaler.partial_fit",
     lambda a: preprocessing.StandardScaler().partial_fit(a[:6]).partial_fit(a[6:]).transform(a),
     )  # fmt: skip
case("preprocessing.normalize", preprocessing.normalize)
case("preprocessing.minmax_scale", preprocessing.minmax_scale)
case("preprocessing.maxabs_scale", preprocessing.maxabs_scale)

# -- decomposition, mixture, kernel_approximation ------------------------------------------------


def _pca(**options: Any) -> Any:
    return decomposition.PCA(2, **{"svd_solver": "full", **options})


case("decomposition.PCA full", lambda a: xp.abs(_pca().fit_transform(a)))
case("decomposition.PCA covariance_eigh",
     lambda a: xp.abs(_pca(svd_solver="covariance_eigh").fit_transform(a)))  # fmt: skip
case("decomposition.PCA whiten", lambda a: xp.abs(_pca(whiten=True).fit_transform(a)))
case("decomposition.PCA variance", lambda a: _pca().fit(a).explained_variance_ratio_)
case("decomposition.PCA.inverse_transform",
     lambda a: (lambda p: p.inverse_transform(p.transform(a)))(_pca().fit(a)))  # fmt: skip
case("decomposition.PCA.score_samples", lambda a: _pca().fit(a).score_samples(a))
case("decomposition.PCA.get_covariance", lambda a: _pca().fit(a).get_covariance())
case("mixture.GaussianMixture",
     lambda a: mixture.GaussianMixture(1, init_params="random", random_state=0).fit(a)
     .score_samples(a), SPREAD)  # fmt: skip
case("kernel_approximation.Nystroem",
     lambda a: kernel_approximation.Nystroem(n_components=4, random_state=0).fit_transform(a),
     )  # fmt: skip

# -- linear models, discriminant analysis, Bayes ---------------------------------------------------


def _ridge(**options: Any) -> Any:
    return linear_model.Ridge(solver="svd", **options)


case("linear_model.Ridge coefficients", lambda a, y: _ridge().fit(a, y).coef_, X, Y)
case("linear_model.Ridge.predict", lambda a, y: _ridge().fit(a, y).predict(a), X, Y)
case("linear_model.Ridge weights",
     lambda a, w: _ridge().fit(a, xp.asarray(Y), sample_weight=w).coef_, X, WEIGHTS)  # fmt: skip
case("linear_model.Ridge alpha",
     lambda alpha: _ridge(alpha=alpha).fit(xp.asarray(X), xp.asarray(Y)).coef_,
     np.array([0.3]))  # fmt: skip
case("linear_model.RidgeClassifier",
     lambda a: linear_model.RidgeClassifier(solver="svd").fit(a, xp.asarray(BINARY))
     .decision_function(a))  # fmt: skip
case("linear_model.RidgeCV", lambda a, y: linear_model.RidgeCV().fit(a, y).coef_, X, Y)


def _discriminant(a: Any) -> Any:
    return discriminant_analysis.LinearDiscriminantAnalysis().fit(a, xp.asarray(CLASSES))


case("discriminant_analysis.LDA.decision_function",
     lambda a: _discriminant(a).decision_function(a), SPREAD)  # fmt: skip
case("discriminant_analysis.LDA.transform",
     lambda a: xp.abs(_discriminant(a).transform(a)), SPREAD)  # fmt: skip
case("discriminant_analysis.LDA.predict_proba",
     lambda a: _discriminant(a).predict_proba(a), SPREAD)  # fmt: skip
case("naive_bayes.GaussianNB",
     lambda a: naive_bayes.GaussianNB().fit(a, xp.asarray(CLASSES)).predict_log_proba(a),
     SPREAD)  # fmt: skip
case("pipeline",
     lambda a, y: pipeline.make_pipeline(preprocessing.StandardScaler(), _pca(), _ridge())
     .fit(a, y).predict(a), X, Y)  # fmt: skip
case("model_selection.train_test_split",
     lambda a: model_selection.train_test_split(a, random_state=0)[0] ** 2)  # fmt: skip
case("model_selection.cross_val_predict",
     lambda a, y: model_selection.cross_val_predict(_ridge(), a, y, cv=3), X, Y)  # fmt: skip

# -- metrics ---------------------------------------------------------------------------------------
for _name in _words(
    "euclidean_distances cosine_similarity cosine_distances linear_kernel polynomial_kernel "
    "rbf_kernel sigmoid_kernel laplacian_kernel manhattan_distances"
):
    case(f"metrics.pairwise.{_name}",
         lambda a, b, n=_name: getattr(pairwise, n)(a, b), X, OTHER)  # fmt: skip
for _name in _words("chi2_kernel additive_chi2_kernel"):
    case(f"metrics.pairwise.{_name}",
         lambda a, b, n=_name: getattr(pairwise, n)(a, b), POSITIVE, POSITIVE[:4] + 0.2,
         )  # fmt: skip
for _name in _words("euclidean cosine manhattan"):
    case(f"metrics.pairwise.paired_{_name}_distances",
         lambda a, b, n=_name: getattr(pairwise, f"paired_{n}_distances")(a, b), X, X + 0.3,
         )  # fmt: skip
case("metrics.pairwise_distances", lambda a, b: metrics.pairwise_distances(a, b), X, OTHER)
case("metrics.pairwise.pairwise_kernels",
     lambda a, b: pairwise.pairwise_kernels(a, b, metric="rbf"), X, OTHER)  # fmt: skip
for _name in _words(
    "mean_squared_error mean_absolute_error root_mean_squared_error r2_score "
    "explained_variance_score mean_absolute_percentage_error median_absolute_error "
    "mean_pinball_loss"
):
    case(f"metrics.{_name} raw_values",
         lambda p, n=_name: getattr(metrics, n)(xp.asarray(POSITIVE), p, multioutput="raw_values"),
         POSITIVE + 0.1 + 0.2 * np.cos(X))  # fmt: skip

# -- where scikit-learn leaves the array API -------------------------------------------------------
COERCES = "TraceError: np.asarray: a traced value would leave the graph"
NUMBER = "TraceError: float: a traced value would leave the graph"
for _name in _words("mean_squared_error r2_score mean_poisson_deviance max_error"):
    refused(f"metrics.{_name}", NUMBER,
            lambda p, n=_name: getattr(metrics, n)(xp.asarray(WEIGHTS), p),
            WEIGHTS + 0.1)  # fmt: skip
refused("metrics.log_loss", NUMBER,
        lambda p: metrics.log_loss(xp.asarray(CLASSES), p), PROBABILITIES)  # fmt: skip
refused("linear_model.LogisticRegression", NUMBER,
        lambda a: linear_model.LogisticRegression().fit(a, xp.asarray(BINARY)).coef_)  # fmt: skip
refused("linear_model.LinearRegression", COERCES,
        lambda a: linear_model.LinearRegression().fit(a, xp.asarray(Y)).coef_)  # fmt: skip
refused("preprocessing.RobustScaler", COERCES,
        lambda a: preprocessing.RobustScaler().fit_transform(a))  # fmt: skip
refused("preprocessing.PowerTransformer", COERCES,
        lambda a: preprocessing.PowerTransformer().fit_transform(a))  # fmt: skip
refused("preprocessing.scale", COERCES, preprocessing.scale)
refused("discriminant_analysis.QDA", COERCES,
        lambda a: discriminant_analysis.QuadraticDiscriminantAnalysis(solver="eigen")
        .fit(a, xp.asarray(BINARY)).decision_function(a))  # fmt: skip
refused("decomposition.PCA arpack", "ValueError: PCA with svd_solver='arpack' is not supported",
        lambda a: _pca(svd_solver="arpack").fit_transform(a))  # fmt: skip
refused("kernel_approximation.RBFSampler", "TypeError: Multiple namespaces for array inputs",
        lambda a: kernel_approximation.RBFSampler(random_state=0).fit_transform(a))  # fmt: skip
refused("metrics.pairwise_distances_argmin_min", "TypeError: a bytes-like object is required",
        lambda a: metrics.pairwise_distances_argmin_min(a, xp.asarray(OTHER))[1])  # fmt: skip
refused("metrics.pairwise.rbf_kernel gamma", "InvalidParameterError: The 'gamma' parameter",
        lambda g: pairwise.rbf_kernel(xp.asarray(X), gamma=g[0]), np.array([0.4]))  # fmt: skip

if __name__ == "__main__":
    report(CASES)
