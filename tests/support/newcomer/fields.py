"""Partial differential equations, images and filters."""

import numpy as np
import scipy.sparse as sp
from scipy import ndimage, signal
from scipy.fft import dct, idct
from scipy.interpolate import CubicSpline, interp1d
from scipy.sparse.linalg import spsolve

rng = np.random.default_rng(1)
TARGET = np.exp(-(np.linspace(-2, 2, 16) ** 2))
IMAGE = rng.random((8, 8))
SIGNAL = rng.normal(size=16)


# inverse heat


def heat_in_place(u0):
    u = u0.copy()
    for _ in range(10):
        u[1:-1] += 0.2 * (u[2:] - 2 * u[1:-1] + u[:-2])
        u[0] = u[1]
        u[-1] = u[-2]
    return np.sum((u - TARGET) ** 2)


def heat_history(u0):
    hist = np.zeros((11, len(u0)))
    hist[0] = u0
    for s in range(10):
        T = hist[s].copy()
        T[1:-1] = T[1:-1] + 0.2 * (T[2:] - 2 * T[1:-1] + T[:-2])
        hist[s + 1] = T
    return ((hist[-1] - TARGET) ** 2).sum() + 1e-3 * hist[:, 3].mean()


def heat_loops(u0):
    u = np.array(u0)
    for _ in range(4):
        new = np.copy(u)
        for i in range(1, len(u) - 1):
            new[i] = u[i] + 0.2 * (u[i + 1] - 2 * u[i] + u[i - 1])
        u = new
    return np.sum((u - TARGET) ** 2)


# wave equation


def wave_three_arrays(c):
    before = TARGET.copy()
    now = TARGET.copy()
    for _ in range(15):
        after = np.zeros_like(now)
        after[1:-1] = 2 * now[1:-1] - before[1:-1] + c**2 * np.diff(now, 2)
        before, now = now, after
    return np.sum(now**2)


def wave_roll(c):
    u, v = TARGET.copy(), np.zeros(16)
    for _ in range(15):
        lap = np.roll(u, 1) - 2 * u + np.roll(u, -1)
        v += 0.3 * c * lap
        u += 0.3 * v
    energy = 0.5 * (v**2).sum()
    return energy + 0.5 * (np.gradient(u) ** 2).sum()


# Poisson equation


def poisson_jacobi(f):
    u = np.zeros((6, 6))
    for _ in range(30):
        u[1:-1, 1:-1] = 0.25 * (
            u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] + f[1:-1, 1:-1]
        )
    return u[2, 3] + (u**2).mean()


def poisson_gauss_seidel(f):
    u = np.zeros_like(f)
    n = f.shape[0]
    for sweep in range(8):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                u[i, j] = (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] + f[i, j]) / 4
    return u[2, 3] + np.mean(u**2)


def poisson_sparse(f):
    n = 4
    lap = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(n, n))
    A = sp.kron(lap, sp.eye(n)) + sp.kron(sp.eye(n), lap)
    u = spsolve(A.tocsc(), f[1:-1, 1:-1].flatten())
    return u.max() + (u**2).mean()


# advection with a limiter


def minmod(a, b):
    return np.where(a * b > 0, np.where(np.abs(a) < np.abs(b), a, b), 0.0)


def advection_limiter(u0):
    u = u0
    for _ in range(5):
        slope = minmod(np.roll(u, -1) - u, u - np.roll(u, 1))
        flux = u + 0.5 * (1 - 0.4) * slope
        u = u - 0.4 * (flux - np.roll(flux, 1))
    return (u * np.arange(len(u))).sum()


def burgers_upwind(u0):
    u = u0.copy()
    dt, dx = 0.05, 0.25
    for n in range(8):
        un = u.copy()
        for i in range(1, len(u)):
            if un[i] > 0:
                u[i] = un[i] - dt / dx * un[i] * (un[i] - un[i - 1])
            elif i + 1 < len(u):
                u[i] = un[i] - dt / dx * un[i] * (un[i + 1] - un[i])
    return np.linalg.norm(u)


# reaction and diffusion


def gray_scott(p):
    F, k = p
    U = np.ones((8, 8))
    V = np.zeros((8, 8))
    U[3:5, 3:5] = 0.5
    V[3:5, 3:5] = 0.25

    def laplacian(Z):
        P = np.pad(Z, 1, mode="wrap")
        return P[:-2, 1:-1] + P[2:, 1:-1] + P[1:-1, :-2] + P[1:-1, 2:] - 4 * P[1:-1, 1:-1]

    for _ in range(6):
        uvv = U * V**2
        U += 0.16 * laplacian(U) - uvv + F * (1 - U)
        V += 0.08 * laplacian(V) + uvv - (F + k) * V
    return V.sum()


def fisher_crank_nicolson(p):
    n = 12
    u = np.exp(-(np.linspace(-3, 3, n) ** 2))
    L = np.diag(-2 * np.ones(n)) + np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1)
    A = np.eye(n) - 0.05 * p[0] * L
    B = np.eye(n) + 0.05 * p[0] * L
    for _ in range(5):
        u = np.linalg.solve(A, B.dot(u) + 0.1 * p[1] * u * (1 - u))
    return u.sum()


# deconvolution by FFT

BLUR = np.exp(-0.5 * (np.arange(16) - 8.0) ** 2)
BLUR /= BLUR.sum()


def deconvolution_fft(x):
    blurred = np.real(np.fft.ifft(np.fft.fft(x) * np.fft.fft(np.fft.ifftshift(BLUR))))
    return np.sum((blurred - SIGNAL) ** 2) + 0.01 * np.sum(np.abs(np.diff(x)))


def deconvolution_rfft(x):
    X = np.fft.rfft(x)
    H = np.fft.rfft(np.fft.ifftshift(BLUR))
    power = np.abs(X * H) ** 2
    phase = np.angle(X[1])
    return power.mean() + 0.1 * phase


def deconvolution_signal(x):
    blurred = signal.fftconvolve(x, BLUR, mode="same")
    residual = blurred - SIGNAL
    return residual @ residual


# wiener filter with a cosine transform


def cosine_shrink(x):
    c = dct(x, norm="ortho")
    c[np.abs(c) < 0.3] = 0
    return np.sum((idct(c, norm="ortho") - TARGET) ** 2)


# image filters


def blur_ndimage(img):
    smooth = ndimage.gaussian_filter(img, sigma=1.2)
    edges = np.hypot(ndimage.sobel(smooth, axis=0), ndimage.sobel(smooth, axis=1) + 1e-3)
    return edges.mean()


def blur_loops(img):
    out = np.zeros_like(img)
    h, w = img.shape
    kernel = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16
    for i in range(1, h - 1):
        for j in range(1, w - 1):
            out[i, j] = np.sum(img[i - 1 : i + 2, j - 1 : j + 2] * kernel)
    return (out**2).sum()


def total_variation(img):
    dx = img[:, 1:] - img[:, :-1]
    dy = img[1:, :] - img[:-1, :]
    return np.sqrt(dx[:-1] ** 2 + dy[:, :-1] ** 2 + 1e-6).sum() + ((img - IMAGE) ** 2).sum()


# registration of images


def register_shift(shift):
    moved = ndimage.shift(IMAGE, shift, order=3, mode="nearest")
    return np.mean((moved - IMAGE.T) ** 2)


def register_bilinear(shift):
    total = 0.0
    for i in range(1, 6):
        for j in range(1, 6):
            x, y = i + shift[0], j + shift[1]
            i0, j0 = int(np.floor(x)), int(np.floor(y))
            fx, fy = x - i0, y - j0
            value = (
                IMAGE[i0, j0] * (1 - fx) * (1 - fy)
                + IMAGE[i0 + 1, j0] * fx * (1 - fy)
                + IMAGE[i0, j0 + 1] * (1 - fx) * fy
                + IMAGE[i0 + 1, j0 + 1] * fx * fy
            )
            total += (value - IMAGE[j, i]) ** 2
    return total


# filters of signals


def filter_lfilter(p):
    b = [p[0], p[1]]
    a = [1.0, p[2]]
    y = signal.lfilter(b, a, SIGNAL)
    return np.mean((y - TARGET) ** 2)


def filter_recursion(p):
    y = np.zeros(len(SIGNAL))
    y[0] = p[0] * SIGNAL[0]
    for n in range(1, len(SIGNAL)):
        y[n] = p[0] * SIGNAL[n] + p[1] * SIGNAL[n - 1] - p[2] * y[n - 1]
    return np.mean((y - TARGET) ** 2)


def filter_convolve(taps):
    return np.sum(np.convolve(SIGNAL, taps, "valid") ** 2) + np.correlate(SIGNAL, taps)[0]


# interpolation and splines


def interpolate_numpy(values):
    fine = np.interp(np.linspace(0, 15, 40), np.arange(16), values)
    return np.sum(fine**2)


def interpolate_spline(values):
    spline = CubicSpline(np.arange(16), values)
    x = np.linspace(0, 15, 31)
    return np.sum(spline(x) ** 2) + spline(3.3, 1)


def interpolate_interp1d(values):
    f = interp1d(np.arange(16), values, kind="linear")
    return f([0.5, 3.25, 7.9]).sum() ** 2


U0 = TARGET + 0.1 * SIGNAL
PROGRAMS = {
    "inverse heat": [(heat_in_place, (U0,)), (heat_history, (U0,)), (heat_loops, (U0,))],
    "wave equation": [(wave_three_arrays, (0.5,)), (wave_roll, (0.5,))],
    "Poisson equation": [
        (poisson_jacobi, (rng.random((6, 6)),)),
        (poisson_gauss_seidel, (rng.random((6, 6)),)),
        (poisson_sparse, (rng.random((6, 6)),)),
    ],
    "advection": [(advection_limiter, (U0,)), (burgers_upwind, (U0,))],
    "reaction and diffusion": [
        (gray_scott, (np.array([0.035, 0.06]),)),
        (fisher_crank_nicolson, (np.array([0.4, 0.8]),)),
    ],
    "deconvolution": [
        (deconvolution_fft, (U0,)),
        (deconvolution_rfft, (U0,)),
        (deconvolution_signal, (U0,)),
    ],
    "cosine transform": [(cosine_shrink, (U0,))],
    "image filters": [
        (blur_ndimage, (IMAGE,)),
        (blur_loops, (IMAGE,)),
        (total_variation, (IMAGE + 0.1,)),
    ],
    "image registration": [
        (register_shift, (np.array([0.3, -0.4]),)),
        (register_bilinear, (np.array([0.3, -0.4]),)),
    ],
    "signal filters": [
        (filter_lfilter, (np.array([0.5, 0.2, -0.3]),)),
        (filter_recursion, (np.array([0.5, 0.2, -0.3]),)),
        (filter_convolve, (np.array([0.5, 0.2, -0.3]),)),
    ],
    "splines": [
        (interpolate_numpy, (U0,)),
        (interpolate_spline, (U0,)),
        (interpolate_interp1d, (U0,)),
    ],
}
