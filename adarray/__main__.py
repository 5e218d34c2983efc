"""``python -m adarray info``, ``cache``, ``demo`` and ``bench``."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import adarray
from adarray.backend import load, new_engine, unreadable
from adarray.base.errors import BackendError
from adarray.base.runtime import CachingBackend
from adarray.bench import BenchOptions, bench
from adarray.bench.studies import OPERATORS
from adarray.bench.sweep import SIZES, STUDIES, THREADS, WIDTHS
from adarray.demo import DemoOptions, demo

PACKAGES = ("numpy", "cffi", "optree", "opt-einsum", "scipy-openblas32")
COMPILERS = ("cc", "gcc", "clang")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# What vector code is chosen by, of the many names that a CPU reports.
SIMD = ("SSE2", "SSE42", "AVX", "FMA3", "AVX2", "AVX512F", "AVX512_SKX", "ASIMD", "SVE", "VSX")


def _packages() -> Iterator[str]:
    yield f"adarray {adarray.__version__} in {Path(adarray.__file__).parent}"
    yield f"Python {platform.python_version()} ({platform.platform()})"
    for name in PACKAGES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"{name}: not installed"


def _backends() -> Iterator[str]:
    for name in adarray.backends():
        try:
            backend = load(name)
            new_engine(name, {})
            facts = {k: v for k, v in backend.info().items() if k != "status"}
        except BackendError as error:
            yield f"{name}: not available: {error}"
            continue
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin's mistake must not hide the others
            yield f"{name}: broken: {type(error).__name__}: {error}"
            continue
        rest = ", ".join(f"{k}: {v}" for k, v in facts.items())
        yield f"{name}: available" + (f" ({rest})" if rest else "")
    yield from unreadable()
    if not adarray.backends():
        yield "none is installed: pip install adarray puts numpy, serial and openmp in place"


def _compilers() -> Iterator[str]:
    names = [os.environ["CC"].split()[0]] if os.environ.get("CC", "").strip() else []
    paths = {name: path for name in [*names, *COMPILERS] if (path := shutil.which(name))}
    for name, path in paths.items():
        try:
            told = subprocess.run(
                [path, "--version"], capture_output=True, text=True, timeout=10, check=False
            )
            first = next(iter(told.stdout.splitlines()), f"exit status {told.returncode}")
        except (OSError, subprocess.TimeoutExpired) as error:
            first = f"cannot be run ({error})"
        yield f"{name}: {first} ({path})"
    if not paths:
        yield (
            "none on PATH (tried $CC, cc, gcc, clang): install one, then install adarray again "
            "to build the compiled backends"
        )


def _threads() -> Iterator[str]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield f"usable by this process: {usable} (the machine has {os.cpu_count()})"
    for name in THREAD_VARIABLES:
        if name in os.environ:
            yield f"{name}={os.environ[name]}"


def _simd() -> Iterator[str]:
    yield f"{platform.machine()}: {_cpu_model()}"
    with contextlib.suppress(ImportError, AttributeError):
        # numpy.show_runtime prints this table; it has no public name.
        features = import_module("numpy._core._multiarray_umath").__cpu_features__
        yield ", ".join(n for n in SIMD if features.get(n)) or "no vector extension known here"


def _cpu_model() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown model"


def _cache(clear: bool = False) -> Iterator[str]:
    """Yield what the backends say of the kernels that they keep on disk, or have emptied."""
    told: dict[tuple[str, ...], list[str]] = {}  # lines: backends, which may share a cache
    reports: dict[str, Callable[..., Iterable[str]]] = {}
    for name in adarray.backends():
        try:
            backend = load(name)
            if isinstance(backend, CachingBackend):
                lines = tuple(map(str, backend.cache()))
                reports[name] = backend.cache
                told.setdefault(lines or ("nothing is kept",), []).append(name)
        except BackendError:  # the section on backends tells why
            continue
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            yield f"{name}: its cache cannot be asked for: {type(error).__name__}: {error}"
    for lines, names in told.items():
        first, *rest = reports[names[0]](clear=True) if clear else lines
        yield f"{', '.join(names)}: {first}"
        yield from (f"  {line}" for line in rest)
    if not told:
        yield "no backend that keeps kernels is installed"


SECTIONS: dict[str, Callable[[], Iterator[str]]] = {
    "versions": _packages,
    "backends": _backends,
    "compilers": _compilers,
    "threads": _threads,
    "simd": _simd,
    "cache": _cache,
}


def info() -> int:
    """Print what adarray found on this machine; return the exit status 0."""
    for title, lines in SECTIONS.items():
        print(title)
        for line in lines():
            print(f"  {line}")
    return 0


def cache(clear: bool) -> int:
    """Print the state of the cache of compiled kernels, or empty it; return 0."""
    for line in _cache(clear):
        print(line)
    return 0


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(_positive(part) for part in text.split(","))


def _blocks(text: str) -> tuple[int, ...]:
    numbers = _numbers(text)
    for number in numbers:
        if number % 32 or number > 1024:
            raise argparse.ArgumentTypeError(f"{number} is not a multiple of 32 up to 1024")
    return numbers


def _folder(text: str) -> Path:
    """Return a folder that results can be written to; it is made now, not after the work."""
    folder = Path(text)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or error
        raise argparse.ArgumentTypeError(f"{text!r} cannot be made a folder: {why}") from error
    if not os.access(folder, os.W_OK):
        raise argparse.ArgumentTypeError(f"the folder {text!r} cannot be written to")
    return folder


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def _operators(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in OPERATORS:
            raise argparse.ArgumentTypeError(
                f"{name!r} is no operation to measure; there are {', '.join(OPERATORS)}"
            )
    return names


def _add_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``bench``."""
    command = commands.add_parser(
        "bench",
        help="measure operations and a network on every backend, write tables and pictures",
        description=(
            "Measure fifteen operations on square matrices, forward and backward, and steps of a "
            "three-layer network, on the backends serial, openmp and cuda, as far as they work "
            "here, beside NumPy by itself. On a GPU, the threads of a block are varied, too. "
            "Tables are written as it goes on, so that nothing is lost where it is interrupted."
        ),
    )
    command.add_argument(
        "--backend", action="append", default=[], metavar="NAME", help="only this one; repeatable"
    )
    command.add_argument(
        "--study", action="append", default=[], choices=STUDIES, help="only this one; repeatable"
    )
    command.add_argument(
        "--operators", type=_operators, default=tuple(OPERATORS), metavar="NAME,...",
        help=f"default: {','.join(OPERATORS)}",
    )  # fmt: skip
    command.add_argument(
        "--threads-per-block", type=_blocks, nargs="?", const=THREADS, default=(),
        metavar="N,...",
        help="of a GPU, multiples of 32 (default: 32,64,...,1024, left out without a GPU)",
    )  # fmt: skip
    for name, default, about in (
        ("sizes", SIZES, "rows and columns of the matrices"),
        ("widths", WIDTHS, "of the network's layers"),
    ):
        command.add_argument(
            f"--{name}", type=_numbers, default=default, metavar="N,...",
            help=f"{about} (default: {','.join(map(str, default))})",
        )  # fmt: skip
    command.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    command.add_argument(
        "--output", type=_folder, default=Path(), metavar="DIR",
        help="folder of tables and pictures (default: the current one)",
    )  # fmt: skip
    command.add_argument(
        "--seconds", type=_seconds, metavar="N",
        help="for measuring; what does not fit is repeated less or left out (default: 50, with a "
        "GPU 80)",
    )  # fmt: skip
    command.add_argument(
        "--redraw", type=Path, metavar="FILE",
        help="make tables and pictures of such a bench.json, and measure nothing",
    )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m adarray", description="Gradients of plain NumPy code."
    )
    parser.add_argument("--version", action="version", version=f"adarray {adarray.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    commands.add_parser(
        "info",
        help="show versions, backends and what they need, compilers, threads, SIMD",
        description="Show versions, backends, compilers, threads, SIMD and cache.",
    )
    command = commands.add_parser(
        "cache",
        help="show or empty the cache of kernels that jit compiled",
        description=(
            "Show where the kernels that jit compiled are kept, how many there are and how much "
            "room they take. The environment variable ADARRAY_CACHE_DIR names another folder."
        ),
    )
    command.add_argument("--clear", action="store_true", help="remove them")
    show = commands.add_parser(
        "demo",
        help="train a plain NumPy network on every backend, compare them, draw a picture",
        description=(
            "Train a three-layer network, written in plain NumPy, to read handwritten digits, on "
            "every backend in turn, then with compiled gradients. The environment variable "
            "ADARRAY_DATA names a folder with mnist/mnist.npz, if MNIST is to be learned instead "
            "of the small set shipped here."
        ),
    )
    show.add_argument(
        "--backend",
        action="append",
        default=[],
        metavar="NAME",
        help=f"only this one; may be repeated (installed: {', '.join(adarray.backends())})",
    )
    show.add_argument(
        "--epochs", type=_positive, metavar="N", help="passes over the data (default: 40, MNIST 5)"
    )
    show.add_argument(
        "--hidden", type=_positive, default=64, metavar="N", help="units a layer (default: 64)"
    )
    show.add_argument(
        "--output",
        type=_folder,
        default=Path(),
        metavar="DIR",
        help="folder of the picture (default: the current one)",
    )
    show.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of weights and batches (default: 0)"
    )
    _add_bench(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return _run(parser, options)
    except KeyboardInterrupt:
        print(f"\n{options.command}: interrupted", file=sys.stderr)
        return 130  # as shells have it


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Run the command that was given, or show what there is."""
    if options.command == "info":
        return info()
    if options.command == "cache":
        return cache(options.clear)
    if options.command == "demo":
        return demo(
            DemoOptions(
                tuple(options.backend), options.epochs, options.hidden, options.output, options.seed
            )
        )
    if options.command == "bench":
        return bench(BenchOptions(
            tuple(options.backend), tuple(options.study), options.operators,
            options.threads_per_block, options.sizes, options.widths, options.dtype,
            options.output, options.seconds, options.redraw,
        ))  # fmt: skip
    parser.print_help()
    return 0


if __name__ == "__main__":
    sys.exit(main())
