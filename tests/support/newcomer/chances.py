"""Probability, time series and finance."""

import math
import statistics

import numpy as np
import scipy.stats
from scipy import stats
from scipy.special import gammaln, logsumexp
from scipy.stats import multivariate_normal, norm

rng = np.random.default_rng(3)
DATA = np.concatenate([rng.normal(-1, 0.5, 12), rng.normal(2, 0.8, 8)])
SERIES = np.cumsum(rng.normal(size=15)) * 0.3
EMISSION = np.array([0, 1, 1, 2, 0, 1])


# Kalman filter


def kalman_scalar(theta):
    q, r = math.exp(theta[0]), math.exp(theta[1])
    mean, var, ll = 0.0, 1.0, 0.0
    for y in SERIES:
        var = var + q
        s = var + r
        ll += -0.5 * (math.log(2 * math.pi * s) + (y - mean) ** 2 / s)
        gain = var / s
        mean = mean + gain * (y - mean)
        var = (1 - gain) * var
    return -ll


def kalman_matrix(theta):
    F = np.array([[1.0, 1.0], [0.0, 1.0]])
    H = np.array([[1.0, 0.0]])
    Q = np.diag(np.exp(theta[:2]))
    R = np.array([[np.exp(theta[2])]])
    x, P = np.zeros((2, 1)), np.eye(2)
    ll = 0
    for z in SERIES:
        x = F.dot(x)
        P = F.dot(P).dot(F.T) + Q
        S = H.dot(P).dot(H.T) + R
        K = P.dot(H.T).dot(np.linalg.inv(S))
        e = z - H.dot(x)
        ll += -0.5 * (np.log(np.linalg.det(S)) + (e.T @ np.linalg.inv(S) @ e).item())
        x = x + K.dot(e)
        P = (np.eye(2) - K.dot(H)).dot(P)
    return -ll


class KalmanFilter:
    def __init__(self, q, r):
        self.q, self.r = q, r
        self.x, self.p = 0.0, 1.0
        self.estimates = []

    def update(self, z):
        self.p += self.q
        k = self.p / (self.p + self.r)
        self.x += k * (z - self.x)
        self.p *= 1 - k
        self.estimates.append(self.x)


def kalman_class(theta):
    kf = KalmanFilter(*np.exp(theta[:2]))
    for z in SERIES:
        kf.update(z)
    return np.mean((np.array(kf.estimates) - SERIES) ** 2)


# Black and Scholes


def black_scholes_math(p):
    S, K, T, r, sigma = p
    d1 = (math.log(S / K) + (r + 0.5 * sigma**2) * T) / (sigma * math.sqrt(T))
    d2 = d1 - sigma * math.sqrt(T)
    N = lambda x: 0.5 * (1 + math.erf(x / math.sqrt(2)))
    return S * N(d1) - K * math.exp(-r * T) * N(d2)


def black_scholes_norm(p):
    S, K, T, r, sigma = p
    d1 = (np.log(S / K) + (r + sigma**2 / 2) * T) / (sigma * np.sqrt(T))
    d2 = d1 - sigma * np.sqrt(T)
    return S * norm.cdf(d1) - K * np.exp(-r * T) * norm.cdf(d2)


def black_scholes_vectorised(p):
    price = np.vectorize(lambda K: black_scholes_math([p[0], K, p[2], p[3], p[4]]))
    strikes = np.array([90.0, 100.0, 110.0])
    return price(strikes).sum()


# options by trees and paths


def binomial_tree(p):
    S, sigma = p
    n, T, r, K = 12, 1.0, 0.03, 100.0
    dt = T / n
    u = np.exp(sigma * np.sqrt(dt))
    q = (np.exp(r * dt) - 1 / u) / (u - 1 / u)
    values = [max(K - S * u ** (2 * j - n), 0) for j in range(n + 1)]
    for i in range(n - 1, -1, -1):
        for j in range(i + 1):
            hold = np.exp(-r * dt) * (q * values[j + 1] + (1 - q) * values[j])
            values[j] = max(hold, K - S * u ** (2 * j - i))
    return values[0]


def monte_carlo(p):
    S0, sigma = p
    z = np.random.default_rng(42).standard_normal((20, 10))
    S = np.full(20, S0)
    average = np.zeros(20)
    for k in range(10):
        S = S * np.exp((0.03 - 0.5 * sigma**2) * 0.1 + sigma * np.sqrt(0.1) * z[:, k])
        average += S / 10
    return np.exp(-0.03) * np.mean(np.maximum(average - 100.0, 0))


# portfolio

RETURNS = rng.normal(0.01, 0.05, size=(30, 3))


def portfolio_sharpe(w):
    weights = np.exp(w) / np.sum(np.exp(w))
    returns = RETURNS.dot(weights)
    return -returns.mean() / returns.std(ddof=1)


def portfolio_covariance(w):
    weights = w / w.sum()
    return weights @ np.cov(RETURNS.T) @ weights + np.percentile(RETURNS @ weights, 5)


# bond and its yield


def bond_newton(coupon):
    flows = [coupon] * 5 + [100.0 + coupon]
    y = 0.05
    for _ in range(50):
        f = sum(c / (1 + y) ** (t + 1) for t, c in enumerate(flows)) - 95.0
        df = sum(-(t + 1) * c / (1 + y) ** (t + 2) for t, c in enumerate(flows))
        step = f / df
        y -= step
        if abs(step) < 1e-13:
            break
    return y


def bond_brentq(coupon):
    from scipy.optimize import brentq

    def npv(y):
        t = np.arange(1, 7)
        flows = np.array([coupon] * 5 + [100.0 + coupon])
        return np.sum(flows / (1 + y) ** t) - 95.0

    return brentq(npv, 0.0, 0.5)


# mixture of Gaussians


def mixture_loop(p):
    ll = 0.0
    weight = 1 / (1 + math.exp(-p["logit"]))
    for x in DATA:
        a = weight * stats.norm.pdf(x, p["mu"][0], np.exp(p["log_s"][0]))
        b = (1 - weight) * stats.norm.pdf(x, p["mu"][1], np.exp(p["log_s"][1]))
        ll += np.log(a + b)
    return -ll


def mixture_logsumexp(p):
    w = 1 / (1 + np.exp(-p["logit"]))
    logp = norm.logpdf(DATA[:, None], loc=p["mu"], scale=np.exp(p["log_s"]))
    return -logsumexp(logp + np.log(np.array([w, 1 - w])), axis=1).sum()


def mixture_em_step(p):
    w = np.array([1 / (1 + np.exp(-p["logit"])), 1 - 1 / (1 + np.exp(-p["logit"]))])
    mu, s = p["mu"], np.exp(p["log_s"])
    for _ in range(3):
        pdf = np.exp(-0.5 * ((DATA[:, None] - mu) / s) ** 2) / s
        resp = w * pdf
        resp /= resp.sum(axis=1, keepdims=True)
        nk = resp.sum(axis=0)
        mu = (resp * DATA[:, None]).sum(0) / nk
        s = np.sqrt((resp * (DATA[:, None] - mu) ** 2).sum(0) / nk)
        w = nk / len(DATA)
    return mu[0] * s[1] + w[0]


# hidden Markov model


def softmax_rows(A):
    E = np.exp(A)
    return E / E.sum(axis=1, keepdims=True)


def hmm_scaled(p):
    A, B = softmax_rows(p["A"]), softmax_rows(p["B"])
    alpha = np.array([0.5, 0.5]) * B[:, EMISSION[0]]
    ll = 0
    for o in EMISSION[1:]:
        c = alpha.sum()
        ll += np.log(c)
        alpha = (alpha / c) @ A * B[:, o]
    return -(ll + np.log(np.sum(alpha)))


def hmm_log(p):
    log_A, log_B = np.log(softmax_rows(p["A"])), np.log(softmax_rows(p["B"]))
    T, n = len(EMISSION), 2
    alpha = np.full((T, n), -np.inf)
    alpha[0] = np.log(0.5) + log_B[:, EMISSION[0]]
    for t in range(1, T):
        for j in range(n):
            alpha[t, j] = logsumexp(alpha[t - 1] + log_A[:, j]) + log_B[j, EMISSION[t]]
    return -logsumexp(alpha[-1])


# Markov chain


def markov_stationary(A):
    P = softmax_rows(A)
    pi = np.ones(3) / 3
    for _ in range(200):
        new = pi @ P
        if np.abs(new - pi).max() < 1e-14:
            break
        pi = new
    return np.dot(pi, [1.0, 2.0, 4.0])


def markov_linear(A):
    P = softmax_rows(A)
    M = np.vstack([(P.T - np.eye(3))[:-1], np.ones(3)])
    pi = np.linalg.solve(M, np.array([0, 0, 1.0]))
    entropy = -np.sum(pi * np.log(pi))
    return entropy


def markov_eig(A):
    values, vectors = np.linalg.eig(softmax_rows(A).T)
    k = np.argmin(np.abs(values - 1))
    v = np.real(vectors[:, k])
    return (v / v.sum())[0]


# distributions


def gamma_fit(p):
    a, scale = np.exp(p)
    x = np.abs(DATA) + 0.1
    return -np.sum((a - 1) * np.log(x) - x / scale - gammaln(a) - a * np.log(scale))


def gamma_scipy(p):
    x = np.abs(DATA) + 0.1
    return -scipy.stats.gamma.logpdf(x, math.exp(p[0]), scale=math.exp(p[1])).sum()


def student_t(p):
    return -np.sum(stats.t.logpdf(DATA, np.exp(p[0]) + 2, loc=p[1]))


# multivariate normal

POINTS = rng.normal(size=(10, 2))


def mvn_cholesky(p):
    L = np.zeros((2, 2))
    L[np.tril_indices(2)] = p
    L[np.diag_indices(2)] = np.exp(np.diag(L))
    z = np.linalg.solve(L, POINTS.T)
    return 0.5 * np.sum(z**2) + len(POINTS) * np.sum(np.log(np.diag(L)))


def mvn_scipy(p):
    cov = np.array([[np.exp(p[0]), p[1]], [p[1], np.exp(p[2])]])
    return -multivariate_normal.logpdf(POINTS, mean=np.zeros(2), cov=cov).sum()


# time series


def arma(p):
    phi, theta = p
    errors = [0.0]
    for t in range(1, len(SERIES)):
        errors.append(SERIES[t] - phi * SERIES[t - 1] - theta * errors[-1])
    return sum(e**2 for e in errors)


def garch(p):
    omega, alpha, beta = np.exp(p)
    r = np.diff(SERIES)
    h = np.empty_like(r)
    h[0] = r.var()
    for t in range(1, len(r)):
        h[t] = omega + alpha * r[t - 1] ** 2 + beta * h[t - 1]
    return 0.5 * np.sum(np.log(h) + r**2 / h)


def holt_winters(p):
    a, b = p
    level, trend = SERIES[0], SERIES[1] - SERIES[0]
    errors = []
    for y in SERIES[2:]:
        forecast = level + trend
        errors.append(y - forecast)
        last, level = level, a * y + (1 - a) * forecast
        trend = b * (level - last) + (1 - b) * trend
    return statistics.fmean(e * e for e in errors)


# summary statistics


def skewness(x):
    return stats.skew(x) + stats.kurtosis(x) + np.median(x)


def weighted_summary(x):
    order = np.argsort(x)
    ranked = x[order]
    lorenz = np.cumsum(ranked) / ranked.sum()
    return 1 - 2 * np.trapezoid(lorenz, dx=1 / len(x)) + np.corrcoef(x, DATA[: len(x)])[0, 1]


MIX = {"logit": 0.2, "mu": np.array([-0.5, 1.5]), "log_s": np.array([-0.3, 0.1])}
HMM = {"A": rng.normal(size=(2, 2)), "B": rng.normal(size=(2, 3))}
OPTION = np.array([100.0, 105.0, 1.0, 0.03, 0.2])
PROGRAMS = {
    "Kalman filter": [
        (kalman_scalar, (np.array([-1.0, -2.0]),)),
        (kalman_matrix, (np.array([-1.0, -2.0, -0.5]),)),
        (kalman_class, (np.array([-1.0, -2.0]),)),
    ],
    "Greeks": [
        (black_scholes_math, (OPTION,)),
        (black_scholes_norm, (OPTION,)),
        (black_scholes_vectorised, (OPTION,)),
    ],
    "option by simulation": [
        (binomial_tree, (np.array([97.0, 0.25]),)),
        (monte_carlo, (np.array([97.0, 0.25]),)),
    ],
    "portfolio": [
        (portfolio_sharpe, (np.array([0.1, 0.4, -0.2]),)),
        (portfolio_covariance, (np.array([0.3, 0.4, 0.2]),)),
    ],
    "yield of a bond": [(bond_newton, (4.0,)), (bond_brentq, (4.0,))],
    "mixture": [(mixture_loop, (MIX,)), (mixture_logsumexp, (MIX,)), (mixture_em_step, (MIX,))],
    "hidden Markov model": [(hmm_scaled, (HMM,)), (hmm_log, (HMM,))],
    "Markov chain": [
        (markov_stationary, (rng.normal(size=(3, 3)),)),
        (markov_linear, (rng.normal(size=(3, 3)),)),
        (markov_eig, (rng.normal(size=(3, 3)),)),
    ],
    "distributions": [
        (gamma_fit, (np.array([0.3, -0.2]),)),
        (gamma_scipy, (np.array([0.3, -0.2]),)),
        (student_t, (np.array([0.3, -0.2]),)),
    ],
    "multivariate normal": [
        (mvn_cholesky, (np.array([0.1, 0.3, -0.2]),)),
        (mvn_scipy, (np.array([0.1, 0.3, -0.2]),)),
    ],
    "time series": [
        (arma, (np.array([0.5, 0.2]),)),
        (garch, (np.array([-3.0, -2.0, -0.5]),)),
        (holt_winters, (np.array([0.5, 0.2]),)),
    ],
    "statistics": [
        (skewness, (np.array([0.3, 1.2, -0.8, 2.0, 0.9]),)),
        (weighted_summary, (np.array([0.3, 1.2, 0.8, 2.0, 0.9]),)),
    ],
}
