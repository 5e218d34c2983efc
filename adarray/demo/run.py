"""The demo: every backend, one table, one picture."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import adarray
from adarray.base.errors import BackendError
from adarray.demo import data, report
from adarray.demo.train import TrainingRun, forward_seconds, gradient_seconds, train
from adarray.jitting import JitWarning

# The reference backends come first; others follow by name.
ORDER = ("numpy", "serial", "openmp")
# What times are shown for: sizes at which a product is too small for threads of NumPy's BLAS, whose
# times depend on what else the machine does.
HIDDEN = (8, 16, 32, 64)


@dataclass(frozen=True)
class DemoOptions:
    """The options of the command line.

    Attributes
    ----------
    backends : tuple of str
        Backends to run on; empty: all that are installed.
    epochs : int or None
        Passes over the data; None: what suits the data set.
    hidden : int
        Units in each of the two hidden layers.
    output : Path
        Folder that the picture is written into.
    seed : int
        Seed of the first weights and of the order of batches.
    """

    backends: tuple[str, ...] = ()
    epochs: int | None = None
    hidden: int = 64
    output: Path = Path()
    seed: int = 0


def demo(options: DemoOptions) -> int:
    """Run the demo and return the exit status.

    It is 0 if the network was trained on every backend that can work here, at
    least one; 1 if a gradient is wrong, a backend fails or none works; 2 if the data
    cannot be read.
    """
    try:
        digits = data.load()
    except data.DataError as error:
        print(error, file=sys.stderr)
        return 2
    epochs = digits.epochs if options.epochs is None else options.epochs
    sizes = f"{digits.x_train.shape[1]}-{options.hidden}-{options.hidden}-10"
    title = f"{digits.name}, network {sizes}"
    print(
        f"{digits.name}: {len(digits.y_train)} images to learn from, {len(digits.y_test)} to test\n"
        f"network {sizes}, float32, batches of {digits.batch}, {epochs} epochs, "
        f"from {Path(sys.modules['adarray.demo.network'].__file__ or '').name} (plain NumPy)"
    )
    for line in report.missing():
        print(line)
    runs, skipped, failed = _train_all(options, digits, epochs)
    for name, reason in skipped.items():
        print(f"\nskipped {name}: {reason}")
    for name, reason in failed.items():
        print(f"\nFAILED {name}: {reason}")
    if not runs:
        print(
            "demo: no backend to run on; `python -m adarray info` says why, and "
            "`pip install adarray` brings numpy, serial and openmp",
            file=sys.stderr,
        )
        return 1
    print(f"\n{report.table(runs, forward_seconds(digits, options.hidden))}\n")
    forward = {n: forward_seconds(digits, n) for n in HIDDEN}
    for run in runs:
        run.sizes = {n: gradient_seconds(run, digits, n) for n in HIDDEN}
    print("Networks of other sizes, in units of NumPy's forward\n")
    print(f"{report.sizes_table(runs, forward)}\n")
    for path in report.picture(runs, forward, title, options.output):
        print(f"wrote {path}")
    return 1 if failed else 0


def _train_all(
    options: DemoOptions, digits: data.Digits, epochs: int
) -> tuple[list[TrainingRun], dict[str, str], dict[str, str]]:
    """Return the runs, why other backends cannot work here, and why others failed."""
    names = options.backends or tuple(
        sorted(adarray.backends(), key=lambda n: (*(n != o for o in ORDER), n))
    )
    runs: list[TrainingRun] = []
    skipped: dict[str, str] = {}
    failed: dict[str, str] = {}
    # NumPy's backend has no compiler of its own.
    chosen = [(n, False) for n in names] + [(n, True) for n in names if n != "numpy"]
    for name, compiled in chosen:
        title = f"{name}, jit" if compiled else name
        if name in skipped or name in failed:
            continue
        try:
            run = train(
                name, digits, options.hidden, epochs, options.seed, report.progress, compiled
            )
        except (BackendError, JitWarning) as error:
            skipped[title] = str(error)
            continue
        except Exception as error:  # a wrong gradient too: the other backends are still shown
            failed[title] = f"{type(error).__name__}: {error}"
            continue
        runs.append(run)
        print(
            f"{title:>11}: gradient agrees with central differences to {run.gradient_error:.0e}, "
            f"loss {run.losses[0]:.3f} -> {run.losses[-1]:.4f}"
        )
    return runs, skipped, failed
