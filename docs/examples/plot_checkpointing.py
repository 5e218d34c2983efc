"""
Checkpoints: memory against time for the gradient of a wave
===========================================================

A wave travels through a medium for 100 time steps, and a receiver records it. The gradient of the
recording with respect to the wave speed needs all states in reverse order, so they must be stored
or computed again. `adarray.checkpointed_loop` stores as many states as you allow, and runs the
fewest steps that are possible with them.
"""

import time
import tracemalloc

import matplotlib.pyplot as plt
import numpy as np

import adarray

STEPS, SIZE = 100, 80
SPEED = 0.2 + 0.05 * np.sin(np.arange(SIZE) / 7.0)[:, None] * np.ones(SIZE)
START = np.exp(-((np.arange(SIZE)[:, None] - 30) ** 2 + (np.arange(SIZE) - 40) ** 2) / 30.0)


def record(speed, **how):
    """Return the mean power of the wave at the receiver."""

    def step(state):
        before, now = state
        bend = np.roll(now, 1, 0) + np.roll(now, -1, 0) + np.roll(now, 1, 1) + np.roll(now, -1, 1)
        after = 2.0 * now - before + speed * (bend - 4.0 * now)
        return (now, after), after[60, 40]

    _, heard = adarray.checkpointed_loop(step, (START, START), STEPS, has_aux=True, **how)
    return sum(x**2 for x in heard) / STEPS


def measured(**how):
    """Return the gradient, its memory in units of a state, and its time in seconds."""
    gradient = adarray.grad(lambda speed: record(speed, **how))
    start = time.perf_counter()
    value = gradient(SPEED)
    seconds = time.perf_counter() - start
    tracemalloc.start()
    gradient(SPEED)
    memory = tracemalloc.get_traced_memory()[1] / (2 * START.nbytes)
    tracemalloc.stop()
    return value, memory, seconds


# %%
# From four snapshots to one for every step, for three schedules, and with most of the snapshots on
# disk. All gradients agree.
numbers = [4, 10, 25, 50, 100]
studies = {
    "binomial": [measured(snapshots=k) for k in numbers],
    "mixed": [measured(snapshots=k, schedule="mixed") for k in numbers[:3]],
    "periodic": [measured(snapshots=k, schedule="periodic") for k in numbers[:4]],
    "three in memory, others on disk": [measured(snapshots=3, disk=k) for k in (7, 22)],
}
reference = studies["binomial"][-1][0]
for runs in studies.values():
    for gradient, _, _ in runs:
        np.testing.assert_allclose(gradient, reference, rtol=1e-8, atol=1e-12)

# %%
# The number of steps that the binomial schedule runs has a closed form: with ten snapshots for a
# hundred steps, it runs about three times as many steps.
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8))
for (name, runs), mark in zip(studies.items(), "os^d", strict=True):
    x = numbers[: len(runs)] if "disk" not in name else numbers[1:3]
    left.loglog(x, [memory for _, memory, _ in runs], mark + "-", label=name)
    right.loglog([memory for _, memory, _ in runs], [1e3 * s for _, _, s in runs], mark, label=name)
left.set(xlabel="snapshots", ylabel="memory of the gradient, in states", title="Memory")
right.set(xlabel="memory of the gradient, in states", ylabel="time, ms", title="Time")
left.legend(fontsize=8, loc="upper left")
figure.tight_layout()
plt.show()
