"""Ordinary differential equations and their parameters."""

import math
from functools import partial

import numpy as np
from scipy.integrate import odeint, quad, solve_ivp, trapezoid

T = np.linspace(0, 2, 9)
OBSERVED = np.array([1.0, 0.95, 0.8, 0.55, 0.2, -0.1, -0.4, -0.65, -0.85])


# pendulum


def rk4(f, y, t, dt):
    k1 = f(y, t)
    k2 = f(y + dt / 2 * k1, t + dt / 2)
    k3 = f(y + dt / 2 * k2, t + dt / 2)
    k4 = f(y + dt * k3, t + dt)
    return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def pendulum_rk4(params):
    g_over_l, damping = params

    def rhs(y, t):
        theta, omega = y
        return np.array([omega, -g_over_l * np.sin(theta) - damping * omega])

    y = np.array([1.0, 0.0])
    loss = 0.0
    for k in range(len(T) - 1):
        y = rk4(rhs, y, T[k], T[k + 1] - T[k])
        loss += (y[0] - OBSERVED[k + 1]) ** 2
    return loss


def pendulum_history(params):
    history = np.zeros((41, 2))
    history[0] = [1.0, 0.0]
    dt = 0.05
    for s in range(40):
        theta, omega = history[s]
        omega = omega - dt * (params[0] * math.sin(theta) + params[1] * omega)
        history[s + 1] = [theta + dt * omega, omega]
    return np.mean((history[::5, 0] - OBSERVED) ** 2)


def pendulum_solve_ivp(params):
    def rhs(t, y, a, b):
        return [y[1], -a * np.sin(y[0]) - b * y[1]]

    solution = solve_ivp(
        rhs, (0, 2), [1.0, 0.0], t_eval=T, args=tuple(params), rtol=1e-9, atol=1e-9
    )
    assert solution.success, solution.message
    return np.sum((solution.y[0] - OBSERVED) ** 2)


# predator and prey


def lotka_euler(p):
    x, y = 1.0, 0.5
    xs = [x]
    for _ in range(50):
        x, y = x + 0.02 * (p[0] * x - p[1] * x * y), y + 0.02 * (p[2] * x * y - p[3] * y)
        xs.append(x)
    return np.std(xs)


def lotka_odeint(p):
    def rhs(z, t):
        x, y = z
        return [p[0] * x - p[1] * x * y, p[2] * x * y - p[3] * y]

    z = odeint(rhs, [1.0, 0.5], T, rtol=1e-9, atol=1e-9)
    return ((z[:, 0] - OBSERVED) ** 2).mean()


def lotka_matrix(p):
    def rhs(t, z):
        x, y = z
        dz = np.zeros(2)
        dz[0] = p[0] * x - p[1] * x * y
        dz[1] = p[2] * x * y - p[3] * y
        return dz

    z = solve_ivp(rhs, [0, 2], np.array([1.0, 0.5]), method="RK45", rtol=1e-9, atol=1e-9).y
    return z[0, -1] * z[1, -1]


# epidemic


def epidemic_dict(params):
    state = {"S": 0.99, "I": 0.01, "R": 0.0}
    curve = []
    for day in range(40):
        infected = params["beta"] * state["S"] * state["I"] * 0.2
        recovered = params["gamma"] * state["I"] * 0.2
        state["S"] -= infected
        state["I"] += infected - recovered
        state["R"] += recovered
        curve.append(state["I"])
    return max(curve) + state["R"]


def epidemic_array(params):
    out = np.empty((41, 3))
    out[0] = 0.99, 0.01, 0.0
    for d in range(40):
        s, i, r = out[d]
        flow = np.array([-params["beta"] * s * i, params["beta"] * s * i - params["gamma"] * i, 0])
        flow[2] = params["gamma"] * i
        out[d + 1] = out[d] + 0.2 * flow
    return out[:, 1].max() + out[-1, 2]


# Lorenz system


def lorenz_step(state, dt, sigma, rho, beta):
    x, y, z = state
    return np.array(
        [
            x + dt * sigma * (y - x),
            y + dt * (x * (rho - z) - y),
            z + dt * (x * y - beta * z),
        ]
    )


def lorenz_partial(p):
    step = partial(lorenz_step, dt=0.01, sigma=p[0], rho=p[1], beta=p[2])
    state = np.ones(3)
    for _ in range(30):
        state = step(state)
    return np.linalg.norm(state)


def lorenz_trajectory(p):
    trajectory = [np.array([1.0, 1.0, 1.0])]
    for _ in range(30):
        trajectory.append(lorenz_step(trajectory[-1], 0.01, *p))
    return np.vstack(trajectory)[:, 2].mean()


# chemical reaction


def reaction_implicit(k):
    A = np.array([[-k[0], k[1], 0], [k[0], -k[1] - k[2], 0], [0, k[2], 0]])
    c = np.array([1.0, 0, 0])
    for _ in range(20):
        c = np.linalg.solve(np.eye(3) - 0.1 * A, c)
    return c[2]


def reaction_expm(k):
    from scipy.linalg import expm

    A = np.zeros((3, 3))
    A[0, 0] = -k[0]
    A[0, 1] = k[1]
    A[1, 0] = k[0]
    A[1, 1] = -k[1] - k[2]
    A[2, 1] = k[2]
    return expm(2.0 * A).dot([1.0, 0, 0])[2]


# orbits


def two_body_leapfrog(v0):
    r, v = np.array([1.0, 0.0]), np.array([0.0, v0])
    for _ in range(100):
        v = v - 0.01 * r / np.linalg.norm(r) ** 3
        r = r + 0.01 * v
    return r[0] ** 2 + r[1]


def n_body_loops(masses):
    pos = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.5]])
    vel = np.array([[0.0, 0.0], [0.0, 1.0], [-0.8, 0.0]])
    n = len(masses)
    for _ in range(10):
        acc = np.zeros_like(pos)
        for i in range(n):
            for j in range(n):
                if i != j:
                    d = pos[j] - pos[i]
                    acc[i] += masses[j] * d / (np.sum(d**2) + 0.01) ** 1.5
        vel += 0.05 * acc
        pos += 0.05 * vel
    return 0.5 * np.sum(masses[:, np.newaxis] * vel**2)


def n_body_broadcast(masses):
    pos = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.5]])
    vel = np.array([[0.0, 0.0], [0.0, 1.0], [-0.8, 0.0]])
    for _ in range(10):
        d = pos[None, :, :] - pos[:, None, :]
        r2 = (d**2).sum(-1) + 0.01
        np.fill_diagonal(r2, 1.0)
        acc = (masses[None, :, None] * d / r2[..., None] ** 1.5).sum(axis=1)
        vel = vel + 0.05 * acc
        pos = pos + 0.05 * vel
    return pos.ravel() @ np.arange(6.0)


# projectile: how far, until it lands


def projectile_while(angle):
    x, y, vx, vy = 0.0, 0.0, 10 * math.cos(angle), 10 * math.sin(angle)
    while True:
        speed = math.sqrt(vx**2 + vy**2)
        ax, ay = -0.02 * speed * vx, -9.81 - 0.02 * speed * vy
        xn, yn = x + 0.01 * vx, y + 0.01 * vy
        if yn < 0:
            break
        x, y, vx, vy = xn, yn, vx + 0.01 * ax, vy + 0.01 * ay
    return x + (xn - x) * y / (y - yn)


def projectile_lists(angle):
    xs, ys = [0.0], [0.0]
    v = np.array([np.cos(angle), np.sin(angle)]) * 10
    while ys[-1] >= 0:
        v = v + 0.01 * (np.array([0, -9.81]) - 0.02 * np.hypot(*v) * v)
        xs.append(xs[-1] + 0.01 * v[0])
        ys.append(ys[-1] + 0.01 * v[1])
    return np.interp(0.0, [-ys[-2], -ys[-1]], [xs[-2], xs[-1]])


# work along a path


def work_quad(a):
    value, error = quad(lambda x: math.exp(-a * x * x) * math.cos(x), 0, 2)
    if error > 1e-3:
        raise RuntimeError("did not converge")
    return value


def work_trapezoid(a):
    x = np.linspace(0, 2, 101)
    return trapezoid(np.exp(-a * x * x) * np.cos(x), x)


def work_simpson(a, n=20):
    h = 2 / n
    f = lambda x: math.exp(-a * x * x) * math.cos(x)
    s = f(0) + f(2)
    s += 4 * sum(f(h * k) for k in range(1, n, 2))
    s += 2 * sum(f(h * k) for k in range(2, n, 2))
    return s * h / 3


P = np.array([1.1, 0.7, 0.6, 0.9])
PROGRAMS = {
    "pendulum fit": [
        (pendulum_rk4, (np.array([2.0, 0.1]),)),
        (pendulum_history, (np.array([2.0, 0.1]),)),
        (pendulum_solve_ivp, (np.array([2.0, 0.1]),)),
    ],
    "predator and prey": [(lotka_euler, (P,)), (lotka_odeint, (P,)), (lotka_matrix, (P,))],
    "epidemic": [
        (epidemic_dict, ({"beta": 1.6, "gamma": 0.4},)),
        (epidemic_array, ({"beta": 1.6, "gamma": 0.4},)),
    ],
    "Lorenz system": [
        (lorenz_partial, (np.array([10.0, 28.0, 2.7]),)),
        (lorenz_trajectory, (np.array([10.0, 28.0, 2.7]),)),
    ],
    "chemical reaction": [
        (reaction_implicit, (np.array([0.8, 0.3, 0.5]),)),
        (reaction_expm, (np.array([0.8, 0.3, 0.5]),)),
    ],
    "orbit": [(two_body_leapfrog, (1.1,))],
    "N-body": [
        (n_body_loops, (np.array([1.0, 0.3, 0.2]),)),
        (n_body_broadcast, (np.array([1.0, 0.3, 0.2]),)),
    ],
    "projectile": [(projectile_while, (0.7,)), (projectile_lists, (0.7,))],
    "quadrature": [(work_quad, (0.6,)), (work_trapezoid, (0.6,)), (work_simpson, (0.6,))],
}
