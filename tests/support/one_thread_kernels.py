"""Loops of one thread as CUDA C, for tests of gradients where memory is overwritten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Pattern:
    """A kernel of one thread.

    Attributes
    ----------
    source : str
        With `REAL` in the place of the dtype; the kernel is named ``k``.
    args : callable
        Returns arguments for a size and a generator; arrays and numbers of float64.
    size : int
        Of tests, where all differences are taken.
    """

    source: str
    args: Callable[[int, np.random.Generator], list[Any]]
    size: int = 5


def _matrix(n: int, rng: np.random.Generator) -> Any:
    return np.eye(n) * (n + 2) + rng.uniform(0.1, 1.0, (n, n))


def _definite(n: int, rng: np.random.Generator) -> Any:
    a = rng.uniform(0.1, 1.0, (n, n))
    return a @ a.T + n * np.eye(n)


PATTERNS: dict[str, Pattern] = {
    "seidel": Pattern("""
__global__ void k(REAL *A, long long n, long long steps) {
  for (long long t = 0; t < steps; t++)
    for (long long i = 1; i < n - 1; i++)
      for (long long j = 1; j < n - 1; j++)
        A[i*n+j] = (A[(i-1)*n+j-1] + A[(i-1)*n+j] + A[(i-1)*n+j+1] + A[i*n+j-1] + A[i*n+j]
          + A[i*n+j+1] + A[(i+1)*n+j-1] + A[(i+1)*n+j] + A[(i+1)*n+j+1]) / 9;
}""", lambda n, rng: [rng.normal(size=(n, n)), n, 3]),
    "lu": Pattern("""
__global__ void k(REAL *A, long long n) {
  for (long long i = 0; i < n; i++) {
    for (long long j = 0; j < i; j++) {
      REAL s = 0;
      for (long long q = 0; q < j; q++) s += A[i*n+q] * A[q*n+j];
      A[i*n+j] -= s;
      A[i*n+j] /= A[j*n+j];
    }
    for (long long j = i; j < n; j++) {
      REAL s = 0;
      for (long long q = 0; q < i; q++) s += A[i*n+q] * A[q*n+j];
      A[i*n+j] -= s;
    }
  }
}""", lambda n, rng: [_matrix(n, rng), n]),
    "lu_in_place": Pattern("""
__global__ void k(REAL *A, long long n) {
  for (long long i = 0; i < n; i++) {
    for (long long j = 0; j < i; j++) {
      for (long long q = 0; q < j; q++) A[i*n+j] -= A[i*n+q] * A[q*n+j];
      A[i*n+j] /= A[j*n+j];
    }
    for (long long j = i; j < n; j++)
      for (long long q = 0; q < i; q++) A[i*n+j] -= A[i*n+q] * A[q*n+j];
  }
}""", lambda n, rng: [_matrix(n, rng), n]),
    "elimination": Pattern("""
__global__ void k(REAL *A, long long n) {
  for (long long q = 0; q < n; q++)
    for (long long i = q + 1; i < n; i++) {
      A[i*n+q] /= A[q*n+q];
      for (long long j = q + 1; j < n; j++) A[i*n+j] -= A[i*n+q] * A[q*n+j];
    }
}""", lambda n, rng: [_matrix(n, rng), n]),
    "trisolv": Pattern("""
__global__ void k(const REAL *L, const REAL *b, REAL *x, long long n) {
  for (long long i = 0; i < n; i++) {
    REAL s = b[i];
    for (long long j = 0; j < i; j++) s -= L[i*n+j] * x[j];
    x[i] = s / L[i*n+i];
  }
}""", lambda n, rng: [_matrix(n, rng), rng.normal(size=n), np.zeros(n), n]),
    "cholesky": Pattern("""
__global__ void k(REAL *A, long long n) {
  for (long long i = 0; i < n; i++) {
    for (long long j = 0; j < i; j++) {
      REAL s = 0;
      for (long long q = 0; q < j; q++) s += A[i*n+q] * A[j*n+q];
      A[i*n+j] -= s;
      A[i*n+j] /= A[j*n+j];
    }
    REAL s = 0;
    for (long long q = 0; q < i; q++) s += A[i*n+q] * A[i*n+q];
    A[i*n+i] = sqrt(A[i*n+i] - s);
  }
}""", lambda n, rng: [_definite(n, rng), n]),
    "durbin": Pattern("""
__global__ void k(const REAL *r, REAL *y, REAL *z, long long n) {
  REAL alpha = -r[0], beta = 1;
  y[0] = -r[0];
  for (long long q = 1; q < n; q++) {
    beta *= 1 - alpha * alpha;
    REAL s = r[q];
    for (long long i = 0; i < q; i++) s += r[q-i-1] * y[i];
    alpha = -s / beta;
    for (long long i = 0; i < q; i++) z[i] = y[i] + alpha * y[q-i-1];
    for (long long i = 0; i < q; i++) y[i] = z[i];
    y[q] = alpha;
  }
}""", lambda n, rng: [rng.uniform(0.0, 0.3, n), np.zeros(n), np.zeros(n), n]),
    "floyd_warshall": Pattern("""
__global__ void k(REAL *d, long long n) {
  for (long long q = 0; q < n; q++)
    for (long long i = 0; i < n; i++)
      for (long long j = 0; j < n; j++)
        d[i*n+j] = fmin(d[i*n+j], d[i*n+q] + d[q*n+j]);
}""", lambda n, rng: [rng.uniform(1.0, 9.0, (n, n)), n]),
    "floyd_warshall_if": Pattern("""
__global__ void k(REAL *d, long long n) {
  for (long long q = 0; q < n; q++)
    for (long long i = 0; i < n; i++)
      for (long long j = 0; j < n; j++) {
        REAL by = d[i*n+q] + d[q*n+j];
        if (by < d[i*n+j]) d[i*n+j] = by;
      }
}""", lambda n, rng: [rng.uniform(1.0, 9.0, (n, n)), n]),
    "heat": Pattern("""
__global__ void k(REAL *A, REAL *B, long long n, long long steps) {
  for (long long t = 0; t < steps; t++) {
    for (long long i = 1; i < n - 1; i++)
      for (long long j = 1; j < n - 1; j++)
        B[i*n+j] = (REAL)0.2 * (A[i*n+j] + A[i*n+j-1] + A[i*n+j+1] + A[(i-1)*n+j] + A[(i+1)*n+j]);
    for (long long i = 1; i < n - 1; i++)
      for (long long j = 1; j < n - 1; j++)
        A[i*n+j] = (REAL)0.2 * (B[i*n+j] + B[i*n+j-1] + B[i*n+j+1] + B[(i-1)*n+j] + B[(i+1)*n+j]);
  }
}""", lambda n, rng: [rng.normal(size=(n, n)), rng.normal(size=(n, n)), n, 3]),
    "burgers": Pattern("""
__global__ void k(REAL *u, REAL *v, long long n, long long steps) {
  for (long long t = 0; t < steps; t++) {
    for (long long i = 1; i < n - 1; i++)
      v[i] = u[i] - (REAL)0.1 * u[i] * (u[i] - u[i-1]) + (REAL)0.05 * (u[i+1] - 2 * u[i] + u[i-1]);
    for (long long i = 1; i < n - 1; i++) u[i] = v[i];
  }
}""", lambda n, rng: [rng.uniform(0.5, 1.0, n), np.zeros(n), n, 3]),
    "nbody": Pattern("""
__global__ void k(REAL *x, REAL *v, const REAL *m, long long n, long long steps) {
  for (long long t = 0; t < steps; t++) {
    for (long long i = 0; i < n; i++) {
      REAL ax = 0, ay = 0;
      for (long long j = 0; j < n; j++) {
        REAL dx = x[2*j] - x[2*i], dy = x[2*j+1] - x[2*i+1];
        REAL d = dx * dx + dy * dy + (REAL)0.1;
        REAL w = m[j] / (d * sqrt(d));
        ax += w * dx; ay += w * dy;
      }
      v[2*i] += (REAL)0.01 * ax; v[2*i+1] += (REAL)0.01 * ay;
    }
    for (long long i = 0; i < 2 * n; i++) x[i] += (REAL)0.01 * v[i];
  }
}""", lambda n, rng: [rng.normal(size=2 * n), rng.normal(size=2 * n), rng.uniform(1, 2, n), n, 3]),
    "logistic": Pattern("""
__global__ void k(REAL *x, REAL r, long long n) {
  REAL s = x[0];
  for (long long i = 0; i < n; i++) s = r * s * (1 - s);
  x[0] = s;
}""", lambda n, rng: [rng.uniform(0.2, 0.8, 1), 3.2, n]),
    "scan": Pattern("""
__global__ void k(const REAL *x, REAL *y, REAL c, long long n) {
  REAL s = 0;
  for (long long i = 0; i < n; i++) { s = c * s + x[i] * x[i]; y[i] = tanh(s); }
}""", lambda n, rng: [rng.normal(size=n), np.zeros(n), 0.7, n]),
    "recurrence": Pattern("""
__global__ void k(const REAL *x, REAL *y, long long n) {
  y[0] = x[0];
  for (long long i = 1; i < n; i++) y[i] = exp(-y[i-1]) * x[i];
}""", lambda n, rng: [rng.normal(size=n), np.zeros(n), n]),
    "matmul": Pattern("""
__global__ void k(const REAL *A, const REAL *B, REAL *C, long long n) {
  for (long long i = 0; i < n; i++)
    for (long long j = 0; j < n; j++) {
      REAL s = 0;
      for (long long q = 0; q < n; q++) s += A[i*n+q] * B[q*n+j];
      C[i*n+j] = s;
    }
}""", lambda n, rng: [rng.normal(size=(n, n)), rng.normal(size=(n, n)), np.zeros((n, n)), n]),
    "matmul_in_place": Pattern("""
__global__ void k(const REAL *A, const REAL *B, REAL *C, long long n) {
  for (long long i = 0; i < n; i++)
    for (long long q = 0; q < n; q++)
      for (long long j = 0; j < n; j++) C[i*n+j] += A[i*n+q] * B[q*n+j];
}""", lambda n, rng: [rng.normal(size=(n, n)), rng.normal(size=(n, n)), np.zeros((n, n)), n]),
    "bilateral": Pattern("""
__global__ void k(const REAL *x, REAL *y, long long n) {
  for (long long i = 1; i < n - 1; i++)
    for (long long j = 1; j < n - 1; j++) {
      REAL s = 0, w = 0;
      for (long long a = -1; a <= 1; a++)
        for (long long b = -1; b <= 1; b++) {
          REAL d = x[(i+a)*n+j+b] - x[i*n+j];
          REAL e = exp(-(d * d) - (REAL)0.5 * (REAL)(a * a + b * b));
          s += e * x[(i+a)*n+j+b]; w += e;
        }
      y[i*n+j] = s / w;
    }
}""", lambda n, rng: [rng.normal(size=(n, n)), np.zeros((n, n)), n]),
    # What is hard to restore: values read before they are overwritten and used after it, conditions
    # on what is overwritten, indices that are overwritten, elements written twice.
    "used_after": Pattern("""
__global__ void k(REAL *x, REAL *y, long long n) {
  for (long long t = 0; t < 3; t++)
    for (long long i = 0; i < n; i++) {
      REAL a = x[i];
      x[i] = sin(y[i]);
      y[i] = a * a * x[i];
      x[i] = x[i] * y[i] * a;
    }
}""", lambda n, rng: [rng.normal(size=n), rng.normal(size=n), n]),
    "swap": Pattern("""
__global__ void k(REAL *x, long long n) {
  for (long long t = 0; t < 2; t++)
    for (long long i = 0; i + 1 < n; i++) {
      REAL a = x[i], b = x[i+1];
      if (a * a > b * b) { x[i] = b * b; x[i+1] = a * b; }
      else x[i] = a * a * a;
    }
}""", lambda n, rng: [rng.uniform(0.3, 1.2, n), n]),
    "branch_on_element": Pattern("""
__global__ void k(REAL *x, REAL *y, long long n) {
  for (long long t = 0; t < 3; t++)
    for (long long i = 1; i < n; i++) {
      if (x[i] > x[i-1]) { x[i] = x[i] * x[i-1]; y[i] += x[i] * x[i]; }
      else if (x[i] > (REAL)0.1) x[i-1] = sqrt(x[i]);
      y[i-1] *= x[i];
    }
}""", lambda n, rng: [rng.uniform(0.3, 1.2, n), rng.normal(size=n), n]),
    "moving_index": Pattern("""
__global__ void k(REAL *x, long long *p, REAL *y, long long n) {
  for (long long t = 0; t < 3; t++)
    for (long long i = 0; i < n; i++) {
      x[p[i]] = x[i] * x[p[i]] * y[p[i]];
      p[i] = (p[i] + 1) % n;
      y[i] *= x[p[i]];
    }
}""", lambda n, rng: [rng.normal(size=n), rng.permutation(n), rng.normal(size=n), n]),
    "until_small": Pattern("""
__global__ void k(REAL *x, long long n) {
  long long i = 0;
  while (x[i % n] > (REAL)0.05) {
    x[i % n] *= x[(i + 1) % n] * (REAL)0.9;
    i++;
  }
}""", lambda n, rng: [rng.uniform(0.5, 1.1, n), n]),
    "local_array": Pattern("""
__global__ void k(const REAL *x, REAL *y, long long n) {
  REAL f[4];
  for (int c = 0; c < 4; c++) f[c] = 1;
  for (long long i = 0; i < n; i++) {
    for (int c = 0; c < 4; c++) f[c] = f[c] * x[i] + sin(f[(c + 1) % 4]);
    y[i] = f[0] * f[1] * f[2] * f[3];
  }
}""", lambda n, rng: [rng.normal(size=n), np.zeros(n), n]),
    "last_of_a_loop": Pattern("""
__global__ void k(const REAL *x, REAL *y, long long n) {
  for (long long i = 0; i < n; i++)
    for (long long j = i + 1; j < 4 * n; j++) y[i] = sin(x[i+j]);
}""", lambda n, rng: [rng.normal(size=6 * n), rng.normal(size=n), n]),
    "barrier": Pattern("""
__global__ void k(REAL *x, REAL *y, long long n) {
  __shared__ REAL t[1];
  for (long long i = 0; i < n; i++) {
    t[0] = x[i] * x[i];
    __syncthreads();
    for (long long j = 0; j < n; j++) y[j] = sin(y[j]) * t[0];
    __syncthreads();
  }
}""", lambda n, rng: [rng.normal(size=n), rng.normal(size=n), n]),
    "in_place_map": Pattern("""
__global__ void k(REAL *x, const REAL *c, long long n, long long steps) {
  for (long long t = 0; t < steps; t++)
    for (long long i = 0; i < n; i++) x[i] = x[i] * (c[i] - x[i]);
}""", lambda n, rng: [rng.uniform(0.2, 0.8, n), rng.uniform(1.5, 2.5, n), n, 3]),
}  # fmt: skip
