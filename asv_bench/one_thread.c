/* Adjoints of loops, written by hand: what `asv_bench.one_thread` compares with.
 *
 * Of an argument `x`, `xb` is the cotangent; results are computed in place first.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
typedef int64_t I;
typedef double R;
#define RS restrict

void seidel(R *RS Ab, I n, I steps) {
    for (I t = 0; t < steps; t++)
        for (I i = n - 2; i >= 1; i--)
            for (I j = n - 2; j >= 1; j--) {
                R g = Ab[i * n + j] / 9;
                Ab[i * n + j] = g;
                Ab[(i - 1) * n + j - 1] += g;
                Ab[(i - 1) * n + j] += g;
                Ab[(i - 1) * n + j + 1] += g;
                Ab[i * n + j - 1] += g;
                Ab[i * n + j + 1] += g;
                Ab[(i + 1) * n + j - 1] += g;
                Ab[(i + 1) * n + j] += g;
                Ab[(i + 1) * n + j + 1] += g;
            }
}
static void lu_p(R *RS A, I n) {
    for (I i = 0; i < n; i++) {
        for (I j = 0; j < i; j++) {
            R s = 0;
            for (I q = 0; q < j; q++)
                s += A[i * n + q] * A[q * n + j];
            A[i * n + j] = (A[i * n + j] - s) / A[j * n + j];
        }
        for (I j = i; j < n; j++) {
            R s = 0;
            for (I q = 0; q < i; q++)
                s += A[i * n + q] * A[q * n + j];
            A[i * n + j] -= s;
        }
    }
}
void lu(R *RS A, R *RS Ab, I n) {
    lu_p(A, n);
    for (I i = n - 1; i >= 0; i--) {
        for (I j = n - 1; j >= i; j--) {
            R g = Ab[i * n + j];
            for (I q = 0; q < i; q++) {
                Ab[i * n + q] -= g * A[q * n + j];
                Ab[q * n + j] -= g * A[i * n + q];
            }
        }
        for (I j = i - 1; j >= 0; j--) {
            R g = Ab[i * n + j] / A[j * n + j];
            Ab[j * n + j] -= g * A[i * n + j];
            Ab[i * n + j] = g;
            for (I q = 0; q < j; q++) {
                Ab[i * n + q] -= g * A[q * n + j];
                Ab[q * n + j] -= g * A[i * n + q];
            }
        }
    }
}
void elimination(R *RS A, R *RS Ab, I n) {
    for (I q = 0; q < n; q++)
        for (I i = q + 1; i < n; i++) {
            A[i * n + q] /= A[q * n + q];
            R l = A[i * n + q];
            for (I j = q + 1; j < n; j++)
                A[i * n + j] -= l * A[q * n + j];
        }
    for (I q = n - 1; q >= 0; q--)
        for (I i = n - 1; i > q; i--) {
            R s = 0, l = A[i * n + q];
            for (I j = q + 1; j < n; j++) {
                R g = Ab[i * n + j];
                s -= g * A[q * n + j];
                Ab[q * n + j] -= g * l;
            }
            R g = (Ab[i * n + q] + s) / A[q * n + q];
            Ab[q * n + q] -= g * l;
            Ab[i * n + q] = g;
        }
}
void trisolv(const R *RS L, const R *RS b, R *RS x, R *RS Lb, R *RS bb, R *RS xb, I n) {
    for (I i = 0; i < n; i++) {
        R s = b[i];
        for (I j = 0; j < i; j++)
            s -= L[i * n + j] * x[j];
        x[i] = s / L[i * n + i];
    }
    for (I i = n - 1; i >= 0; i--) {
        R g = xb[i] / L[i * n + i];
        xb[i] = 0;
        Lb[i * n + i] -= g * x[i];
        bb[i] += g;
        for (I j = 0; j < i; j++) {
            Lb[i * n + j] -= g * x[j];
            xb[j] -= g * L[i * n + j];
        }
    }
}
void cholesky(R *RS A, R *RS Ab, I n) {
    for (I i = 0; i < n; i++) {
        for (I j = 0; j < i; j++) {
            R s = 0;
            for (I q = 0; q < j; q++)
                s += A[i * n + q] * A[j * n + q];
            A[i * n + j] = (A[i * n + j] - s) / A[j * n + j];
        }
        R s = 0;
        for (I q = 0; q < i; q++)
            s += A[i * n + q] * A[i * n + q];
        A[i * n + i] = sqrt(A[i * n + i] - s);
    }
    for (I i = n - 1; i >= 0; i--) {
        R g = Ab[i * n + i] * 0.5 / A[i * n + i];
        Ab[i * n + i] = g;
        for (I q = 0; q < i; q++)
            Ab[i * n + q] -= 2 * g * A[i * n + q];
        for (I j = i - 1; j >= 0; j--) {
            R g = Ab[i * n + j] / A[j * n + j];
            Ab[j * n + j] -= g * A[i * n + j];
            Ab[i * n + j] = g;
            for (I q = 0; q < j; q++) {
                Ab[i * n + q] -= g * A[j * n + q];
                Ab[j * n + q] -= g * A[i * n + q];
            }
        }
    }
}
void floyd_warshall(R *RS d, R *RS db, I n) {
    R *T = malloc(8 * n * n * n), *t = T;
    for (I q = 0; q < n; q++)
        for (I i = 0; i < n; i++)
            for (I j = 0; j < n; j++) {
                *t++ = d[i * n + j];
                d[i * n + j] = fmin(d[i * n + j], d[i * n + q] + d[q * n + j]);
            }
    for (I q = n - 1; q >= 0; q--)
        for (I i = n - 1; i >= 0; i--)
            for (I j = n - 1; j >= 0; j--) {
                R a = d[i * n + j] = *--t, b = d[i * n + q] + d[q * n + j];
                R g = db[i * n + j];
                R w = a < b ? 1 : a == b ? 0.5 : 0;
                db[i * n + j] = w * g;
                db[i * n + q] += (1 - w) * g;
                db[q * n + j] += (1 - w) * g;
            }
    free(T);
}
void heat(R *RS Ab, R *RS Bb, I n, I steps) {
    for (I t = 0; t < steps; t++)
        for (int h = 0; h < 2; h++) {
            R *RS X = h ? Bb : Ab, *RS Y = h ? Ab : Bb;
            for (I i = n - 2; i >= 1; i--)
                for (I j = n - 2; j >= 1; j--) {
                    R g = 0.2 * X[i * n + j];
                    X[i * n + j] = 0;
                    Y[i * n + j] += g;
                    Y[i * n + j - 1] += g;
                    Y[i * n + j + 1] += g;
                    Y[(i - 1) * n + j] += g;
                    Y[(i + 1) * n + j] += g;
                }
        }
}
void matmul_in_place(const R *RS A, const R *RS B, R *RS Ab, R *RS Bb, const R *RS Cb, I n) {
    for (I i = 0; i < n; i++)
        for (I q = 0; q < n; q++) {
            R s = 0, a = A[i * n + q];
            for (I j = 0; j < n; j++) {
                R g = Cb[i * n + j];
                s += g * B[q * n + j];
                Bb[q * n + j] += g * a;
            }
            Ab[i * n + q] += s;
        }
}
void in_place_map(R *RS x, const R *RS c, R *RS xb, R *RS cb, I n, I steps) {
    R *T = malloc(8 * n * steps);
    for (I t = 0; t < steps; t++)
        for (I i = 0; i < n; i++) {
            T[t * n + i] = x[i];
            x[i] = x[i] * (c[i] - x[i]);
        }
    for (I t = steps - 1; t >= 0; t--)
        for (I i = 0; i < n; i++) {
            R v = T[t * n + i], g = xb[i];
            xb[i] = g * (c[i] - 2 * v);
            cb[i] += g * v;
        }
    free(T);
}
void scan(const R *RS x, R *RS xb, R *RS yb, R c, R *RS cb, I n) {
    R *T = malloc(8 * n);
    R s = 0, tc = 0;
    for (I i = 0; i < n; i++) {
        T[i] = s;
        s = c * s + x[i] * x[i];
    }
    R sb = 0;
    for (I i = n - 1; i >= 0; i--) {
        R s1 = c * T[i] + x[i] * x[i], y = tanh(s1);
        sb += yb[i] * (1 - y * y);
        yb[i] = 0;
        tc += sb * T[i];
        xb[i] += sb * 2 * x[i];
        sb *= c;
    }
    *cb += tc;
    free(T);
}
void recurrence(const R *RS x, R *RS y, R *RS xb, R *RS yb, I n) {
    y[0] = x[0];
    for (I i = 1; i < n; i++)
        y[i] = exp(-y[i - 1]) * x[i];
    for (I i = n - 1; i >= 1; i--) {
        R g = yb[i], e = exp(-y[i - 1]);
        yb[i] = 0;
        xb[i] += g * e;
        yb[i - 1] -= g * y[i];
    }
    xb[0] += yb[0];
    yb[0] = 0;
}
void logistic(R *RS x, R r, R *RS xb, R *RS rb, I n) {
    R *T = malloc(8 * n);
    R s = x[0], tr = 0;
    for (I i = 0; i < n; i++) {
        T[i] = s;
        s = r * s * (1 - s);
    }
    R g = xb[0];
    for (I i = n - 1; i >= 0; i--) {
        R s = T[i];
        tr += g * s * (1 - s);
        g = g * r * (1 - 2 * s);
    }
    xb[0] = g;
    *rb += tr;
    free(T);
}
void burgers(R *RS u, R *RS v, R *RS ub, R *RS vb, I n, I steps) {
    R *T = malloc(8 * n * steps);
    for (I t = 0; t < steps; t++) {
        for (I i = 1; i < n - 1; i++)
            v[i] = u[i] - 0.1 * u[i] * (u[i] - u[i - 1]) + 0.05 * (u[i + 1] - 2 * u[i] + u[i - 1]);
        memcpy(T + t * n, u, 8 * n);
        for (I i = 1; i < n - 1; i++)
            u[i] = v[i];
    }
    for (I t = steps - 1; t >= 0; t--) {
        memcpy(u, T + t * n, 8 * n);
        for (I i = 1; i < n - 1; i++) {
            vb[i] += ub[i];
            ub[i] = 0;
        }
        for (I i = n - 2; i >= 1; i--) {
            R g = vb[i];
            vb[i] = 0;
            ub[i] += g * (1 - 0.1 * (2 * u[i] - u[i - 1]) - 0.1);
            ub[i - 1] += g * (0.1 * u[i] + 0.05);
            ub[i + 1] += 0.05 * g;
        }
    }
    free(T);
}
void nbody(R *RS x, R *RS v, const R *RS m, R *RS xb, R *RS vb, R *RS mb, I n, I steps) {
    R *T = malloc(16 * n * steps);
    for (I t = 0; t < steps; t++) {
        for (I i = 0; i < n; i++) {
            R ax = 0, ay = 0;
            for (I j = 0; j < n; j++) {
                R dx = x[2 * j] - x[2 * i], dy = x[2 * j + 1] - x[2 * i + 1],
                  d = dx * dx + dy * dy + 0.1, w = m[j] / (d * sqrt(d));
                ax += w * dx;
                ay += w * dy;
            }
            v[2 * i] += 0.01 * ax;
            v[2 * i + 1] += 0.01 * ay;
        }
        memcpy(T + 2 * n * t, x, 16 * n);
        for (I i = 0; i < 2 * n; i++)
            x[i] += 0.01 * v[i];
    }
    for (I t = steps - 1; t >= 0; t--) {
        memcpy(x, T + 2 * n * t, 16 * n);
        for (I i = 0; i < 2 * n; i++)
            vb[i] += 0.01 * xb[i];
        for (I i = n - 1; i >= 0; i--) {
            R gx = 0.01 * vb[2 * i], gy = 0.01 * vb[2 * i + 1], sx = 0, sy = 0;
            for (I j = 0; j < n; j++) {
                R dx = x[2 * j] - x[2 * i], dy = x[2 * j + 1] - x[2 * i + 1],
                  d = dx * dx + dy * dy + 0.1, i3 = 1 / (d * sqrt(d)), w = m[j] * i3;
                R wb = gx * dx + gy * dy;
                mb[j] += wb * i3;
                R db = -1.5 * wb * w / d;
                R dxb = gx * w + db * 2 * dx, dyb = gy * w + db * 2 * dy;
                xb[2 * j] += dxb;
                xb[2 * j + 1] += dyb;
                sx += dxb;
                sy += dyb;
            }
            xb[2 * i] -= sx;
            xb[2 * i + 1] -= sy;
        }
    }
    free(T);
}
